"""Random plans of all parts, on models and verifiers that lie and fail: every promise of a search holds."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from tests.support.plans import check, draw
from tts.budget.budget import Budget


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_random_plans_keep_every_promise(first: int) -> None:
    ends = Counter(check(draw(number)) for number in range(first, first + 20))
    assert ends.keys() - {"ConfigError", "CapabilityError"}, "all of them were refused"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_10000_random_plans_keep_every_promise(first: int) -> None:
    for number in range(first, first + 500):
        check(draw(number))


def test_a_path_that_a_verifier_reads_beyond_its_bound_leaves_no_handle() -> None:
    program = dataclasses.replace(
        draw(0), plan="entropy_switching(n=2)", budget=Budget(generated_tokens=300), model="toy", verifier="toy", seed=3
    )
    check(dataclasses.replace(program, number=158, problem="3 + 4"))
