"""Log-probabilities that no model has, of one token or of all, end no search."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.odd import OddLogprobs
from tts.backends.base import Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.finite import LEAST_LOGPROB, clean_law, clean_spreads
from tts.search.parts import STRATEGIES
from tts.solver.solver import Solver
from tts.types import Spread
from tts.verifiers.confidence import Confidence

ODD = (-9999.0, -math.inf, math.nan, None, 0.1, math.inf, 1e300, -1e308)
READERS = (
    "auto", "deepconf_online", "entropic_particle_filter", "guided_by_gut", "mur(branching=3)", "best_of_n | rpc",
    "best_of_n | deepconf", "phi_decoding(beams=8, branching=1, deviations=0)", "phi_decoding(n=3, beams=3)",
    "power_sampling(chains=3, moves=3, block=8)", "power_smc(n=6, block=4)",
)  # fmt: skip
MODELS = [OddLogprobs(value, every=every) for value in ODD for every in (False, True)] + [
    OddLogprobs(None, missing=True)
]


def search(plan: str, model: OddLogprobs, verifier: Any, seed: int) -> tts.Solution:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return tts.solve(
            "3 + 4 - 2 + 9", 400, backend=model, task="arithmetic", strategy=plan, verifier=verifier, seed=seed
        )


@pytest.mark.parametrize("plan", READERS)
def test_no_log_probability_ends_a_search(plan: str) -> None:
    for model in MODELS:
        for over in ("mean", "sum"):
            found = search(plan, model, Confidence(measure="logprob", over=over, odds=(1.0, 0.0)), seed=2)
            assert found.error is None
            assert found.answer in {c.answer for c in found.candidates}
            assert all(
                LEAST_LOGPROB <= value <= 0 for c in found.candidates for t in c.trajectory.path for value in t.logprobs
            )


@pytest.mark.slow
@pytest.mark.parametrize("plan", STRATEGIES.names())
def test_no_log_probability_ends_a_search_of_any_strategy(plan: str) -> None:
    with Solver(OddLogprobs(None), task="arithmetic", strategy=plan) as solver:
        try:
            solver.solve("3 + 4", 100)
        except tts.errors.ConfigError:  # the toy lacks what it takes
            return
    for model in MODELS:
        for verifier in (
            "toy(error=0.1)",
            "confidence",
            Confidence(measure="logprob", over="sum", odds=(1.0, 0.0)),
            Confidence(over="lowest", window=2),
        ):
            for seed in range(5):
                assert search(plan, model, verifier, seed).error is None


def test_a_row_whose_log_probabilities_are_not_all_known_has_none() -> None:
    given: Any = [(-1.0, None), (math.nan, -1.0), (-1.0, "x"), (-math.inf, 0.1), (-1.0, -2.0)]
    request = SampleRequest(None, tuple(Row(i, 0, 2) for i in range(len(given))), Sampling(), StopCondition())
    rows = RowSet(request)
    for i, values in enumerate(given):
        rows.resolve(
            i, Sample("ab", (), values, "stop", None, 2, spreads=(Spread(math.nan, 1.0), Spread(math.nan, values[0])))
        )
    samples = [sample for sample in rows.samples if sample is not None]
    assert [sample.logprobs for sample in samples] == [(), (), (), (LEAST_LOGPROB, 0.0), (-1.0, -2.0)]
    assert [len(sample.spreads) for sample in samples] == [2, 0, 2, 2, 2]
    assert clean_spreads([Spread(-1.0, math.inf)]) == (Spread(0.0, -LEAST_LOGPROB),)


def test_a_law_of_next_tokens_is_at_most_one_or_unknown() -> None:
    law = clean_law([[0.1, None], [-1.0, math.nan]])
    assert law[:, 0].tolist() == [0.0, -1.0]
    assert np.isnan(law[:, 1]).all()


def test_steps_too_unlikely_for_a_weight_fill_the_width_by_their_order() -> None:
    from tts_addons.zoo.phi_decoding import wide_enough

    steps = np.array([-3000.0, -0.1, -5000.0, -4000.0, -0.2])
    assert wide_enough(steps, 4, 0.0, np.random.default_rng(0)) == [0, 1, 3, 4]
