from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.studies import toy
from tts.backends.base import Sampling
from tts.errors import ConfigError, MissingDependency
from tts.experiments.run.runner import PreparedStudy
from tts.experiments.study.config import study_config
from tts.experiments.study.file import read_study

pytest.importorskip("yaml")

TEXT = """
name: first
models: toy
problems: {dataset: arithmetic, limit: 20, split: validation, group_by: operations}
strategies: [best_of_n | majority, "best_of_n(n=None)|weighted"]
budgets: [{samples: [1, 2]}, 500]
seeds: 2
sampling: {temperature: 0.5}
"""
KEYS = (
    "name, models, problems, task, strategies, budgets, seeds, verifiers, sampling, allow_oracle, record, concurrency"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_seven_lines_are_a_study(file: Path):
    config = read_study(file)
    assert (config.name, list(config.models), config.seeds) == ("first", ["toy"], [0, 1])
    assert config.models["toy"].model == {"policy": "toy"}
    assert config.strategies == ["best_of_n | majority", "best_of_n | weighted"]
    assert config.budgets == [{"samples": 1}, {"samples": 2}, {"tokens": 500}]
    assert config.problems[0].parameters == {"split": "validation"}
    assert config.sampling_of("toy") == Sampling(temperature=0.5)
    assert config.verifiers_of("toy") is None


def test_a_model_goes_before_the_study():
    config = study_config(
        {
            "name": "a",
            "models": {"cold": {"model": "toy", "sampling": {"temperature": 0}, "verifiers": "none"}, "warm": "toy"},
            "problems": {"dataset": "arithmetic"},
            "strategies": "single",
            "budgets": 10,
            "verifiers": {"final": "toy"},
            "sampling": {"temperature": 1.0, "top_p": 0.9},
        }
    )
    assert config.sampling_of("cold") == Sampling(temperature=0, top_p=0.9)
    assert config.sampling_of("warm") == Sampling(temperature=1.0, top_p=0.9)
    assert config.verifiers_of("cold") == {}
    assert config.verifiers_of("warm") == {"final": "toy"}


@pytest.mark.parametrize(
    ("before", "after", "cause", "hint"),
    [
        (
            "budgets:",
            "budgtes:",
            "key of the study is 'budgtes', but no key of the study has that name",
            "did you mean budgets?",
        ),
        ("name: first\n", "", "name is missing, but must be given", f"keys: {KEYS}"),
        (
            "limit:",
            "limti:",
            "'limti', but no key of the problems of 'arithmetic' has that name",
            "did you mean limit or split?",
        ),
        (
            "arithmetic",
            "arithmetc",
            "problems: data set is 'arithmetc', but no data set has that name",
            "did you mean arithmetic",
        ),
        ("limit: 20", "limit: '20'", "problems[0].limit is '20', but must be a valid integer", ""),
        ("limit: 20", "limit: 0", "problems[0].limit is 0, but must be greater than or equal to 1", ""),
        ("majority", "majorty", "stop rule or selection is 'majorty'", "did you mean majority"),
        (
            "samples",
            "sample",
            "budgets: budget unit is 'sample', but no budget unit has that name",
            "did you mean samples?",
        ),
        (
            "500",
            "-5",
            "budgets: budget tokens is -5, but must be a whole number of at least 1",
            "the nearest valid value is 1",
        ),
        ("[1, 2]", "[1, 1]", "budgets: budgets has {'samples': 1} twice, but each may be there once", "leave one out"),
        ("[1, 2]}, 500", "[]}", "budgets is [], but must have at least 1 item", ""),
        ("weighted", "majority", "strategies: strategies has best_of_n | majority twice", "leave one out"),
        ("temperature", "temprature", "parameter of the sampling is 'temprature'", "did you mean temperature?"),
        (
            "temperature: 0.5",
            "temperature: -1",
            "sampling: temperature is -1, but must be a number between 0 and 100",
            "",
        ),
        ("seeds: 2", "record: {trace: 1}", "key of record is 'trace', but no key of record", "did you mean traces?"),
        (
            "models: toy",
            "models: {a: {modl: toy}}",
            "key of models.a is 'modl', but no key",
            "did you mean model?",
        ),
        ("seeds: 2", "name: again", "line 2 has name twice, but each may be there once", "leave one out"),
        ("name: first", "name: [x", "this is no YAML at line 3, column 7", "texts with : or # need quotes"),
        (
            "name: first",
            "name: \x00",
            "this is no YAML: unacceptable character #x0000: special characters are not allowed",
            "",
        ),
        ("models: toy", "models: 3", "models is 3, but must be a name", "for example"),
        ("models: toy", "models: {a: 3}", "models.a", ""),
        (TEXT, "just text", "a study is a mapping of keys to values, such as name: first", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_place_and_its_cure(file: Path, before: str, after: str, cause: str, hint: str):
    file.write_text(TEXT.replace(before, after), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_study(file)
    assert caught.value.cause.startswith(f"{file}: ")
    assert cause in caught.value.cause
    assert hint in caught.value.hint
    assert hint or not caught.value.hint


def test_without_pyyaml_the_cure_is_named(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingDependency, match="reading a study"):
        read_study(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"read:.*file"):
        read_study(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xff")
    with pytest.raises(ConfigError, match=r"read: it.*UTF-8"):
        read_study(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("problems.limit=5", ("problems", 0, "limit"), 5),
        ("problems.seed=7", ("problems", 0, "seed"), 7),
        ("seeds=[3, 4]", ("seeds",), [3, 4]),
        ("record.traces=2", ("record", "traces"), 2),
        ("models.small.model=toy", None, None),
        ("strategies=single(temperature=0)", ("strategies",), ["single(temperature=0)"]),
    ],
)
def test_what_the_command_line_sets_goes_before_the_file(file: Path, override: str, path: Any, value: Any):
    if path is None:
        file.write_text(TEXT.replace("models: toy", "models: {}"), encoding="utf-8")
        assert read_study(file, [override]).models["small"].model == {"policy": "toy"}
        return
    found: Any = read_study(file, [override]).plain_settings()
    for name in path:
        found = found[name]
    assert found == value


def test_what_is_set_below_a_list_is_meant_for_each(file: Path):
    file.write_text(
        TEXT.replace(
            "{dataset: arithmetic, limit: 20, split: validation, group_by: operations}",
            "[{dataset: arithmetic}, {dataset: countdown}]",
        )
    )
    assert [one.limit for one in read_study(file, ["problems.limit=3"]).problems] == [3, 3]


@pytest.mark.parametrize(
    ("override", "cause"),
    [
        ("seeds", "--set is 'seeds', but must be KEY=VALUE"),
        ("a..b=1", "--set is 'a..b=1', but must be KEY=VALUE"),
        ("name.x=1", "--set is 'name.x=1', but name has no keys below it"),
        ("seed=1", "key of the study is 'seed', but no key of the study has that name"),
    ],
)
def test_a_malformed_setting_is_refused(file: Path, override: str, cause: str):
    with pytest.raises(ConfigError) as caught:
        read_study(file, [override])
    assert cause in caught.value.cause


MANY = f"[{', '.join(map(str, range(1, 101)))}]"
BOMB = "\n".join(
    f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(9))}]"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            f"budgets: {{samples: {MANY}, tokens: {MANY}, seconds: {MANY}, verifier_calls: {MANY}}}",
            "budgets: a budget has 100,000,000 combinations of limits, but may have 10,000",
        ),
        ("budgets: 9\nseeds: 1000000000", "seeds: seeds is 1000000000, but must be from 1 to 1,000,000"),
        (f"budgets: {{samples: {MANY}, tokens: {MANY}}}\nseeds: 100000", "the study has 1,000,000,000 cells"),
        (f"budgets: {'[' * 100_000}{']' * 100_000}", "nested more than 20 levels deep at line 5"),
        (
            "budgets:\n" + "\n".join(" " * depth + "a:" for depth in range(1, 2000)),
            "nested more than 20 levels deep at line 25",
        ),
        (f"a: &a [x, x]\n{BOMB}\nbudgets: *i", "the YAML has more than 1,000,000 values"),
        (f"budgets: 9\nseeds: {'9' * 5000}", "this is no YAML: Exceeds the limit (4300 digits)"),
        ("budgets: 9\nseeds: 2024-99-99", "this is no YAML: month must be in 1..12"),
        ("budgets: 9\nconcurrency: 1\nproblems: {dataset: arithmetic, limit: 1000000000}", "problems"),
    ],
    ids=["combinations", "seeds", "cells", "brackets", "blocks", "aliases", "digits", "date", "problems"],
)
def test_a_study_that_no_memory_holds_is_refused_in_one_line_before_it_is_built(text: str, cause: str):
    problems = "" if "problems:" in text else "problems: {dataset: arithmetic, limit: 1}\n"
    with pytest.raises(ConfigError) as caught:
        read_study(f"name: large\nmodels: toy\n{problems}strategies: [single]\n{text}\n")
    assert cause in caught.value.cause
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.slow
def test_the_cells_of_all_problems_are_counted_before_a_model_is_loaded():
    config = toy(limit=30, strategies="single", budgets=9, seeds=400_000)
    with pytest.raises(ConfigError, match=r"12,000,000.*\(30.*1.*budgets"):
        PreparedStudy(config)


@pytest.mark.parametrize(
    ("override", "is_same"), [("concurrency=3", True), ("record.texts=false", True), ("seeds=3", False)]
)
def test_concurrency_and_kept_texts_are_no_part_of_what_a_study_is(file: Path, override: str, is_same: bool):
    plain = read_study(file)
    changed = read_study(file, [override])
    assert changed != plain
    assert (changed.plain_settings() == plain.plain_settings()) is is_same


def test_a_data_set_may_be_named_by_a_text_alone():
    plain = {"name": "x", "models": "toy", "strategies": ["single"], "budgets": [9]}
    named = study_config({**plain, "problems": ["arithmetic", {"dataset": "countdown", "limit": 3}]})
    assert [(one.dataset, one.limit) for one in named.problems] == [("arithmetic", None), ("countdown", 3)]
    assert study_config({**plain, "problems": "arithmetic"}) == study_config(
        {**plain, "problems": {"dataset": "arithmetic"}}
    )
    with pytest.raises(ConfigError, match=r"problems\[0\].*3"):
        study_config({**plain, "problems": 3})
