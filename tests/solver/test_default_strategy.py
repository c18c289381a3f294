"""What runs where no strategy was named: `auto`, by the performance model of model, task and verifiers where one
ships.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tts
from tts.allocator import shipped
from tts.allocator.difficulty import RATES, Population
from tts.allocator.performance import PerformanceCurve, PerformanceModel
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.errors import ConfigError
from tts.models import registry
from tts.registry import parse_call
from tts.solver.model_cache import own_verifier
from tts.verifiers import VERIFIERS
from tts.verifiers.making import describe_verifier


def fitted(**changes) -> PerformanceModel:
    sizes = np.array([1.0, 4.0, 16.0])
    curve = PerformanceCurve(sizes, np.outer(RATES, [0.8, 0.9, 1.0]), np.zeros((len(RATES), 3)))
    model = PerformanceModel(
        model="toy",
        task="arithmetic",
        verifiers={},
        source="a test",
        problems=50,
        tokens=20.0,
        population=Population.beta(),
        curves={"best_of_n | majority": curve},
    )
    return dataclasses.replace(model, _tables={}, **changes)


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """Ship performance models by name, in place of those of the package."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    shipped.names.cache_clear()
    shipped._load_model.cache_clear()

    def add(**models):
        for name, model in models.items():
            model.save(tmp_path / f"{name}.json")

    yield add
    monkeypatch.undo()
    shipped.names.cache_clear()
    shipped._load_model.cache_clear()


def test_auto_is_the_default_where_a_performance_model_ships(ship):
    ship(sums=fitted(), guided=fitted(verifiers={"main": "toy(error=0.2)"}))
    for verifiers, name in (({}, "sums"), ("toy(error=0.2)", "guided")):
        with tts.Solver("toy", verifiers) as solver:
            end = solver.solve("3 + 4 - 2", 400)
            assert end.strategy == f"auto(model='{name}') | majority"  # the selection of its curve
            assert not end.warnings
            assert end.trace.reasons
            assert (
                solver.solve("3 + 4 - 2", 400, strategy="auto(n=2)").strategy == f"auto(n=2, model='{name}') | majority"
            )
    with tts.Solver("toy", {}) as solver:  # the default shares a total by what samples are worth
        ends = solver.solve_many(["1 + 1"] * 3 + ["9 - 4 + 7 - 5 + 8"] * 3, tts.Budget(samples=60))
    assert sum(end.usage.samples for end in ends) <= 60
    assert ends[0].usage.samples != ends[-1].usage.samples


def test_without_a_performance_model_it_is_auto_too_by_scores_or_votes(ship):
    ship(other=fitted(model="another"))
    for verifiers, strategy in (("toy(error=0.1)", "auto | weighted"), ({}, "auto | majority")):
        with tts.Solver("toy", verifiers) as solver:
            end = solver.solve("3 + 4", 300)
            ends = solver.solve_many(["3 + 4", "5 - 1"], tts.Budget(samples=9))
        assert end.strategy == strategy
        assert end.trace.reasons
        assert not end.warnings
        assert {one.strategy for one in ends} == {strategy}


def test_free_text_without_a_verifier_is_one_greedy_sample_and_says_what_would_make_more_worth_it(ship):
    ship()
    seen = []

    def write(ask: tts.Ask) -> str:
        seen.append(ask.temperature)
        return f"leaf {len(seen)}"

    with tts.Solver(FunctionBackend(write)) as solver:
        end = solver.solve("Write a haiku.", tts.Budget(samples=20))
        judged = tts.Solver(FunctionBackend(write), lambda problem, text: 0.5).solve(
            "Write a haiku.", tts.Budget(samples=5)
        )
    assert (end.strategy.partition(" |")[0], seen[0], end.usage.samples) == ("single(temperature=0)", 0.0, 1)
    [line] = [line for line in end.warnings if "one greedy sample" in line]
    assert all(word in line for word in ("judge", "task='math'", "medoid"))
    assert judged.strategy == "auto | weighted"
    assert not any("greedy" in line for line in judged.warnings)


def test_a_performance_model_of_something_else_is_used_and_warned_of(ship, tmp_path):
    ship()
    fitted(task="stories").save(tmp_path / "of_stories")
    with tts.Solver("toy", {}) as solver:
        end = solver.solve("3 + 4", 300, strategy=f"auto(model={str(tmp_path / 'of_stories')!r})")
    assert any(
        "is of something else: it was fitted to the task 'stories', and this is 'arithmetic'" in line
        for line in end.warnings
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no JSON"),
        ('{"format": 0}', "format: it is 0, but must be 1"),
        ("{}", "format is missing, but must be given"),
    ],
)
def test_a_damaged_file_is_one_clear_line(ship, tmp_path, text, why):
    ship()
    (tmp_path / "broken").write_text(text)
    with tts.Solver("toy", {}) as solver, pytest.raises(ConfigError, match=why) as caught:
        solver.solve("3 + 4", 300, strategy=f"auto(model={str(tmp_path / 'broken')!r})")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["process", "toy(error=0.3)", "self_evaluation"])
def test_verifiers_are_described_as_they_are_written(text):
    assert describe_verifier(parse_call(VERIFIERS, text)) == text


def test_the_first_sample_is_drawn_as_the_performance_model_found_best(ship, monkeypatch):
    ship(sums=fitted(first=0.0))
    seen = []
    sample = ToyBackend.sample
    monkeypatch.setattr(
        ToyBackend,
        "sample",
        lambda self, request: (seen.append(request.sampling.temperature), sample(self, request))[1],
    )
    with tts.Solver("toy", {}, sampling=tts.Sampling(temperature=0.7)) as solver:
        end = solver.solve("3 + 4 - 2 + 8", tts.Budget(samples=6), strategy="auto(price=0.0)")
        ends = solver.solve_many(["3 + 4 - 2 + 8", "5 - 1"], tts.Budget(samples=2))
    assert seen[0] == 0.0
    assert set(seen[1:-2]) == {0.7}
    assert seen[-2:] == [0.0, 0.0]
    assert (end.usage.samples, [one.usage.samples for one in ends]) == (6, [1, 1])


@pytest.mark.slow
def test_a_search_that_a_shared_budget_grants_is_as_wide_as_what_was_granted():
    for module in ("torch", "transformers", "numba"):
        pytest.importorskip(module)
    problems = [
        f"{a} + {b} * 3 - {a + b} * 2"
        for a, b in ((12, 7), (41, 5), (33, 8), (27, 4), (56, 9), (64, 3), (19, 6), (72, 2))
    ]
    with tts.Solver("pocket") as solver:
        alone = solver.solve_many(problems, each=tts.Budget(samples=1), strategy="single")
        total = 8 * sum(one.usage.flops or 0 for one in alone)
        ends = solver.solve_many(problems, tts.Budget(flops=total))
    # without a width, one search would have spent all that was left
    assert max(one.usage.flops or 0 for one in ends) < 0.5 * total
    assert sum(one.usage.samples > 1 for one in ends) >= 6


@pytest.mark.parametrize(
    ("name", "task", "verifier"),
    [("pocket", "pocket", "process"), ("pocket-likelihood", "pocket", ""), ("pocket-countdown", "countdown", "")],
)
def test_the_pair_s_performance_models_ship_and_are_of_problems_that_nothing_is_measured_on(name, task, verifier):
    known = shipped.load(name)
    # its own: the default
    of = {"main": verifier or describe_verifier(parse_call(VERIFIERS, own_verifier(registry.get("pocket"), task)))}
    assert (known.fits("pocket", task, of), known.source.rpartition("-")[0] if not verifier else known.source) == (
        "",
        "allocator-pools-validation",
    )
    assert shipped.fitting("pocket", task, of) == name
    assert shipped.fitting("pocket", task, {}) is None
    assert known.problems >= 400
