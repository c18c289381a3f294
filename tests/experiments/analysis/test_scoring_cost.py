"""What scoring some samples costs, where steps that they share are read once."""

from __future__ import annotations

import dataclasses
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.made import cell
from tts.budget.budget import Budget
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.analysis.scoring_cost import cost_of, mean_costs
from tts.experiments.run.candidates import record_candidates, shared_beginnings
from tts.experiments.study.record import RecordedSample
from tts.search.plan import parse
from tts.search.strategies.samples.best_of_n import BestOfN

# Samples of steps, each of one character: a step is a token, so that nothing is rounded.
Steps = list[str]
samples_of_steps = st.lists(st.text("ab", min_size=1, max_size=4).map(list), min_size=1, max_size=6)


def drawn_from(samples: list[Steps], factor: int = 1) -> list[RecordedSample]:
    """Return samples as a verifier leaves them that reads each step once, for `factor` tokens."""
    tokens = [len(steps) for steps in samples]
    return [
        sample(size, factor * (size - shared), like=like, shared=shared)
        for size, (like, shared) in zip(tokens, shared_beginnings(samples, tokens), strict=True)
    ]


def sample(tokens: int, verifier_tokens: int, **given: Any) -> RecordedSample:
    plain = RecordedSample(answer=None, answer_class=None, right=False, status="finished", tokens=tokens)
    return dataclasses.replace(plain, verifier_tokens=verifier_tokens, **given)


def distinct(samples: list[Steps]) -> int:
    """Return how many different beginnings there are: what is read of them."""
    return len({tuple(steps[:count]) for steps in samples for count in range(1, len(steps) + 1)})


@given(samples_of_steps)
def test_a_subset_costs_what_it_would_have_cost_alone(samples):
    drawn = drawn_from(samples, factor=3)
    for taken in product([False, True], repeat=len(samples)):
        chosen = [i for i, one in enumerate(taken) if one]
        assert cost_of(drawn, chosen) == pytest.approx(3 * distinct([samples[i] for i in chosen]))


@given(samples_of_steps)
def test_the_mean_cost_is_that_over_all_subsets(samples):
    drawn = drawn_from(samples)
    sizes = range(1, len(samples) + 1)
    every = [[cost_of(drawn, chosen) for chosen in combinations(range(len(samples)), size)] for size in sizes]
    assert mean_costs(drawn, list(sizes)) == pytest.approx([np.mean(costs) for costs in every])


def test_where_nothing_is_shared_costs_are_sums():
    drawn = [sample(i + 1, 2 * i) for i in range(4)]
    assert cost_of(drawn, [1, 3]) == 8
    assert mean_costs(drawn, [1, 2, 4]).tolist() == pytest.approx([3, 6, 12])


def test_a_sample_is_like_the_first_that_has_most_steps_in_common():
    steps = [["1+1=2\n", "A: 2\n"], ["1+1=3\n", "A: 3\n"], ["1+1=2\n", "A: 2 \n"], ["1+1=2\n", "A: 2\n"]]
    assert shared_beginnings(steps, [9, 9, 9, 9]) == [(None, 0), (None, 0), (0, 4), (0, 9)]


@pytest.mark.slow
def test_a_pool_of_the_embedded_pair_costs_what_its_process_model_read():
    """The first n samples against a live run of n. Of shared steps tokens are known by their share of the text: to one
    in ten here.
    """
    pytest.importorskip("torch")
    from tts import tasks
    from tts.experiments.datasets import load
    from tts.solver.solver import Solver

    problems, sizes, task = load("arithmetic", limit=1, operations=4), [1, 3, 8], tasks.get("pocket")
    with Solver("pocket", "process", strategy="best_of_n | weighted") as solver:
        live = {n: solver.solve_many(problems, each=Budget(samples=n)) for n in sizes}
    for place, problem in enumerate(problems):
        drawn = record_candidates(live[8][place], task, problem)
        assert any(one.like is not None for one in drawn)
        own = cell(verifiers={"main": "process"})
        recorded = RecordedSearch(ProblemPool(cell=own, law=BestOfN(), drawn=drawn), parse("best_of_n | best"))
        costs = [recorded.run(range(n)).verifier_tokens for n in sizes]
        measured = [live[n][place].usage.verifier_tokens for n in sizes]
        assert costs[-1] == pytest.approx(measured[-1])
        assert costs == pytest.approx(measured, rel=0.1)
        assert mean_costs(drawn, [8])[0] == pytest.approx(measured[-1])
