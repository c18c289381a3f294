from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from tts.errors import ConfigError, EngineError
from tts.experiments.datasets import identity, load
from tts.tasks.worker import Worker, WorkerDiedError
from tts_addons.zoo.reasoning_gym import ReasoningGymTask, worker

pytest.importorskip("reasoning_gym")

# Nobody's answer is in the entry: many are right, and the scorer knows which.
OPEN = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}


@pytest.fixture(scope="module")
def process() -> Iterator[Worker]:
    made = worker()
    yield made
    made.close()


@pytest.fixture(scope="module")
def task(process: Worker) -> Iterator[ReasoningGymTask]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tts_addons.zoo.reasoning_gym.worker", lambda: process)
        yield ReasoningGymTask(time_limit_s=120.0)


@pytest.fixture
def shared(process: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process for all tests: each starts in seconds, and its end is tested elsewhere."""
    monkeypatch.setattr(process, "close", lambda: None)
    monkeypatch.setattr("tts_addons.zoo.reasoning_gym_problems.worker", lambda: process)


def entry(answer: str | None) -> dict[str, Any]:
    return json.loads(answer or "")["entry"]


@pytest.mark.usefixtures("shared")
def test_problems_are_whole_and_their_answers_right(task: ReasoningGymTask):
    problems = load("reasoning_gym", generator="chain_sum", limit=12, seed=3, config={"min_terms": 2, "max_terms": 3})
    assert len({problem.id for problem in problems}) == len({identity(problem) for problem in problems}) == 12
    for problem in problems:
        assert problem.task == "reasoning_gym"
        assert (problem.id or "").startswith("reasoning_gym/chain_sum/")
        assert problem.metadata["generator"] == "chain_sum"
        assert problem.metadata["num_terms"] in (2, 3)
    first = problems[0]
    assert task.equivalent(entry(first.answer)["answer"], first.answer or "")
    assert not task.equivalent("no number", first.answer or "")
    assert task.extract(f"So it is <answer>{entry(first.answer)['answer']}</answer>") == entry(first.answer)["answer"]


@pytest.mark.usefixtures("shared")
def test_a_smaller_limit_gives_the_first_and_another_seed_others():
    more = load("reasoning_gym", generator="chain_sum", limit=12)
    assert load("reasoning_gym", generator="chain_sum", limit=5) == more[:5]
    assert load("reasoning_gym", generator="chain_sum", limit=12, seed=1)[0] not in more


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "generator is not given, but the data set 'reasoning_gym' needs one"),
        (
            {"generator": "countdwn"},
            "generator is 'countdwn', but no generator has that name (hint: did you mean countdown",
        ),
        ({"generator": "composite"}, "generator is 'composite', but no generator has that name"),
        (
            {"generator": "chain_sum", "config": {"min_term": 2}},
            "no parameter of the generator 'chain_sum' has that name (hint: did you mean",
        ),
        ({"generator": "chain_sum", "config": {"seed": 2}}, "parameter of the generator 'chain_sum' is 'seed', but"),
        (
            {"generator": "chain_sum", "config": {"min_terms": -2}},
            "but the generator 'chain_sum' refuses it: AssertionError: min_terms must be",
        ),
        ({"generator": "coin_flip", "limit": 1000}, "limit is 1000, but the generator 'coin_flip' made only "),
        ({"generator": "chain_sum", "limit": 0}, "limit is 0, but must be a whole number of at least 1"),
        (
            {"generator": "chain_sum", "seed": 2**32},
            "seed is 4294967296, but must be a whole number from 0 to 2**32 - 1",
        ),
        ({"generators": "chain_sum"}, "did you mean generator?"),
    ],
)
def test_what_is_no_generator_is_refused(parameters: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as failure:
        load("reasoning_gym", **parameters)
    assert message in str(failure.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "why"),
    [(TimeoutError(), "it took more than 600 seconds"), (WorkerDiedError("it died with -9"), "it died with -9")],
)
def test_a_generator_that_fails_is_named_and_its_process_ends(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, why: str
):
    process = mock.Mock(**{"ask.side_effect": failure})
    monkeypatch.setattr("tts_addons.zoo.reasoning_gym_problems.worker", lambda: process)
    with pytest.raises(EngineError, match=f"the generator 'chain_sum' of reasoning-gym failed: {why}"):
        load("reasoning_gym", generator="chain_sum")
    process.close.assert_called_once_with()


@pytest.mark.slow
def test_every_start_makes_the_same_problems_from_sets_of_words(request: pytest.FixtureRequest):
    """These generators go through sets of texts, whose order is another one in every process unless the hash is
    fixed.
    """
    alone = load("reasoning_gym", generator="ransom_note", limit=5)
    request.getfixturevalue("shared")
    assert load("reasoning_gym", generator="ransom_note", limit=5) == alone


@pytest.mark.slow
@pytest.mark.usefixtures("shared")
def test_every_generator_makes_problems_whose_own_answer_its_scorer_takes(task: ReasoningGymTask):
    from reasoning_gym.factory import DATASETS

    refused: list[str] = []
    for generator in sorted(set(DATASETS) - {"composite"}):
        for problem in load("reasoning_gym", generator=generator, limit=2):
            answer = entry(problem.answer)["answer"]
            assert (answer is None) <= (generator in OPEN)
            if answer is not None and not task.equivalent(answer, problem.answer or ""):
                refused.append(f"{generator}: {answer}")
    assert refused == []
    assert task.timeouts == task.failures == 0
