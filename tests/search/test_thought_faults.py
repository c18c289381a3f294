"""Faults of models that think, found by attack: last resorts, marks that cannot be told apart, verifiers, servers,
hints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tts
from tests.support.runs import make_run, solve, solve_and_show
from tts.backends.capabilities import require
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.openai.prompt import extra_members
from tts.backends.openai.reply import ServerReply
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage, tokens_of
from tts.errors import CapabilityError, ConfigError
from tts.models.registry import ModelRecord
from tts.search.ends import SearchEnded, Tokens
from tts.search.needs import Needs
from tts.thoughts import THINK, ThoughtMarks
from tts.types import Candidate
from tts.verifiers.checker import Checker
from tts.verifiers.rules.verifier import Rules

PROBLEM = "3 + 4 - 2 + 7"
OPENED = "3 + 4 <think>\n"


class Beginning(tts.Strategy):
    """Begins a thought, and says that the budget is used up."""

    def needs(self) -> Needs:
        return Needs(capabilities=("extend",))

    async def run(self, search: tts.Search) -> Sequence[Candidate]:
        await search.expand([search.root], 1, Tokens(4))
        raise SearchEnded("budget: tokens")


def _ends_in_thought(ask: Ask) -> Answer:
    return (
        Answer("A: 7\n", tokens=3)
        if "</think>" in ask.text
        else Answer("hm " * 4, tokens=4, finished=len(ask.text) > 12)
    )


def _fails_in_thought(ask: Ask) -> Answer:
    if ask.text:
        raise RuntimeError("no more")
    return Answer("hm " * 4, tokens=4, finished=False)


def _answers_in_time(ask: Ask) -> Answer:
    return Answer("hm</think>A: 7\n", tokens=8) if ask.text else Answer("hm " * 4, tokens=4, finished=False)


def begun(write: Callable[[Ask], Answer]) -> Any:
    backend = FunctionBackend(write, thoughts=THINK)
    return solve(make_run(OPENED, 400, tts.Plan(Beginning()), backend))


@pytest.mark.parametrize("write", [_ends_in_thought, _answers_in_time], ids=["ends in its thought", "responds"])
def test_the_last_thought_brings_an_answer_however_it_ends(write: Callable[[Ask], Answer]) -> None:
    solution = begun(write)
    assert solution.error is None
    assert solution.answer == "7"


def test_a_last_thought_whose_rows_fail_is_shown_as_far_as_it_came() -> None:
    solution = begun(_fails_in_thought)
    assert str(solution.error) == "no path came to its end, and rows failed: RuntimeError: no more"
    assert solution.usage.tokens <= 400


def test_a_mark_within_a_single_token_is_not_waited_for() -> None:
    def write(ask: Ask) -> Answer:
        return Answer("A: 12\n", tokens=3) if "</think>" in ask.text else Answer("hm</think>", tokens=1, finished=False)

    backend = FunctionBackend(write, thoughts=THINK)
    solution = solve(make_run(PROBLEM, 400, "budget_forcing(n=2, thought_tokens=20, waits=1)", backend))
    assert solution.error is None
    assert [c.trajectory.full_text for c in solution.candidates] == ["<think>hm</think>A: 12\n"] * 2


@pytest.mark.parametrize("verifier", [Checker(), Rules()], ids=["checker", "rules"])
@pytest.mark.parametrize(
    ("text", "score"),
    [("<think>\nA: 12\n", 0.0), ("<think>\nA: 12\n</think>\nwell\n", 0.0), ("<think>\nA: 1\n</think>\nA: 12\n", 1.0)],
    ids=["goes on", "alone", "wrong"],
)
def test_checks_of_answers_read_no_thought(verifier: Any, text: str, score: float) -> None:
    backend = FunctionBackend(lambda ask: Answer(text, tokens=4))
    problem = tts.Problem(PROBLEM, answer="12")
    task = "pocket" if verifier.name == "rules" else "arithmetic"
    run = make_run(
        problem, 400, "best_of_n(n=1) | best", backend, verifiers={"main": verifier}, task=task, allow_oracle=True
    )
    (candidate,) = solve(run).candidates
    assert candidate.scores["main"] == score
    assert (candidate.answer == "12") == bool(score)


def test_a_long_thought_in_many_portions_is_written_whole() -> None:
    """Portions are no replies that a backend cut short."""

    def texts(portion: int | None) -> list[tuple[str, str]]:
        run = make_run(PROBLEM, 400, "best_of_n(n=1)", ToyBackend(ToyLanguage(thoughts=True, again=0.9)), seed=6)
        return [(c.trajectory.full_text, c.trajectory.status) for c in solve_and_show(run, portion).solution.candidates]

    ((text, status),) = whole = texts(None)
    assert status == "finished"
    assert len(tokens_of(text)) > 256
    assert texts(1) == whole


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["answer_convergence", "answer_convergence(every=64, k=3)"])
@pytest.mark.parametrize("seed", [50, 52, 55])
def test_a_thought_that_the_budget_cuts_is_as_long_however_it_was_written(plan: str, seed: int) -> None:
    """What is held for its end is the same in every call of a row: portions that were written teach nothing about the
    row itself.
    """

    def written(portion: int | None) -> list[tuple[str, str, int]]:
        run = make_run(PROBLEM, 400, plan, ToyBackend(ToyLanguage(thoughts=True, again=0.9)), seed=seed)
        return [
            (c.trajectory.full_text, c.trajectory.status, c.trajectory.num_tokens)
            for c in solve_and_show(run, portion).solution.candidates
        ]

    whole = written(None)
    assert whole
    assert [written(portion) for portion in (1, 3, 20)] == [whole] * 3


# Servers --------------------------------------------------------------------------------------------------------------


def choice_of(*deltas: dict[str, Any]) -> Any:
    reply = ServerReply(1)
    for delta in deltas:
        reply.take({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    return reply.choices[0]


def test_a_character_divided_between_two_pieces_of_a_thought_stays_whole() -> None:
    choice = choice_of({"reasoning_content": "so \ud83d"}, {"reasoning_content": "\ude00"}, {"content": "A: 5"})
    assert choice.thought == "<think>\nso \U0001f600\n</think>\n\n"


def test_a_mark_within_a_thought_that_is_shown_apart_does_not_end_it() -> None:
    choice = choice_of({"reasoning": "it says </thi"}, {"reasoning": "nk> A: 3"}, {"content": "A: 5"})
    assert THINK.response(choice.thought + "A: 5") == "A: 5"


def test_the_text_of_thoughts_counts_where_a_report_is_divided() -> None:
    assert choice_of({"reasoning": "four"}, {"content": "é"}).num_bytes == 6


@pytest.mark.parametrize("given", ['{"top_k": 3}', '{"repetition_penalty": 1.2}', '{"x": NaN}'])
def test_members_that_would_be_lost_or_break_a_request_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"must be a JSON object|sets that itself"):
        extra_members(given)


def test_a_member_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"extra_body.*reasoning_effort, which.*option"):
        extra_members({"reasoning_effort": "low"}, "high")


# Marks and hints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marks", [(" ", "</think>"), ("", ""), ("<think>", " \n"), ("<a>", "<a>\n"), (3, "x")])
def test_marks_that_cannot_divide_a_text_are_refused(marks: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigError, match="must be two different texts"):
        ThoughtMarks(*marks)


def test_marks_of_a_function_are_marks() -> None:
    pair: Any = ("<think>", "</think>")
    with pytest.raises(ConfigError, match="must be marks"):
        FunctionBackend(lambda ask: "", thoughts=pair)


def test_the_toy_has_no_other_marks() -> None:
    with pytest.raises(ConfigError, match="marks of its own"):
        ToyBackend.from_record(ModelRecord(name="toy", backend="toy", thought=("<a>", "</a>")))


@pytest.mark.parametrize(
    ("backend", "capability", "cure"),
    [
        (ToyBackend(), "thoughts", "toy-thinking"),
        (FunctionBackend(lambda ask: ""), "thoughts", "thoughts=tts.thoughts.ThoughtMarks()"),
        (ToyBackend(), "efforts", "only servers take it"),
        (ToyBackend(), "hidden", "backends that have it: "),
    ],
    ids=["toy", "function", "effort", "others"],
)
def test_a_refusal_names_a_cure_that_works(backend: Any, capability: str, cure: str) -> None:
    with pytest.raises(CapabilityError) as refused:
        require(backend, [capability], "it")
    assert cure in refused.value.hint
