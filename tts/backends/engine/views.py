"""A process model's view of the policy's tree.

It has the same steps in its own tokens. Each step is computed once, when it is scored. A view belongs to one opened
prompt. It has a node, with its reading, for every distinct prefix of steps that was scored. Scoring a path computes
only the tokens of new steps. Of a step that was scored before it was complete, and is read in the policy's own tokens,
only those added since are computed. Keys and values of a view are a cache: they are evicted first, and are recomputed
when a step is added below them.

A likelihood multiplies the probabilities of all tokens, each read at the token in front of it. So the nodes of such a
view are shifted by one token: a node begins with the last token of what stands above it, and ends before the step's own
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
        prompt: Those tokens of `computed` that are the prompt's.
        reused: Tokens of this call that were reused.
        seconds: The seconds of the engine's steps that it took part in.
        failure: None where it succeeded.
    """

    readings: Readings
    computed: int
    prompt: int
    reused: int
    seconds: float
    failure: Failed


Done = Callable[[ViewReadings], None]


class _StepNode:
    """A prefix of steps: its node, its last token, its reading and log-probability once computed, and the steps scored
    after it.
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
        """Read what a job found, and keep its failure or that of reading it."""
        self.failure = job.failure
        if self.failure is None:
            try:
                read(job.result())
            except Exception as broken:  # noqa: BLE001 - of the readout, so of this step only
                self.failure = engine_error(broken)

    def notify(self, job: PrefillJob) -> None:
        """Call all that wait for the end of the job."""
        waiting, self.waiting = self.waiting, []
        for ended in waiting:
            ended(self.failure, job.seconds)


class View:
    """The steps that a process model has scored below one prompt.

    Args:
        runner: The runner of the process model.
        template: How paths are rendered for it.
        prompt: The prompt in its tokens.
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
            steps: Its pieces, in order.
            done: Called with the readings of the steps.

        Raises:
            PromptTooLong: the path is longer than the process model's context; nothing has been computed.
            ConfigError: a step has no token, or an unknown one; nothing has been computed.
        """
        known = self._known_nodes(steps)
        fresh = [(piece, self._template.tokens(piece)) for piece in steps[len(known) :]]
        last = known[-1] if known else self._root
        reused = last.node.end if last else 0
        # the nodes of a likelihood end one token early
        before = reused + self._by_likelihood if last else len(self._prompt)
        self._check(before, [ids for _, ids in fresh])
        prompt_tokens = 0
        if self._root is None and fresh:
            read = self._prompt[:-1] if self._by_likelihood else self._prompt
            self._root = _StepNode(self._runner.tree.add(None, read, CACHED), self._prompt[-1])
            prompt_tokens = len(read)
            self._root.logprob = 0.0
        computed, chain = prompt_tokens, list(known)
        for piece, ids in fresh:
            above = chain[-1] if chain else self._root
            assert above is not None, "a step has a prompt above it"
            begun, more = _find_beginning(above, piece, ids)
            computed, reused = computed + len(more), reused + len(ids) - len(more)
            tokens = (begun.last, *more[:-1]) if self._by_likelihood else more
            step = above.below[piece] = _StepNode(self._runner.tree.add(begun.node, tokens, CACHED), more[-1])
            chain.append(step)
            self._read(above, begun, step, piece)

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
        known: list[_StepNode] = []
        below = self._root.below if self._root else {}
        for piece in steps:
            if piece not in below:
                break
            known.append(below[piece])
            below = known[-1].below
        return known

    def _read(self, above: _StepNode, begun: _StepNode, step: _StepNode, piece: Piece) -> None:
        """Read a step at the last token of its node, or by its likelihood after `begun`, the path that its tokens stand
        after.
        """
        readout = self._template.readout

        def read(found: Floats) -> None:
            if isinstance(readout, LikelihoodReadout):
                assert begun.logprob is not None, "what stands above a step is read before it"
                step.logprob = readout.logprob(begun.logprob, [*step.node.tokens[1:], step.last], found)
                step.reading = readout(step.logprob)
            else:
                step.reading = float(readout(found[-1:])[0])

        def finish(job: PrefillJob) -> None:
            if self._by_likelihood and job.failure is None and begun.logprob is None:
                # jobs end in their order, so what stands above the step was read before, or failed
                job.failure = begun.failure
            step.take(job, read)
            if step.failure is not None and above.below.get(piece) is step:
                del above.below[piece]  # so that it can be scored again
            step.notify(job)
            if (step.failure is not None or above.released) and not step.released:  # no path leads to it any more
                step.released = True
                self._runner.tree.release(step.node)

        node, size = self._runner.tree.retain(step.node), len(step.node.tokens)
        self._runner.add_prefill(
            PrefillJob(node, size, 0 if self._by_likelihood else size - 1, finish, logits=readout.logits)
        )


def _find_beginning(above: _StepNode, piece: Piece, ids: tuple[int, ...]) -> tuple[_StepNode, tuple[int, ...]]:
    """Return the node that a step continues, its own beginning if that was scored, else the step above, and the tokens
    left to read.
    """
    if isinstance(piece, tuple):
        for cut in range(len(ids) - 1, 0, -1):
            if (part := above.below.get(ids[:cut])) is not None:
                return part, ids[cut:]
    return above, ids


def _call_after_reading(chain: Sequence[_StepNode], done: Callable[[Readings, float, Failed], None]) -> None:
    """Call `done` once all steps of a path are read: with their readings, the seconds that they took, and the first
    failure.
    """
    late = [step for step in chain if step.reading is None]
    told: list[tuple[Failed, float]] = []

    def end() -> None:
        readings = np.array([np.nan if step.reading is None else step.reading for step in chain], np.float64)
        done(
            readings,
            sum((seconds for _, seconds in told), 0.0),
            next((failure for failure, _ in told if failure is not None), None),
        )

    def receive(failure: Failed, seconds: float) -> None:
        told.append((failure, seconds))
        if len(told) == len(late):
            end()

    for step in late:
        step.waiting.append(receive)
    if not late:
        end()
