"""What no backend and no verifier should do, for tests of methods that must live with it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.backends.base import Row, RowSet, Sample, SampleRequest
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage, tokens_of
from tts.randomness import uniform
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Verifier


class OddBackend(ToyBackend):
    """The toy model, but each row that ends at a step boundary is one text over and over.

    The text "" is an empty step.
    """

    def __init__(self, step: str, language: ToyLanguage | None = None, *, ends: bool = True) -> None:
        """Args: ends: whether a path that is asked to go to its end does; else that is the same text too."""
        super().__init__(language)
        self.step, self.ends = step, ends

    def sample(self, request: SampleRequest) -> RowSet:
        if self.ends and not request.stop.at_step:
            return super().sample(request)
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            tokens = tokens_of(self.step)[: row.max_tokens]
            handle = request.handle.child()
            for token in tokens:
                handle.write(token)
            whole = len(tokens) == len(tokens_of(self.step))
            self.counters.generated_tokens += len(tokens)
            rows.resolve(index, Sample("".join(tokens), (), (), "stop" if whole else "length", handle, len(tokens)))
        return rows


class OddLogprobs(ToyBackend):
    """The toy model, but that three in five rows report log-probabilities that no model has.

    Args:
        odd: The log-probability that such a row reports.
        every: Whether each of its tokens has it; else its first one alone.
        missing: Whether such a row reports none at all instead.
    """

    def __init__(self, odd: float | None, *, every: bool = False, missing: bool = False) -> None:
        super().__init__()
        self.odd, self.every, self.missing = odd, every, missing

    def _write(self, request: SampleRequest, row: Row) -> Sample:
        sample = super()._write(request, row)
        if row.stream % 5 > 2 or not sample.logprobs:
            return sample
        odd: Any = (self.odd,)
        values = odd * len(sample.logprobs) if self.every else (*odd, *sample.logprobs[1:])
        return dataclasses.replace(sample, logprobs=() if self.missing else values)


class EndsAtRandom(ToyBackend):
    """The toy model, but a step is the answer with probability .4, so that paths have different lengths."""

    def sample(self, request: SampleRequest) -> RowSet:
        if not request.stop.at_step:
            return super().sample(request)
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            ends = uniform(row.stream, row.position, row.word) < 0.4
            text = "A: 1\n" if ends else "on\n"
            handle = request.handle.child()
            for token in tokens_of(text):
                handle.write(token)
            self.counters.generated_tokens += len(tokens_of(text))
            rows.resolve(index, Sample(text, (), (), "answer" if ends else "stop", handle, len(tokens_of(text))))
        return rows


@dataclass(frozen=True)
class OddVerifier(Verifier):
    """A verifier with a fault.

    The faults are "nan", "few" (too few scores), "range", "steps" (a wrong number of step scores), "raises", and "":
    none.

    Args:
        fault: The fault.
        after: The steps of a path that are scored without the fault.
    """

    fault: str
    after: int = 0
    name: str = "odd"
    range: tuple[float, float] = (0.0, 1.0)
    oracle: bool = False
    needs: tuple[str, ...] = ()
    model: str = "policy"

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        right = [StepScores(steps=(0.5,) * len(calls.task.split(t.full_text))) for t in trajectories]
        if not self.fault or all(t.depth <= self.after for t in trajectories):
            return right
        if self.fault == "raises":
            raise RuntimeError("no luck today")
        odd = {
            "nan": [StepScores(steps=(math.nan,) * len(one.steps or ())) for one in right],
            "few": right[1:],
            "range": [StepScores(steps=tuple(1.5 for _ in one.steps or ())) for one in right],
            "steps": [StepScores(steps=(*(one.steps or ()), 0.5)) for one in right],
        }
        return odd[self.fault]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 0
