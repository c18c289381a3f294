"""`auto` on recorded samples is the live search on them."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import tts
from tests.experiments.pools import written
from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition
from tts.errors import ConfigError
from tts.experiments.analysis.recorded_auto import RecordedBackend, RecordedTask
from tts.experiments.analysis.replay import Prices
from tts.types import Problem

PROBLEMS, SAMPLES = 10, 12


def texts() -> list[list[str]]:
    """The solutions of each problem, which are the harder the later it comes."""
    rng = np.random.default_rng(1)
    return [[f"It is #### {rng.integers(0, 1 + problem // 2)}" for _ in range(SAMPLES)] for problem in range(PROBLEMS)]


@pytest.fixture(scope="module")
def pool() -> tts.Pool:
    tokens = [10 + j for j in range(SAMPLES)]
    rows = [
        {"problem": f"problem {i}", "prompt": f"What? ({i})", "reference": "0", "text": of, "tokens": tokens}
        for i, of in enumerate(texts())
    ]
    return tts.Pool.from_rows(rows, task="text")


def live(budget: int, *, shared: bool) -> list[tts.Solution]:
    """The same samples through a function model."""
    given = dict.fromkeys(range(PROBLEMS), 0)

    async def write(ask: tts.Ask) -> tts.Answer:
        text = ask.prompt if isinstance(ask.prompt, str) else ask.prompt[0].content
        problem = int(text[text.index("(") + 1 : text.index(")")])
        number = given[problem]
        given[problem] += 1
        return tts.Answer(texts()[problem][number], tokens=10 + number)

    problems = [tts.Problem(f"What? ({i})", answer="0", id=f"problem {i}") for i in range(PROBLEMS)]
    total = {"budget": tts.Budget(samples=budget * PROBLEMS)} if shared else {"each": tts.Budget(samples=budget)}
    with tts.Solver(write, {}, task="text", strategy=f"auto(n={SAMPLES}) | majority") as solver:
        return solver.solve_many(problems, **total)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_it_is_the_search_of_a_function_model_with_these_samples(pool: tts.Pool, size: int, shared: bool):
    (curve,) = pool.replay(["auto"], [size], first=True, shared=shared)
    solutions = live(size, shared=shared)
    assert curve.curve.shares[0].tolist() == [float(one.answer == "0") for one in solutions]
    assert curve.curve.costs["samples"][0] == np.mean([one.usage.samples for one in solutions])
    assert curve.curve.costs["generated_tokens"][0] == np.mean([one.usage.generated_tokens for one in solutions])


def test_one_sample_each_is_the_first_sample(pool: tts.Pool):
    (auto, vote) = pool.replay(["auto", "best_of_n | majority"], [1], first=True)
    assert auto.curve.shares.tolist() == vote.curve.shares.tolist()


def test_a_shared_total_is_not_passed_and_goes_where_votes_disagree(pool: tts.Pool):
    (curve,) = pool.replay(["auto"], [4], first=True, shared=True)
    assert curve.curve.costs["samples"][0] <= 4
    (alone,) = pool.replay(["auto"], [4], first=True)
    assert alone.curve.costs["samples"][0] <= 4


def test_a_total_without_auto_is_refused(pool: tts.Pool):
    with pytest.raises(ConfigError, match=r"requested,.*'pass@k', 'best_of_n'") as refused:
        pool.replay(["pass@k", "best_of_n"], [2], shared=True)
    assert refused.value.hint == "add the strategy auto, or leave the total out"
    assert len(pool.replay(["auto", "pass@k"], [2], shared=True, first=True)) == 2


def test_random_orders(pool: tts.Pool):
    with pytest.raises(ConfigError, match=r"size is 99 samples of each problem.*drawn"):
        pool.replay(["auto"], [99], first=True, shared=True)
    (curve,) = pool.replay(["auto"], [2, 4], draws=3)
    assert curve.order == "all"
    assert (curve.errors > 0).any()


def test_scores_weigh_the_votes_unless_the_selection_asks_none():
    rows = [{"problem": "p", "reference": "1", "answer": ["2", "2", "1", "2"], "scores": [0.0, 0.1, 1.0, 0.0]}]
    pool = tts.Pool.from_rows(rows)
    weighed, voted = pool.replay(["auto", "auto | majority"], [4], first=True)
    assert (weighed.curve.accuracy[0].value, voted.curve.accuracy[0].value) == (1.0, 0.0)
    assert weighed.curve.label == "auto | weighted"


def test_dollars_are_of_prompts_and_output(pool: tts.Pool):
    (curve,) = pool.replay(["best_of_n | majority"], [2], first=True, prices=Prices(usd_in=1.0, usd_out=2.0))
    prompt = 3  # nine or ten bytes
    assert curve.curve.costs["usd"][0] == pytest.approx((2 * prompt + 2 * (10 + 11)) / 1e6)


def test_a_strategy_that_is_neither_is_refused(pool: tts.Pool):
    with pytest.raises(ConfigError, match=r"random.*best_of_n"):
        pool.replay(["beam(n=4)"], [4])


def test_a_pool_that_is_used_up_has_no_further_sample():
    backend = RecordedBackend({"p": written((0, None), (None, None))}, {"p": [1, 0]})
    rows = backend.sample(
        SampleRequest(("p", None, 0, 0), (Row(0, 0, 4), Row(1, 0, 10), Row(2, 0, 10)), Sampling(), StopCondition())
    )

    async def drawn() -> list[Sample]:
        return [await rows.row(i) for i in range(3)]

    cut, whole, missing = asyncio.run(drawn())
    assert (cut.text, cut.finish, cut.handle, cut.num_tokens) == ("", "length", ("p", 1, 4, 4), 4)
    assert (whole.text, whole.finish, whole.num_tokens) == ("0 0", "eos", 10)
    assert (missing.finish, missing.error) == ("error", "PoolUsedUp: the pool has no further sample")


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_live_search_on_records_charges_what_late_samples_wrote_and_counts_its_path(k: int):
    lengths = [100 * (i + 1) for i in range(8)]
    backend = RecordedBackend({"p": written(*((0, 1.0, tokens) for tokens in lengths))}, {"p": range(8)})
    plan = f"best_of_n(n=8) | first_finish(k={k}) | majority"
    with tts.Solver(backend, task=RecordedTask(), strategy=plan, expected_tokens=450) as solver:
        usage = solver.solve(Problem("p", id="p"), tts.Budget(samples=8, tokens=100_000)).usage
    last = lengths[k - 1]
    charged = usage.generated_tokens + usage.cancelled_tokens
    least = sum(min(tokens, last) for tokens in lengths)
    assert least <= charged <= least + 8 * max(16, last // 16)
    assert last <= backend.path_tokens["p"] <= last + max(16, last // 16)


def test_both_costs_of_a_row_are_of_one_run():
    """Samples that are read one after another take the time of their sum, not of the longest."""
    row = {"problem": "p", "reference": "1", "answer": ["1"] * 6, "tokens": [10 * (i + 1) for i in range(6)]}
    pool_of_ones = tts.Pool.from_rows([row], name="p", task="math")
    plans = ["best_of_n | majority", "best_of_n | in_a_row | majority", "auto(n=6)"]
    for plan, replayed in zip(plans, pool_of_ones.replay(plans, [6], draws=4), strict=True):
        costs = replayed.curve.costs
        generated, path = (float(costs[name][0]) for name in ("generated_tokens", "path_tokens"))
        if plan == plans[0]:
            assert (generated, path) == (210, 60)
        elif plan == plans[1]:
            assert generated == path < 210
        else:
            assert 10 <= path <= generated <= 210
