from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import make_run, solve
from tts import tasks
from tts.backends.function import Ask, FunctionBackend
from tts.errors import ConfigError
from tts.tasks.arithmetic.countdown import draw
from tts.tasks.arithmetic.countdown_task import CountdownTask
from tts.tasks.arithmetic.expression import text
from tts.tasks.arithmetic.lines import solution
from tts.types import Message, Problem
from tts.verifiers.checker import Checker

TASK = CountdownTask()
QUICK = {"deadline": None, "derandomize": True}


def test_the_prompt_is_the_problem_as_it_was_written_in_training():
    assert tasks.get("countdown").prompt(Problem("Use 17 and 22 to make 39")) == "Reach 39 with 17 22.\n"
    assert TASK.prompt(Problem((Message("user", "reach 39 with 17, 22"),))) == "Reach 39 with 17 22.\n"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "12 + 7",
            "the problem is '12 + 7', but the task 'countdown' reads only problems such as 'Reach 39 with 17 22.' "
            "(hint: other",
        ),
        ("12 + 7", "other arithmetic has --task pocket"),
        ("Who wrote Faust?", "brings a task of its own"),
        (
            "Reach 9 with 1 2 3 4 5 6 7",
            "the countdown 'Reach 9 with 1 2 3 4 5 6 7' has 7 numbers, but there must be 2 to 6",
        ),
        ("Reach 9 with 26 35", "has the number 26, but numbers must be from 1 to 25"),
        ("Reach 9 with 0 9", "has the number 0, but"),
        ("Reach 100 with 4 25", "has the target 100, but targets must be from 1 to 99"),
        ("Reach 0 with 4 4", "has the target 0, but"),
    ],
)
def test_other_problems_are_refused_with_the_reason(asked: str, message: str):
    with pytest.raises(ConfigError) as failure:
        TASK.prompt(Problem(asked))
    assert message in str(failure.value)


def test_other_kinds_and_conversations_are_refused():
    with pytest.raises(ConfigError, match=r"kind.*'revise',.*'countdown'.*solve"):
        TASK.prompt(Problem("Reach 39 with 17 22."), "revise", ["A: 39\n"])
    with pytest.raises(ConfigError, match=r"conversation.*'countdown'"):
        TASK.prompt(Problem((Message("system", "Be brief."), Message("user", "Reach 39 with 17 22."))))


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("17 + 22 = 39\nA: 39\n", "17 + 22"),
        ("17 + 22 = 39\nA: 39", "17 + 22"),
        ("A: 17 + 22\n", "17 + 22"),
        ("17 * 22 = 374\nA: 22+17\n", "22 + 17"),  # what is stated comes first
        ("1 + 4 = 5\n2 + 3 = 5\n5 * 5 = 25\nA: 25\n", "(1 + 4) * (2 + 3)"),
        ("17 + 22 = 40\nA: 40\n", "17 + 22"),  # the checker works it out again
        ("17 + 20 = 37\nA: 39\n", "17 + 20"),  # the target alone is no answer
        ("Let us see.\n17 + 22 = 39\nA: 39\n", "17 + 22"),
        ("17 + 22 = 39\n", None),
        ("17 + 22 = 39\nA: \n", None),
        ("A: 39\n", None),
        ("17 + 22 = 39\n1 + 2 = 3\nA: 39\n", None),
        ("17 + 22 = 39\nA: 39\nA: 39\n", None),
        ("1 + 1 = 2\n" + "2 + 1 = 2\n" * 5000 + "A: 2\n", None),
        ("", None),
    ],
)
def test_the_answer_is_an_expression(written: str, answer: str | None):
    assert TASK.extract(written) == answer


@pytest.mark.parametrize(
    ("written", "finished"),
    [
        ("17 + 22 = 39\nA: 39\n", True),
        ("17 + 22 = 39\nA: 17 + 22\n\n", True),
        ("17 + 22 = 39\nA: 39", False),
        ("17 + 22 = 39\n", False),
        ("A: \n", False),
        ("A: thirty-nine\n", False),
        ("A: 39\n17 + 22 = 39\n", False),
        ("", False),
    ],
)
def test_an_answer_line_with_its_newline_finishes(written: str, finished: bool):
    assert TASK.is_finished(written) is finished


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("17 + 22", "22 + 17", True),
        ("(3 + 5) * 4", "4*5 + 3*4", False),  # the same value, of other numbers
        ("3 + 5 - 4", "5 - (4 - 3)", True),
        ("17 + 22", "17 + 20", False),
        ("17 + 22", "17 + 17 + 5", False),
        ("17 + 17", "17 + 17", True),
        ("17 + 22", "39", False),
        ("2 * 2", "2 + 2", True),
        ("1 * 2 * 3", "1 + 2 + 3", True),
        ("1 * 2 * 4", "1 + 2 + 4", False),
        ("4  4", "4", False),  # a form of ours is no answer of that form
        ("no idea", "No  idea", True),
    ],
)
def test_answers_are_equal_by_their_numbers_and_their_value(a: str, b: str, equal: bool):
    assert TASK.decide(a, b) is TASK.decide(b, a) is TASK.equivalent(a, b) is equal
    assert (TASK.canonical(a) == TASK.canonical(b)) is equal


@given(st.text(alphabet="0123456789+-*()= A:\n") | st.text())
@settings(**QUICK)
def test_no_text_is_too_strange(written: str):
    TASK.canonical(written)
    TASK.is_finished(written)
    answer = TASK.extract(written)
    assert answer is None or TASK.decide(answer, answer)


def test_every_known_solution_is_of_the_class_of_the_reference():
    for index in range(30):
        problem = draw(4, "train", 6, index)
        assert problem.solution is not None
        answer = TASK.extract("".join(solution(problem.steps, problem.target)))
        assert answer is not None
        assert TASK.decide(answer, text(problem.solution))


WRITTEN = (
    "3 + 5 = 8\n8 * 4 = 32\nA: 32\n",  # right
    "3 + 4 = 7\n7 * 5 = 35\nA: 32\n",  # misses the target and says otherwise
    "4 * 3 = 12\n5 * 4 = 20\n12 + 20 = 32\nA: 32\n",  # four twice: comes to it with other numbers
    "A: 4 * (5 + 3)\n",  # right
    "4 + 3 = 7\n5 * 7 = 35\nA: 35\n",  # as the second
    "5 + 3 = 8\n4 * 8 = 32\nA: 32\n",  # right
    "3 + 5 = 8\nA: 32\n",  # has not used four: another answer
    "3 + 5 = 8\n4 + 1 = 5\nA: 32\n",  # no answer
)
CLASSES = (0, 1, 2, 0, 1, 0, 3, None)


def test_votes_are_by_class():
    rows, prompts = iter(WRITTEN), set[object]()

    def write(ask: Ask) -> str:
        prompts.add(ask.prompt)
        return next(rows)

    done = solve(
        make_run(
            "Use 3, 4 and 5 to reach 32.", 10**6, "best_of_n(n=8) | majority", FunctionBackend(write), task="countdown"
        )
    )
    assert done.error is None
    assert prompts == {"Reach 32 with 3 4 5.\n"}
    by_text = {candidate.trajectory.full_text: candidate for candidate in done.candidates}
    of_class = [by_text[written].answer_class for written in WRITTEN]
    assert [[a == b for b in of_class] for a in of_class] == [[a == b for b in CLASSES] for a in CLASSES]
    assert done.answer is not None
    assert TASK.decide(done.answer, "(3 + 5) * 4")
    assert done.confidence == pytest.approx(3 / 8)


def test_the_checker_takes_any_expression_that_solves_it():
    problem = Problem("Reach 32 with 3 4 5.", answer="4 * (3 + 5)")
    rows = iter(WRITTEN)
    backend = FunctionBackend(lambda _: next(rows))
    parts = {"task": "countdown", "verifiers": {"main": Checker()}, "allow_oracle": True}
    done = solve(make_run(problem, 10**6, "best_of_n(n=8) | best", backend, **parts))
    scores = {candidate.trajectory.full_text: candidate.scores["main"] for candidate in done.candidates}
    assert [scores[written] for written in WRITTEN] == [float(place == 0) for place in CLASSES]
