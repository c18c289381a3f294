"""What a strategy may ask of its search beside the usual: prompts of its own, paths that go on, forks, scores that it gives."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.runs import Solved, check_books, make_run, searched
from tts.backends.base import Caps
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.protocol import BackendProtocol
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.budget.meter import Rates
from tts.errors import CapabilityError, ConfigError
from tts.search.search import Search, state_of
from tts.types import Candidate, Message, Solution, Usage
from tts.verifiers.base import VerifierProtocol
from tts.verifiers.toy import ToyVerifier

Body = Callable[[Search], Awaitable[Sequence[Candidate] | None]]
PROBLEM = "3 + 4 - 2"


class Written(tts.Strategy):
    """A strategy whose body is a function."""

    def __init__(self, body: Body, gives: Sequence[str] = ()) -> None:
        self.body = body
        self.gives_scores = tuple(gives)

    async def run(self, search: Search) -> Sequence[Candidate]:
        made = await self.body(search)
        return search.candidates if made is None else made


def toy(accuracy: float = 0.5) -> ToyBackend:
    return ToyBackend(ToyLanguage(accuracy=accuracy))


def run(
    body: Body,
    backend: BackendProtocol | None = None,
    *,
    budget: Budget | float = 4000,
    selection: Any = None,
    gives: Sequence[str] = (),
    verifiers: dict[str, VerifierProtocol] | None = None,
    **more: Any,
) -> Solved:
    plan: Any = Written(body, gives)
    if selection is not None:
        plan = tts.Plan(plan, selection=selection)
    backend = backend or toy()
    before = (backend.counters.prompt_tokens, backend.counters.generated_tokens)
    end = searched(make_run(PROBLEM, budget, plan, backend, verifiers=verifiers, **more))
    if isinstance(end.solution, Exception):
        raise end.solution
    solution: Solution = end.solution
    if solution.error is not None:
        raise solution.error
    check_books(end.search)  # type: ignore[arg-type]
    usage = solution.usage
    if not verifiers and "models" not in more:
        computed = (usage.prompt_tokens + usage.verifier_tokens, usage.generated_tokens + usage.cancelled_tokens)
        assert computed == (backend.counters.prompt_tokens - before[0], backend.counters.generated_tokens - before[1])
    return end


def test_a_strategy_sees_24_members() -> None:
    members = {name for name in dir(Search) if not name.startswith("_")}
    assert len(members) <= 24
    assert "warn" not in members


# Prompts of its own -------------------------------------------------------------------------------------------------------------


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
        asked: list[tuple[str, Any]] = [("solve", "8 + 1"), ("check", "8 + 1"), ("solve", "8 + 2"), ("solve", (Message("user", "8 + 1"),))]
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


@pytest.mark.parametrize("prompt", ["", "  \n", [], [Message("user", "")], 7, b"8 + 1", [7], [Message("user", 7)], {"role": "user"}])  # type: ignore[arg-type]
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


# Scores and weights that a strategy gives ---------------------------------------------------------------------------------------


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
    "name", ["best", "weighted", "borda(exponent=50)", "best_of_majority(alpha=0)", "selective(by='best', threshold=0.1)"]
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
    solution = run(graded(grades), selection=tts.parse("single | weighted(verifier='own')").selection, gives=["own"]).solution
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

    with pytest.raises(ConfigError, match=said) as refused:
        run(body, verifiers={"main": ToyVerifier(error=0.1)})
    assert "\n" not in str(refused.value)


def test_a_role_that_nobody_scores_and_one_that_two_score_are_refused_before_anything_is_spent() -> None:
    selection = tts.parse("single | best(verifier='own')").selection
    for gives, verifiers, said in (((), {}, "no verifier has it"), (("own",), {"own": ToyVerifier(error=0.1)}, "but a verifier has that")):
        backend = toy()
        with pytest.raises(ConfigError, match=said):
            run(graded([0.5]), backend, selection=selection, gives=gives, verifiers=verifiers)  # type: ignore[arg-type]
        assert backend.counters.prompt_tokens == 0


# Paths that go on behind their end ----------------------------------------------------------------------------------------------


def nodes_of(end: Solved) -> list[Any]:
    return list(end.solution.trace.nodes)


def test_a_finished_path_goes_on_without_its_end_of_sequence() -> None:
    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        t = made.trajectory
        before = dict(search.spent)
        (child,) = await search.extend([t], "\nWait")
        assert child.parent is t
        assert child.status == "active"
        assert child.text == "\nWait"
        assert child.num_tokens == t.num_tokens + len(child.token_ids)
        assert search.spent == before  # input: neither a sample nor a token that counts
        assert search.kv_cost([child]) == search.kv_cost([t]) + len(child.token_ids)
        (second,) = await search.extend([t], "\nWait")
        assert second.stream != child.stream
        assert search.spent["samples"] == before["samples"] + 1
        (after,) = await search.complete([child])
        assert after.trajectory.full_text.startswith(t.text + "\nWait")
        assert after.group == made.group
        assert search.candidates[0] is made

    solution = run(body, verifiers={"main": ToyVerifier()}).solution
    assert [call.kind for call in solution.trace.calls][:6] == ["open", "expand", "open", "extend", "extend", "expand"]
    opened = solution.trace.calls[2].usage
    assert opened.prompt_tokens == solution.trace.calls[0].usage.prompt_tokens + solution.trace.calls[1].usage.generated_tokens - 1
    assert [node.candidate for node in solution.trace.nodes[:2]] == [None, 0]
    assert solution.trace.nodes[2].parent == 1


@pytest.mark.parametrize("unit", ["tokens", "flops", "usd", "samples"])
def test_what_goes_on_is_scored_and_charged_within_every_limit(unit: str) -> None:
    async def body(search: Search) -> None:
        for made in list(await search.complete([search.root], 3)):
            await search.score([made.trajectory])
            children = await search.extend([made.trajectory] * 2, "\nWait\n")
            await search.score(children)
            await search.complete(children)
        await search.score([c.trajectory for c in search.candidates])

    limits = {"tokens": (30, 60, 200), "flops": (200, 600, 3000), "usd": (1e-6, 1e-5, 1e-4), "samples": (1, 2, 4, 9)}[unit]
    for limit in limits:
        chaos = ChaosBackend(toy(), seed=1, rates=Rates(flops=2, usd_in=10**6, usd_reused=10**5, usd_out=4 * 10**6))
        run(body, chaos, budget=Budget(**{unit: limit}), verifiers={"main": ToyVerifier(error=0.1)})  # type: ignore[arg-type]
        assert not chaos.live


def test_a_function_goes_on_by_text() -> None:
    asked: list[Ask] = []

    def write(ask: Ask) -> Answer:
        asked.append(ask)
        return Answer("A: 4" if ask.text else "A: 5", tokens=2)

    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        await search.complete(await search.extend([made.trajectory], " Wait. "))

    solution = run(body, FunctionBackend(write)).solution
    assert [c.answer for c in sorted(solution.candidates, key=lambda c: c.index)] == ["5", "4"]
    assert asked[1].text == "A: 5 Wait. "


class Mute(FunctionBackend):
    """A server that takes whole prompts alone."""

    caps = Caps(fork="emulated")


def test_what_cannot_append_refuses_before_anything_is_spent() -> None:
    class Extending(tts.Strategy):
        async def run(self, search: tts.Search) -> Sequence[Candidate]:
            return await search.complete(await search.extend([search.root], "x"))

    backend = Mute(lambda ask: "A: 5")
    with pytest.raises(CapabilityError, match="extend"):
        asyncio.run(make_run(PROBLEM, 100, tts.Plan(Extending()), backend).solve())
    assert backend.counters.prompt_tokens == 0
    spent: list[int] = []

    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        spent.append(backend.counters.prompt_tokens)
        await search.extend([made.trajectory], "x")

    with pytest.raises(CapabilityError, match="extend"):
        run(body, backend)
    assert spent == [backend.counters.prompt_tokens]


def test_what_was_cut_short_does_not_go_on_and_expand_says_what_does() -> None:
    async def cut(search: Search) -> None:
        (made,) = await search.complete([search.root], max_tokens=2)
        await search.extend([made.trajectory], "x")

    async def ended(search: Search) -> None:
        (made,) = await search.complete([search.root])
        await search.expand([made.trajectory])

    with pytest.raises(ConfigError, match="is truncated, but only an active or finished trajectory"):
        run(cut)
    with pytest.raises(ConfigError, match=r"is finished, but only an active trajectory .*extend"):
        run(ended)


def on_pocket(body: Body, *, verifier: Any = "none", budget: Budget | float = 4000) -> Solved:
    with tts.Solver("pocket", verifier) as solver:
        made = solver.prepared("What is 12 + 7 * 3?", budget, strategy=Written(body), seed=1)
        backend = made.backends["policy"]
        before = (backend.counters.prompt_tokens, backend.counters.generated_tokens)
        end = searched(made)
        if isinstance(end.solution, Exception):
            raise end.solution
        if end.solution.error is not None:
            raise end.solution.error
        check_books(end.search)  # type: ignore[arg-type]
        usage: Usage = end.solution.usage
        assert usage.generated_tokens == backend.counters.generated_tokens - before[1]
        assert usage.prompt_tokens + usage.verifier_tokens == backend.counters.prompt_tokens - before[0]
        return end


@pytest.mark.parametrize("verifier", ["none", "process"])
def test_the_embedded_policy_goes_on_from_its_own_state(verifier: str) -> None:
    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        t = made.trajectory
        assert t.status == "finished"
        if verifier == "process":
            assert not np.isnan(await search.score([t])).any()
        state = state_of(search)
        calls = len(state.accounting.ledger.calls)
        (child,) = await search.extend([t], "\n")
        ids = state.prompts.spelled(t, "policy").ids  # type: ignore[attr-defined]
        assert ids == t.token_ids  # the task ended it, so that its own state goes on while it is held
        assert [call.kind for call in state.accounting.ledger.calls[calls:]] == (
            ["extend"] if verifier == "process" else ["open", "extend"]
        )
        assert state.tree.path_tokens(child) == state.tree.path_tokens(t) + len(child.token_ids)
        eos = dataclasses.replace(t, token_ids=(*ids, 2))
        assert state.prompts.spelled(eos, "policy").ids == ids  # type: ignore[attr-defined]
        if verifier == "process":
            assert not np.isnan(await search.score([child])).any()
        await search.complete([child], 2)

    end = on_pocket(body, verifier=verifier)
    assert len(end.solution.candidates) == 3
