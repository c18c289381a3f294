"""A wrong keyword gets the nearest right one, wherever the library is called."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tts
from tts.errors import ConfigError

ACCOUNT = tts.Account(tts.Budget(tokens=5))
STUDY = {"name": "x", "models": "toy", "problems": {"dataset": "arithmetic"}, "strategies": ["single"], "budgets": [9]}


@dataclass(frozen=True)
class Own(tts.Strategy):
    """A part of a user's own."""

    width: int = 4

    async def run(self, search: tts.Search) -> None:
        await search.complete([search.root])


class Bare(tts.StopRule):
    """A part without parameters."""

    def should_stop(self, candidates: Any) -> None:
        return None


class Free(tts.StopRule):
    """A part that takes what it is given."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def should_stop(self, candidates: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("call", "wrong", "near"),
    [
        (lambda **one: tts.solve("3 + 4", 100, model="toy", **one), "stratgy", "strategy"),
        (lambda **one: tts.solve_many(["3 + 4"], 100, model="toy", **one), "verifer", "verifier"),
        (lambda **one: asyncio.run(tts.asolve("3 + 4", 100, model="toy", **one)), "temperatur", "temperature"),
        (lambda **one: tts.Solver("toy", **one), "stratgy", "strategy"),
        (lambda **one: tts.Solver("toy").solve("3 + 4", 100, **one), "sed", "seed"),
        (lambda **one: tts.Solver("toy").solve_many(["3 + 4"], 100, **one), "eech", "each"),
        (lambda **one: asyncio.run(tts.Solver("toy").asolve("3 + 4", 100, **one)), "sed", "seed"),
        (lambda **one: tts.Solver("toy").stream("3 + 4", 100, **one), "sed", "seed"),
        (tts.Budget, "token", "tokens"),
        (lambda **one: tts.Problem("3 + 4", **one), "anwser", "answer"),
        (lambda **one: tts.Account(tts.Budget(tokens=5), **one), "cloc", "clock"),
        (tts.Sampling, "temprature", "temperature"),
        (lambda **one: tts.Answer("7", **one), "token", "tokens"),
        (tts.BestOfN, "tempperature", "temperature"),
        (tts.Majority, "truncatd", "truncated"),
        (tts.Unanimous, "windw", "window"),
        (Own, "widht", "width"),
        (lambda **one: tts.Study(**STUDY, **one), "sedes", "seeds"),
        (lambda **one: tts.Study(**STUDY).run("store.sqlite", **one), "retry_faild", "retry_failed"),
        (lambda **one: tts.Study.from_store("x", **one), "stor", "store"),
        (lambda **one: tts.Study(**STUDY).plot("curve.png", **one), "baselin", "baseline"),
        (lambda **one: tts.Study(**STUDY).replay(**one), "drawss", "draws"),
        (lambda **one: tts.Pool.from_files("rows.jsonl", **one), "modle", "model"),
    ],
)
def test_a_wrong_keyword_gets_the_nearest_right_one(call: Callable[..., Any], wrong: str, near: str) -> None:
    with pytest.raises(ConfigError) as refused:
        call(**{wrong: 3})
    assert wrong in refused.value.cause
    assert near in refused.value.hint


def test_classes_are_made_copied_and_pickled_as_before() -> None:
    problem, part = tts.Problem("3 + 4", answer="7"), tts.BestOfN(n=3)
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert copy.deepcopy(part) == part
    assert Free(anything=1).given == {"anything": 1}
    assert Own(width=3) == Own(3)


def test_a_class_without_parameters_takes_none() -> None:
    with pytest.raises(TypeError, match=r"Bare\(\) takes no arguments"):
        Bare(3)
    with pytest.raises(ConfigError, match=r"argument.*Bare.*'window'"):
        Bare(window=3)
    assert isinstance(Bare(), tts.StopRule)


def test_signatures_and_kinds_of_methods_are_kept() -> None:
    import inspect

    assert "strategy" in inspect.signature(tts.Solver.solve).parameters
    assert list(inspect.signature(Bare).parameters) == []
    assert list(inspect.signature(Own).parameters) == ["width"]
    assert inspect.iscoroutinefunction(tts.Solver.asolve)
    assert tts.Solver.solve.__doc__
