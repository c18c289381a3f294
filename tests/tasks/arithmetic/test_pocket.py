from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts import tasks
from tts.errors import ConfigError
from tts.tasks.arithmetic.generator import LARGEST_RESULT, MOST_OPERATIONS, Difficulty, draw
from tts.tasks.arithmetic.lines import solution
from tts.tasks.arithmetic.pocket import AGAIN, ANSWER, MOST_ATTEMPTS, NO, RESTART, YES, PocketTask
from tts.tasks.arithmetic.reading import read
from tts.tasks.arithmetic.task import ArithmeticTask
from tts.tasks.arithmetic.worded import EVENTS, Story, StoryEvent
from tts.types import Message, Problem

TASK = PocketTask()
QUICK = {"deadline": None, "derandomize": True}
ATTEMPTS = [f"3 + 4 = {result}\nA: {result}\n" for result in (5, 6, 8, 9, 10)]
STORY = "Anna has 12 apples. She buys 7 more. How many apples are there now?"
ELSEWHERE = "name a real model, which brings a task of its own, such as smollm2 or one of the Hub)"


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ("12 + 7 * (3 - 5)", "12 + 7 * (3 - 5)"),
        ("12+7*(3-5)", "12 + 7 * (3 - 5)"),
        (" 12 +\n7 ", "12 + 7"),
        ("(12 + 7)", "12 + 7"),
        ("12 + 7 =", "12 + 7"),
        ("12 + 7 = ?", "12 + 7"),
        ("12 + 7?", "12 + 7"),
        ("12 + 7.", "12 + 7"),
        ("12 − 7 × 3", "12 - 7 * 3"),
        ("12 – 7 · 3", "12 - 7 * 3"),
        ("2x3 X (4 + 1)x5", "2 * 3 * (4 + 1) * 5"),
        ("3 plus 4 times 2 minus 1", "3 + 4 * 2 - 1"),
        ("What is 12 + 7 * 3?", "12 + 7 * 3"),
        ("WHAT IS 12 + 7", "12 + 7"),
        ("What’s the value of 12 + 7?", "12 + 7"),
        ("How much is 12 + 7 ?", "12 + 7"),
        ("compute 12 + 7", "12 + 7"),
        ("Calculate: 12 + 7.", "12 + 7"),
        ("Evaluate (12 + 7) * 2", "(12 + 7) * 2"),
        ("Solve 12 + 7 =", "12 + 7"),
        ("Work out the result of 12 + 7", "12 + 7"),
        ("Please find 12 + 7", "12 + 7"),
        ("please, what is 12 + 7?", "12 + 7"),
        (STORY, STORY),
        (f"\n{STORY.replace(' ', '  ')} ", STORY),
    ],
)
def test_the_prompt_is_the_problem_as_it_was_written_in_training(asked: str, prompt: str):
    assert TASK.prompt(Problem(asked)) == f"{prompt}\n"
    assert TASK.prompt(Problem([{"role": "user", "content": asked}])) == f"{prompt}\n"  # type: ignore[arg-type]


@pytest.mark.parametrize("worded", [False, True])
def test_problems_of_the_family_are_asked_as_they_are(worded: bool):
    for count in (1, 4, 10):
        for index in range(30):
            drawn = draw(Difficulty(operations=count, worded=worded), "train", 12, index)
            assert TASK.prompt(Problem(drawn.text)) == f"{drawn.text}\n"
            assert read(drawn.text).expression == drawn.expression


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "Who wrote Faust?",
            "the problem is 'Who wrote Faust?', but the model pocket was trained on arithmetic only: an expression "
            "such as",
        ),
        ("", "the problem is '', but the model pocket was trained on arithmetic only"),
        ("2x + 3 = 7", "trained on arithmetic only"),
        ("What is six times seven?", "trained on arithmetic only"),
        ("3 + 4! ", "trained on arithmetic only"),
        ("What is ?", "trained on arithmetic only"),
        (
            "What is 5?",
            "the problem 'What is 5?' is the number 5 alone, but the model pocket was trained on problems with "
            "something to calculate",
        ),
        (
            "12 / 4",
            "the problem '12 / 4' has a division, but the model pocket was trained on whole numbers with +, - and * "
            "only",
        ),
        ("12 ÷ 4", "has a division"),
        ("3.5 + 2", "has a decimal number"),
        (".5 + 2", "has a decimal number"),
        ("1,000 + 2", "has a number with a comma"),
        ("2 ** 3", "has a power"),
        ("2^3", "has a power"),
        (
            "120 + 3",
            "the problem '120 + 3' has the number 120, but the model pocket was trained on numbers from 1 to 99",
        ),
        ("3 - 0", "has the number 0, but"),
        ("-3 + 5", "has the number -3, but"),
        ("1" + " + 1" * 11, "has 11 operations, but the model pocket was trained on 10 at most"),
        (
            "12 * 13",
            "has the product 12 * 13 = 156, but the model pocket was trained on products with a factor of at most 9",
        ),
        ("(5 - 15) * (4 + 6)", "has the product -10 * 10 = -100, but"),
        (
            "99 * 9 * 9",
            "comes to 8019 on the way (891 * 9 = 8019), but the model pocket was trained on results of at most 999 in "
            "size",
        ),
        ("1 - 99 * 9 - 99 - 99", "comes to -1088 on the way"),
        ("Anna has 12 apples. How many apples are there now?", "is the number 12 alone"),
        (STORY.replace("7", "700"), "has the number 700, but"),
        (
            STORY.replace("buys 7 more", "loses 13 of them"),
            "comes to -1 after 'She loses 13 of them.', but the model pocket was trained on stories in which nothing "
            "is ever less",
        ),
    ],
)
def test_what_the_model_was_not_trained_on_is_refused_with_the_reason_and_another_way(asked: str, message: str):
    with pytest.raises(ConfigError) as failure:
        TASK.prompt(Problem(asked))
    assert message in str(failure.value)
    assert str(failure.value).endswith(ELSEWHERE)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "3 +",
            "the expression '3 +' cannot be read at character 4: a number belongs here (hint: write whole numbers "
            "with +, -, *",
        ),
        (
            "What is (3 + 4?",
            "the expression '(3 + 4' cannot be read at character 7: a closing parenthesis belongs here",
        ),
        ("3 + 4 = 7", "the expression '3 + 4 = 7' cannot be read at character 6: an operator or the end belongs here"),
        ("1" * 30 + " + 2", "the number has more than 18 digits"),
        ("1" + " + 1" * 500, "there are more than 100 operations"),
        (
            "Reach 39 with 17 22.",
            "the problem 'Reach 39 with 17 22.' is a countdown, but the task 'pocket' reads expressions and stories",
        ),
        ("Reach 39 with 17 22.", "(hint: name its task: --task countdown)"),
        ("use 17 and 22 to make 39", "is a countdown"),
        (
            STORY.replace("She buys 7 more.", "She eats 7."),
            "the story 'Anna has 12 apples. She eats 7. How many apples are there now?' cannot be read: the sentence "
            "'She eats 7.' is not",
        ),
        (STORY.replace("Anna", "Alice"), "nobody in its stories is called 'Alice'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_place(asked: str, message: str):
    with pytest.raises(ConfigError) as failure:
        TASK.prompt(Problem(asked))
    assert message in str(failure.value)


@pytest.mark.parametrize(
    "turns",
    [
        (),
        (Message("system", "Be brief."), Message("user", "3 + 4")),
        (Message("user", "3 + 4"), Message("assistant", "7"), Message("user", "7 + 1")),
        (Message("assistant", "3 + 4"),),
    ],
)
def test_a_conversation_is_refused(turns: tuple[Message, ...]):
    with pytest.raises(ConfigError) as failure:
        TASK.prompt(Problem(turns))
    roles = ", ".join(turn.role for turn in turns) or "none"
    assert f"the problem is a conversation (turns: {roles}), but the task 'pocket' reads one question" in str(
        failure.value
    )


@given(st.text(alphabet="0123456789+-*/()= .?x\n") | st.text())
@settings(**QUICK)
def test_any_text_is_asked_in_normal_form_or_refused(asked: str):
    try:
        prompt = TASK.prompt(Problem(asked))
    except ConfigError:
        return
    assert TASK.prompt(Problem(prompt)) == prompt


def test_a_revision_stands_behind_the_last_four_attempts():
    assert TASK.prompt(Problem("3+4"), "revise", ATTEMPTS[:1]) == "3 + 4\n3 + 4 = 5\nA: 5\nAgain\n"
    assert TASK.prompt(Problem("3+4"), "revise", ATTEMPTS) == "3 + 4\n" + "".join(
        f"{attempt}Again\n" for attempt in ATTEMPTS[1:]
    )
    assert TASK.prompt(Problem("3+4"), "solve", ATTEMPTS) == "3 + 4\n"
    assert MOST_ATTEMPTS == 4


def test_a_revision_of_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"kind 'revise'.*0.*1"):
        TASK.prompt(Problem("3 + 4"), "revise")


@pytest.mark.parametrize("attempt", ["", "\n", "first try", "first try\n", "3 + 4 = 7\nA: 7", "3 + 4 = 7\n7 + "])
def test_a_revision_of_what_is_no_solution_in_lines_is_refused(attempt: str):
    with pytest.raises(ConfigError, match=r"attempt.*revise.*,.*'3"):
        TASK.prompt(Problem("3 + 4"), "revise", [ATTEMPTS[0], attempt])


def test_attempts_before_the_last_four_do_not_matter():
    assert TASK.prompt(Problem("3 + 4"), "revise", ["first try", *ATTEMPTS[:4]]).count("Again\n") == 4


@pytest.mark.parametrize("kind", ["fuse", "critique", "dream"])
def test_other_kinds_are_refused(kind: str):
    with pytest.raises(ConfigError, match=f"kind is '{kind}', but the task 'pocket' has only solve, revise"):
        TASK.prompt(Problem("3 + 4"), kind, ATTEMPTS)


@given(st.text(alphabet="A: 0123456789+-*=\n/.,−") | st.text(), st.text(alphabet="0123456789-./,−"))
@settings(**QUICK)
def test_solutions_are_read_as_in_the_task_arithmetic(written: str, answer: str):
    other = ArithmeticTask()
    assert TASK.step_stop == other.step_stop
    assert TASK.split(written) == other.split(written)
    assert TASK.is_finished(written) == other.is_finished(written)
    assert TASK.extract(written) == other.extract(written)
    assert TASK.canonical(answer) == other.canonical(answer)
    assert TASK.decide(answer, written) == TASK.equivalent(answer, written) == other.decide(answer, written)


def test_the_words_that_the_model_was_trained_on():
    """They are in the shipped tokenizer and weights."""
    assert (AGAIN, ANSWER, RESTART, YES, NO) == ("Again", "A: ", "Restart?", " yes", " no")
    assert tasks.get("pocket").extract(f"{ANSWER}7\n") == "7"


@pytest.fixture(scope="module")
def count() -> Any:
    """Return a function from a text to its number of tokens, the beginning and the end of a sequence left out."""
    pytest.importorskip("transformers")
    pytest.importorskip("research.pocket", reason="research is no part of the wheel")
    from research.pocket.train.tokenizer import build

    tokenizer = build()
    return lambda written: len(tokenizer(written, add_special_tokens=False)["input_ids"])


def test_typical_lengths_are_those_of_worked_solutions(count: Any):
    lengths: dict[str, list[int]] = {"solve": [], "step": []}
    for operations in range(1, MOST_OPERATIONS + 1):
        for worded in (False, True):
            for index in range(8):
                drawn = draw(Difficulty(operations=operations, worded=worded), "train", 21, index)
                lines = solution(drawn.steps, drawn.answer)
                lengths["solve"].append(count("".join(lines)) + 1)
                lengths["step"] += map(count, lines[:-1])
    for kind, found in lengths.items():
        assert sum(found) / len(found) == pytest.approx(TASK.typical_tokens(kind), rel=0.1)
    assert TASK.typical_tokens("revise") == TASK.typical_tokens("solve")
    with pytest.raises(ConfigError, match="solve, step, revise"):
        TASK.typical_tokens("fuse")


@pytest.mark.slow
def test_four_attempts_and_a_fifth_fit_the_context_in_the_worst_case(count: Any):
    """Every number of a solution is at most 999 in size, so no line is longer than the longest here; nor is any
    story.
    """
    low = -max(LARGEST_RESULT.values())
    longest = "".join([f"{low} - {low} = {low}\n"] * MOST_OPERATIONS + [f"{ANSWER}{low}\n"])
    templates = [(kind, i) for kind, templates in EVENTS.items() for i in range(len(templates))]
    per_operation = {
        one: count(StoryEvent(*one, 99, 99).tell(Story("Anna", "apples", 1, ()))) / len(one[0]) for one in templates
    }
    event = StoryEvent(*max(per_operation, key=lambda one: per_operation[one]), 99, 99)
    story = str(Story("Anna", "apples", 99, (event,) * (MOST_OPERATIONS // len(event.kind))))
    prompt = "".join([f"{story}\n", *[f"{longest}{AGAIN}\n"] * MOST_ATTEMPTS])
    assert 1 + count(prompt) + count(longest) + 1 <= 1024
    for worded in (False, True):
        for index in range(40):
            drawn = draw(Difficulty(operations=MOST_OPERATIONS, worded=worded), "train", 22, index)
            assert count("".join(solution(drawn.steps, drawn.answer))) <= count(longest)
            assert count(drawn.text) <= count(story)
