"""The engine as a backend: handles outside, nodes inside."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Caps, Counters, Extension, Reply, RowSet, Sample, SampleRequest, require
from tts.backends.batching import closed_error
from tts.backends.engine.core import Runner
from tts.backends.engine.heads import StepTemplate
from tts.backends.engine.paths import State, Views, step_ids, step_tokens
from tts.backends.engine.reward import RewardModel
from tts.backends.engine.service import Call, Deliver, Job, Service, Tell
from tts.backends.engine.stats import EngineStats
from tts.backends.engine.tree import Node
from tts.backends.engine.views import Seen
from tts.backends.engine.work import Floats, Reading, RowEnd, Writing
from tts.backends.facts import Counting, ValueFacts
from tts.backends.lengths import check_known, check_prompt, check_text
from tts.backends.rendering import Renderer
from tts.backends.row_state import PathText
from tts.backends.sampling import log_law
from tts.budget import Rates
from tts.errors import CapabilityError, EngineError
from tts.models.registry import ModelRecord
from tts.tasks.base import split_at
from tts.types import Prompt

Ids = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Handle:
    """A name for a state that a backend keeps until the handle is released or forgotten."""


class EngineBackend(Counting):
    """Opens, continues and scores paths of one model over a tree of shared keys and values.

    Idea: what a path has in common with others is held, and read, once. Rows of all problems advance together, a token a step;
        prompts, forced texts, scored texts and process models join the same steps. With the strict executor (the default on a
        CPU) tokens, log-probabilities, keys and values of a path are bit for bit the same whatever else is under way, in what
        pieces it was computed, and whether it had to be computed again, on one machine with one version of torch.

    Accounting: opening a prompt computes all its tokens. A row reuses all tokens of its path and computes none of them; extend,
        score and next_logprobs compute exactly the tokens of their texts and reuse the path's; a process model computes the
        tokens of the steps that this opened prompt has not shown it yet, and the prompt's at the first; a value head computes
        none, for it reads states that are there anyway. So what is charged follows from a problem's own calls. Tokens that are
        computed again for want of memory, or not at all because two problems share a prompt, are the engine's own affair:
        `stats` counts what really was computed.

    Args:
        runner: of the policy. renderer: between text and its tokens. name and identity: see `Backend`. rates: of a token.
        reward_models: process models by name, for `value`, beside the value heads of the runner.
    """

    caps = Caps(
        steps="native",
        extend="native",
        fork="native",
        score="native",
        next_logprobs="native",
        hidden="native",
        logprobs=True,
        spreads=True,
        tops=True,
        token_ids=True,
        streams=True,
        stop_predicate=True,
        usage=True,
        value="native",  # of a model with value heads or a process model
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
    ) -> None:
        self.runner = runner
        self.reward_models = dict(reward_models or {})
        self.name = name
        self.identity = identity
        self.context: int | None = runner.context
        self.kv_bytes_per_token: int | None = runner.decoder.kv_shape.bytes_per_token
        given = rates or Rates()
        self.rates = given if given.flops is not None else dataclasses.replace(given, flops=2 * runner.decoder.parameters)
        self.counters = Counters()
        self.value_heads = {name: ValueFacts(head.step, self.rates, own_model=False) for name, head in runner.heads.items()}
        self.value_heads |= {name: model.facts(self.rates) for name, model in self.reward_models.items()}
        if not self.value_heads:
            self.caps = dataclasses.replace(type(self).caps, value="absent")
        if not runner.decoder.has_output_layer:
            self.caps = dataclasses.replace(self.caps, steps="absent", score="absent", next_logprobs="absent")
        self._renderer = renderer
        self._service = Service([runner, *(model.runner for model in self.reward_models.values())], self.counters)
        self._states: weakref.WeakKeyDictionary[Handle, State] = weakref.WeakKeyDictionary()
        self._prompts: dict[Ids, Node] = {}
        runner.tree.root_gone = self._forget_prompt

    @classmethod
    def from_record(cls, record: ModelRecord, **options: Any) -> EngineBackend:
        """Load a model by its record; the options are those of `tts.backends.engine.build.build`.

        Raises:
            ConfigError: the model cannot be had or is of a kind that the engine does not run, or an option is not valid.
        """
        from tts.backends.engine.build import build

        return build(record, **options)

    @property
    def stats(self) -> EngineStats:
        """What the policy's steps really computed, moved and held."""
        return self.runner.stats

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Render and read prompts; the values are handles. Prompts of the same tokens share their keys and values while they live.

        Raises:
            PromptTooLong: a prompt leaves no room for one more token; nothing has been computed.
            ConfigError: a prompt cannot be rendered.
            KVBudgetError: a prompt does not fit the memory for keys and values.
        """
        rendered = [self._renderer.prompt(prompt) for prompt in prompts]
        for ids in rendered:
            check_prompt(len(ids), self.runner.context)
            check_known(ids, self.runner.decoder.config.vocab)
        views = [
            {name: model.view(prompt, ids) for name, model in self.reward_models.items()}
            for prompt, ids in zip(prompts, rendered, strict=True)
        ]

        def start(ids: Ids, index: int, tell: Tell) -> None:
            tree = self.runner.tree
            if ids in self._prompts:
                node = tree.retain(self._prompts[ids])
            else:
                node = self._prompts[ids] = tree.add(None, ids)
            at, gone = PathText.behind(ids), self._service.gone
            state = State(gone, tree, node, at=at, written="", num_prompt=len(ids), views=Views(gone, views[index]))
            logits = self.runner.decoder.has_output_layer
            self._read(node, len(ids) - 1, len(ids) - 1, lambda reading: tell.read(reading, lambda: self._keep(state)), logits=logits)

        return await self._service.ask([Call(lambda t, i=i, ids=ids: start(ids, i, t), len(ids)) for i, ids in enumerate(rendered)])

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request.

        Token number i of a row is drawn by `uniform(stream, position + i, word)`; the end-of-sequence token counts, and its
        text is "". A row ends "length" at its cap and where its path fills the context, and "error" where its logits are no
        law, its predicate raised, or its path does not fit the memory for keys and values.

        Raises:
            CapabilityError: the model has no output layer.
            EngineError: the handle has been released.
        """
        require(self, ("steps",), "sampling")
        rows, state = RowSet(request), self._held(request.handle)

        def start(deliver: Deliver) -> None:
            node = self.runner.tree.retain(state.node)
            self.runner.write(Writing(rows, node, state.at, lambda end: self._ended(end, state, deliver)))

        self._service.submit(Job(start, rows.fail, lambda: rows.done))
        return rows

    def _ended(self, end: RowEnd, state: State, deliver: Deliver) -> None:
        """Deliver a row, in the engine's thread."""
        after = None
        if end.state is None:
            sample = Sample("", (), (), end.finish, None, 0, error=end.error)
        else:
            sample = end.state.sample(end.finish, error=end.error)
            if end.node is not None:
                after = state.after(end.node, end.state.path_text(), sample.text)
        deliver(self._resolve, end.writing.rows, end.index, sample, after, state.node.end if end.began else 0)

    def _resolve(self, rows: RowSet, index: int, sample: Sample, after: State | None, reused: int) -> None:
        self.counters.reused_tokens += reused
        self.counters.generated_tokens += sample.num_tokens
        rows.reused_tokens = (rows.reused_tokens or 0) + reused
        rows.resolve(index, dataclasses.replace(sample, handle=None if after is None else self._keep(after)))

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append forced text to each handle. What its path's last token carried stays at the head of the next row's text.

        Raises:
            PromptTooLong: a path with its text passes the context; nothing has been computed.
            KVBudgetError: a path does not fit the memory for keys and values.
        """

        def start(state: State, ids: Ids, text: str, tell: Tell) -> None:
            if not ids:
                return tell.made(lambda: Extension(self._keep(state), ids))
            node = self.runner.tree.add(state.node, ids)
            node.pieces = self._renderer.pieces(state.at.tail, ids)
            longer = state.after(node, PathText.behind((*state.at.tail, *ids), state.at.carry), text)
            made = lambda: Extension(self._keep(longer), ids)  # noqa: E731
            return self._read(node, len(ids) - 1, len(ids) - 1, lambda reading: tell.read(reading, made))

        return await self._with_text(handles, texts, start)

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probability of each token of a text behind its handle, untempered; the state is dropped.

        Raises:
            CapabilityError: the model has no output layer.
            PromptTooLong: a path with its text passes the context; nothing has been computed.
        """
        require(self, ("score",), "scoring a text")

        def start(state: State, ids: Ids, text: str, tell: Tell) -> None:
            del text
            if not ids:
                return tell.made(lambda: np.empty(0))

            def found(laws: list[Floats]) -> NDArray[np.float64]:
                return np.array([log_law(law)[token] for law, token in zip(laws, ids, strict=True)], np.float64)

            return self._laws(state.node, ids[:-1], 0, tell, found)

        return await self._with_text(handles, texts, start)

    async def next_logprobs(self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probabilities, untempered, that each of `tokens` comes next behind handle and text.

        Raises:
            CapabilityError: the model has no output layer.
            ConfigError: one of `tokens` is not exactly one token.
            PromptTooLong: a path with its text passes the context; nothing has been computed.
        """
        require(self, ("next_logprobs",), "reading what comes next")
        wanted = [self._renderer.single(token) for token in tokens]
        check_known(wanted, self.runner.decoder.config.vocab)

        def start(state: State, ids: Ids, text: str, tell: Tell) -> None:
            del text
            self._laws(state.node, ids, len(ids), tell, lambda laws: log_law(laws[-1])[wanted])

        return await self._with_text(handles, texts, start)

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Return the last hidden state, as the output layer reads it, at the last token of each handle."""

        def start(state: State, tell: Tell) -> None:
            size = len(state.node.tokens)
            self._read(state.node, size, size - 1, lambda read: tell.read(read, lambda: read.found[-1][-1]), logits=False)

        states = [self._held(handle) for handle in handles]
        return await self._service.ask([Call(lambda t, s=s: start(s, t), 0, s.node.end) for s in states])

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return a head's, or a process model's, readings of the paths behind the prompt: one a step, a piece of the path's text.

        Raises:
            CapabilityError: there is no such head or model.
            PromptTooLong: a path is too long for the process model.
        """
        states = [self._held(handle) for handle in handles]
        if head in self.reward_models:
            template = self.reward_models[head].template
            return await self._service.ask([Call(lambda t, s=s: _rewarded(s, head, template, self._renderer.eos, t)) for s in states])
        if head not in self.runner.heads:
            have = ", ".join([*self.runner.heads, *self.reward_models]) or "none"
            raise CapabilityError(f"value head {head!r} was asked for, but the backend {self.name!r} has {have}")
        step = self.runner.heads[head].step

        def start(state: State, tell: Tell) -> None:
            size = len(state.node.tokens)
            values = lambda: np.array([node.scores[head][i] for node, i in step_tokens(state, step)], np.float64)  # noqa: E731
            self._read(state.node, size, size, lambda reading: tell.read(reading, values))

        return await self._service.ask([Call(lambda t, s=s: start(s, t), 0, s.node.end) for s in states])

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return handles of the same state that are released separately; nothing is computed or copied."""
        state = self._held(handle)
        return [self._keep(state) for _ in range(count)]

    def release(self, handles: Sequence[Any]) -> None:
        """Give up handles. Releasing one twice does nothing."""
        for handle in handles:
            if isinstance(handle, Handle):
                self._states.pop(handle, None)
        self._service.sweep()

    async def close(self) -> None:
        """Give up every handle and stop the worker; what is under way fails with an EngineError, and so does what is asked later."""
        self._service.close()
        self._states.clear()
        self._service.sweep()

    # Inside ---------------------------------------------------------------------------------------------------------------------

    def _forget_prompt(self, node: Node) -> None:
        if self._prompts.get(tuple(node.tokens)) is node:
            del self._prompts[tuple(node.tokens)]

    def _keep(self, state: State) -> Handle:
        handle = Handle()
        self._states[handle] = state
        return handle

    def _held(self, handle: Any) -> State:
        if self._service.closed:
            raise closed_error()
        state = self._states.get(handle) if isinstance(handle, Handle) else None
        if state is None:
            raise EngineError("a handle was used that has been released or belongs to another backend")
        return state

    async def _with_text(
        self, handles: Sequence[Any], texts: Sequence[str], start: Callable[[State, Ids, str, Tell], None]
    ) -> list[Reply[Any]]:
        """Ask for something of each path with its text."""
        asked = [(self._held(handle), self._renderer.text(text), text) for handle, text in zip(handles, texts, strict=True)]
        for state, ids, _ in asked:
            check_text(state.node.end, len(ids), self.runner.context)
            check_known(ids, self.runner.decoder.config.vocab)
        return await self._service.ask([Call(lambda t, a=each: start(*a, t), len(each[1]), each[0].node.end) for each in asked])

    def _read(self, node: Node, upto: int, wanted: int, done: Callable[[Reading], None], *, logits: bool = True) -> None:
        """Read a node's tokens, in the engine's thread."""
        self.runner.read(Reading(self.runner.tree.retain(node), upto, wanted, done, logits=logits))

    def _laws(self, node: Node, ids: Ids, first: int, tell: Tell, compute: Callable[[list[Floats]], Any]) -> None:
        """Answer with what `compute` makes of laws: of that behind the node (law 0) and behind each token of a text, from `first` on."""
        size = len(node.tokens)
        readings: list[Reading] = []
        expected = (first == 0) + bool(ids)

        def done(reading: Reading) -> None:
            tell.seconds += reading.seconds
            readings.append(reading)
            if len(readings) < expected:
                return None
            failed = next((each.failure for each in readings if each.failure is not None), None)
            if failed is not None:
                return tell.fail(failed)
            readings.sort(key=lambda each: each.node is not node)
            return tell.value(lambda: compute([law for each in readings for law in each.result()]))

        if first == 0:
            self._read(node, size, size - 1, done)
        if ids:
            longer = self.runner.tree.add(node, ids)
            self._read(longer, len(ids), max(0, first - 1), done)
            self.runner.tree.release(longer)


def _rewarded(state: State, name: str, template: StepTemplate, eos: frozenset[int], tell: Tell) -> None:
    """Answer with a process model's readings, in the engine's thread."""
    pieces, rest = (split_at(state.written, template.step), ()) if template.encode else step_ids(state, template.step, eos)
    told = [piece for piece in (*pieces, rest) if piece]  # the rest is read too, or the next score would pay for it
    at = [i - 1 for i in accumulate(bool(piece) for piece in pieces)]  # a step that brought no token is read where the one before was

    def done(seen: Seen) -> None:
        tell.computed, tell.prompt, tell.reused, tell.seconds = seen.computed, seen.prompt, seen.reused, seen.seconds
        if seen.failure is not None:
            tell.fail(seen.failure)
        else:
            tell.made(lambda: seen.readings[at])

    state.views[name].score(told, done)
