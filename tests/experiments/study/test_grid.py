from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.experiments.studies import SUMS, toy
from tts.errors import ConfigError
from tts.experiments.run.local_executor import LocalExecutor
from tts.experiments.study import grid
from tts.experiments.study.grid import Setting, cells, digest, load_problems, shard
from tts.types import Message

SETTING = Setting(
    task="arithmetic",
    typical_tokens=20,
    identity={"policy": "toy"},
    sampling={"temperature": 0.8},
    verifiers={"main": "toy"},
    strategies={"best_of_n | majority": "best_of_n | majority", "best_of_n | best": "best_of_n | best"},
    scoring={},
    usd_per_token=None,
)
SETTINGS = {("toy", "pocket"): SETTING}


def keys(config: Any = None, setting: Setting = SETTING) -> list[str]:
    config = toy() if config is None else config
    return [cell.key for cell in cells(config, load_problems(config), {("toy", "pocket"): setting})]


def test_a_digest_is_the_same_on_every_machine():
    assert digest(b=[1, None], a="ü") == "9d57496cc00f5bc8e497bb536b5910e6d35ca5ec7384dd44272f95ce0ad31c4d"


def test_every_combination_is_a_cell_and_has_a_key_of_its_own():
    config = toy(seeds=3)
    made = list(cells(config, load_problems(config), SETTINGS))
    assert len(made) == len({cell.key for cell in made}) == 6 * 2 * 2 * 3
    assert {(cell.strategy, cell.budget["samples"], cell.seed) for cell in made} == {
        (strategy, samples, seed) for strategy in config.strategies for samples in (1, 4) for seed in range(3)
    }
    assert {cell.setting for cell in made} == {SETTING.digest}


def test_what_is_asked_for_again_has_the_same_keys():
    few = set(keys())
    assert few < set(keys(toy(limit=10)))
    assert few < set(keys(toy(seeds=2)))
    assert few < set(keys(toy(budgets=[{"samples": [1, 4]}, 90])))
    assert few == set(keys(toy(concurrency=3, name="other")))


@pytest.mark.parametrize("shown", [{"group_by": "operations"}, {"name": "sums"}])
def test_what_is_only_shown_is_not_in_the_key(shown: dict[str, Any]):
    assert keys() == keys(toy(problems={**SUMS, "limit": 6, **shown}))


def test_what_a_model_is_called_is_not_in_the_key():
    config = toy(models={"called": "toy"})
    assert keys() == [cell.key for cell in cells(config, load_problems(config), {("called", "pocket"): SETTING})]


@pytest.mark.parametrize(
    "setting",
    [
        dataclasses.replace(SETTING, identity={"policy": "toy of another law"}),
        dataclasses.replace(SETTING, sampling={"temperature": 0.7}),
        dataclasses.replace(SETTING, verifiers={"main": "toy(error=0.1)"}),
        dataclasses.replace(SETTING, task="pocket"),
    ],
)
def test_whatever_results_depend_on_is_in_the_key(setting: Setting):
    assert not set(keys()) & set(keys(setting=setting))


@pytest.mark.parametrize(
    "changes",
    [{"seeds": [5]}, {"budgets": {"samples": [2]}}, {"record": {"candidates": True}}],
)
def test_whatever_the_study_changes_of_a_cell_is_in_the_key(changes: dict[str, Any]):
    assert not set(keys()) & set(keys(toy(**changes)))


def test_the_version_of_results_is_in_the_key(monkeypatch: pytest.MonkeyPatch):
    before = keys()
    monkeypatch.setattr(grid, "RESULT_VERSION", grid.RESULT_VERSION + 1)
    assert not set(before) & set(keys())


def test_a_problem_is_told_by_its_id_prompt_and_answer():
    (problem,) = load_problems(toy(limit=1))["arithmetic"].values()
    others = [
        dataclasses.replace(problem, id="other"),
        dataclasses.replace(problem, prompt="1 + 1"),
        dataclasses.replace(problem, prompt=(Message("user", problem.text),)),
        dataclasses.replace(problem, answer="7"),
        dataclasses.replace(problem, answer=None),
    ]
    assert len({grid.problem_digest(one) for one in [problem, *others]}) == 6
    assert grid.problem_digest(dataclasses.replace(problem, metadata={})) == grid.problem_digest(problem)


def test_only_traced_cells_are_asked_for_anew_when_traces_are():
    plain, traced = keys(toy(seeds=2)), keys(toy(seeds=2, record={"traces": 1}))
    assert [a == b for a, b in zip(plain, traced, strict=True)] == [False] * 4 + [True] * 44


def test_groups_are_read_from_the_metadata():
    config = toy(problems={**SUMS, "limit": 4, "group_by": "operations"})
    assert {cell.group for cell in cells(config, load_problems(config), SETTINGS)} == {"2 operations", "4 operations"}
    with pytest.raises(ConfigError, match=r"metadata.*'arithmetic'.*'operation'"):
        load_problems(toy(problems={**SUMS, "group_by": "operation"}))


def test_shards_are_disjoint_and_whole():
    config = toy(limit=20)
    every = list(cells(config, load_problems(config), SETTINGS))
    parts = [{cell.key for cell in shard(every, i, 3)} for i in (1, 2, 3)]
    assert set().union(*parts) == {cell.key for cell in every}
    assert sum(map(len, parts)) == len(every)
    assert min(map(len, parts)) > len(every) / 6


def test_the_selection_that_nobody_named_is_named():
    executor = LocalExecutor(config := toy(strategies="best_of_n"), load_problems(config))
    (setting,) = executor.settings.values()
    assert setting.strategies == {"best_of_n": "best_of_n | weighted"}
    executor.close()
    with pytest.raises(
        ConfigError,
        match=r"the strategies 'best_of_n' and 'best_of_n \| weighted' are both 'best_of_n \| weighted' here",
    ):
        LocalExecutor(config := toy(strategies=["best_of_n", "best_of_n | weighted"]), load_problems(config))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"verifiers": "none"}, "scores with the role 'main', but no verifier has it"),
        ({"verifiers": "checker"}, "sees the reference answer, but an oracle needs permission"),
        ({"budgets": {"usd": 1}}, "has no rate for it"),
        (
            {"models": {"toy": {"model": "toy", "options": {"device": "cpu"}}}},
            "option of the backend 'toy' is 'device', but no option",
        ),
        ({"models": "tyo"}, "model is 'tyo', but no model has that name"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_spent(changes: dict[str, Any], cause: str):
    config = toy(**changes)
    with pytest.raises(ConfigError, match=cause):
        LocalExecutor(config, load_problems(config))
