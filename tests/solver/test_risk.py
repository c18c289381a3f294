"""`solve(risk=…, calibration=…)`: an answer that is not sure enough is not given, and a calibration holds for its own
use alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tts.backends.base import Sampling
from tts.errors import CapabilityError, ConfigError
from tts.search.algorithms.calibration import proposers
from tts.solver.risk import CalibratedUse, sampling_text, use_of
from tts.solver.thresholds import ProblemOutcomes, Thresholds

SUM, BUDGET, PLAN = "3 + 4 - 2 + 9", {"samples": 8}, "best_of_n(n=8) | majority"
USE = {
    "model": "policy=toy", "strategy": PLAN, "budget": "samples=8", "task": "arithmetic", "verifiers": "none",
}  # fmt: skip


def use(**changes: str) -> CalibratedUse:
    with tts.Solver("toy", "none", task="arithmetic") as solver:
        run = solver.prepare(SUM, BUDGET, strategy=PLAN)
        return CalibratedUse(**{**USE, "sampling": use_of(run).sampling, **changes})


def thresholds(least: float, **changes: str) -> Thresholds:
    """Return thresholds that answer from a confidence on: all answers below are wrong."""
    names = [str(i) for i in range(300)]
    proposes = proposers(names)
    confidences = [least if i % 2 else least / 2 for i in range(300)]
    link = ProblemOutcomes(use=use(**changes), confidences=confidences, right=[one == least for one in confidences])
    assert 90 < sum(proposes) < 110
    return Thresholds.calibrate(names, [link], level=0.05)


def solve(**options: Any) -> tts.Solution:
    usual = {"budget": BUDGET, "model": "toy", "verifier": "none", "task": "arithmetic", "strategy": PLAN}
    return tts.solve(SUM, **{**usual, **options})


def test_an_answer_is_given_where_it_is_sure_enough() -> None:
    confidence = solve().confidence
    sure = solve(risk=0.05, calibration=thresholds(confidence))
    assert (sure.answer, sure.abstained, sure.confidence) == (solve().answer, "", confidence)
    unsure = solve(risk=0.05, calibration=thresholds(confidence + 0.01))
    assert unsure.answer is None
    assert unsure.confidence == confidence
    assert (
        unsure.abstained
        == f"no answer is given: the confidence is {confidence:.3g}, but {confidence + 0.01:.3g} is needed for a risk "
        "of 0.05"
    )
    assert unsure.abstained in unsure.warnings
    assert unsure.receipt().parts is None


def test_files_come_back_equal_and_state_their_guarantee(tmp_path: Path) -> None:
    made, path = thresholds(0.5), tmp_path / "thresholds.json"
    made.save(path)
    assert Thresholds.read(path) == made
    assert solve(risk=0.05, calibration=path).answer == solve().answer
    assert solve(risk=0.1, calibration=path).answer == solve().answer, "a lower level keeps a higher one"
    data = json.loads(path.read_text())
    assert (data["level"], data["delta"], data["n"], data["tested"]) == (0.05, 0.05, 300, 300)
    for words in (
        "exchangeable with the 300 calibration problems",
        "at most a share 0.05 is wrong",
        "Clopper and Pearson",
        "fallback procedure",
    ):
        assert words in data["guarantee"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"strategy": "best_of_n(n=4) | majority"},
            "the calibration is for the strategy 'best_of_n(n=8) | majority', but this is",
        ),
        ({"budget": 400}, "the calibration is for the budget 'samples=8', but this is"),
        ({"temperature": 0.3}, "the calibration is for the sampling "),
        ({"task": "text"}, "the calibration is for the task 'arithmetic', but this is 'text'"),
        (
            {"verifier": "toy(error=0.2)"},
            "the calibration is for the verifiers 'none', but this is 'main=toy(error=0.2)'",
        ),
        ({"model": "toy-thinking"}, "the calibration is for the model 'policy=toy', but this is 'policy=toy-thinking'"),
    ],
)
def test_another_use_is_refused_by_the_name_of_what_differs(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        solve(risk=0.05, calibration=thresholds(0.5), **changes)
    assert str(refusal.value).startswith(named)
    assert str(refusal.value).endswith("(hint: calibrate it: tts calibrate)")


def test_bad_input_is_refused_in_one_line(tmp_path: Path) -> None:
    made, path = thresholds(0.5), tmp_path / "thresholds.json"
    for options, told in (
        ({"risk": 0.05}, r"risk is 0\.05, but needs a calibration"),
        ({"calibration": made}, "a calibration is given, but no risk"),
        ({"risk": 0.01, "calibration": made}, r"risk is 0\.01, but the calibration keeps 0\.05"),
        ({"risk": 0, "calibration": made}, "risk is 0, but must be above 0 and below 1"),
        ({"risk": True, "calibration": made}, "risk is True, but must be above 0 and below 1"),
        ({"risk": 0.05, "calibration": path}, "but cannot be read"),
    ):
        with pytest.raises(ConfigError, match=told):
            solve(**options)
    path.write_text("no JSON")
    with pytest.raises(ConfigError, match=r"read: it.*JSON"):
        solve(risk=0.05, calibration=path)
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"but.*calibrate: guarantee.*missing"):
        solve(risk=0.05, calibration=path)
    made.save(path)
    path.write_text(path.read_text().replace("samples=8", "samples=80"))
    with pytest.raises(ConfigError, match="but its fields were changed"):
        solve(risk=0.05, calibration=path)


@pytest.mark.parametrize(
    "field", ["threshold", "level", "delta", "tried", "n", "bound", "guarantee", "strategy", "digest"]
)
def test_a_file_in_which_any_field_was_changed_is_refused(tmp_path: Path, field: str) -> None:
    path = tmp_path / "thresholds.json"
    thresholds(0.5).save(path)
    data = json.loads(path.read_text())
    part = data if field in data else data["links"][0]
    part[field] = part[field] + "x" if isinstance(part[field], str) else part[field] * 0.9 if field != "tried" else 2
    data["n"] = int(data["n"])
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="but its fields were changed"):
        Thresholds.read(path)


def test_plans_that_are_tried_on_one_set_share_delta(tmp_path: Path) -> None:
    names = [str(i) for i in range(300)]
    link = ProblemOutcomes(use=use(), confidences=[0.5] * 300, right=[i % 50 > 0 for i in range(300)])
    one, four = (Thresholds.calibrate(names, [link], level=0.1, of=of) for of in (1, 4))
    assert (one.tried, four.tried) == (1, 4)
    assert four.bound == Thresholds.calibrate(names, [link], level=0.1, delta=0.05 / 4).bound > one.bound
    assert "4 plans were tried" in four.guarantee
    four.save(tmp_path / "thresholds.json")
    assert json.loads((tmp_path / "thresholds.json").read_text())["tried"] == 4
    for of in (0, -1, 1.5):
        with pytest.raises(ConfigError, match="of is"):
            Thresholds.calibrate(names, [link], level=0.1, of=of)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_many_plans_on_one_set_seldom_give_a_file_that_does_not_keep_its_level() -> None:
    names, rng = [str(i) for i in range(300)], np.random.default_rng(5)
    num_false = {1: 0, 16: 0}
    for _ in range(30):
        plans = [(rng.random(300).tolist(), (rng.random(300) > 0.06).tolist()) for _ in range(16)]
        for of in num_false:
            num_false[of] += any(map(lambda plan, of=of: _is_found(names, *plan, of=of), plans))
    assert num_false[16] <= 2 < num_false[1]


def _is_found(names: list[str], confidences: list[float], right: list[bool], *, of: int) -> bool:
    """Return whether thresholds are found; no threshold keeps the level."""
    link = ProblemOutcomes(use=use_of_test, confidences=confidences, right=right)
    try:
        Thresholds.calibrate(names, [link], level=0.05, of=of)
    except ConfigError:
        return False
    return True


use_of_test = CalibratedUse(**USE, sampling="")


def test_a_calibration_of_a_chain_is_refused_for_a_single_search() -> None:
    names = [str(i) for i in range(300)]
    link = ProblemOutcomes(use=use(), confidences=[0.5] * 300, right=[True] * 300)
    with pytest.raises(ConfigError, match=r"calibration.*chain.*2,.*1"):
        solve(risk=0.05, calibration=Thresholds.calibrate(names, [link, link], level=0.05))


def test_a_problem_that_comes_twice_is_refused() -> None:
    link = ProblemOutcomes(use=use(), confidences=[0.5] * 300, right=[True] * 300)
    with pytest.raises(ConfigError, match="'0' comes"):
        Thresholds.calibrate(["0", *map(str, range(299))], [link], level=0.05)


def test_penalties_are_part_of_a_use_and_leave_older_digests_as_they_were() -> None:
    plain = "temperature=0.8, top_p=1.0, top_k=0, min_p=0.0, max_tokens=None, effort=''"
    assert sampling_text(Sampling()) == plain
    assert (
        sampling_text(Sampling(presence_penalty=0.5, logit_bias={7: 1}))
        == f"{plain}, presence_penalty=0.5, logit_bias=((7, 1),)"
    )


@pytest.mark.parametrize(
    ("name", "value"), [("effort", "low"), ("presence_penalty", 0.5), ("frequency_penalty", 1), ("logit_bias", {7: 1})]
)
def test_sampling_that_a_backend_does_not_obey_is_refused_before_anything_is_spent(name: str, value: Any) -> None:
    account = tts.Account(tts.Budget(tokens=400))
    with pytest.raises(CapabilityError, match=f"^{name} is .*but the backend 'toy' does not take it"):
        tts.solve("3 + 4 - 2", account, model="toy", strategy="single", sampling=tts.Sampling(**{name: value}))
    assert account.ledger.calls == []
