"""Paths and calls for tests of verifiers that need no search: what was written is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tts.types import Problem, Spread, Trajectory
from tts.verifiers.base import StepScores, Verifier

ROOT = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
PROBLEM = Problem("3 + 4", answer="7")


class NoCalls:
    """Calls of a verifier that must ask no model: any attempt is an error of the test."""

    def __init__(self, task: Any = None, seconds_left: Callable[[], float | None] = lambda: None) -> None:
        self.task = task
        self.seconds_left = seconds_left

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"it calls {name}, but must ask no model")


def path(*logprobs: Sequence[float], text: str = "", spreads: Sequence[Sequence[tuple[float, ...]]] = ()) -> Trajectory:
    """Return a path of pieces with these log-probabilities; an empty one is forced text."""
    t = ROOT
    for i, piece in enumerate(logprobs):
        kept = tuple(Spread(*spread) for spread in spreads[i]) if spreads else ()
        t = Trajectory(
            t, text, tuple(piece), tuple(piece), "active", i, i + 1, t.num_tokens + len(piece), i + 1, spreads=kept
        )
    return t


def scored(verifier: Verifier, *ts: Trajectory, problem: Problem = PROBLEM, calls: Any = None) -> list[StepScores]:
    """Return what a verifier says of paths."""
    return asyncio.run(verifier.score(problem, ts, calls or NoCalls()))


def wholes(verifier: Verifier, *ts: Trajectory, problem: Problem = PROBLEM, calls: Any = None) -> list[float]:
    """Return the scores of the wholes."""
    return [
        float("nan") if one.whole is None else one.whole for one in scored(verifier, *ts, problem=problem, calls=calls)
    ]
