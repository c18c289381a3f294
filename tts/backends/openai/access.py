"""Access to a model on a server: the url, name and key of its record, and its capabilities.

The capabilities are declared in the record, or probed now.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tts.backends.openai.capabilities import Capabilities, Mode, declared_capabilities
from tts.backends.openai.errors import Key
from tts.backends.openai.http import Timeouts, check_positive, roots
from tts.backends.openai.probe import LOG, probe_server
from tts.backends.openai.prompt import extra_members
from tts.backends.openai.reaching import PROBE_TIMEOUT_S, reach_model, run_apart
from tts.errors import ConfigError, EngineError, TTSError
from tts.models.registry import ModelRecord

Probe = Literal["always", "never"]
MOST_PROBE_S = 300.0  # as long as the timeout of a reply's first event


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """A model on a server, as its record describes it.

    Args:
        url: The url of the server.
        model: The model's name on the server; "": the only model that is served.
        key: The API key, sent with each request.
        mode: The mode of calls; "auto": the best one that works.
        timeout_s: The most seconds until a reply begins.
        probe: Whether the server is probed. "never": assume plain chat.
        probe_s: Most seconds of a probe.
        declared: Capabilities that the record states. If there are any, nothing is probed.
        extra: Further members of every request, as JSON; "": none.
        others: Urls of further servers of the same model. If the first server cannot be used at the start, the next
            one is tried.
    """

    url: str
    model: str
    key: Key
    mode: Mode | Literal["auto"] = "auto"
    timeout_s: float = PROBE_TIMEOUT_S
    probe: Probe = "always"
    probe_s: float = MOST_PROBE_S
    declared: tuple[tuple[str, Any], ...] = ()
    extra: str = ""
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: ModelRecord, options: Mapping[str, Any] | None = None) -> ServerAccess:
        """Return the access that a record describes.

        Args:
            record: The record of the model.
            options: Options of the backend; None: the record's options.

        Raises:
            ConfigError: There is no url, the key or `probe` is not valid, or batches do not take the mode.
        """
        if record.url is None:
            raise ConfigError(
                f"the backend 'openai' calls a server, but the model {record.name!r} has no url",
                hint="give one: --url http://localhost:8000, or url= in solve and in the record",
            )
        options = dict(record.options) if options is None else options
        mode, probe = options.get("mode", "auto"), options.get("probe", "always")
        if options.get("batch"):
            mode = _batch_mode(mode)
        if probe not in get_args(Probe):
            raise ConfigError(f"probe is {probe!r}, but must be {' or '.join(get_args(Probe))}")
        probe_s = options.get("probe_s", MOST_PROBE_S)
        check_positive("probe_s", probe_s)
        extra = extra_members(
            options.get("extra_body", ""),
            options.get("reasoning_effort", ""),
            options.get("chat_template_kwargs", ""),
        )
        key = Key.find(options.get("key_variable", ""), options.get("key_file", ""))
        return cls(
            url=record.url.strip(),
            model=str(options.get("served_as") or record.name),
            key=key.with_parameters(record.headers, record.query),
            mode=mode,
            timeout_s=min(options.get("connect_s", Timeouts().connect_s), PROBE_TIMEOUT_S),
            probe=probe,
            probe_s=probe_s,
            declared=record.capabilities,
            extra=json.dumps(extra, sort_keys=True) if extra else "",
            others=_following(record.url.strip(), record.replicas),
        )

    def only_model(self) -> str:
        """Return the name of the model.

        If the access names no model, the name of the only served model is returned.

        Raises:
            ConfigError: See `tts.backends.openai.reaching.reach_model`.
        """
        return self.model or run_apart(self._only_model())

    async def _only_model(self) -> str:
        http, entry, _served_names = await reach_model(self.url, "", self.key, self.timeout_s)
        await http.close()
        return entry["id"]

    def capabilities(self) -> Capabilities:
        """Return the capabilities of the first server that can be used, and log the cost of a probe.

        Raises:
            ConfigError: The first server fails as in `tts.backends.openai.probe.probe_server`, or a declared capability
                is not valid.
        """
        if self.declared or self.probe == "never":
            values: dict[str, Any] = {"extra": self.extra}
            if self.mode != "auto":
                values["mode"] = self.mode
            values |= dict(self.declared)
            return declared_capabilities(roots(self.url)[0], self.model, values)
        first_failure: TTSError | None = None
        for url in (self.url, *self.others):
            try:
                return dataclasses.replace(self, url=url).probe_url(self.probe_s)
            except (ConfigError, EngineError) as failure:
                if not self.others:
                    raise
                LOG.warning("%s cannot be used now, and its calls go to the next server: %s", url, failure.cause)
                first_failure = first_failure or failure
        assert first_failure is not None, "there is a server"  # `self.url` at least
        raise first_failure

    def probe_url(self, most_s: float) -> Capabilities:
        """Return the capabilities that a probe of the server at `url` finds.

        Args:
            most_s: The most seconds of the probe.

        Raises:
            ConfigError: See `tts.backends.openai.probe.probe_server`.
        """
        return probe_server(self.url, self.model, self.key, self.mode, self.timeout_s, self.extra, most_s)

    def other_roots(self, root: str) -> tuple[str, ...]:
        """Return the base urls of the other servers, with "/v1" if `root` ends with it.

        Args:
            root: The base url of the server that is left out.
        """
        index = 0 if root.endswith("/v1") else -1  # `roots` has the url with "/v1" first, and the url itself last
        all_roots = [roots(url)[index] for url in (self.url, *self.others)]
        return tuple(other_root for other_root in all_roots if other_root != root)


def _batch_mode(mode: str) -> Any:
    """Return the mode in which batches call a model: "chat" for "auto", otherwise the requested mode.

    Raises:
        ConfigError: The mode is "tokens", which batches cannot have, since the server must give the token ids first.
    """
    if mode == "tokens":
        raise ConfigError(
            "mode is 'tokens', but batches take texts", hint="give mode=chat, or mode=text for completions"
        )
    return "chat" if mode == "auto" else mode


def _following(url: str, replicas: Sequence[str]) -> tuple[str, ...]:
    """Return the other urls of a list, starting after `url`, so that each server fails over to another server."""
    urls = {roots(replica)[0]: replica.strip() for replica in replicas}
    all_roots, own_root = list(urls), roots(url)[0]
    num_before = all_roots.index(own_root) + 1 if own_root in urls else 0  # the own root included
    following_roots = (*all_roots[num_before:], *all_roots[:num_before])
    return tuple(urls[root] for root in following_roots if root != own_root)
