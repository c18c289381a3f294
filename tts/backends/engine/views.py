"""A process model's view of the policy's tree: the same steps in its own tokens, read once each, mirrored when they are asked for.

A view hangs on one opened prompt. Below it stands a node for every distinct prefix of steps that was ever scored, with its
reading. Scoring a path goes down as far as it is known and reads only what is new: after one more step, that step's tokens;
and of a step that was scored before it was whole, where it is read in the policy's own tokens, those that were added since.
Keys and values of a view are a cache: they are the first to be evicted, and are computed again when a step is added below them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.backends.engine.core import Runner, engine_error
from tts.backends.engine.heads import StepTemplate
from tts.backends.engine.tree import CACHED, Node
from tts.backends.engine.work import Reading
from tts.backends.lengths import check_known
from tts.errors import ConfigError, PromptTooLong

Readings = NDArray[np.float64]
Failed = Exception | None
Piece = str | tuple[int, ...]  # a step: its text, or the policy's own tokens of it


@dataclass(frozen=True, slots=True)
class Seen:
    """What reading a path found and cost.

    Args:
        readings: one a step. computed, reused: tokens of this call; `prompt`: how many of those computed are the prompt's.
        seconds: of the steps it took part in. failure: what went wrong, if anything.
    """

    readings: Readings
    computed: int
    prompt: int
    reused: int
    seconds: float
    failure: Failed


Done = Callable[[Seen], None]


class _Step:
    """A prefix of steps: its node, its reading once it is there, and the steps that were scored behind it."""

    __slots__ = ("below", "node", "reading", "released", "waiting")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.below: dict[Piece, _Step] = {}
        self.reading: float | None = None
        self.released = False
        self.waiting: list[Callable[[Failed, float], None]] = []


class View:
    """What a process model has seen below one prompt.

    Args:
        runner: of the process model. template: how paths are shown to it. prompt: the prompt in its tokens.
    """

    def __init__(self, runner: Runner, template: StepTemplate, prompt: Sequence[int]) -> None:
        self._runner = runner
        self._template = template
        self._prompt = tuple(prompt)
        self._root: _Step | None = None

    def score(self, steps: Sequence[Piece], done: Done) -> None:
        """Read a path's steps; `done` is called with what was found.

        Args:
            steps: its pieces, in order.

        Raises:
            PromptTooLong: the path passes the process model's context; nothing has been computed.
            ConfigError: a step is no token to the process model, or one that it does not know; nothing has been computed.
        """
        known = self._known(steps)
        fresh = [(piece, self._template.tokens(piece)) for piece in steps[len(known) :]]
        start = (known[-1].node.end if known else len(self._prompt)) if self._root else 0
        self._check(start + (0 if self._root else len(self._prompt)), [ids for _, ids in fresh])
        prompt = 0
        if self._root is None and fresh:
            self._root, prompt = _Step(self._runner.tree.add(None, self._prompt, CACHED)), len(self._prompt)
        computed, chain = prompt, list(known)
        for piece, ids in fresh:
            above = chain[-1] if chain else self._root
            assert above is not None, "a step has a prompt above it"
            begun, more = _begun(above, piece, ids)
            computed, start = computed + len(more), start + len(ids) - len(more)
            step = above.below[piece] = _Step(self._runner.tree.add(begun.node, more, CACHED))
            chain.append(step)
            self._read(above, step, piece)
        _Gathered(chain, computed, prompt, start, done).begin()

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
                raise ConfigError("a step is no token to the process model, but needs one to be read at", hint="give it a separator")

    def release(self) -> None:
        """Give up everything: the prompt is gone."""
        steps = [self._root] if self._root else []
        self._root = None
        while steps:
            step = steps.pop()
            steps += step.below.values()
            step.released = True
            self._runner.tree.release(step.node)

    def _known(self, steps: Sequence[Piece]) -> list[_Step]:
        known: list[_Step] = []
        below = self._root.below if self._root else {}
        for piece in steps:
            if piece not in below:
                break
            known.append(below[piece])
            below = known[-1].below
        return known

    def _read(self, above: _Step, step: _Step, piece: Piece) -> None:
        def done(reading: Reading) -> None:
            failure = reading.failure
            if failure is None:
                try:
                    step.reading = float(self._template.readout(reading.found[-1][-1:])[0])
                except Exception as broken:  # noqa: BLE001 - of the readout, so of this step alone
                    failure = engine_error(broken)
            if failure is not None and above.below.get(piece) is step:
                del above.below[piece]  # it may be asked for again
            waiting, step.waiting = step.waiting, []
            for tell in waiting:
                tell(failure, reading.seconds)
            if (failure is not None or above.released) and not step.released:  # nobody will find it from above
                step.released = True
                self._runner.tree.release(step.node)

        size = len(step.node.tokens)
        node = self._runner.tree.retain(step.node)
        self._runner.read(Reading(node, size, size - 1, done, logits=self._template.readout.logits))


def _begun(above: _Step, piece: Piece, ids: tuple[int, ...]) -> tuple[_Step, tuple[int, ...]]:
    """Return what a step goes on from, and the tokens left to read: what was scored of it before it was whole, else the step above."""
    if isinstance(piece, tuple):
        for cut in range(len(ids) - 1, 0, -1):
            if (part := above.below.get(ids[:cut])) is not None:
                return part, ids[cut:]
    return above, ids


class _Gathered:
    """Waits for all readings of one path."""

    def __init__(self, chain: Sequence[_Step], computed: int, prompt: int, reused: int, done: Done) -> None:
        self._chain = chain
        self._computed = computed
        self._prompt = prompt
        self._reused = reused
        self._done = done
        self._seconds = 0.0
        self._failure: Failed = None
        self._missing = 0

    def begin(self) -> None:
        late = [step for step in self._chain if step.reading is None]
        self._missing = len(late)
        for step in late:
            step.waiting.append(self._tell)
        if not late:
            self._end()

    def _tell(self, failure: Failed, seconds: float) -> None:
        self._failure = self._failure or failure
        self._seconds += seconds
        self._missing -= 1
        if not self._missing:
            self._end()

    def _end(self) -> None:
        readings = np.array([np.nan if step.reading is None else step.reading for step in self._chain], np.float64)
        self._done(Seen(readings, self._computed, self._prompt, self._reused, self._seconds, self._failure))
