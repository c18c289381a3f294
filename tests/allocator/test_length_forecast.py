from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import tts
from tests.search.written import PROBLEM
from tts.allocator.length_forecast import LengthForecast, features
from tts.allocator.ridge import ridge
from tts.backends.toy.backend import ToyBackend
from tts.errors import ConfigError
from tts.types import Problem


def sums(count: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Return problems and their numbers of terms."""
    terms = rng.integers(2, 20, count)
    return [" + ".join(str(n) for n in rng.integers(1, 90, size)) for size in terms], terms


def lengths(terms: np.ndarray, rng: np.random.Generator, samples: int = 4) -> list[list[int]]:
    """Return lengths in proportion to the terms, with lognormal noise."""
    return [[max(1, round(12 * n * math.exp(0.3 * z))) for z in rng.standard_normal(samples)] for n in terms.tolist()]


@pytest.mark.parametrize("quantile", [0.5, 0.85])
def test_it_covers_the_share_that_was_asked_for_on_new_problems(quantile: float) -> None:
    rng = np.random.default_rng(1)
    prompts, terms = sums(150, rng)
    forecast = LengthForecast.fit(prompts, lengths(terms, rng), quantile=quantile)
    new, sizes = sums(1000, rng)
    told = np.array([forecast(Problem(text)) for text in new])
    within = np.array(
        [np.mean([one <= most for one in of]) for of, most in zip(lengths(sizes, rng), told, strict=True)]
    )
    # the fit's own share varies by the 150 problems it has, the measured one by 1,000
    error = math.sqrt(quantile * (1 - quantile) * (1 / 150 + 1 / 1000))
    assert abs(within.mean() - quantile) < 4 * error
    exact = 12 * sizes * math.exp(0.3 * {0.5: 0.0, 0.85: 1.036}[quantile])
    assert np.abs(np.log(told / exact)).mean() < 0.15
    constant = np.full(len(sizes), np.quantile(np.concatenate(lengths(terms, rng)), quantile))
    assert np.abs(np.log(told / exact)).mean() < 0.3 * np.abs(np.log(constant / exact)).mean()


@pytest.mark.slow
def test_where_prompts_tell_nothing_it_is_the_quantile_of_all_lengths() -> None:
    rng = np.random.default_rng(2)
    prompts = [f"{a} + {b}" for a, b in rng.integers(10, 99, (200, 2)).tolist()]
    tokens = [[int(n)] for n in np.round(np.exp(5 + 0.5 * rng.standard_normal(200)))]
    told = np.array([LengthForecast.fit(prompts, tokens)(Problem(text)) for text in prompts[:50]])
    assert told.mean() == pytest.approx(np.quantile(np.concatenate(tokens), 0.85), rel=0.15)


def test_a_problem_with_many_solutions_counts_once() -> None:
    prompts = [f"{n} + 1" for n in range(10, 40)]
    few = LengthForecast.fit(prompts, [[50]] * 29 + [[50]])
    many = LengthForecast.fit(prompts, [[50]] * 29 + [[50] * 500])
    assert few(Problem("12 + 1")) == many(Problem("12 + 1")) == 50


def test_what_is_far_from_all_it_was_fitted_to_is_held_within_them() -> None:
    rng = np.random.default_rng(3)
    prompts, terms = sums(60, rng)
    forecast = LengthForecast.fit(prompts, lengths(terms, rng))
    assert forecast(Problem("1 + 2 " * 50_000)) == math.ceil(math.exp(forecast.high + forecast.above))


def test_the_penalty_is_the_best_and_left_out_means_left_out() -> None:
    """Against fits without each row in turn, by the normal equations."""
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((30, 5)), rng.standard_normal(30)
    weight, bias, left_out = ridge(x, y, "x")
    scale, best = float(x.std()), (math.inf, np.empty(0), np.empty(0), 0.0)
    centered, mean = (x - x.mean(axis=0)) / scale, y.mean()
    for penalty in np.geomspace(1e-3, 1e5, 25):
        gram = centered.T @ centered + penalty * np.eye(5)
        hat = centered @ np.linalg.solve(gram, centered.T) + 1 / 30
        said = hat @ y
        out = y - (y - said) / (1 - np.diag(hat))
        fit = np.linalg.solve(gram, centered.T @ (y - mean)) / scale
        best = min(best, (float(((out - y) ** 2).mean()), out, fit, 0.0), key=lambda one: one[0])
    assert left_out == pytest.approx(best[1])
    assert weight == pytest.approx(best[2])
    assert bias == pytest.approx(mean - x.mean(axis=0) @ weight)


def test_it_is_saved_and_read_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    prompts, terms = sums(20, rng)
    forecast = LengthForecast.fit(prompts, lengths(terms, rng))
    forecast.save(tmp_path / "lengths.json")
    again = LengthForecast.load(tmp_path / "lengths.json")
    assert [again(Problem(text)) for text in prompts] == [forecast(Problem(text)) for text in prompts]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "no forecast of lengths of format 1"),
        ({"weight": [1.0]}, "finite weights"),
        ({"above": None}, "finite weights"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, change: dict[str, object], message: str) -> None:
    prompts = [f"{n} + 1" for n in range(10)]
    LengthForecast.fit(prompts, [[5]] * 10).save(tmp_path / "f.json")
    (tmp_path / "f.json").write_text(json.dumps(json.loads((tmp_path / "f.json").read_text()) | change))
    with pytest.raises(ConfigError, match=message) as refused:
        LengthForecast.load(tmp_path / "f.json")
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        LengthForecast.load(tmp_path / "none.json")


def test_bad_lengths_are_refused() -> None:
    prompts = [f"{n} + 1" for n in range(12)]
    for tokens, message in (
        ([[5]] * 11, "tokens has 11 problems"),
        ([[5]] * 11 + [[]], "tokens\\[11\\]"),
        ([[5]] * 11 + [[0]], "at least 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            LengthForecast.fit(prompts, tokens)
    with pytest.raises(ConfigError, match="at least 10 problems"):
        LengthForecast.fit(prompts[:9], [[5]] * 9)
    with pytest.raises(ConfigError, match="quantile is 1"):
        LengthForecast.fit(prompts, [[5]] * 12, quantile=1)


def test_a_search_sizes_its_first_rows_by_it() -> None:
    """As it does by the same number."""
    asked: list[str] = []

    def expected(problem: Problem) -> int:
        asked.append(problem.text)
        return 40

    options = {"model": ToyBackend(), "strategy": "best_of_n | majority", "seed": 3}
    told, plain = (tts.solve(PROBLEM, 300, expected_tokens=one, **options) for one in (expected, 40))  # type: ignore[arg-type]
    assert asked == [PROBLEM]
    assert [c.trajectory.full_text for c in told.candidates] == [c.trajectory.full_text for c in plain.candidates]
    assert told.usage.tokens == plain.usage.tokens


@pytest.mark.parametrize("wrong", [0, -3, 2.5, "many", None])
def test_a_function_that_tells_no_length_is_refused_before_anything_is_spent(wrong: object) -> None:
    backend = ToyBackend()
    with pytest.raises(ConfigError, match="expected_tokens of a problem is"):
        tts.solve(PROBLEM, 300, model=backend, expected_tokens=lambda problem: wrong)  # type: ignore[arg-type,return-value]
    assert backend.counters.prompt_tokens == 0


def test_features_are_finite_for_any_text() -> None:
    found = features(["", " ", "a" * 100_000, "\ud800 é 漢字", "1.5 <= x ^ 2\n\n"])
    assert found.shape[0] == 5
    assert np.isfinite(found).all()
