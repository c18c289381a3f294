"""The engine as a backend: handles for callers, nodes inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts._core.threads import run_after_fork
from tts.backends.base import Caps, Extension, Reply, RowSet, Sample, SampleRequest
from tts.backends.capabilities import require
from tts.backends.engine.core import Runner
from tts.backends.engine.device.graphs import FixedSteps
from tts.backends.engine.heads import StepTemplate, ValueHead
from tts.backends.engine.loading import load_parts
from tts.backends.engine.paths import PathState, Views, step_ids, step_tokens
from tts.backends.engine.prompts import PromptReads, ReadPrompt
from tts.backends.engine.reward import RewardModel
from tts.backends.engine.service import CallFuture, Deliver, EngineCall, EngineTask, Service
from tts.backends.engine.stats import EngineStats
from tts.backends.engine.tree import KVNode
from tts.backends.engine.views import ViewReadings
from tts.backends.engine.work import PrefillJob, RowEnd, SampleJob
from tts.backends.kernels.draw import LogitReading
from tts.backends.local import StateBackend, with_flops
from tts.backends.metadata import ValueHeadMetadata
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.text.lengths import check_known, check_prompt, check_read, check_text
from tts.backends.text.rendering import Renderer
from tts.backends.text.row_state import PathText
from tts.budget.budget import Rates
from tts.errors import CapabilityError
from tts.models.registry import ModelRecord, thought_marks
from tts.tasks.base import split_after
from tts.thoughts import ThoughtMarks
from tts.types import Prompt

Ids = tuple[int, ...]


class EngineBackend(StateBackend[PathState]):
    """Opens, continues and scores paths of one model over a tree of shared keys and values.

    Idea: the common prefix of paths is stored, and read, once. Rows of all problems advance together, a token a step.
        Prompts, forced texts, scored texts and process models join the same steps. With the strict executor (the
        default on a CPU) a path's tokens, log-probabilities, keys and values are bit for bit the same. This holds on
        one machine, with one version of torch. A path's numbers depend neither on other work, nor on the pieces in
        which the path was computed, nor on whether the path was recomputed.

    Accounting: opening a prompt computes all its tokens. A row reuses all tokens of its path and computes none of them.
        `extend`, `score` and `next_logprobs` compute the tokens of their texts and reuse the path's. A process model
        computes only unscored steps of an opened prompt, plus the prompt once. A value head computes no token: it reads
        hidden states that exist anyway. So the charge follows from a problem's own calls. `stats` counts the tokens
        actually computed, which memory pressure raises and prompts shared by problems lower.

    Args:
        runner: The runner of the policy.
        renderer: The renderer between text and tokens.
        name: See `Backend`.
        identity: See `Backend`.
        rates: The rates of a token.
        reward_models: Process models by name, for `value`, beside the value heads of the runner.
    """

    caps = Caps(
        steps="native",
        extend="native",
        fork="native",
        score="native",
        next_logprobs="native",
        hidden="native",
        prompt_logprobs="native",
        value="native",  # of a model with value heads or a process model
        logprobs=True,
        spreads=True,
        tops=True,
        sampling_logprobs=True,
        token_ids=True,
        streams=True,
        stop_predicate=True,
        usage=True,
    )

    def __init__(
        self,
        runner: Runner,
        renderer: Renderer,
        *,
        name: str = "engine",
        identity: str = "",
        rates: Rates | None = None,
        reward_models: Mapping[str, RewardModel] | None = None,
        thoughts: ThoughtMarks | None = None,
    ) -> None:
        self.runner = runner
        self.reward_models = dict(reward_models or {})
        self.name = name
        self.identity = identity
        self.context: int | None = runner.context
        self.kv_bytes_per_token: int | None = runner.decoder.kv_shape.bytes_per_token
        self.rates = with_flops(rates or Rates(), runner.decoder.parameters)
        heads = {name: ValueHeadMetadata(head.step, self.rates, own_model=False) for name, head in runner.heads.items()}
        heads |= {name: model.metadata(self.rates) for name, model in self.reward_models.items()}
        super().__init__(renderer, thoughts, value_heads=heads)
        if not heads:
            self.caps = dataclasses.replace(self.caps, value="absent")
        if not runner.decoder.has_output_layer:
            self.caps = dataclasses.replace(
                self.caps, steps="absent", score="absent", next_logprobs="absent", prompt_logprobs="absent"
            )
        runners = [runner, *(model.runner for model in self.reward_models.values())]
        self._service = Service(runners, self.counters)
        self._prompts: dict[Ids, KVNode] = {}  # the nodes of open prompts, by their tokens
        runner.tree.root_gone = self._forget_prompt

    @classmethod
    def from_record(
        cls,
        record: ModelRecord,
        *,
        heads: Mapping[str, ValueHead] | None = None,
        reward_models: Mapping[str, RewardModel] | None = None,
        output_layer: bool = True,
        **options: Any,
    ) -> EngineBackend:
        """Load a model by its record, with the value heads and the process model that the record names.

        Args:
            record: The record of a policy, with weights in this package, in another one, a folder or on the Hub.
            heads: Value heads on the hidden states, by name.
            reward_models: Process models, by name (see `build_reward_model`). They replace the record's models of the
                same names.
            output_layer: Whether the model gives logits. Classifiers have no output layer, and models whose hidden
                states alone are read need none.
            options: See `EngineOptions`; the process model has them too, with keys and values of its own.

        Raises:
            ConfigError: a model or head cannot be loaded, is of a kind that the engine does not run, or does not fit
                the others; an option is not valid; or the record has a url. Nothing stays loaded.
        """
        parts = run_after_fork(
            load_parts, record, heads=heads, reward_models=reward_models, output_layer=output_layer, **options
        )
        return cls(
            parts.runner,
            parts.renderer,
            identity=parts.identity,
            rates=parts.rates,
            reward_models=parts.reward_models,
            thoughts=thought_marks(record),
        )

    @property
    def stats(self) -> EngineStats:
        """Counters of what the policy's steps computed, moved and held."""
        return self.runner.stats

    @property
    def graphs(self) -> FixedSteps | None:
        """The decode steps in fixed shapes, with counts of replays and misses; None: there are none."""
        return self.runner.fixed

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Render and prefill prompts.

        Prompts of the same tokens share their keys and values while one of them is open.

        Raises:
            PromptTooLong: a prompt leaves no room for one more token; nothing has been computed.
            ConfigError: a prompt cannot be rendered.
            KVBudgetError: a prompt does not fit the memory for keys and values.
        """
        prompt_ids = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in prompt_ids:
            check_prompt(len(ids), self.runner.context)
            check_known(ids, self.runner.decoder.config.vocab)
        # for each prompt, the views of the process models by their names
        views = [
            {name: model.view(prompt, ids) for name, model in self.reward_models.items()}
            for prompt, ids in zip(prompts, prompt_ids, strict=True)
        ]

        def start(index: int, ids: Ids, future: CallFuture) -> None:
            tree, gone = self.runner.tree, self._service.gone
            if ids in self._prompts:
                node = tree.retain(self._prompts[ids])
            else:
                node = self._prompts[ids] = tree.add(None, ids)
            state = PathState(
                gone=gone,
                tree=tree,
                node=node,
                at=PathText.skip(ids),
                written="",
                num_prompt=len(ids),
                views=Views(gone, views[index]),
            )
            num_computed = len(ids) - 1  # the last token is computed with its logits, once they are asked for
            self._prefill(
                node,
                upto=num_computed,
                first_wanted=num_computed,
                on_end=lambda job: future.set_prefilled(job, lambda: self._keep(state)),
            )

        calls = [EngineCall(partial(start, index, ids), computed=len(ids)) for index, ids in enumerate(prompt_ids)]
        return await self._service.ask(calls)

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request.

        Token number i of a row is drawn by `uniform(stream, position + i, word)`; the end-of-sequence token counts, and
        its text is "". A row ends "length" at its cap and where its path fills the context. It ends "error" where its
        logits are not finite, its predicate raised, or its path does not fit the memory for keys and values.

        Raises:
            CapabilityError: the model has no output layer.
            EngineError: the handle has been released.
        """
        require(self, ("steps",), "sampling")
        rows, state = RowSet(request), self._state_of(request.handle)

        def start(deliver: Deliver) -> None:
            def finish(row_end: RowEnd) -> None:
                self._deliver_row(row_end, state, deliver)

            node = self.runner.tree.retain(state.node)
            self.runner.add_samples(SampleJob(rows, node, state.at, finish))

        self._service.submit(EngineTask(start, rows.fail, lambda: rows.done))
        return rows

    def _deliver_row(self, row_end: RowEnd, state: PathState, deliver: Deliver) -> None:
        """Deliver an ended row, which continued the path of `state`, from the engine's thread to the event loop."""
        continuation: PathState | None = None
        if row_end.state is None:
            sample = Sample(
                text="",
                token_ids=(),
                logprobs=(),
                finish=row_end.finish,
                handle=None,
                num_tokens=0,
                error=row_end.error,
            )
        else:
            sample = row_end.state.sample(row_end.finish, error=row_end.error)
            if row_end.node is not None:
                continuation = state.append(row_end.node, row_end.state.path_text(), sample.text)
        reused_tokens = state.node.end if row_end.began else 0
        deliver(self._resolve, row_end.job.rows, row_end.index, sample, continuation, reused_tokens)

    def _resolve(
        self, rows: RowSet, index: int, sample: Sample, continuation: PathState | None, reused_tokens: int
    ) -> None:
        """Count a row's tokens, and give the row its sample with a handle of the continuation."""
        self.counters.reused_tokens += reused_tokens
        self.counters.generated_tokens += sample.num_tokens
        rows.reused_tokens = (rows.reused_tokens or 0) + reused_tokens
        handle = None if continuation is None else self._keep(continuation)
        rows.resolve(index, dataclasses.replace(sample, handle=handle))

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append forced text.

        The last token of a path may carry text into the continuation. The next row's text begins with that text.

        Raises:
            PromptTooLong: a path with its text passes the context; nothing has been computed.
            KVBudgetError: a path does not fit the memory for keys and values.
        """

        def start(state: PathState, ids: Ids, text: str, future: CallFuture) -> None:
            if not ids:
                return future.set_result(lambda: Extension(self._keep(state), ids))
            node = self.runner.tree.add(state.node, ids)
            node.pieces = self._renderer.pieces(state.at.tail, ids)
            continuation = state.append(node, PathText.skip((*state.at.tail, *ids), state.at.carry), text)
            make_extension = lambda: Extension(self._keep(continuation), ids)  # noqa: E731
            num_computed = len(ids) - 1  # the last token is computed with its logits, once they are asked for
            return self._prefill(
                node,
                upto=num_computed,
                first_wanted=num_computed,
                on_end=lambda job: future.set_prefilled(job, make_extension),
            )

        return await self._with_text(handles, texts, start)

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Score texts.

        Raises:
            CapabilityError: the model has no output layer.
            PromptTooLong: a path with its text passes the context; nothing has been computed.
        """
        require(self, ("score",), "scoring a text")

        def start(state: PathState, ids: Ids, text: str, future: CallFuture) -> None:
            del text
            if not ids:
                return future.set_result(lambda: np.empty(0))

            def join(readings: list[LogitReading]) -> NDArray[np.float64]:
                return np.concatenate([reading.logprobs for reading in readings])

            return self._read(state.node, ids[:-1], [(token,) for token in ids], future, join)

        return await self._with_text(handles, texts, start)

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        """Return log-probabilities of next tokens.

        Raises:
            CapabilityError: the model has no output layer.
            ConfigError: one of `tokens` is not exactly one token.
            PromptTooLong: a path with its text passes the context; nothing has been computed.
        """
        require(self, ("next_logprobs",), "reading what comes next")
        token_ids = [self._renderer.single(token) for token in tokens]
        check_known(token_ids, self.runner.decoder.config.vocab)

        def start(state: PathState, ids: Ids, text: str, future: CallFuture) -> None:
            del text
            self._read(state.node, ids, [token_ids], future, lambda readings: readings[-1].logprobs)

        return await self._with_text(handles, texts, start)

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return the log-probabilities of all tokens of prompts.

        Common beginnings of prompts are computed once (`tts.backends.engine.prompts`).

        Raises:
            CapabilityError: the model has no output layer.
            PromptTooLong: a prompt passes the context. ConfigError: it has no token, or an unknown one. Nothing has
                been computed.
            KVBudgetError: a prompt does not fit the memory for keys and values.
        """
        require(self, ("prompt_logprobs",), "reading the log-probabilities of a prompt")
        self._check_open()
        prompt_ids = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in prompt_ids:
            check_read(len(ids), self.runner.context)
            check_known(ids, self.runner.decoder.config.vocab)
        reads = PromptReads(prompt_ids, min(top, self.runner.decoder.config.vocab))

        def start(futures: Sequence[CallFuture]) -> None:
            def finish(place: int, result: ReadPrompt) -> None:
                future = futures[place]
                future.seconds += result.seconds
                if result.failure is not None:
                    return future.set_exception(result.failure)
                return future.set_computed(
                    lambda: self._renderer.prompt_logprobs(prompt_ids[place], result.logprobs, result.likely)
                )

            reads.begin(self.runner, finish)

        calls = [EngineCall(computed=computed, reused=reused) for computed, reused in reads.charges()]
        return await self._service.ask_together(calls, start)

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Return the last hidden state, as the output layer reads it, at the last token of each handle."""

        def start(state: PathState, future: CallFuture) -> None:
            num_tokens = len(state.node.tokens)
            self._prefill(
                state.node,
                upto=num_tokens,
                first_wanted=num_tokens - 1,
                on_end=lambda job: future.set_prefilled(job, lambda: job.found[-1]),
            )

        states = [self._state_of(handle) for handle in handles]
        return await self._service.ask([EngineCall(partial(start, state), reused=state.node.end) for state in states])

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return the readings of a value head or a process model, one for each step after the prompt.

        Raises:
            CapabilityError: there is no such head or model.
            PromptTooLong: a path is too long for the process model.
        """
        states = [self._state_of(handle) for handle in handles]
        if head in self.reward_models:
            template = self.reward_models[head].template
            calls = [EngineCall(partial(_score_steps, state, head, template, self._renderer.eos)) for state in states]
            return await self._service.ask(calls)
        if head not in self.runner.heads:
            have = ", ".join([*self.runner.heads, *self.reward_models]) or "none"
            raise CapabilityError(f"value head {head!r} was asked for, but the backend {self.name!r} has {have}")
        step = self.runner.heads[head].step

        def start(state: PathState, future: CallFuture) -> None:
            def read_values() -> NDArray[np.float64]:
                readings = [node.scores[head][index] for node, index in step_tokens(state, step)]
                return np.array(readings, np.float64)

            size = len(state.node.tokens)
            self._prefill(
                state.node,
                upto=size,
                first_wanted=size,  # no logits or hidden states: the head reads each token as it is computed
                on_end=lambda job: future.set_prefilled(job, read_values),
            )

        return await self._service.ask([EngineCall(partial(start, state), reused=state.node.end) for state in states])

    def release(self, handles: Sequence[Any]) -> None:
        """Release handles."""
        super().release(handles)
        self._service.sweep()

    async def close(self) -> None:
        """Release every handle and stop the worker. Calls under way and later ones fail with an EngineError."""
        self._service.close()
        await super().close()
        self._service.sweep()

    # Inside -----------------------------------------------------------------------------------------------------------

    def _forget_prompt(self, node: KVNode) -> None:
        if self._prompts.get(tuple(node.tokens)) is node:
            del self._prompts[tuple(node.tokens)]

    async def _with_text(
        self, handles: Sequence[Any], texts: Sequence[str], start: Callable[[PathState, Ids, str, CallFuture], None]
    ) -> list[Reply[Any]]:
        """Submit a call for each path with its text, begun by `start(state, tokens of the text, text, future)`."""
        requests = [
            (self._state_of(handle), self._renderer.text(text), text)
            for handle, text in zip(handles, texts, strict=True)
        ]
        for state, ids, _ in requests:
            check_text(state.node.end, len(ids), self.runner.context)
            check_known(ids, self.runner.decoder.config.vocab)
        calls = [
            EngineCall(partial(start, state, ids, text), computed=len(ids), reused=state.node.end)
            for state, ids, text in requests
        ]
        return await self._service.ask(calls)

    def _prefill(
        self,
        node: KVNode,
        upto: int,
        first_wanted: int,
        on_end: Callable[[PrefillJob], None],
        tokens: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Prefill a node's first `upto` tokens, in the engine's thread (see `PrefillJob`)."""
        self.runner.add_prefill(PrefillJob(self.runner.tree.retain(node), upto, first_wanted, on_end, tokens))

    def _read(
        self,
        node: KVNode,
        ids: Ids,
        tokens: Sequence[Sequence[int]],
        future: CallFuture,
        compute: Callable[[list[LogitReading]], Any],
    ) -> None:
        """Set the result of `compute`, called with what is read of some tokens at the last places of a text.

        Place 0 is after the node, and place i after the text's i-th token. Place 0 needs a job of its own, since the
        node's last token gives its logits.
        """
        needs_node = len(tokens) > len(ids)
        num_jobs = int(needs_node) + bool(ids)
        ended_jobs: list[PrefillJob] = []

        def finish(ended_job: PrefillJob) -> None:
            future.seconds += ended_job.seconds
            ended_jobs.append(ended_job)
            if len(ended_jobs) < num_jobs:
                return None
            failures = [job.failure for job in ended_jobs if job.failure is not None]
            if failures:
                return future.set_exception(failures[0])
            ended_jobs.sort(key=lambda job: job.node is not node)  # the job of the node is first
            return future.set_computed(lambda: compute([reading for job in ended_jobs for reading in job.result()]))

        if needs_node:
            size = len(node.tokens)
            self._prefill(node, size, size - 1, finish, tokens[:1])
        if ids:
            text_node, tokens = self.runner.tree.add(node, ids), tokens[needs_node:]
            self._prefill(text_node, len(ids), len(ids) - len(tokens), finish, tokens)
            self.runner.tree.release(text_node)


def _score_steps(state: PathState, name: str, template: StepTemplate, eos: frozenset[int], future: CallFuture) -> None:
    """Set the result of `future` to a process model's readings of a path's steps, in the engine's thread."""
    if template.encode:
        pieces, unfinished = split_after(state.written, template.step), ()
    else:
        pieces, unfinished = step_ids(state, template.step, eos)
    # an unfinished step is read too, or the next call would be charged for its tokens
    view_steps = [piece for piece in (*pieces, unfinished) if piece]
    # for each piece its place in `view_steps`; a piece without tokens has the reading of the piece before
    indices = [count - 1 for count in accumulate(bool(piece) for piece in pieces)]

    def finish(result: ViewReadings) -> None:
        future.computed = result.computed
        future.prompt = result.prompt
        future.reused = result.reused
        future.seconds = result.seconds
        if result.failure is not None:
            future.set_exception(result.failure)
        else:
            future.set_result(lambda: result.readings[indices])

    state.views[name].score(view_steps, finish)
