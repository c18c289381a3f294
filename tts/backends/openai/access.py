"""Access to a model on a server: the url, name and key of its record, and its capabilities.

The capabilities are declared in the record, kept on disk, or probed now.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tts.backends.openai.capabilities import Capabilities, Mode
from tts.backends.openai.errors import Key
from tts.backends.openai.http import Timeouts, check_positive, roots
from tts.backends.openai.kept_capabilities import LOG, KeptCapabilities, declared_capabilities
from tts.backends.openai.probe import ProbeCost, probe_server
from tts.backends.openai.prompt import extra_members
from tts.backends.openai.reaching import PROBE_TIMEOUT_S, check_reachable, reach_model
from tts.errors import ConfigError, EngineError, TTSError
from tts.models.registry import ModelRecord

Probe = Literal["kept", "new", "never"]
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
        probe: The condition of a probe. "kept": probe unless capabilities are kept on disk; "new": probe in any case;
            "never": assume plain chat.
        query: The query of each request's url, as the record has it.
        others: Urls of further servers of the same model. If the first server cannot be used at the start, the next
            one is tried.
        probe_s: Most seconds of a probe.
        declared: Capabilities that the record states. If there are any, nothing is probed.
        extra: Further members of every request, as JSON; "": none.
    """

    url: str
    model: str
    key: Key
    mode: Mode | Literal["auto"] = "auto"
    timeout_s: float = PROBE_TIMEOUT_S
    probe: Probe = "kept"
    probe_s: float = MOST_PROBE_S
    declared: tuple[tuple[str, Any], ...] = ()
    extra: str = ""
    query: tuple[tuple[str, str], ...] = ()
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
        mode, probe = options.get("mode", "auto"), options.get("probe", "kept")
        if options.get("batch"):
            mode = _batch_mode(mode)
        if probe not in get_args(Probe):
            raise ConfigError(f"probe is {probe!r}, but must be {', '.join(get_args(Probe))}")
        check_positive("probe_s", options.get("probe_s", MOST_PROBE_S))
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
            probe_s=options.get("probe_s", MOST_PROBE_S),
            declared=record.capabilities,
            query=record.query,
            others=_following(record.url.strip(), record.replicas),
            extra=json.dumps(extra, sort_keys=True) if extra else "",
        )

    @property
    def kept(self) -> KeptCapabilities:
        """The file that keeps the server's capabilities."""
        return KeptCapabilities.of(self.url, self.model, self.mode, self.query, self.extra)

    def only_model(self) -> str:
        """Return the name of the model.

        If the access names no model, the name of the only served model is returned.

        Raises:
            ConfigError: See `tts.backends.openai.reaching.reach_model`.
        """
        if self.model:
            return self.model
        client, entry, _served_names = reach_model(self.url, "", self.key, self.timeout_s)
        client.close()
        return entry["id"]

    def capabilities(self) -> Capabilities:
        """Return the capabilities of the first server that can be used, and log the cost of a probe.

        Raises:
            ConfigError: The first server fails as in `tts.backends.openai.probe.probe_server`, or a declared capability
                is not valid.
        """
        first_failure: TTSError | None = None
        for url in (self.url, *self.others):
            try:
                return dataclasses.replace(self, url=url, others=())._own_capabilities()
            except (ConfigError, EngineError) as failure:
                if not self.others:
                    raise
                LOG.warning("%s cannot be used now, and its calls go to the next server: %s", url, failure.cause)
                first_failure = first_failure or failure
        assert first_failure is not None, "there is a server"  # `self.url` at least
        raise first_failure

    def other_roots(self, root: str) -> tuple[str, ...]:
        """Return the base urls of the other servers, with "/v1" if `root` ends with it.

        Args:
            root: The base url of the server that is left out.
        """
        index = 0 if root.endswith("/v1") else -1  # `roots` has the url with "/v1" first, and the url itself last
        all_roots = [roots(url)[index] for url in (self.url, *self.others)]
        return tuple(other_root for other_root in all_roots if other_root != root)

    def _own_capabilities(self) -> Capabilities:
        """Return the capabilities of the server at `url`: declared, kept, or probed."""
        if self.declared or self.probe == "never":
            values: dict[str, Any] = {"extra": self.extra}
            if self.mode != "auto":
                values["mode"] = self.mode
            values |= dict(self.declared)
            return declared_capabilities(roots(self.url)[0], self.model, values)
        stored = self._keep_capabilities() if self.probe == "kept" else None
        if stored is not None:
            timeout_s = min(self.timeout_s, max(0.5, self.probe_s))
            if check_reachable(stored, self.url, self.key, timeout_s):
                return stored
            self.kept.drop(f"{self.url} has another version, list of models or context than when it was probed")
        return self.probe_anew(self.probe_s)

    def _keep_capabilities(self) -> Capabilities | None:
        """Return the capabilities of the model that are kept on disk; None where none are.

        If the access names no model, the server's only model is looked up under its name, too.
        """
        stored = self.kept.read()
        if stored is not None or self.model:
            return stored
        return dataclasses.replace(self, model=self.only_model()).kept.read()

    def _note_probe(self) -> None:
        LOG.info("probing %s: what it can do is asked once, and kept for a week", self.url)

    def probe_anew(self, most_s: float = math.inf) -> Capabilities:
        """Return the capabilities that a new probe finds.

        The capabilities are kept on disk, unless the time limit stopped the probe.

        Args:
            most_s: The most seconds of the probe.

        Raises:
            ConfigError: See `tts.backends.openai.probe.probe_server`.
        """
        costs: list[ProbeCost] = []
        try:
            capabilities = probe_server(
                self.url,
                self.model,
                self.key,
                mode=self.mode,
                timeout_s=self.timeout_s,
                told=costs.append,
                extra=self.extra,
                most_s=most_s,
                begun=self._note_probe,
            )
        finally:
            for cost in costs:
                LOG.info("probed %s: %s", self.url, cost)
        if costs[0].whole:
            self.kept.write(capabilities)
            if not self.model:  # a later caller who names the only model need not wait again
                dataclasses.replace(self, model=capabilities.model).kept.write(capabilities)
        else:
            LOG.warning(
                "the probe of %s was stopped after %.1f s, its time limit: what it had not found by then is not used; "
                "tts doctor --url probes without a limit, and keeps what it finds",
                self.url,
                costs[0].seconds,
            )
        return capabilities


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
