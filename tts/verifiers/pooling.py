"""A reward model behind HTTP: a vLLM server that pools, asked for the outputs of its head at every token."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Counters, Reply
from tts.backends.openai_fault import Fault, Key, broken, fault_of
from tts.backends.openai_http import checks
from tts.budget import Rates
from tts.errors import ConfigError, VerifierError, shown
from tts.verifiers.base import Calls
from tts.verifiers.reward_head import activated, among
from tts.verifiers.reward_reader import Reader, Reading
from tts.verifiers.reward_record import Head, RewardRecord

Floats = NDArray[np.float64]

KEY_VARIABLE = "TTS_REWARD_KEY"  # of its own: that of the policy's server is no other server's business
_HOW_KEY = f"put the server's key into the environment variable {KEY_VARIABLE}"
_NOT_TAKEN = ("ConnectionFailed", "RateLimited", "Unavailable")  # the server took nothing on: worth another try, and nothing to pay
# vLLM's names of models whose output layer is cut to a few tokens
_CLASSIFIERS = {
    "llama": "LlamaForSequenceClassification",
    "mistral": "MistralForSequenceClassification",
    "qwen2": "Qwen2ForSequenceClassification",
    "qwen3": "Qwen3ForSequenceClassification",
}
NO_TIME = "no scores in the time that is left"
_WAIT_S = 0.25  # before the first try again, doubled each time


@dataclass(frozen=True, kw_only=True)
class PoolingServer:
    """Where a reward model is served, and how long it is waited for.

    Args:
        url: of the server, without a path; its key, if it wants one, stands in the environment variable TTS_REWARD_KEY.
        model: its name there; None: the record's.
        timeout_s: for one request, above 0. tries: at most, while the server takes nothing on (no connection, 425, 429, 503).
        batch: most paths in one request.

    Raises:
        ConfigError: a value is not valid.
    """

    url: str
    model: str | None = None
    timeout_s: float = 60.0
    tries: int = 3
    batch: int = 64

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"url is {shown(self.url)}, but must begin with http:// or https://", hint="for example http://localhost:8000"
            )
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise ConfigError(f"timeout_s is {self.timeout_s}, but must be seconds above 0")
        for name in ("tries", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but must be at least 1")


class Pooled(ABC):
    """A reward model that is asked for the outputs of whole paths, before any activation: a row of them for every token that it tells of.

    Args:
        reader: of its record. where: what runs it, for errors. batch: most paths asked about at once.

    Attributes:
        failures: requests without scores, by kind.
    """

    incremental = False

    def __init__(self, reader: Reader, where: str, batch: int) -> None:
        self.reader = reader
        self.where = where
        self.batch = batch
        flops = reader.record.parameters
        self.rates = Rates(flops=None if flops is None else 2 * flops)
        self.counters = Counters()
        self.failures: Counter[str] = Counter()
        readout = reader.record.readout
        self.outputs = readout.outputs if isinstance(readout, Head) else len(reader.labels)

    def session(self) -> PoolingSession:
        """Return a session; there is nothing to remember in it."""
        return PoolingSession(self)

    @abstractmethod
    async def ask(self, readings: Sequence[Reading], seconds: float | None) -> list[tuple[float, ...]]:
        """Return the scores of some paths.

        Args:
            seconds: that are left of a budget; None: not limited.

        Raises:
            Fault: they could not be had, in a way that is no mistake of the caller's; `again`: nothing was computed.
            VerifierError: what runs it was never reached, refuses, or answers in another form.
        """

    def scores(self, rows: Floats, reading: Reading) -> tuple[float, ...]:
        """Return the scores in the outputs for one path: one row of them for every token, every step token, or the last token."""
        if not rows.size:
            rows = rows.reshape(0, self.outputs)
        elif self.outputs == 1 and rows.shape == (1, len(reading.ids)):
            rows = rows.T  # a server that gives one number a token may leave out the rows
        positions = sorted({at for at in reading.at if at is not None})
        if rows.shape[1:] != (self.outputs,):
            raise self.other(f"outputs of shape {rows.shape} for {len(reading.ids)} tokens, where each row must have {self.outputs}")
        if self.reader.record.kind == "outcome" and len(rows):
            wanted = [-1]
        elif len(rows) == len(reading.ids):
            wanted = positions
        else:
            tags = [i for i, token in enumerate(reading.ids) if token == reading.ids[positions[-1]]]
            if len(rows) != len(tags) or not set(positions) <= set(tags):
                raise self.other(f"{len(rows)} rows for {len(reading.ids)} tokens, of which {len(tags)} are step tokens")
            wanted = [tags.index(at) for at in positions]
        readout = self.reader.record.readout
        return tuple(activated(rows[at], readout) if isinstance(readout, Head) else among(rows[at]) for at in wanted)

    def other(self, what: str) -> VerifierError:
        """Return the error of an answer in another form."""
        return VerifierError(f"{self.where} answered {what}", hint=how_served(self.reader.record))


class PoolingModel(Pooled):
    """A reward model on a server of vLLM in its pooling mode.

    Idea: the server is sent token ids, so that its own tokenizer and template decide nothing, and asked for outputs before any
        activation, so that its defaults decide nothing either. A process model is asked at /pooling (task token_classify), which
        answers a row of outputs for every token, or for every step token where the server was told one; an outcome model is asked
        at /classify, which answers a row for the last token. A reply that is of another form is refused, with how to start the server.
    Accounting: a path is computed whole for every score; the server may reuse prefixes, which costs the same here. A request that
        timed out, or that the server failed in (5xx but 503), is charged in full, as an estimate; one that it took nothing on of costs
        nothing. In both cases the scores stay unknown, and solutions count the paths by the kind of failure. A server that has not
        answered once and cannot be reached is taken for a mistake.

    Args:
        reader: of its record. server: where it is.
    """

    def __init__(self, reader: Reader, server: PoolingServer) -> None:
        super().__init__(reader, f"the server {server.url}", server.batch)
        self.server = server
        self._answered = False
        self._key = Key.find(KEY_VARIABLE) if os.environ.get(KEY_VARIABLE) else Key()

    async def ask(self, readings: Sequence[Reading], seconds: float | None) -> list[tuple[float, ...]]:
        """Return the scores of some paths by one request; see `Pooled.ask`."""
        outcome = self.reader.record.kind == "outcome"
        body: dict[str, Any] = {"model": self.server.model or self.reader.record.model, "input": [list(r.ids) for r in readings]}
        body |= {"use_activation": False} if outcome else {"task": "token_classify", "use_activation": False, "encoding_format": "float"}
        try:
            async with asyncio.timeout(seconds):
                reply = await self._post("/classify" if outcome else "/pooling", body)
        except TimeoutError:
            raise Fault("TimedOut", NO_TIME) from None
        except Fault as fault:
            if fault.kind == "Refused":
                raise VerifierError(
                    f"{self.where} refused a request for {body['model']!r} with {fault.cause}",
                    hint=_HOW_KEY if fault.status in (401, 403) else how_served(self.reader.record),
                ) from None
            if fault.kind == "CertificateError" or (fault.kind == "ConnectionFailed" and not self._answered):
                raise VerifierError(f"{self.where} cannot be reached: {fault.cause}", hint=how_served(self.reader.record)) from None
            raise
        return self._read(reply, readings)

    async def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request, again while the server takes nothing on.

        Raises:
            Fault: there is no reply, or one with another status than 200. ConfigError: `checks`.
        """
        trusted = checks(self.server.url)
        async with httpx.AsyncClient(timeout=self.server.timeout_s, headers=self._key.headers, verify=trusted) as client:
            for tried in range(self.server.tries):
                try:
                    return await self._once(client, path, body)
                except Fault as fault:
                    if not fault.again or tried + 1 == self.server.tries:
                        raise
                await asyncio.sleep(_WAIT_S * 2**tried)
        raise AssertionError("the last try returns or raises")

    async def _once(self, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
        try:
            reply = await client.post(self.server.url.rstrip("/") + path, json=body)
        except httpx.TransportError as failure:
            waited = isinstance(failure, httpx.TimeoutException) and not isinstance(failure, httpx.ConnectTimeout)
            fault = Fault("TimedOut", "no word in time") if waited else broken(failure, self._key, began=True)
        except httpx.DecodingError as failure:
            fault = Fault("BadReply", f"its encoding is broken: {failure}").hiding(self._key)
        else:
            self._answered = True
            if reply.status_code == 200:
                return reply
            fault = fault_of(reply.status_code, reply.content, 0.0, self._key)
        fault.again = fault.kind in _NOT_TAKEN  # of all else nobody knows what was computed
        raise fault

    def _read(self, reply: httpx.Response, readings: Sequence[Reading]) -> list[tuple[float, ...]]:
        """Return the scores in a reply.

        Raises:
            VerifierError: it is of another form than that of vLLM's endpoints, or about other tokens.
        """
        try:
            said = reply.json()
            data = sorted(said["data"], key=lambda one: one["index"])
            rows = [np.atleast_2d(np.asarray(one["probs"] if "probs" in one else one["data"], np.float64)) for one in data]
            read = int(said["usage"]["prompt_tokens"])
        except (ValueError, TypeError, KeyError) as failure:
            raise self.other(f"what cannot be read ({type(failure).__name__}: {failure})") from None
        sent = sum(len(r.ids) for r in readings)
        if len(rows) != len(readings) or read != sent:
            raise self.other(f"about {len(rows)} texts of {read} tokens, where {len(readings)} of {sent} were sent")
        return [self.scores(found, reading) for found, reading in zip(rows, readings, strict=True)]


def how_served(record: RewardRecord) -> str:
    """Return how a server of a reward model is started."""
    overrides, pooler = pooling_settings(record)
    command = f"vllm serve {record.model} --runner pooling"
    if not overrides:
        return command
    return f"{command} --hf-overrides '{json.dumps(overrides, ensure_ascii=False)}' --pooler-config '{json.dumps(pooler)}'"


def pooling_settings(record: RewardRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return vLLM's overrides of a model's configuration, and its pooler's; models with a head of their own need none."""
    if isinstance(record.readout, Head):
        return {}, {}
    labels = (record.readout.good, *record.readout.bad)
    known = _CLASSIFIERS.get(record.architecture, "…ForSequenceClassification")
    overrides = {"architectures": [known], "classifier_from_token": labels, "method": "no_post_processing"}
    return overrides, {"task": pooling_task(record)}


def pooling_task(record: RewardRecord) -> str:
    """Return what vLLM is asked for: outputs of the last token, or of all."""
    return "classify" if record.kind == "outcome" else "token_classify"


class PoolingSession:
    """Asks about the whole paths of one search."""

    def __init__(self, model: Pooled) -> None:
        self._model = model

    def cost(self, reading: Reading) -> tuple[int, int]:
        """Return 0 and all tokens: a prompt is read again with every path."""
        return 0, len(reading.ids)

    async def scores(self, readings: Sequence[Reading], calls: Calls) -> list[tuple[float, ...]]:
        """Return the score at each position that is read, of each path; unknown where the budget's time or the server failed."""
        asked = [i for i, reading in enumerate(readings) if reading.ids]
        scores: list[tuple[float, ...]] = [(math.nan,) * len(reading.pieces) for reading in readings]
        for start in range(0, len(asked), self._model.batch):
            some = asked[start : start + self._model.batch]
            left = calls.seconds_left()
            if left is not None and left <= 0:
                break
            for i, score in zip(some, await self._ask([readings[i] for i in some], left, calls), strict=False):
                scores[i] = score
        return scores

    async def _ask(self, readings: Sequence[Reading], left: float | None, calls: Calls) -> list[tuple[float, ...]]:
        """Return the scores of some paths; of none where what runs the model failed, which is told."""
        began = time.perf_counter()
        found, fault = list[tuple[float, ...]](), None
        try:
            found = await self._model.ask(readings, left)
        except Fault as failed:
            fault = failed
            self._model.failures[fault.kind] += 1
            calls.failed(str(fault), len(readings))
        if fault is None or not fault.again:
            seconds = (time.perf_counter() - began) / len(readings)
            self._model.counters.prompt_tokens += sum(len(reading.ids) for reading in readings)
            calls.charge([Reply(None, len(reading.ids), 0, seconds) for reading in readings], estimated=fault is not None)
        return found
