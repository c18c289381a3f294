"""A performance model from recorded pools: monotone curves of plain sampling, and what cannot be fitted is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.experiments.pools import live, sums
from tts.allocator.performance import PerformanceModel
from tts.errors import ConfigError
from tts.experiments.fit import fit


def test_a_study_of_pools_becomes_a_model_that_survives_its_file():
    results = live("best_of_n", 8, sums(24))
    model = fit(results, task="arithmetic", source="toy")
    assert model.problems == 24
    assert set(model.curves) == {"best_of_n | majority", "best_of_n | weighted"}
    for curve in model.curves.values():
        assert (np.diff(curve.sizes) > 0).all()
        assert (np.diff(curve.accuracy, axis=0) >= -1e-5).all()
        assert (np.diff(curve.accuracy, axis=1) >= -1e-5).all()
    easy = model.curves["best_of_n | majority"].accuracy[-1, -1]
    assert easy > 0.8
    read = PerformanceModel.from_json(model.to_json())
    assert read.population.weight == pytest.approx(model.population.weight, abs=1e-5)
    for text, curve in model.curves.items():
        assert read.curves[text].accuracy == pytest.approx(curve.accuracy, abs=1e-5)


def test_too_few_problems_are_refused():
    with pytest.raises(ConfigError, match=r"pools of 8 problems .* at least 20"):
        fit(live("best_of_n", 4), task="arithmetic", source="toy")
