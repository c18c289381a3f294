"""A function of the caller's as a verifier: what it raises, and what it returns that is no score."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from tests.support.guard import LIMIT_S
from tests.verifiers.paths import PROBLEM, NoCalls, path, scored
from tts.errors import VerifierError
from tts.types import Problem
from tts.verifiers.function import FunctionVerifier

CALLS = NoCalls()


def leaves(problem: Problem, text: str) -> float:
    raise SystemExit(3)


async def leaves_later(problem: Problem, text: str) -> float:
    raise SystemExit(3)


@pytest.mark.parametrize("function", [leaves, leaves_later])
def test_a_function_that_leaves_the_interpreter_is_a_failure_of_the_verifier(function: Any) -> None:
    with pytest.raises(VerifierError, match=r"the verifier function raised SystemExit\(3\)"):
        scored(FunctionVerifier(function), path([-1.0], text="7"), calls=CALLS)


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "returned None, but must return a number"), (np.ones((2, 2)), r"returned an array of shape \(2, 2\)")],
)
def test_what_is_no_score_is_refused(value: Any, message: str) -> None:
    with pytest.raises(VerifierError, match=message):
        scored(FunctionVerifier(lambda problem, text: value), path([-1.0], text="7"), calls=CALLS)


class Judge:
    """An async function that a plain one makes."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, problem: Problem, text: str) -> Any:
        self.made += 1
        return self.reply()

    async def reply(self) -> float:
        await asyncio.sleep(LIMIT_S)
        return 0.5


async def cancel_scoring(judge: Judge) -> None:
    """Score paths, and cancel that in the middle; 64 are awaited at once."""
    scoring = asyncio.create_task(FunctionVerifier(judge).score(PROBLEM, [path([-1.0], text="7")] * 100, CALLS))
    while judge.made < 64:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    assert judge.made == 64


@pytest.mark.slow
def test_no_reply_of_an_async_function_is_left_unawaited_where_scoring_is_cancelled(monkeypatch: Any) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: unraisable.append(one.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(cancel_scoring(Judge()))
        gc.collect()
    assert unraisable == []


@pytest.mark.slow
def test_no_reply_is_left_unawaited_where_a_later_one_fails(monkeypatch: Any) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: unraisable.append(one.exc_value))

    async def reply() -> float:
        return 0.5

    def fails_at_last(problem: Problem, text: str) -> Any:
        if text == "8":
            raise ValueError("no luck")
        return reply()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="no luck"):
            scored(FunctionVerifier(fails_at_last), path([-1.0], text="7"), path([-1.0], text="8"), calls=CALLS)
        gc.collect()
    assert unraisable == []
