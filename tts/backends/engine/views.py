"""A process model's view of the policy's tree: the same steps in its own tokens, read once each, mirrored when they are asked for.

A view hangs on one opened prompt. Below it stands a node for every distinct prefix of steps that was ever scored, with its
reading. Scoring a path goes down as far as it is known and reads only what is new: after one more step, that step's tokens.
Keys and values of a view are a cache: they are the first to be evicted, and are computed again when a step is added below them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class _Step:
    """A prefix of steps: its node, its reading once it is there, and the steps that were scored behind it."""

    __slots__ = ("below", "node", "reading", "released", "waiting")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.below: dict[str, _Step] = {}
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

    def score(self, steps: Sequence[str], done: Callable[[Readings, int, int, float, Failed], None]) -> None:
        """Read a path's steps.

        Args:
            steps: its pieces, in order. done: called with the readings, one a step, the tokens computed and reused for this call,
                the seconds of its steps, and the failure, if it failed.

        Raises:
            PromptTooLong: the path passes the process model's context; nothing has been computed.
            ConfigError: a step is no token to the process model, or one that it does not know; nothing has been computed.
        """
        known, texts = self._known(steps), list(steps)
        fresh = [tuple(self._template.encode(text + self._template.separator)) for text in texts[len(known) :]]
        start = (known[-1].node.end if known else len(self._prompt)) if self._root else 0
        new_prompt = 0 if self._root else len(self._prompt)
        total = start + new_prompt + sum(map(len, fresh))
        if total > self._runner.context:
            raise PromptTooLong(
                f"the path is {total} tokens to the process model, but its context is {self._runner.context}",
                hint="choose a process model with a longer context",
            )
        for ids in fresh:
            check_known(ids, self._runner.decoder.config.vocab)
            if not ids:
                raise ConfigError("a step is no token to the process model, but needs one to be read at", hint="give it a separator")
        if self._root is None and fresh:
            self._root = _Step(self._runner.tree.add(None, self._prompt, CACHED))
        chain = list(known)
        for text, ids in zip(texts[len(known) :], fresh, strict=True):
            above = chain[-1] if chain else self._root
            assert above is not None, "a step has a prompt above it"
            step = above.below[text] = _Step(self._runner.tree.add(above.node, ids, CACHED))
            chain.append(step)
            self._read(above, step, text)
        _Gathered(chain, new_prompt * bool(fresh) + sum(map(len, fresh)), start, done).begin()

    def release(self) -> None:
        """Give up everything: the prompt is gone."""
        steps = [self._root] if self._root else []
        self._root = None
        while steps:
            step = steps.pop()
            steps += step.below.values()
            step.released = True
            self._runner.tree.release(step.node)

    def _known(self, steps: Sequence[str]) -> list[_Step]:
        known: list[_Step] = []
        below = self._root.below if self._root else {}
        for text in steps:
            if text not in below:
                break
            known.append(below[text])
            below = known[-1].below
        return known

    def _read(self, above: _Step, step: _Step, text: str) -> None:
        def done(reading: Reading) -> None:
            failure = reading.failure
            if failure is None:
                try:
                    step.reading = float(self._template.readout(reading.found[-1][-1:])[0])
                except Exception as broken:  # noqa: BLE001 - of the readout, so of this step alone
                    failure = engine_error(broken)
            if failure is not None and above.below.get(text) is step:
                del above.below[text]  # it may be asked for again
            waiting, step.waiting = step.waiting, []
            for tell in waiting:
                tell(failure, reading.seconds)
            if (failure is not None or above.released) and not step.released:  # nobody will find it from above
                step.released = True
                self._runner.tree.release(step.node)

        size = len(step.node.tokens)
        node = self._runner.tree.retain(step.node)
        self._runner.read(Reading(node, size, size - 1, done, logits=self._template.readout.logits))


class _Gathered:
    """Waits for all readings of one path."""

    def __init__(
        self, chain: Sequence[_Step], computed: int, reused: int, done: Callable[[Readings, int, int, float, Failed], None]
    ) -> None:
        self._chain = chain
        self._computed = computed
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
        self._done(readings, self._computed, self._reused, self._seconds, self._failure)
