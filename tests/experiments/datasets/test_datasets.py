from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tts.experiments.datasets
from tts import tasks
from tts.errors import ConfigError
from tts.experiments.datasets import DATASETS, DataSet, check, get, identity, load
from tts.experiments.datasets.arithmetic import load as load_arithmetic
from tts.types import Problem

HELPERS = {"__init__", "drawing", "programs", "rows", "unpacking"}


@pytest.fixture(params=["arithmetic", "countdown"])
def name(request: pytest.FixtureRequest) -> str:
    """A data set that is drawn here, by split and seed."""
    return request.param


def test_every_data_set_of_every_file_is_in_the_table():
    folder = Path(tts.experiments.datasets.__file__).parent
    found: set[str] = set()
    for file in folder.glob("*.py"):
        if file.stem not in HELPERS:
            module = f"tts.experiments.datasets.{file.stem}"
            here = {
                f"{module}:{name}"
                for name, value in vars(importlib.import_module(module)).items()
                if isinstance(value, DataSet)
            }
            assert here
            found |= here
    assert {place for place in DATASETS.entries.values() if place.startswith("tts.")} == found


@pytest.mark.parametrize("name", sorted(DATASETS.entries))
def test_each_says_source_and_licence_and_what_it_takes(name: str):
    dataset = get(name)
    assert dataset.source
    assert dataset.licence
    parameters = inspect.signature(dataset).parameters.values()
    assert all(one.kind is one.KEYWORD_ONLY and one.default is not one.empty for one in parameters)
    assert {"limit", "seed"} <= {one.name for one in parameters}


# of a family, difficulties that take no time to draw
QUICK: dict[str, dict[str, Any]] = {"arithmetic": {"operations": (1, 2, 3)}, "countdown": {}}


@pytest.mark.slow
def test_problems_are_whole_and_can_be_asked(name: str):
    problems = load(name, limit=30)
    assert len(problems) == 30
    assert len({problem.id for problem in problems}) == len({problem.text for problem in problems}) == 30
    for problem in problems:
        assert problem.task is not None
        task = tasks.get(problem.task)
        assert task.prompt(problem) == f"{problem.text}\n"
        assert problem.answer is not None
        assert task.decide(problem.answer, problem.answer)
        assert problem.id is not None
        assert problem.id.startswith(f"{name}/test/")
        assert {"operations", "digits", "worded", "identity"} <= problem.metadata.keys()


def test_a_smaller_limit_gives_the_first(name: str):
    quick = QUICK[name]
    assert (
        load(name, limit=25, **quick)[:9]
        == load(name, limit=9, **quick)
        == load(name, limit=9, seed=0, split="test", **quick)
    )


def test_another_seed_gives_others_and_a_problem_keeps_its_id(name: str):
    first, second = load(name, limit=40, split="train"), load(name, limit=40, split="train", seed=1)
    assert {problem.id for problem in first} != {problem.id for problem in second}
    same = {problem.id: identity(problem) for problem in first}
    assert all(same.get(problem.id, identity(problem)) == identity(problem) for problem in second)


def test_splits_share_nothing(name: str):
    parts = {
        f"{split} {seed}": load(name, limit=limit, split=split, seed=seed, **QUICK[name])
        for split, limit, seed in (("train", 200, 0), ("validation", 30, 5), ("test", 30, 7))
    }
    check(parts)
    with pytest.raises(ConfigError, match=r"other.*train 0"):
        check({**parts, "other": parts["train 0"][5:6]})


def test_arithmetic_is_an_even_mixture_of_what_is_named():
    problems = load("arithmetic", limit=24, split="train", operations=(2, 4, 6), digits=(1, 2), worded=(False, True))
    kinds = [(p.metadata["operations"], p.metadata["digits"], p.metadata["worded"]) for p in problems]
    assert len(set(kinds)) == 12
    assert all(kinds.count(kind) == 2 for kind in kinds)
    assert [kind[0] for kind in kinds[:6]] == [2, 4, 6, 2, 4, 6]
    assert all(("How many" in problem.text) == problem.metadata["worded"] for problem in problems)


def test_arithmetic_has_all_numbers_of_operations_unless_told_otherwise():
    problems = load_arithmetic(limit=20, split="train")
    assert [problem.metadata["operations"] for problem in problems] == [*range(1, 11)] * 2
    assert all(problem.metadata["digits"] == 2 and problem.metadata["worded"] is False for problem in problems)
    assert len({problem.id for problem in problems}) == 20
    assert (problems[2].id or "").startswith("arithmetic/train/plain-2-3/")


def test_countdown_answers_are_expressions_of_the_numbers():
    for problem in load("countdown", limit=12, split="train", numbers=[3, 5]):
        assert problem.metadata["operations"] == problem.metadata["numbers"] - 1
        assert eval(problem.answer or "") == int(problem.text.split()[1])


@pytest.mark.slow
def test_every_problem_of_a_small_family_comes_before_it_runs_out():
    """Differences of one-digit numbers are 81, some of them of the test split; no two draws of one count twice."""
    with pytest.raises(ConfigError) as failure:
        load("arithmetic", limit=81, operations=1, digits=1, operators="-")
    assert "limit is 81, but after " in str(failure.value)
    assert "there is no other of difficulty plain-1-1-s in 1000 draws (hint: lower the limit" in str(failure.value)
    there = int(str(failure.value).split("after ")[1].split()[0])
    assert len(load("arithmetic", limit=there, operations=1, digits=1, operators="-")) == there


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("arithmetik", {}, "data set is 'arithmetik', but no data set has that name (hint: did you mean arithmetic"),
        ("arithmetic", {"operation": 3}, "parameter of the data set 'arithmetic' is 'operation'"),
        ("arithmetic", {"operation": 3}, "did you mean operations or operators?"),
        ("arithmetic", {"operations": 11}, "operations is 11, but must be a whole number from 1 to 10"),
        ("arithmetic", {"operations": (1, "many")}, "operations is 'many', but"),
        ("arithmetic", {"operations": ()}, "operations is (), but must be a value or some of them"),
        ("arithmetic", {"digits": 3}, "digits is 3, but must be 1 or 2"),
        ("arithmetic", {"worded": "yes"}, "worded is 'yes', but must be True or False"),
        ("arithmetic", {"split": "dev"}, "split is 'dev', but no split has that name"),
        ("arithmetic", {"limit": 0}, "limit is 0, but must be a whole number of at least 1"),
        ("arithmetic", {"limit": 2.5}, "limit is 2.5, but"),
        ("arithmetic", {"limit": None}, "limit is None, but"),
        ("arithmetic", {"seed": -1}, "seed is -1, but must be a whole number from 0 to 2**64 - 1"),
        ("countdown", {"seed": 2**64}, "seed is 18446744073709551616, but"),
        ("countdown", {"numbers": 7}, "numbers is 7, but must be a whole number from 2 to 6"),
        ("countdown", {"split": "dev"}, "split is 'dev', but"),
        ("countdown", {"worded": True}, "parameter of the data set 'countdown' is 'worded'"),
    ],
)
def test_unknown_names_and_difficulties_are_refused(name: str, parameters: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as failure:
        load(name, **parameters)
    assert message in str(failure.value)


def test_data_sets_are_checked_for_what_they_promise():
    good = Problem("1 + 2", answer="3", id="a")
    check({"one": [good], "two": [Problem("1 + 3", answer="4", id="b"), Problem("1 + 4", id="c")]})
    for bad, message in (
        (Problem("1 + 3", answer="4"), "problem 0 of two has no id"),
        (Problem("1 + 3", answer="4", id="a"), "the id 'a' of two is in one already"),
        (Problem("1 +  2", answer="3", id="b"), "the problem 'b' of two is 'a' of one again"),
        (
            Problem("one and two", answer="3", id="b", metadata={"identity": "1 + 2"}),
            "the problem 'b' of two is 'a' of one again",
        ),
    ):
        with pytest.raises(ConfigError) as failure:
            check({"one": [good], "two": [bad]})
        assert message in str(failure.value)


def test_what_another_package_gives_is_checked():
    acme = mock.patch.dict(DATASETS.entries, {"acme": f"{__name__}:STRANGE", "bare": f"{__name__}:strange"})
    with acme:
        with pytest.raises(ConfigError, match="'acme' gave"):
            load("acme", count=2)
        with pytest.raises(ConfigError, match=r"'acme'.*'counts'.*did.*count"):
            load("acme", counts=2)
        with pytest.raises(ConfigError, match=r"'bare'.*function,.*tts\.experiments\.datasets\.DataSet"):
            load("bare", count=2)


def strange(*, count: int = 1) -> list[Any]:
    return ["1 + 2"] * count


STRANGE = DataSet(load=strange, source="a test", licence="none")
