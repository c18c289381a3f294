"""A policy whose every probability is known: it works problems out line by line and slips at a stated rate. Tokens are
characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tts.backends.base import Backend, Caps, Counters, Reply, RowSet, Sample, SampleRequest
from tts.budget.budget import Rates
from tts.randomness import uniform
from tts.tasks.arithmetic.expression import Expression, Step, apply, steps
from tts.tasks.arithmetic.pocket import NO, RESTART, YES
from tts.tasks.arithmetic.reading import read

SLIP = 1000  # what a wrong result is off by: more than any right one


@dataclass(frozen=True)
class Written:
    """A state: the problem, and what is written."""

    problem: str
    text: str = ""


class ScriptedPolicy(Backend):
    """A backend.

    Args:
        slips: the probability that a step's result is wrong. solutions: of countdowns, by text.
        heads: readings of a path's last line by name, given whether all lines so far are right.
    """

    name = "scripted"
    identity = "scripted"
    caps = Caps()
    context: int | None = None
    rates = Rates()
    kv_bytes_per_token: int | None = None

    def __init__(
        self,
        slips: Callable[[Step], float],
        *,
        solutions: Mapping[str, Sequence[Step]] | None = None,
        heads: Mapping[str, Callable[[bool], float]] | None = None,
    ) -> None:
        self._slips = slips
        self._solutions = solutions or {}
        self._heads = heads or {}
        self.counters = Counters()
        self.live = 0

    def count(self, prompt: Any) -> int:
        return len(prompt)

    async def open(self, prompts: Sequence[Any]) -> list[Reply[Any]]:
        self.live += len(prompts)
        replies: list[Reply[Any]] = []
        for prompt in prompts:
            replies.append(Reply(Written(prompt.partition("\n")[0]), len(prompt)))
        return replies

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for i, row in enumerate(request.rows):
            whole = self._write(request.handle, row.stream, greedy=request.sampling.temperature == 0)
            text = whole[: row.max_tokens]
            self.live += 1
            handle = Written(request.handle.problem, text)
            rows.resolve(i, Sample(text, (), (), "answer" if text == whole else "length", handle, len(text)))
        return rows

    def _write(self, state: Written, stream: int, *, greedy: bool) -> str:
        lines: list[str] = []

        off = 0

        def done(step: Step) -> int:
            nonlocal off
            slipped = not greedy and uniform(stream, len(lines) + 1) < self._slips(step)
            off = off or SLIP * slipped
            written = step.result + SLIP * slipped
            lines.append(f"{step.left} {step.operator} {step.right} = {written}\n")
            return written

        def work(part: Expression) -> int:
            if isinstance(part, int):
                return part
            left, right = work(part.left), work(part.right)
            return done(Step(left, part.operator, right, apply(part.operator, left, right)))

        if state.problem in self._solutions:
            results = [done(step) for step in self._solutions[state.problem]]
            return "".join(lines) + f"A: {results[-1]}\n"
        work(read(state.problem).expression)
        # a slip is never made good, not even by a factor of 0
        answer = steps(read(state.problem).expression)[-1].result + off
        return "".join(lines) + f"A: {answer}\n"

    def follow(self, state: Written, text: str) -> list[bool]:
        """Return of each line whether all up to there is as it should be."""
        found: list[bool] = []
        for line in text.splitlines():
            slip = "=" in line and (step := line.split(" = ")) and int(step[1]) != _value(step[0])
            found.append(not slip and all(found[-1:]))
        return found

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[Any]]:
        return [Reply(np.array([self._heads[head](right) for right in self.follow(h, h.text)]), 0) for h in handles]

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[Any]]:
        assert set(texts) <= {RESTART}
        assert tuple(tokens) == (YES, NO)
        chances = [0.9 if all(self.follow(h, h.text.rpartition("\n")[0])) else 0.2 for h in handles]
        return [Reply(np.array([math.log(1 - no), math.log(no)]), 1) for no in chances]

    def release(self, handles: Sequence[Any]) -> None:
        self.live -= len(handles)

    async def close(self) -> None:
        assert self.live == 0, "a handle was not given back"


def _value(operation: str) -> int:
    left, operator, right = operation.split(" ")
    return apply(operator, int(left), int(right))
