"""Reward models asked without a search: paths of a task's steps, and calls that only count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tts.backends.base import Reply
from tts.tasks import get
from tts.types import Problem, Trajectory
from tts.verifiers.base import StepScores
from tts.verifiers.reward.verifier import Reward


class Counting:
    """Calls that count what is charged."""

    def __init__(self, task: str = "math", seconds: float | None = None) -> None:
        self.task = get(task)
        self.seconds_left = lambda: seconds
        self.computed = self.prompt = 0
        self.estimated = False
        self.unknown: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def charge(self, replies: Sequence[Reply[Any]], *, estimated: bool = False) -> list[Any]:
        self.estimated = self.estimated or estimated
        self.computed += sum(reply.computed - reply.prompt for reply in replies)
        self.prompt += sum(reply.prompt for reply in replies)
        return [reply.value for reply in replies]

    def note_unread(self, what: str, number: int, of: int) -> None:
        self.unknown[what] += number

    def note_failures(self, error: str, number: int = 1) -> None:
        self.failures[error.partition(": ")[0]] += number


def path(steps: Sequence[str], *, tokens: int = 1000, node: int = 1, parent: Trajectory | None = None) -> Trajectory:
    """Return a path of so many of the policy's tokens that writes these steps of the task math behind its parent."""
    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    above = parent or root
    text = "".join(f"{step}\n\n" for step in steps)
    return Trajectory(above, text, (), (), "active", 0, node, above.num_tokens + tokens, above.depth + 1)


def ask(verifier: Reward, paths: Sequence[Trajectory], calls: Counting, problem: str) -> list[StepScores]:
    """Return the scores of paths."""
    return asyncio.run(verifier.score(Problem(problem), paths, calls))  # type: ignore[arg-type]
