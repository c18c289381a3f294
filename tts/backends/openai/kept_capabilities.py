"""Capabilities of servers kept on disk, so that each server is probed once.

There is a file for each url, model and mode. They are used for a week at most. They are dropped where the server states
another version, or refuses what they promise. Where it states none, another context or owner of the model counts as
another version.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.http import roots
from tts.errors import ConfigError, quote, unknown_name
from tts.logs import get_logger
from tts.models.user_files import cache_file, write_whole

LOG = get_logger("tts.servers")
_MOST_AGE_S = 7 * 86400.0
_FORMAT = 6  # raised when probes find other things
_NOT_DECLARED = ("model", "served", "version", "owner", "seed_note", "filter_note", "thought_note", "picture_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCapabilities:
    """A file that keeps what a probe found out about a model on a server.

    Args:
        path: The path of the file, which may be missing: `read` then returns None.
    """

    path: Path

    @classmethod
    def of(
        cls, url: str, model: str, mode: str, query: tuple[tuple[str, str], ...] = (), extra: str = ""
    ) -> KeptCapabilities:
        """Return the file for a url, a model there, and the requested mode.

        The further members of every request belong to it too. Two spellings of a url have one file.
        """
        place = re.sub(r"^(https?://)localhost(?=[:/]|$)", r"\g<1>127.0.0.1", roots(url)[0])
        name = hashlib.sha256(json.dumps([_FORMAT, place, model, mode, query, extra]).encode()).hexdigest()[:24]
        return cls(path=cache_file(f"servers/{name}.json"))

    def read(self) -> Capabilities | None:
        """Return the capabilities; None where there are none, they are too old, or the file is damaged."""
        try:
            told: Any = json.loads(self.path.read_text(encoding="utf-8"))
            if not 0 <= time.time() - told["probed_at"] <= _MOST_AGE_S:
                return None
            return capabilities_from(told["capabilities"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError, ConfigError):
            return None

    def write(self, capabilities: Capabilities) -> bool:
        """Write capabilities with the time; return whether that could be done."""
        told = {"probed_at": time.time(), "capabilities": dataclasses.asdict(capabilities)}
        try:
            write_whole(self.path, json.dumps(told, indent=1) + "\n")
        except OSError as failure:
            LOG.warning(
                "what the server %s can do cannot be kept in %s: %s", capabilities.root, self.path, failure.strerror
            )
            return False
        return True

    def drop(self, why: str) -> None:
        """Remove the file, so that the server is probed again; `why`: one line."""
        if self.path.exists():
            LOG.warning("%s; what was kept about it is dropped, and it is probed again", why)
            with suppress(OSError):
                self.path.unlink()


def capabilities_from(given: dict[str, Any]) -> Capabilities:
    """Return capabilities from plain values.

    Raises:
        ConfigError: a name is unknown, or a value is not valid.
    """
    from pydantic import TypeAdapter, ValidationError

    known = {field.name for field in dataclasses.fields(Capabilities)}
    for name in given:
        if name not in known:
            raise unknown_name("capability", name, known)
    try:
        return TypeAdapter(Capabilities).validate_python(given)
    except ValidationError as failure:
        fault = failure.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise ConfigError(
            f"the capability {where} is {quote(fault['input'])}, but {fault['msg'][:1].lower()}{fault['msg'][1:]}"
        ) from None


def declared_capabilities(root: str, model: str, given: dict[str, Any]) -> Capabilities:
    """Return the capabilities that a record declares: plain chat, and what it names.

    Raises:
        ConfigError: as `capabilities_from`, or one is stated by the server alone.
    """
    for name in given:
        if name in _NOT_DECLARED:
            raise ConfigError(f"the capability {name} cannot be declared", hint="leave it out")
    neutral = given.get("neutral", ())
    if isinstance(neutral, str):
        neutral = tuple(sorted(json.loads(neutral).items()))
    plain = {"root": root, "model": model, "mode": "chat", **given, "neutral": neutral}
    return capabilities_from(plain)
