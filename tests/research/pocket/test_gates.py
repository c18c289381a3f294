"""Gates are functions of what was drawn: each is met by what it asks for, and missed by what it does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

pytest.importorskip("research.pocket", reason="research is no part of the wheel")

from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.problems import Cell, draw_item
from research.pocket.gates import gates
from research.pocket.gates.__main__ import head_of
from research.pocket.gates.drawing import FRESH_SEED, Pool, Sampled, StepRead, draw_problems
from tts.errors import ConfigError
from tts.models import registry
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.countdown import CountdownProblem

INTERVALS = Intervals(0)
ITEM = draw_item(Cell("plain-2", 1), "test", 1, 0)


def pools(readings: Sequence[tuple[bool, float]], count: int = 30) -> list[Pool]:
    return [Pool(ITEM, tuple(Sampled(right, reading, -1.0) for right, reading in readings)) for _ in range(count)]


@pytest.mark.parametrize(
    ("readings", "met"), [([(True, 0.9), (False, 0.1)] * 4, True), ([(True, 0.1), (False, 0.1)] * 4, False)]
)
def test_samples_must_be_ranked_within_problems(readings: Sequence[tuple[bool, float]], met: bool) -> None:
    process, free, _ = gates.auc_of_samples(pools(readings), INTERVALS)
    assert process.met is met
    assert free.met is None
    assert free.found.startswith("0.500 ")
    assert free.found.endswith("30 problems with both kinds")


def test_the_gates_are_of_the_process_model_that_the_pair_scores_by() -> None:
    assert [head_of(registry.get("pocket"), kind) for kind in ("arithmetic", "countdown")] == ["likelihood", "reach"]
    assert head_of(registry.get("pocket-process"), "arithmetic") == "process"  # which names no verifier
    free = dataclasses.replace(registry.get("pocket"), task_verifiers=(("pocket", "confidence"),))
    with pytest.raises(ConfigError, match=r"arithmetic.*confidence"):
        head_of(free, "arithmetic")


@pytest.mark.parametrize(("good", "met"), [(0.8, True), (0.2, False)])
def test_steps_must_be_ranked_within_states(good: float, met: bool) -> None:
    steps = [
        StepRead(2 * i + d, i, d, good if leads else 0.5, leads)
        for i in range(30)
        for d in (0, 1)
        for leads in (True, False)
    ]
    found = gates.auc_of_steps(steps, INTERVALS)
    assert [gate.met for gate in found] == [met, None, None]
    assert "60 states" in found[0].found


def test_a_doubling_that_falls_is_found() -> None:
    first = (True, 0.5)
    falling = gates.best_of_n(pools([first, (False, 0.9), *[(False, 0.1)] * 30]), "it", INTERVALS, wanted=0.65)
    assert "falls: 1 to 2" in falling[0].found
    assert [gate.met for gate in falling] == [False, False]
    rising = gates.best_of_n(pools([(False, 0.1), (True, 0.9), *[(False, 0.2)] * 30]), "it", INTERVALS, wanted=0.65)
    assert [gate.met for gate in rising] == [True, True]
    assert "1: 0.000, 2: 1.000" in rising[0].found


@pytest.mark.parametrize(("reading", "met"), [(0.5, True), (0.7, False)])
def test_readings_must_be_calibrated(reading: float, met: bool) -> None:
    assert gates.calibration(pools([(True, reading), (False, reading)]), "it", INTERVALS).met is met


@pytest.mark.parametrize(("right", "met"), [(199, True), (190, False)])
def test_sums_must_be_computed(right: int, met: bool) -> None:
    found = gates.computing_gate([*pools([(True, 0.5)], right), *pools([(False, 0.5)], 200 - right)], INTERVALS)
    assert found.met is met
    assert found.found.startswith(f"{right / 200:.3f} ")


def test_the_rung_is_the_one_whose_accuracy_is_nearest() -> None:
    rungs = {size: pools([(i < right, 0.5) for i in range(10)], 2) for size, right in ((3, 9), (4, 6), (5, 3), (6, 0))}
    assert gates.nearest_rung(dict(rungs)) == 5


def test_a_gate_is_a_row_of_a_table() -> None:
    assert str(gates.Gate("a | b", "1", met=True)) == r"| a \| b | 1 | met |"
    assert str(gates.Gate("a", "1", met=False)).endswith("| MISSED |")
    assert str(gates.Gate("a", "1", met=None)).endswith("| 1 |  |")


def test_problems_are_fresh_and_of_the_test_split() -> None:
    for item in draw_problems(Cell("countdown", 4), "test", 5):
        assert isinstance(item.asked, CountdownProblem)
        assert countdown.split_of(item.asked) == "test"
        assert f"/{FRESH_SEED}/" in (item.problem.id or "")


def test_the_ladder_tells_one_sample_and_any_of_them_by_rung() -> None:
    rungs = {
        3: pools([(True, 0.5), (False, 0.5)], 2),
        4: [*pools([(False, 0.5)] * 2, 1), *pools([(True, 0.5), (False, 0.5)], 1)],
    }
    found = gates.ladder(rungs)
    assert found.found == "3: 0.500, 1.000 of 2; 4: 0.250, 0.500 of 2"
    assert found.met is None
