"""Capabilities of servers kept on disk, so that each server is probed once.

There is a file for each url, model and mode. A file is used for a week at most. The file is dropped where the server
states another version, or refuses a call that the capabilities promise. If a server states no version, another context
or owner of the model counts as another version.
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

from tts._core.logs import get_logger
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.http import roots
from tts.errors import ConfigError, quote, unknown_name
from tts.models.user_files import cache_file, write_whole

LOG = get_logger("tts.servers")
_MOST_AGE_S = 7 * 86400.0
_FORMAT = 6  # raised whenever probes look for other capabilities
_NOT_DECLARED = ("model", "served", "version", "owner", "seed_note", "filter_note", "thought_note", "picture_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCapabilities:
    """A file that keeps the capabilities that a probe found of a model on a server.

    Args:
        path: The path of the file, which may be missing: `read` then returns None.
    """

    path: Path

    @classmethod
    def of(
        cls, url: str, model: str, mode: str, query: tuple[tuple[str, str], ...] = (), extra: str = ""
    ) -> KeptCapabilities:
        """Return the file for a model on a server.

        Two spellings of a url have one file.

        Args:
            url: The url of the server.
            model: The name of the model; "": the only model that is served.
            mode: The requested mode.
            query: The query of each request's url.
            extra: Further members of every request, as JSON; "": none.
        """
        base_url = re.sub(r"^(https?://)localhost(?=[:/]|$)", r"\g<1>127.0.0.1", roots(url)[0])
        selection = json.dumps([_FORMAT, base_url, model, mode, query, extra])
        name = hashlib.sha256(selection.encode()).hexdigest()[:24]
        return cls(path=cache_file(f"servers/{name}.json"))

    def read(self) -> Capabilities | None:
        """Return the capabilities; None where the file is missing, too old, or damaged."""
        try:
            stored: Any = json.loads(self.path.read_text(encoding="utf-8"))
            if not 0 <= time.time() - stored["probed_at"] <= _MOST_AGE_S:
                return None
            return capabilities_from(stored["capabilities"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError, ConfigError):
            return None

    def write(self, capabilities: Capabilities) -> bool:
        """Write capabilities with the current time, and return whether the file could be written."""
        stored = {"probed_at": time.time(), "capabilities": dataclasses.asdict(capabilities)}
        try:
            write_whole(self.path, json.dumps(stored, indent=1) + "\n")
        except OSError as failure:
            LOG.warning(
                "what the server %s can do cannot be kept in %s: %s", capabilities.root, self.path, failure.strerror
            )
            return False
        return True

    def drop(self, why: str) -> None:
        """Remove the file, so that the server is probed again.

        Args:
            why: The reason in one line, for the log.
        """
        if self.path.exists():
            LOG.warning("%s; what was kept about it is dropped, and it is probed again", why)
            with suppress(OSError):
                self.path.unlink()


def capabilities_from(given: dict[str, Any]) -> Capabilities:
    """Return capabilities from plain values.

    Args:
        given: The values, by the names of fields of `Capabilities`.

    Raises:
        ConfigError: A name is unknown, or a value is not valid.
    """
    from pydantic import TypeAdapter, ValidationError

    names = {field.name for field in dataclasses.fields(Capabilities)}
    for name in given:
        if name not in names:
            raise unknown_name("capability", name, names)
    try:
        return TypeAdapter(Capabilities).validate_python(given)
    except ValidationError as failure:
        error = failure.errors(include_url=False)[0]
        path = ".".join(map(str, error["loc"]))
        rule = error["msg"][:1].lower() + error["msg"][1:]
        raise ConfigError(f"the capability {path} is {quote(error['input'])}, but {rule}") from None


def declared_capabilities(root: str, model: str, given: dict[str, Any]) -> Capabilities:
    """Return the capabilities that a record declares, in addition to plain chat.

    Args:
        root: The base url of the API.
        model: The name of the model.
        given: The declared values, by the names of fields of `Capabilities`.

    Raises:
        ConfigError: A name is unknown, a value is not valid, or a record may not declare a capability.
    """
    for name in given:
        if name in _NOT_DECLARED:
            raise ConfigError(f"the capability {name} cannot be declared", hint="leave it out")
    neutral = given.get("neutral", ())
    if isinstance(neutral, str):
        neutral = tuple(sorted(json.loads(neutral).items()))
    return capabilities_from({"root": root, "model": model, "mode": "chat", **given, "neutral": neutral})
