"""Reward models on a vLLM server in pooling mode.

Such a server returns the outputs of the head for every token.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Counters, Reply
from tts.backends.openai.errors import Key, ServerError, call_error, status_error
from tts.backends.openai.http import checks
from tts.errors import ConfigError, VerifierError, quote
from tts.verifiers.base import Calls
from tts.verifiers.reward.head import activate, first_label_probability
from tts.verifiers.reward.record import Head, RewardRecord
from tts.verifiers.reward.renderer import RenderedSolution, SolutionRenderer

Floats = NDArray[np.float64]

KEY_VARIABLE = "TTS_REWARD_KEY"  # a separate variable: the key of the policy's server is not sent to other servers
_HOW_KEY = f"put the server's key into the environment variable {KEY_VARIABLE}"
# failures of requests that the server did not accept; these are retried, and not charged
_NOT_TAKEN = ("ConnectionFailed", "RateLimited", "Unavailable")
_LEAST_OUTPUTS = 8  # outputs that all lie within [0, 1] are taken for probabilities
# vLLM's names of models whose output layer is reduced to a few tokens
_CLASSIFIERS = {
    "llama": "LlamaForSequenceClassification",
    "mistral": "MistralForSequenceClassification",
    "qwen2": "Qwen2ForSequenceClassification",
    "qwen3": "Qwen3ForSequenceClassification",
}
NO_TIME = "no scores in the time that is left"
_TIMEOUT_S = 60.0  # of a request
_TRIES = 3  # of a request that the server does not accept
_BATCH = 64  # trajectories in a request
_WAIT_S = 0.25  # before the first retry; doubled before each later retry


@dataclass(frozen=True, kw_only=True)
class PoolingServer:
    """The server of a reward model.

    Args:
        url: The url of the server, without a path; the environment variable TTS_REWARD_KEY has its key, if it needs
            one.
        model: The model's name on the server; None: the record's model.
    """

    url: str
    model: str | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"url is {quote(self.url)}, but must begin with http:// or https://",
                hint="for example http://localhost:8000",
            )


class Pooled(ABC):
    """A reward model that reads whole trajectories.

    It returns the outputs of its head before any activation.

    Args:
        renderer: The renderer of its record.
        where: What runs the model, for messages.
        batch: Most trajectories in one request.

    """

    def __init__(self, renderer: SolutionRenderer, where: str, batch: int) -> None:
        self.renderer = renderer
        self.where = where
        self.batch = batch
        self.rates = renderer.record.rates
        self.counters = Counters()
        readout = renderer.record.readout
        self.outputs = readout.outputs if isinstance(readout, Head) else len(renderer.labels)

    def session(self) -> PoolingSession:
        """Return a session; it has no state."""
        return PoolingSession(self)

    @abstractmethod
    async def ask(self, solutions: Sequence[RenderedSolution], seconds: float | None) -> list[tuple[float, ...]]:
        """Return the scores of solutions.

        Args:
            solutions: The solutions, rendered as the reward model reads them.
            seconds: The time left of the budget; None: no limit.

        Raises:
            ServerError: the request failed, and the caller is not at fault. Its `again` is True if the server computed
                nothing.
            VerifierError: the server was never reached, refused the request, or replied in an unexpected form.
        """

    def scores(self, rows: Floats, solution: RenderedSolution) -> tuple[float, ...]:
        """Return the scores of one solution from rows of outputs.

        There is one row for every token, for every step token, or for the last token.
        """
        if not rows.size:
            rows = rows.reshape(0, self.outputs)
        elif self.outputs == 1 and rows.shape == (1, len(solution.ids)):
            rows = rows.T  # a server may flatten one output for each token
        if rows.shape[1:] != (self.outputs,):
            raise self.other(
                f"outputs of shape {rows.shape} for {len(solution.ids)} tokens, where each row must have {self.outputs}"
            )
        score_rows = [rows[i] for i in self._row_indices(len(rows), solution)]
        readout = self.renderer.record.readout
        if isinstance(readout, Head):
            return tuple(activate(row, readout) for row in score_rows)
        return tuple(map(first_label_probability, score_rows))

    def _row_indices(self, num_rows: int, solution: RenderedSolution) -> list[int]:
        """Return the index of the row for each position of a solution at which a score is read."""
        positions = sorted({position for position in solution.at if position is not None})
        if self.renderer.record.kind == "outcome" and num_rows:
            return [-1]
        if num_rows == len(solution.ids):
            return positions
        step_token = solution.ids[positions[-1]]
        step_positions = [i for i, token in enumerate(solution.ids) if token == step_token]
        if num_rows != len(step_positions) or not set(positions) <= set(step_positions):
            raise self.other(
                f"{num_rows} rows for {len(solution.ids)} tokens, of which {len(step_positions)} are step tokens"
            )
        return [step_positions.index(position) for position in positions]

    def other(self, what: str) -> VerifierError:
        """Return the error for a reply in an unexpected form."""
        return VerifierError(f"{self.where} answered {what}", hint=server_command(self.renderer.record))


class PoolingModel(Pooled):
    """A reward model on a vLLM server in pooling mode.

    Requests have token ids, so that the server's tokenizer and template are not used, and ask for outputs before any
    activation. A process model is requested at /pooling (task token_classify): one row of outputs for every token, or
    for every step token if the server was started with one. An outcome model is requested at /classify: one row for the
    last token. A reply in any other form is refused with the command that starts the server. So is a server that sends
    probabilities, because it does not know `use_activation` or is set to activate. It is seen from softmax rows of sum
    1, or from `_LEAST_OUTPUTS` outputs that all lie within [0, 1].

    Accounting:
        - A trajectory is charged whole for every score; the server may reuse prefixes, which costs the same here.
        - A request that timed out, or failed with a 5xx status other than 503, is charged in full, as an estimate.
        - A request that the server did not accept costs nothing.
    In the last two cases the scores are NaN, and solutions count the trajectories by kind of failure. A server that was
    never reached raises VerifierError.

    Args:
        renderer: The renderer of its record.
        server: Its address.
    """

    def __init__(self, renderer: SolutionRenderer, server: PoolingServer) -> None:
        super().__init__(renderer, f"the server {server.url}", _BATCH)
        self.server = server
        self._has_answered = False
        self._num_within = 0  # outputs within [0, 1] so far; -1: one lay outside, so none is a probability
        self._key = Key.find(KEY_VARIABLE) if os.environ.get(KEY_VARIABLE) else Key()

    async def ask(self, solutions: Sequence[RenderedSolution], seconds: float | None) -> list[tuple[float, ...]]:
        """Return the scores of solutions by one request; see `Pooled.ask`."""
        body: dict[str, Any] = {
            "model": self.server.model or self.renderer.record.model,
            "input": [list(solution.ids) for solution in solutions],
            "use_activation": False,
        }
        if self.renderer.record.kind == "outcome":
            path = "/classify"
        else:
            path = "/pooling"
            body |= {"task": "token_classify", "encoding_format": "float"}
        try:
            async with asyncio.timeout(seconds):
                reply = await self._post(path, body)
        except TimeoutError:
            raise ServerError("TimedOut", NO_TIME) from None
        except ServerError as fault:
            if fault.kind == "Refused":
                raise VerifierError(
                    f"{self.where} refused a request for {body['model']!r} with {fault.cause}",
                    hint=_HOW_KEY if fault.status in (401, 403) else server_command(self.renderer.record),
                ) from None
            was_never_reached = fault.kind == "ConnectionFailed" and not self._has_answered
            if fault.kind == "CertificateError" or was_never_reached:
                raise VerifierError(
                    f"{self.where} cannot be reached: {fault.cause}", hint=server_command(self.renderer.record)
                ) from None
            raise
        return self._read(reply, solutions)

    async def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request, and retry while the server does not accept it.

        Raises:
            ServerError: there is no reply, or its status is not 200. ConfigError: see `checks`.
        """
        certificates = checks(self.server.url)
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, headers=self._key.headers, verify=certificates) as client:
            for num_failed in range(_TRIES):
                try:
                    return await self._post_once(client, path, body)
                except ServerError as fault:
                    is_last_try = num_failed + 1 == _TRIES
                    if not fault.again or is_last_try:
                        raise
                await asyncio.sleep(_WAIT_S * 2**num_failed)
        raise AssertionError("the last try returns or raises")

    async def _post_once(self, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request once, and return its reply; raise ServerError without a reply of status 200."""
        try:
            reply = await client.post(self.server.url.rstrip("/") + path, json=body)
        except (httpx.TransportError, httpx.DecodingError) as failure:
            fault = call_error(failure, self._key, began=True)
        else:
            self._has_answered = True
            if reply.status_code == 200:
                return reply
            fault = status_error(reply.status_code, reply.content, 0.0, self._key)
        fault.again = fault.kind in _NOT_TAKEN  # for other failures it is unknown what was computed
        raise fault

    def _read(self, reply: httpx.Response, solutions: Sequence[RenderedSolution]) -> list[tuple[float, ...]]:
        """Return the scores in a reply.

        Raises:
            VerifierError: the reply is not in the form of vLLM's endpoints, or not about the tokens that were sent.
        """
        try:
            body = reply.json()
            rows_by_solution: list[Floats] = []  # [rows, outputs] each
            for entry in sorted(body["data"], key=lambda entry: entry["index"]):
                rows = entry["probs"] if "probs" in entry else entry["data"]
                rows_by_solution.append(np.atleast_2d(np.asarray(rows, np.float64)))
            num_read = int(body["usage"]["prompt_tokens"])
        except (ValueError, TypeError, KeyError) as failure:
            raise self.other(f"what cannot be read ({type(failure).__name__}: {failure})") from None
        num_sent = sum(len(solution.ids) for solution in solutions)
        num_texts = len(rows_by_solution)
        if num_texts != len(solutions) or num_read != num_sent:
            raise self.other(
                f"about {num_texts} texts of {num_read} tokens, where {len(solutions)} of {num_sent} were sent"
            )
        scores = [self.scores(rows, solution) for rows, solution in zip(rows_by_solution, solutions, strict=True)]
        self._check_outputs(np.concatenate([rows.reshape(-1, self.outputs) for rows in rows_by_solution]))
        return scores

    def _check_outputs(self, rows: Floats) -> None:
        """Check that rows of outputs are not probabilities, to which the activation would be applied twice.

        Raises:
            VerifierError: The server has applied the activation.
        """
        readout = self.renderer.record.readout
        rows = rows[np.isfinite(rows).all(axis=1)]
        if self._num_within < 0 or not rows.size or (isinstance(readout, Head) and readout.activation == "none"):
            return
        if not ((rows >= 0) & (rows <= 1)).all():
            self._num_within = -1
            return
        self._num_within += rows.size
        is_softmax = not isinstance(readout, Head) or readout.activation == "softmax"
        has_sums = bool(np.allclose(rows.sum(axis=1), 1, atol=0.01))
        if has_sums if is_softmax else self._num_within >= _LEAST_OUTPUTS:
            raise VerifierError(
                f"{self.where} answered probabilities, all from 0 to 1, where outputs before the activation were asked "
                "for (use_activation=false)",
                hint="a newer vLLM knows use_activation; or let the server activate nothing: "
                f"{server_command(self.renderer.record, use_activation=False)}",
            )


def server_command(record: RewardRecord, **pooling: Any) -> str:
    """Return the command that starts a server of a reward model, with more settings of its pooler."""
    overrides, pooler = pooling_settings(record)
    options = {"--hf-overrides": overrides, "--pooler-config": pooler | pooling}
    texts = [f" {name} '{json.dumps(values, ensure_ascii=False)}'" for name, values in options.items() if values]
    return f"vllm serve {record.model} --runner pooling{''.join(texts)}"


def pooling_settings(record: RewardRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return vLLM's overrides of the model's configuration, and of its pooler's configuration.

    Both are {} for a model with a head of its own.
    """
    if isinstance(record.readout, Head):
        return {}, {}
    labels = (record.readout.good, *record.readout.bad)
    classifier = _CLASSIFIERS.get(record.architecture, "…ForSequenceClassification")
    overrides = {"architectures": [classifier], "classifier_from_token": labels, "method": "no_post_processing"}
    return overrides, {"task": pooling_task(record)}


def pooling_task(record: RewardRecord) -> str:
    """Return vLLM's task: outputs of the last token, or of all tokens."""
    return "classify" if record.kind == "outcome" else "token_classify"


class PoolingSession:
    """Requests scores of whole trajectories, for one search."""

    def __init__(self, model: Pooled) -> None:
        self._model = model

    def cost(self, solution: RenderedSolution) -> tuple[int, int]:
        """Return 0 and all tokens: the prompt is read again with every trajectory."""
        return 0, len(solution.ids)

    async def scores(self, solutions: Sequence[RenderedSolution], calls: Calls) -> list[tuple[float, ...]]:
        """Return the scores of each solution; NaN where the budget's time ran out or the server failed."""
        readable = [i for i, solution in enumerate(solutions) if solution.ids]
        scores: list[tuple[float, ...]] = [(math.nan,) * len(solution.pieces) for solution in solutions]
        for start in range(0, len(readable), self._model.batch):
            batch = readable[start : start + self._model.batch]
            seconds_left = calls.seconds_left()
            if seconds_left is not None and seconds_left <= 0:
                break
            batch_scores = await self._ask([solutions[i] for i in batch], seconds_left, calls)
            for i, solution_scores in zip(batch, batch_scores, strict=False):
                scores[i] = solution_scores
        return scores

    async def _ask(
        self, solutions: Sequence[RenderedSolution], seconds_left: float | None, calls: Calls
    ) -> list[tuple[float, ...]]:
        """Return the scores of solutions; [] if the request failed, which is recorded.

        The tokens are charged, unless it is known that the server computed nothing.
        """
        start_s = time.perf_counter()
        scores: list[tuple[float, ...]] = []
        fault: ServerError | None = None
        try:
            scores = await self._model.ask(solutions, seconds_left)
        except ServerError as failure:
            fault = failure
            calls.note_failures(str(fault), len(solutions))
        if fault is None or not fault.again:
            seconds_each = (time.perf_counter() - start_s) / len(solutions)
            self._model.counters.prompt_tokens += sum(len(solution.ids) for solution in solutions)
            replies = [Reply(None, len(solution.ids), 0, seconds_each) for solution in solutions]
            calls.charge(replies, estimated=fault is not None)
        return scores
