"""A function of the caller's as a verifier: what it raises, and what it returns that is no score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.verifiers.paths import NoCalls, path, scored
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
    ("value", "message"), [(None, "returned None, but must return a number"), (np.ones((2, 2)), r"returned an array of shape \(2, 2\)")]
)
def test_what_is_no_score_is_refused(value: Any, message: str) -> None:
    with pytest.raises(VerifierError, match=message):
        scored(FunctionVerifier(lambda problem, text: value), path([-1.0], text="7"), calls=CALLS)
