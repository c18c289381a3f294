"""What a strategy may ask of its search beside the usual: prompts of its own, and scores and weights that it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

import tts
from tests.search.written import PROBLEM, Body, run, toy
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.errors import ConfigError, PromptTooLong, TTSError
from tts.search.search import Search
from tts.types import Message
from tts.verifiers.toy import ToyVerifier


def test_a_strategy_sees_24_members() -> None:
    members = {name for name in dir(Search) if not name.startswith("_")}
    assert len(members) <= 24
    assert "warn" not in members


# Prompts of its own ---------------------------------------------------------------------------------------------------


MESSAGES = (Message("system", "You add."), Message("user", "8 + 1 - 6"))


@pytest.mark.parametrize("prompt", ["8 + 1 - 6", MESSAGES, [{"role": "user", "content": "8 + 1 - 6"}]])
def test_a_prompt_of_its_own_is_read_charged_and_traced(prompt: Any) -> None:
    async def body(search: Search) -> None:
        root = await search.open("check", prompt=prompt)
        assert root.root_kind == "check"
        await search.complete([root], 2)

    solution = run(body, toy(1.0)).solution
    assert [c.answer for c in solution.candidates] == ["3", "3"]
    opened = [node for node in solution.trace.nodes if node.parent is None]
    assert [node.kind for node in opened] == ["solve", "check"]
    assert opened[0].text == PROBLEM
    assert "8 + 1 - 6" in opened[1].text
    assert [call.kind for call in solution.trace.calls][:2] == ["open", "open"]
    assert solution.usage.samples == 2


def test_the_stream_of_a_prompt_is_of_its_content_and_how_often_it_was_opened() -> None:
    streams: list[list[int]] = []

    async def body(search: Search) -> None:
        asked: list[tuple[str, Any]] = [
            ("solve", "8 + 1"),
            ("check", "8 + 1"),
            ("solve", "8 + 2"),
            ("solve", (Message("user", "8 + 1"),)),
        ]
        streams.append([(await search.open(kind, prompt=prompt)).stream for kind, prompt in asked])
        streams[-1].append((await search.open()).stream)
        streams[-1].append(search.root.stream)
        await search.complete([search.root])

    run(body)
    run(body)
    run(body, seed=1)
    assert streams[0] == streams[1]
    assert len({*streams[0], *streams[2]}) == 12


def test_another_model_opens_the_prompt_too() -> None:
    asked: list[Ask] = []

    def write(ask: Ask) -> Answer:
        asked.append(ask)
        return Answer("A: 4", tokens=2)

    async def body(search: Search) -> None:
        root = await search.open("check", prompt=MESSAGES)
        await search.complete([root], 1, model="other")

    run(body, models={"other": FunctionBackend(write)})
    assert asked[0].prompt == MESSAGES


@pytest.mark.parametrize(
    "prompt", ["", "  \n", [], [Message("user", "")], 7, b"8 + 1", [7], [Message("user", 7)], {"role": "user"}]
)  # type: ignore[arg-type]
def test_what_is_no_prompt_is_refused_in_one_line(prompt: Any) -> None:
    async def body(search: Search) -> None:
        await search.open("check", prompt=prompt)

    with pytest.raises(ConfigError, match="the prompt") as refused:
        run(body)
    assert "\n" not in str(refused.value)


def test_texts_are_for_prompts_of_the_task() -> None:
    async def body(search: Search) -> None:
        await search.open("revise", "A: 4", prompt="8 + 1")

    with pytest.raises(ConfigError, match="given with texts"):
        run(body)


# Scores and weights that a strategy gives -----------------------------------------------------------------------------


def graded(grades: Sequence[Any], weights: Sequence[float | None] = ()) -> Body:
    async def body(search: Search) -> None:
        drawn = list(await search.complete([search.root], len(grades)))
        for place, (c, grade) in enumerate(zip(drawn, grades, strict=True)):
            weight = weights[place] if weights else None
            given = search.finish(c.trajectory, scores=None if grade is None else {"own": grade}, weight=weight)
            assert search.candidates[place] is given

    return body


def answers(n: int) -> list[str | None]:
    async def body(search: Search) -> None:
        await search.complete([search.root], n)

    return [c.answer for c in run(body).search.candidates]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "name",
    ["best", "weighted", "borda(exponent=50)", "best_of_majority(alpha=0)", "selective(by='best', threshold=0.1)"],
)
def test_selections_go_by_the_scores_that_a_strategy_gives(name: str) -> None:
    drawn = answers(8)
    odd = min({*drawn}, key=drawn.count)  # an answer that no vote would choose
    grades = [0.9 if answer == odd else 0.01 for answer in drawn]
    role = "verifier='own')"
    text = f"{name[:-1]}, {role}" if name.endswith(")") else f"{name}({role}"
    selection = tts.parse(f"single | {text}").selection
    end = run(graded(grades), selection=selection, gives=["own"])
    assert end.solution.answer == odd
    assert end.solution.usage.verifier_calls == 0
    assert all(c.scores["own"] in (0.9, 0.01) for c in end.solution.candidates)
    scored = [node for node in end.solution.trace.nodes if node.candidate is not None]
    assert sorted(node.scores["own"] for node in scored) == sorted((grade,) for grade in grades)


def test_scores_outside_of_0_to_1_are_log_odds_where_they_are_summed() -> None:
    drawn = answers(4)
    grades = [3.0, -20.0, -20.0, -20.0]
    solution = run(
        graded(grades), selection=tts.parse("single | weighted(verifier='own')").selection, gives=["own"]
    ).solution
    assert solution.answer == drawn[0]
    assert max(c.weight for c in solution.candidates) == pytest.approx(1 / (1 + math.exp(-3)))


def test_majority_counts_the_weights_that_a_strategy_gives() -> None:
    drawn = answers(8)
    odd = min({*drawn}, key=drawn.count)
    weights = [20.0 if answer == odd else None for answer in drawn]
    solution = run(graded([None] * 8, weights), selection=tts.parse("single | majority").selection).solution
    assert solution.answer == odd
    count = drawn.count(odd)
    assert solution.confidence == pytest.approx(20 * count / (20 * count + 8 - count))
    plain = run(graded([None] * 8), selection=tts.parse("single | majority").selection).solution
    assert plain.answer == max(drawn, key=lambda answer: (drawn.count(answer), -drawn.index(answer)))


@pytest.mark.parametrize(
    ("scores", "weight", "said"),
    [
        ({"own": math.nan}, None, "score of the role 'own' is nan"),
        ({"own": math.inf}, None, "score of the role 'own' is inf"),
        ({"own": "0.7"}, None, "score of the role 'own' is '0.7'"),
        ({"own": True}, None, "score of the role 'own' is True"),
        ({"": 0.7}, None, "role of a score"),
        ({"main": 0.7}, None, "is a verifier's"),
        ([0.7], None, "mapping of roles"),
        (None, -1.0, "weight is -1.0"),
        (None, math.nan, "weight is nan"),
    ],
)
def test_what_is_no_score_or_weight_is_refused_in_one_line(scores: Any, weight: Any, said: str) -> None:
    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        search.finish(made.trajectory, scores=scores, weight=weight)

    with pytest.raises(TTSError, match=said) as refused:
        run(body, verifiers={"main": ToyVerifier(error=0.1)})
    assert "\n" not in str(refused.value)


def test_a_role_that_nobody_scores_and_one_that_two_score_are_refused_before_anything_is_spent() -> None:
    selection = tts.parse("single | best(verifier='own')").selection
    for gives, verifiers, said in (
        ((), {}, "no verifier has it"),
        (("own",), {"own": ToyVerifier(error=0.1)}, "but a verifier has that"),
    ):
        backend = toy()
        with pytest.raises(ConfigError, match=said):
            run(graded([0.5]), backend, selection=selection, gives=gives, verifiers=verifiers)  # type: ignore[arg-type]
        assert backend.counters.prompt_tokens == 0


def test_a_role_without_a_verifier_is_named() -> None:
    async def body(search: Search) -> None:
        await search.score([search.root], "mian")

    with pytest.raises(ConfigError, match="role 'mian'"):
        run(body)
    with pytest.raises(ConfigError, match="'mian'") as refused:
        run(body, verifiers={"main": ToyVerifier(error=0.1)})
    assert "main" in (refused.value.hint or str(refused.value))


# Where rows end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [(), ["\n"], "\n", None])
def test_what_is_no_tuple_of_texts_ends_no_row(texts: Any) -> None:
    with pytest.raises(ConfigError, match=r"tuple.*texts"):
        tts.Stops(texts)
    with pytest.raises(ConfigError, match=r"text.*Stops.*''"):
        tts.Stops(("",))


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    class Small(FunctionBackend):
        context = 50

    async def body(search: Search) -> None:
        await search.open("check", prompt="8 + 1 " * 100)

    with pytest.raises(PromptTooLong, match=r"model's.* holds 50"):
        run(body, Small(lambda ask: "A: 4"))
