"""A process model's view of the policy's tree.

A view has the policy's steps in the process model's own tokens, and belongs to one opened prompt. A view has a node,
with its reading, for every distinct prefix of steps that was scored. Scoring a path computes only the tokens of new
steps. A step may be scored again when it has grown. Where the model reads the policy's own tokens, only the added
tokens are computed then. Keys and values of a view are a cache: they are evicted first, and are recomputed when a step
is added below them.

A likelihood multiplies the probabilities of all tokens, each read at the token in front of it. So the nodes of such a
view are shifted by one token: a node begins with the last token of the path above it, and ends before the step's own
last token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.backends.engine.core import Runner
from tts.backends.engine.heads import LikelihoodReadout, StepTemplate
from tts.backends.engine.tree import CACHED, KVNode
from tts.backends.engine.work import Floats, PrefillJob, engine_error
from tts.backends.text.lengths import check_known
from tts.errors import ConfigError, PromptTooLong

Readings = NDArray[np.float64]
Failed = Exception | None
Piece = str | tuple[int, ...]  # a step: its text, or the policy's own tokens of it


@dataclass(frozen=True, slots=True)
class ViewReadings:
    """The readings of a path, and their cost.

    Args:
        readings: One a step.
        computed: Tokens of this call that were computed.
        prompt: The prompt's tokens among `computed`.
        reused: Tokens of this call that were reused.
        seconds: The seconds of the engine's steps for this path.
        failure: None where all steps were read.
    """

    readings: Readings
    computed: int
    prompt: int
    reused: int
    seconds: float
    failure: Failed


Done = Callable[[ViewReadings], None]


class _StepNode:
    """A prefix of steps, with its node, last token, reading and log-probability.

    `reading` and `logprob` are None until computed. `below` has the steps scored after this prefix.
    """

    __slots__ = ("below", "failure", "last", "logprob", "node", "reading", "released", "waiting")

    def __init__(self, node: KVNode, last: int) -> None:
        self.node = node
        self.last = last
        self.below: dict[Piece, _StepNode] = {}
        self.reading: float | None = None
        self.logprob: float | None = None
        self.failure: Failed = None
        self.released = False
        self.waiting: list[Callable[[Failed, float], None]] = []

    def take(self, job: PrefillJob, read: Callable[[Floats], None]) -> None:
        """Read a job's result with `read`, and keep the failure of the job or of `read`."""
        self.failure = job.failure
        if self.failure is None:
            try:
                read(job.result())
            except Exception as broken:  # noqa: BLE001 - of the readout, so of this step only
                self.failure = engine_error(broken)

    def notify(self, job: PrefillJob) -> None:
        """Call the callbacks that wait for the end of the job."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(self.failure, job.seconds)


class View:
    """The steps that a process model has scored below one prompt.

    Args:
        runner: The runner of the process model.
        template: How paths are rendered for the process model.
        prompt: The prompt in the model's tokens.
    """

    def __init__(self, runner: Runner, template: StepTemplate, prompt: Sequence[int]) -> None:
        self._runner = runner
        self._template = template
        self._prompt = tuple(prompt)
        self._by_likelihood = isinstance(template.readout, LikelihoodReadout)
        self._root: _StepNode | None = None

    def score(self, steps: Sequence[Piece], done: Done) -> None:
        """Score a path's steps; `done` is called with the readings.

        Args:
            steps: The pieces of the path, in order.
            done: Called with the readings of the steps.

        Raises:
            PromptTooLong: the path is longer than the process model's context; nothing has been computed.
            ConfigError: a step has no token, or an unknown one; nothing has been computed.
        """
        known_steps = self._known_nodes(steps)
        fresh = [(piece, self._template.tokens(piece)) for piece in steps[len(known_steps) :]]
        last_step = known_steps[-1] if known_steps else self._root
        reused = last_step.node.end if last_step else 0
        # the nodes of a likelihood end one token early
        tokens_before = reused + self._by_likelihood if last_step else len(self._prompt)
        self._check(tokens_before, [ids for _, ids in fresh])
        prompt_tokens = 0
        if self._root is None and fresh:
            prompt_ids = self._prompt[:-1] if self._by_likelihood else self._prompt
            self._root = _StepNode(self._runner.tree.add(None, prompt_ids, CACHED), self._prompt[-1])
            prompt_tokens = len(prompt_ids)
            self._root.logprob = 0.0
        computed, chain = prompt_tokens, list(known_steps)
        for piece, ids in fresh:
            parent = chain[-1] if chain else self._root
            assert parent is not None, "a step has a prompt above it"
            beginning, new_ids = _find_beginning(parent, piece, ids)
            computed, reused = computed + len(new_ids), reused + len(ids) - len(new_ids)
            tokens = (beginning.last, *new_ids[:-1]) if self._by_likelihood else new_ids
            step = parent.below[piece] = _StepNode(self._runner.tree.add(beginning.node, tokens, CACHED), new_ids[-1])
            chain.append(step)
            self._read(parent, beginning, step, piece)

        def finish(readings: Readings, seconds: float, failure: Failed) -> None:
            done(ViewReadings(readings, computed, prompt_tokens, reused, seconds, failure))

        _call_after_reading(chain, finish)

    def _check(self, before: int, fresh: Sequence[Sequence[int]]) -> None:
        total = before + sum(map(len, fresh))
        if total > self._runner.context:
            raise PromptTooLong(
                f"the path is {total} tokens to the process model, but its context is {self._runner.context}",
                hint="choose a process model with a longer context",
            )
        for ids in fresh:
            check_known(ids, self._runner.decoder.config.vocab)
            if not ids:
                raise ConfigError(
                    "a step has no token for the process model, but its score is read at its last token",
                    hint="give it a separator",
                )

    def release(self) -> None:
        """Release every node: the prompt has been released."""
        steps = [self._root] if self._root else []
        self._root = None
        while steps:
            step = steps.pop()
            steps += step.below.values()
            step.released = True
            self._runner.tree.release(step.node)

    def _known_nodes(self, steps: Sequence[Piece]) -> list[_StepNode]:
        nodes: list[_StepNode] = []
        children = self._root.below if self._root else {}
        for piece in steps:
            if piece not in children:
                break
            nodes.append(children[piece])
            children = nodes[-1].below
        return nodes

    def _read(self, parent: _StepNode, beginning: _StepNode, step: _StepNode, piece: Piece) -> None:
        """Read a step at the last token of its node, or by its likelihood after `beginning`.

        The tokens of the step's node follow `beginning`.
        """
        readout = self._template.readout

        def read(outputs: Floats) -> None:
            if isinstance(readout, LikelihoodReadout):
                assert beginning.logprob is not None, "what stands above a step is read before it"
                step.logprob = readout.logprob(beginning.logprob, [*step.node.tokens[1:], step.last], outputs)
                step.reading = readout(step.logprob)
            else:
                step.reading = float(readout(outputs[-1:])[0])

        def finish(job: PrefillJob) -> None:
            if self._by_likelihood and job.failure is None and beginning.logprob is None:
                # jobs end in their order, so the path above the step was read before, or failed
                job.failure = beginning.failure
            step.take(job, read)
            if step.failure is not None and parent.below.get(piece) is step:
                del parent.below[piece]  # so that it can be scored again
            step.notify(job)
            if (step.failure is not None or parent.released) and not step.released:  # no path leads to it any more
                step.released = True
                self._runner.tree.release(step.node)

        node, size = self._runner.tree.retain(step.node), len(step.node.tokens)
        self._runner.add_prefill(
            PrefillJob(node, size, 0 if self._by_likelihood else size - 1, finish, logits=readout.logits)
        )


def _find_beginning(parent: _StepNode, piece: Piece, ids: tuple[int, ...]) -> tuple[_StepNode, tuple[int, ...]]:
    """Return the node that a step continues, and the step's tokens left to read.

    The node is the longest scored beginning of the step itself, else the step above.
    """
    if isinstance(piece, tuple):
        for size in range(len(ids) - 1, 0, -1):
            if (part := parent.below.get(ids[:size])) is not None:
                return part, ids[size:]
    return parent, ids


def _call_after_reading(chain: Sequence[_StepNode], done: Callable[[Readings, float, Failed], None]) -> None:
    """Call `done` once all steps of a path are read.

    The arguments are the steps' readings, the seconds of the jobs that were waited for, and the first failure.
    """
    unread = [step for step in chain if step.reading is None]
    outcomes: list[tuple[Failed, float]] = []

    def end() -> None:
        readings = np.array([np.nan if step.reading is None else step.reading for step in chain], np.float64)
        done(
            readings,
            sum((seconds for _, seconds in outcomes), 0.0),
            next((failure for failure, _ in outcomes if failure is not None), None),
        )

    def receive(failure: Failed, seconds: float) -> None:
        outcomes.append((failure, seconds))
        if len(outcomes) == len(unread):
            end()

    for step in unread:
        step.waiting.append(receive)
    if not unread:
        end()
