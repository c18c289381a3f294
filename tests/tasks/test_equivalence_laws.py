"""Equality of mathematical answers is an equivalence relation, whatever is compared and in whatever order."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tts.randomness import generator
from tts.search.answers import Answers
from tts.tasks.math import MathTask
from tts.tasks.symbolic import SymbolicChecker
from tts.types import Trajectory

CASES = yaml.safe_load(Path(__file__).with_name("math_cases.yaml").read_text(encoding="utf-8"))
ANSWERS: list[str] = sorted(
    {answer for name in ("EXACT", "SYMBOLIC", "HANGING") for case in CASES[name] for answer in case[:2]}
)
NO_MPMATH = importlib.util.find_spec("mpmath") is None


@pytest.fixture(scope="module", params=["keys", "rules"])
def task(request: pytest.FixtureRequest) -> MathTask:
    if request.param == "rules":
        return MathTask(checker=SymbolicChecker(command=[sys.executable, "-c", "raise SystemExit(1)"]))
    if NO_MPMATH:
        pytest.skip("mpmath (extra: math) is not installed")
    return MathTask()


def test_there_are_many_tricky_answers() -> None:
    assert len(ANSWERS) >= 300


@pytest.mark.slow
def test_equality_is_reflexive_symmetric_and_transitive(task: MathTask) -> None:
    classes: list[list[str]] = []
    for answer in ANSWERS:
        assert task.equivalent(answer, answer)
        mine = [members for members in classes if any(task.equivalent(member, answer) for member in members)]
        assert len(mine) <= 1, f"{answer!r} joins {mine}"
        if mine:  # equal to one member is equal to all of them, and in both orders
            assert all(task.equivalent(member, answer) and task.equivalent(answer, member) for member in mine[0]), (
                answer,
                mine,
            )
            mine[0].append(answer)
        else:
            assert not any(task.equivalent(answer, members[0]) for members in classes), answer
            classes.append([answer])


@pytest.mark.slow
def test_what_is_decided_cheaply_is_decided_alike(task: MathTask) -> None:
    fresh = MathTask(checker=SymbolicChecker())
    for a in ANSWERS[::2]:
        for b in ANSWERS[::7]:
            assert fresh.decide(a, b) in (None, task.equivalent(a, b)) or not task.symbolic, (a, b)


def classes_of(task: MathTask, answers: Sequence[str]) -> set[frozenset[str]]:
    """Return the classes that votes for these answers fall into, in this order."""

    async def sorted_into() -> list[int | None]:
        sorting = Answers(task)
        paths = [
            Trajectory(None, rf"\boxed{{{answer}}}", (), (), "finished", 0, node, 1, 1)
            for node, answer in enumerate(answers)
        ]
        await sorting.add(paths)
        return [sorting.answer_of(path)[1] for path in paths]

    members: dict[int | None, set[str]] = {}
    for answer, kind in zip(answers, asyncio.run(sorted_into()), strict=True):
        members.setdefault(kind, set()).add(answer)
    return {frozenset(each) for each in members.values()}


@pytest.mark.slow
def test_vote_classes_do_not_depend_on_the_order_of_the_answers(task: MathTask) -> None:
    answers = [answer for answer in ANSWERS if task.extract(rf"\boxed{{{answer}}}") == answer]
    assert len(answers) >= 280
    expected = classes_of(task, answers)
    for seed in range(3):
        order = generator(seed, 0, "order").permutation(len(answers))
        assert classes_of(task, [answers[place] for place in order]) == expected
    assert classes_of(task, answers[:50]) == {each & set(answers[:50]) for each in expected} - {frozenset()}
