"""Paths that go on behind their end, and forks at a token inside of a node."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import networkx
import numpy as np
import pytest

import tts
from tests.search.written import PROBLEM, Body, Written, on_pocket, run, toy
from tests.support.chaos import ChaosBackend
from tests.support.runs import Solved, make_run, solve, solve_and_show
from tts.backends.base import Caps
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget, Rates
from tts.errors import CapabilityError, ConfigError, TTSError
from tts.randomness import child_stream
from tts.search.search import Search
from tts.search.strategies._common.stepping import spent_amounts
from tts.trace.trace import Trace
from tts.types import Candidate
from tts.verifiers.toy import ToyVerifier


def test_a_rollout_that_was_written_in_pieces_leaves_no_state() -> None:
    async def body(search: Search) -> None:
        for _ in range(2):  # the second drops the rows of the first
            await search.rollout([search.root], 1)

    backend = ChaosBackend(ToyBackend(), seed=0)
    plan: Any = Written(body)
    end = solve_and_show(make_run(PROBLEM, Budget(tokens=400), plan, backend), portion=1)
    assert [call.kind for call in end.solution.trace.calls].count("rollout") > 2
    assert not backend.live


# Paths that go on behind their end ------------------------------------------------------------------------------------


def nodes_of(end: Solved) -> list[Any]:
    return list(end.solution.trace.nodes)


def test_a_finished_path_goes_on_without_its_end_of_sequence() -> None:
    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        t = made.trajectory
        before = spent_amounts(search)
        (child,) = await search.extend([t], "\nWait")
        assert child.parent is t
        assert child.status == "active"
        assert child.text == "\nWait"
        assert child.num_tokens == t.num_tokens + len(child.token_ids)
        assert spent_amounts(search) == before  # input: neither a sample nor a token that counts
        assert search.tree.distinct_tokens([child]) == search.tree.distinct_tokens([t]) + len(child.token_ids)
        (second,) = await search.extend([t], "\nWait")
        assert second.stream != child.stream
        assert search.account.spent["samples"] == before["samples"] + 1
        (after,) = await search.complete([child])
        assert after.trajectory.full_text.startswith(t.text + "\nWait")
        assert after.group == made.group
        assert search.candidates[0] is made

    solution = run(body, verifiers={"main": ToyVerifier()}).solution
    assert [call.kind for call in solution.trace.calls][:6] == ["open", "expand", "open", "extend", "extend", "expand"]
    opened = solution.trace.calls[2].usage
    assert (
        opened.prompt_tokens
        == solution.trace.calls[0].usage.prompt_tokens + solution.trace.calls[1].usage.generated_tokens - 1
    )
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

    limits = {"tokens": (30, 60, 200), "flops": (200, 600, 3000), "usd": (1e-6, 1e-5, 1e-4), "samples": (1, 2, 4, 9)}[
        unit
    ]
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
        def needs(self) -> tts.Needs:
            return tts.Needs(capabilities=("extend",))

        async def run(self, search: tts.Search) -> Sequence[Candidate]:
            return await search.complete(await search.extend([search.root], "x"))

    backend = Mute(lambda ask: "A: 5")
    with pytest.raises(CapabilityError, match="extend"):
        solve(make_run(PROBLEM, 100, tts.Plan(Extending()), backend))
    assert backend.counters.prompt_tokens == 0
    spent: list[int] = []

    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        spent.append(backend.counters.prompt_tokens)
        await search.extend([made.trajectory], "x")

    with pytest.raises(TTSError, match="extend"):
        run(body, backend)
    assert spent == [backend.counters.prompt_tokens]


def test_what_was_cut_short_does_not_go_on_and_expand_says_what_does() -> None:
    async def cut(search: Search) -> None:
        (made,) = await search.complete([search.root], max_tokens=2)
        await search.extend([made.trajectory], "x")

    async def ended(search: Search) -> None:
        (made,) = await search.complete([search.root])
        await search.expand([made.trajectory])

    with pytest.raises(TTSError, match=r"truncated,.*active"):
        run(cut)
    with pytest.raises(TTSError, match=r"active.*extend"):
        run(ended)


@pytest.mark.slow
@pytest.mark.parametrize("verifier", ["none", "process"])
def test_the_embedded_policy_goes_on_from_its_own_state(verifier: str) -> None:
    pytest.importorskip("torch")

    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        t = made.trajectory
        assert t.status == "finished"
        if verifier == "process":
            assert not np.isnan(await search.score([t])).any()
        state = search
        calls = len(state.account.ledger.calls)
        (child,) = await search.extend([t], "\n")
        ids = state._prompts.spell(t, "policy").ids  # type: ignore[attr-defined]
        assert ids == t.token_ids  # the task ended it, so that its own state goes on while it is held
        assert [call.kind for call in state.account.ledger.calls[calls:]] == (
            ["extend"] if verifier == "process" else ["open", "extend"]
        )
        assert state.tree.path_tokens(child) == state.tree.path_tokens(t) + len(child.token_ids)
        eos = dataclasses.replace(t, token_ids=(*ids, 2))
        assert state._prompts.spell(eos, "policy").ids == ids  # type: ignore[attr-defined]
        if verifier == "process":
            assert not np.isnan(await search.score([child])).any()
        await search.complete([child], 2)

    end = on_pocket(body, verifier=verifier)
    assert len(end.solution.candidates) == 3


# Forks inside of a node -----------------------------------------------------------------------------------------------


def test_a_node_is_divided_and_forks_branch_off() -> None:
    ends: list[list[Any]] = []

    def body_of(counts: Sequence[int]) -> Body:
        async def body(search: Search) -> None:
            tree = search.tree
            (made,) = await search.complete([search.root])
            t = made.trajectory
            size, cost, spent = len(t.token_ids), search.tree.distinct_tokens([t]), search.account.spent["samples"]
            prefix = await search.fork(t, 4)
            assert (prefix.status, prefix.text, prefix.token_ids, prefix.stream) == (
                "active",
                "3 + 4 = "[:8],
                t.token_ids[:4],
                t.stream,
            )
            assert prefix.logprobs == t.logprobs[:4]
            assert tree.own_tokens(prefix) == 4
            assert tree.own_tokens(t) == size - 4
            assert tree.parent_of(t) is prefix
            assert tree.children_of(prefix) == 1
            assert search.tree.distinct_tokens([t, prefix]) == search.tree.distinct_tokens([t]) == cost
            assert search.account.spent["samples"] == spent
            forks: list[Any] = []
            for count in counts:
                forks += await search.complete([prefix], count)
            assert await search.fork(t, 4) is prefix
            assert search.account.spent["samples"] == spent + len(forks)
            for j, fork in enumerate(forks, start=1):
                assert fork.trajectory.stream == child_stream(t.stream, 4, j)
                assert fork.trajectory.full_text.startswith("3 + 4 = ")
                assert fork.group == made.group
            assert search.candidates[0] is made
            ends.append([(f.trajectory.full_text, f.trajectory.stream) for f in forks])

        return body

    for counts in ((4,), (1, 3), (2, 2)):
        end = run(body_of(counts))
    assert ends[0] == ends[1] == ends[2]
    assert len({text for text, _ in ends[0]}) > 1
    trace = end.solution.trace
    whole, first = trace.nodes[1], trace.nodes[2]
    assert (first.parent, whole.parent, first.tokens) == (0, 2, 4)
    assert first.text + whole.text == end.search.tree.nodes[1].text  # type: ignore[union-attr]
    assert {node.parent for node in trace.nodes[3:]} == {2}
    assert [call.kind for call in trace.calls][:3] == ["open", "expand", "open"]
    assert trace.calls[2].usage.prompt_tokens == trace.calls[0].usage.prompt_tokens + 4
    assert Trace.from_json(trace.to_json()).canonical() == trace.canonical()
    assert trace.to_html()
    assert networkx.is_arborescence(trace.to_networkx())


def test_a_node_is_divided_in_any_order() -> None:
    async def body(search: Search) -> None:
        tree = search.tree
        (made,) = await search.complete([search.root])
        t = made.trajectory
        size = len(t.token_ids)
        parts = {at: await search.fork(t, at) for at in (6, 2, 9, size - 1)}
        assert [tree.own_tokens(parts[at]) for at in (2, 6, 9, size - 1)] == [2, 4, 3, size - 10]
        assert tree.own_tokens(t) == 1
        assert parts[size - 1].full_text == t.full_text  # all but the end of sequence
        assert await search.fork(parts[9], 1) is not parts[9]  # the offset is of the part's own tokens
        assert search.tree.distinct_tokens([t]) == search.tree.distinct_tokens(list(parts.values())) + 1
        for at, part in parts.items():
            assert t.full_text.startswith(part.full_text)
            assert sum(len(piece.token_ids) for piece in part.path) == at
        assert tree.live_tokens == search.tree.distinct_tokens([*tree.held.values()])
        assert tree.logical_tokens == tree.path_tokens(t)  # the only tip
        search.keep([])
        assert tree.live_tokens == search.tree.distinct_tokens([*tree.held.values()])
        again = await search.fork(t, 6)
        assert again.node == parts[6].node
        await search.complete([again], 2)

    nodes = nodes_of(run(body, verifiers={"main": ToyVerifier()}))
    text = "".join(nodes[i].text for i in _way(nodes, 1))
    assert text.startswith("3 + 4 = ")


def _way(nodes: Sequence[Any], last: int) -> list[int]:
    way = [last]
    while nodes[way[-1]].parent:
        way.append(nodes[way[-1]].parent)
    return way[::-1]


@pytest.mark.parametrize("unit", ["tokens", "flops", "usd", "samples", "verifier_calls"])
def test_forks_are_scored_and_charged_within_every_limit(unit: str) -> None:
    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        for at in (3, 7, 5):
            prefix = await search.fork(made.trajectory, at)
            (forks,) = await search.expand([prefix], 2)
            await search.score(forks)
            search.keep(forks)
            await search.complete([t for t in forks if t.status == "active"])
        await search.score([c.trajectory for c in search.candidates])

    limits: Any = {
        "tokens": (30, 60, 200),
        "flops": (200, 600, 3000),
        "usd": (1e-6, 1e-5, 1e-4),
        "samples": (1, 2, 4, 9),
    }
    for limit in limits.get(unit, (1, 3, 9)):
        chaos = ChaosBackend(toy(), seed=1, rates=Rates(flops=2, usd_in=10**6, usd_reused=10**5, usd_out=4 * 10**6))
        end = run(body, chaos, budget=Budget(**{unit: limit}), verifiers={"main": ToyVerifier(error=0.1)})
        assert not chaos.live
        assert end.solution.candidates


@pytest.mark.parametrize("at", [0, -1, 14, 99, 1.5, "3"])
def test_an_offset_that_is_not_there_is_refused_in_one_line(at: Any) -> None:
    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        assert len(made.trajectory.token_ids) == 15
        await search.fork(made.trajectory, 15 if at == 14 else at)

    with pytest.raises(TTSError, match="at is") as refused:
        run(body)
    assert "\n" not in str(refused.value)


def test_a_root_and_a_rollout_are_not_forked() -> None:
    async def root(search: Search) -> None:
        await search.fork(search.root, 1)

    async def rollout(search: Search) -> None:
        (end,) = await search.rollout([search.root], 1)
        await search.fork(end, 1)

    with pytest.raises(ConfigError, match="is a root"):
        run(root)
    with pytest.raises(TTSError, match="of a rollout"):
        run(rollout)


def test_what_shows_no_token_ids_refuses_before_anything_is_spent() -> None:
    class Forking(tts.Strategy):
        def needs(self) -> tts.Needs:
            return tts.Needs(capabilities=("token_ids",))

        async def run(self, search: tts.Search) -> Sequence[Candidate]:
            (made,) = await search.complete([search.root])
            return await search.complete([await search.fork(made.trajectory, 1)])

    backend = FunctionBackend(lambda ask: "A: 5")
    with pytest.raises(CapabilityError, match="token_ids"):
        solve(make_run(PROBLEM, 100, tts.Plan(Forking()), backend))
    assert backend.counters.prompt_tokens == 0


def test_a_fork_at_a_token_needs_the_text_of_single_tokens() -> None:
    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        (before,) = [await search.fork(made.trajectory, "4")]
        assert made.trajectory.full_text.startswith(before.full_text)
        await search.fork(made.trajectory, 3)

    backend = toy()
    backend.metadata = dataclasses.replace(backend.metadata, text_of=None)
    with pytest.raises(TTSError, match=r"'toy'.*show"):
        run(body, backend)


@pytest.mark.slow
@pytest.mark.parametrize("verifier", ["none", "process"])
def test_the_embedded_policy_forks_at_its_own_tokens(verifier: str) -> None:
    pytest.importorskip("torch")

    async def body(search: Search) -> None:
        (made,) = await search.complete([search.root])
        t, state = made.trajectory, search
        at = len(t.token_ids) // 2
        prefix = await search.fork(t, at)
        assert state._prompts.spell(prefix, "policy").ids == t.token_ids[:at]  # type: ignore[attr-defined]
        assert state.tree.path_tokens(prefix) == state.tree.prompt_tokens[0] + at
        forks = await search.complete([prefix], 3, temperature=2.0)
        assert all(fork.trajectory.full_text.startswith(prefix.text) for fork in forks)
        if verifier == "process":
            assert not np.isnan(await search.score([fork.trajectory for fork in forks])).any()
        (cue,) = await search.extend([prefix], "\N{SNOWMAN}")
        assert len(cue.token_ids) == 3
        await search.fork(cue, 1)

    with pytest.raises(TTSError, match="inside of a character"):
        on_pocket(body, verifier=verifier)
