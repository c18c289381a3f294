"""Drafts: what is proposed, when it pays, and that no bit of a path depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("transformers", reason="the tiny model is one of the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import engine_of, tiny_model, tiny_tokenizer  # noqa: E402
from tests.backends.engine import stepping, test_strict  # noqa: E402
from tests.backends.engine.driving import run  # noqa: E402
from tests.backends.engine.guessing import Guesses, guess  # noqa: E402
from tests.backends.engine.stepping import ROOMY, Asked, Hand, assert_empty, ids_of, recount, told  # noqa: E402
from tests.backends.rows import bare, drained, opened, start  # noqa: E402
from tests.backends.test_suffixes import index_of  # noqa: E402
from tts.backends.base import Row, StopCondition  # noqa: E402
from tts.backends.engine import drafts  # noqa: E402
from tts.backends.engine.drafts import Acceptance, Draft, Drafts, Line, StepCost  # noqa: E402
from tts.backends.engine.heads import ValueHead  # noqa: E402
from tts.errors import ConfigError  # noqa: E402

# When it pays -----------------------------------------------------------------------------------------------------------------------


def known_cost(slope: float, rows: Sequence[int] = (1,)) -> StepCost:
    """Return measured costs of 1 and of `slope` for each token that is drafted."""
    cost = StepCost()
    for number in rows:
        for drafted in (0, 0, 0, 0, 1, 2, 4, 8, 1, 2, 4, 8):
            cost.note(number, number + drafted, 1 + slope * drafted)
    return cost


def test_a_cost_is_measured_by_size_and_on_a_line_between_sizes() -> None:
    cost = StepCost()
    for known in (False, False, False, True):
        cost.note(3, 3, 2.0)
        assert cost.known(3) is known
    assert not cost.known(4)
    assert cost(3, 8) == pytest.approx([1, 1 + 1 / 16, 1 + 2 / 16]), "no size is measured: few tokens, at a guess"
    cost.note(3, 5, 3.0)
    assert cost(3, 8) == pytest.approx([1, 1.25, 1.5, 1.75, 2])
    cost.note(3, 6, 8.0)
    assert cost(3, 3) == pytest.approx([1, 1.25, 1.5, 4]), "a rise between two sizes is no line"
    cost.note(3, 4, 1.0)
    assert cost(3, 3) == pytest.approx([1, 1, 1.5, 4]), "no draft is cheaper than none"


def test_a_row_alone_and_a_draft_of_as_many_tokens_are_measured_apart() -> None:
    cost = StepCost()
    for rows, tokens, seconds in ((8, 8, 1.0), (8, 8, 1.0), (7, 7, 1.0), (7, 7, 1.0), (7, 8, 2.0)):
        cost.note(rows, tokens, seconds)
    assert cost(8, 0) == [1]
    assert cost(7, 1) == pytest.approx([1, 2])


def test_one_step_that_another_process_held_up_counts_as_twice_as_long() -> None:
    cost, held = known_cost(0.25), known_cost(0.25)
    cost.note(1, 5, 4.0)
    held.note(1, 5, 4000.0)
    assert held(1, 8) == cost(1, 8)


def test_what_slows_each_step_changes_no_ratio() -> None:
    cost = known_cost(0.25)
    for seconds in (1.0, 2.0):
        for _ in range(50):
            cost.note(1, 1, seconds)
    for _ in range(3):
        cost.note(1, 5, 4.0)
    assert cost(1, 4)[4] / cost(1, 4)[0] == pytest.approx(2, rel=0.15)


def test_acceptance_is_the_share_of_what_was_asked_lately() -> None:
    acceptance = Acceptance()
    assert acceptance[3] == 0.5
    for _ in range(400):
        acceptance.note(3, 3, missed=True)
    assert acceptance[3] == pytest.approx(0.75, abs=0.01)
    assert acceptance[4] == 0.5


@pytest.mark.parametrize(("slope", "expected"), [(0.0, 4), (0.15, 2), (0.3, 1)])
def test_a_draft_is_as_long_as_it_pays(slope: float, expected: int) -> None:
    chooser = Drafts()
    chooser.cost = known_cost(slope)
    index = index_of(range(100))
    draft = Draft(index, Line((), []))
    draft.line.seen = [20, 21, 22]
    chooser.choose([(draft, 100)])
    # with a half at every token: (1 + sum of 2^-j up to m) / (1 + slope * m) is largest there
    assert len(draft.tokens) == expected
    rates = [(2 - 0.5**m) / (1 + slope * m) for m in range(5)]  # a fifth token would be drawn once in 32 times
    assert rates[expected] == max(rates)


def test_tokens_of_rows_that_are_behind_count_more() -> None:
    chooser = Drafts()
    chooser.cost = known_cost(0.2, (2,))
    index = index_of(range(100))
    behind, ahead = Draft(index, Line((), [1])), Draft(index, Line((), [1] * 9))
    behind.line.seen = ahead.line.seen = [20, 21, 22]
    behind.line.read, ahead.line.read = 1, 9
    for rows, expected in (([ahead, behind], [0, 1]), ([behind, ahead], [1, 0])):
        chooser.choose([(draft, 100) for draft in rows])
        assert [len(draft.tokens) for draft in rows] == expected
    # (2 + 0.88) / 1.2 is above 2.2, and above (2 + 0.88 + 0.43) / 1.4; for rows alike, (2 + 0.5) / 1.2 is not


def test_where_drafts_pay_a_step_without_is_measured_all_the_same() -> None:
    chooser = Drafts()
    chooser.cost = known_cost(0.0)
    draft = Draft(index_of(range(100)), Line((), []))
    draft.line.seen = [20, 21, 22]
    proposed = []
    for _ in range(100):
        chooser.choose([(draft, 100)])
        proposed.append(len(draft.tokens))
    assert 4 <= proposed.count(0) <= 8


def test_no_draft_makes_the_tokens_of_all_rows_in_a_second_fewer() -> None:
    chooser = Drafts()
    chooser.cost = known_cost(0.1, (8,))
    index = index_of(range(100))
    rows = [Draft(index, Line((), [1] * length)) for length in (3, *(120,) * 7)]
    for draft in rows:
        draft.line.seen, draft.line.read = [20, 21, 22], len(draft.line.tokens)
    chooser.acceptance.note(3, 0, missed=True)  # a third
    proposed = 0
    for _ in range(100):
        chooser.choose([(draft, 100) for draft in rows])
        proposed += sum(len(draft.tokens) for draft in rows)
    assert proposed <= 2 * 7, "the row behind counts for all eight, but (8 + 1 / 3) / 1.1 is below 8"


def test_a_slow_first_step_of_a_size_does_not_end_drafts_of_it() -> None:
    chooser = Drafts()
    draft = Draft(index_of(range(100)), Line((), []))
    draft.line.seen = [20, 21, 22]
    chooser.acceptance.note(3, 50, missed=True)
    sizes = []
    for _ in range(400):
        chooser.choose([(draft, 100)])
        tokens = 1 + len(draft.tokens)
        chooser.cost.note(1, tokens, (1 + 0.02 * tokens) * (10 if tokens not in sizes else 1))
        sizes.append(tokens)
    assert sum(size >= 7 for size in sizes[200:]) > 150


def test_few_rows_are_drafted_for_whatever_was_found_of_many() -> None:
    chooser = Drafts()
    chooser.cost = known_cost(0.0, (1,))
    for drafted in (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2):
        chooser.cost.note(8, 8 + drafted, 1.0 + 2 * drafted)
    index = index_of(range(100))
    rows = [Draft(index, Line((), [])) for _ in range(8)]
    for draft in rows:
        draft.line.seen = [20, 21, 22]
    for _ in range(300):
        chooser.choose([(draft, 100) for draft in rows])
    chooser.choose([(rows[0], 100)])
    assert rows[0].tokens


def test_places_behind_the_prompt_that_was_not_used_for_longest_are_forgotten_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chooser, tree = Drafts(), stepping.runner_of(4).tree
    chooser.cost = known_cost(0.0)
    roots = [tree.add(None, ids_of(12, seed)) for seed in (1, 2, 3)]
    rows = [chooser.begin(tree.add(root, ())) for root in roots]
    monkeypatch.setattr(drafts, "_ENTRIES", 2 * (12 + 11 + 10 + 7))  # the suffixes of two prompts
    for row, known in zip(rows, (roots, roots, roots[1:]), strict=True):
        chooser.choose([(row, 100)])
        assert list(chooser._indices) == known


def test_what_does_not_pay_is_measured_less_and_less() -> None:
    chooser = Drafts()
    chooser.cost = known_cost(5.0)
    draft = Draft(index_of(range(100)), Line((), []))
    draft.line.seen = [20, 21, 22]
    proposed = []
    for _ in range(1000):
        chooser.choose([(draft, 100)])
        proposed.append(len(draft.tokens))
    assert set(proposed) == {0, 2}
    assert 5 < proposed.count(2) < 20
    chooser.choose([(draft, 100)] * (drafts.MOST_ROWS + 1))
    assert draft.tokens == []


# No bit depends on it ---------------------------------------------------------------------------------------------------------------


STREAMS = (0, 1, 2, 77, 78)  # of the rows of `test_strict.searched`


def facts_and_texts(backend: Any) -> tuple[list[Any], list[tuple[int, ...]]]:
    async def main() -> Any:
        samples = await test_strict.searched(backend, 0)
        return await test_strict.facts(backend, samples), [sample.token_ids for sample in samples]

    return run(backend, main)


@pytest.mark.parametrize("wrong", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("name", ["narrow", "wide"])
def test_drafts_change_no_bit(name: str, wrong: float) -> None:
    plain, backend = test_strict.engine(name, drafts=False), test_strict.engine(name)
    want, texts = facts_and_texts(plain)
    guess(backend.runner, Guesses(dict(zip(STREAMS, texts, strict=True)), wrong=wrong))
    assert facts_and_texts(backend)[0] == want
    stats = backend.stats
    assert stats.drafted > 50
    assert stats.accepted == 0 if wrong == 1.0 else stats.accepted > 20
    for counter in ("decode_tokens", "prefill_computed", "prefill_reused", "recomputed", "cancelled_tokens"):
        assert getattr(stats, counter) == getattr(plain.stats, counter), counter
    assert wrong == 1.0 or stats.steps < plain.stats.steps


def test_the_engines_own_drafts_change_no_bit_and_some_are_drawn() -> None:
    plain, backend = test_strict.engine(drafts=False), test_strict.engine()
    backend.runner._drafts.cost = known_cost(0.0, (1, 2))
    backend.runner._drafts.cost.note = lambda rows, tokens, seconds: None  # drafts are free, whatever the clock says

    async def main(of: Any) -> Any:
        [one] = await of.open(["the cat and the cat and the cat and the cat and"])
        first = await test_strict.written(of, one.value, [Row(3, 0, 40), Row(4, 0, 40)])
        again = await test_strict.written(of, one.value, [Row(3, 0, 40), Row(4, 0, 40)])
        return [(sample.token_ids, sample.logprobs, sample.text, sample.finish) for sample in [*first, *again]]

    assert run(backend, lambda: main(backend)) == run(plain, lambda: main(plain))
    assert backend.stats.accepted > 40, "the second texts are the first again"


@pytest.mark.parametrize("blocks", [6, 9, 20])
@pytest.mark.parametrize("seed", range(3))
def test_memory_is_as_hard_with_drafts_and_every_count_is_right(blocks: int, seed: int) -> None:
    oracle, tested = Hand(stepping.runner_of(ROOMY)), Hand(stepping.runner_of(blocks, rows=4, tokens=16, drafts=Drafts()))
    stepping.scribble(tested.runner)
    rows = [Row(10 * seed + stream, 0, 30) for stream in range(6)]
    paths = [[hand.open(ids_of(20, seed)).path, hand.open(ids_of(17, seed + 5)).path] for hand in (oracle, tested)]
    expected: list[Asked] = [oracle.write(path, rows[3 * i : 3 * i + 3]) for i, path in enumerate(paths[0])]
    oracle.run()
    known = {row.stream: expected[i // 3].ends[i % 3].state.ids for i, row in enumerate(rows)}
    guess(tested.runner, Guesses(known, seed=seed))
    asked = [tested.write(path, rows[3 * i : 3 * i + 3]) for i, path in enumerate(paths[1])]
    while tested.runner.busy:
        tested.runner.step()
        recount(tested.runner)
    for one, other in zip(asked, expected, strict=True):
        for index, end in one.ends.items():
            assert told(end) == told(other.ends[index])
            assert tested.runner.tree.length(end.node) in (0, len(end.node.tokens) - 1)  # evicted, or as without drafts
            tested.runner.tree.release(end.node)
    assert tested.runner.stats.drafted > 0
    for path in [*tested.paths]:
        tested.release(path)
    assert_empty(tested.runner)


# Ends within a draft ----------------------------------------------------------------------------------------------------------------


def broken(text: str) -> bool:
    if len(text) > 9:
        raise ValueError("no more")
    return False


@pytest.mark.parametrize(
    ("stop", "caps"),
    [
        (StopCondition(), (1, 2, 3, 9, 31)),
        (StopCondition(("e", "\n", "a"), at_step=True), (40,) * 5),
        (StopCondition(("1",), finished=lambda text: len(text) > 12), (40,) * 5),
        (StopCondition(finished=broken), (40,) * 5),
    ],
    ids=["caps", "stop texts", "a predicate", "a predicate that raises"],
)
@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_rows_end_within_a_draft_as_they_do_without(stop: StopCondition, caps: tuple[int, ...], wrong: float) -> None:
    rows = [Row(stream, 0, cap) for stream, cap in enumerate(caps)]

    async def main(backend: Any) -> list[Any]:
        (handle,) = await opened(backend, "the cat and the other one")
        return [bare(sample) for sample in await drained(start(backend, handle, *rows, stop=stop))]

    long, plain, backend = (stepping.engine(drafts=drafts) for drafts in (False, False, True))
    whole = asyncio.run(_whole(long, len(caps)))
    guess(backend.runner, Guesses(dict(enumerate(whole)), wrong=wrong))
    assert asyncio.run(main(backend)) == asyncio.run(main(plain))
    assert backend.stats.drafted > 0


async def _whole(backend: Any, count: int) -> list[tuple[int, ...]]:
    (handle,) = await opened(backend, "the cat and the other one")
    return [sample.token_ids for sample in await drained(start(backend, handle, *(Row(stream, 0, 60) for stream in range(count))))]


def test_a_draft_stops_before_the_context_ends() -> None:
    plain, backend = (stepping.engine(drafts=drafts) for drafts in (False, True))

    async def main(of: Any) -> list[Any]:
        of.runner._eos = frozenset()
        (handle,) = await opened(of, stepping.text_of(stepping.CONTEXT - 12, 1))
        return [bare(sample) for sample in await drained(start(of, handle, Row(1, 0, 1 << 20), Row(2, 0, 1 << 20)))]

    want = asyncio.run(main(plain))
    assert {sample.finish for sample in want} == {"length"}
    guess(backend.runner, Guesses({stream: sample.token_ids for stream, sample in zip((1, 2), want, strict=True)}, wrong=0.0))
    assert asyncio.run(main(backend)) == want
    assert backend.stats.accepted > 0


def test_value_heads_read_what_was_drawn_alone() -> None:
    head = ValueHead(np.linspace(-1, 1, 64, dtype=np.float32), 0.0, step="e")
    found = []
    for drafted in (False, True):
        model, tokenizer = tiny_model(len(tiny_tokenizer())), tiny_tokenizer()
        backend = engine_of(model, tokenizer, heads={"head": head}, threads=1, drafts=drafted)
        if drafted:
            guess(backend.runner, Guesses({1: found[0][0]}, wrong=0.3))

        async def main(backend: Any = backend) -> Any:
            (handle,) = await opened(backend, "the cat and the other one")
            (sample,) = await drained(start(backend, handle, Row(1, 0, 50)))
            [first] = await backend.value([sample.handle], "head")
            [longer] = await backend.extend([sample.handle], ["e"])
            [second] = await backend.value([longer.value.handle], "head")
            node = backend._states[sample.handle].node
            return sample.token_ids, first.value, second.value, node.scores["head"]

        found.append(asyncio.run(main()))
        assert len(found[-1][3]) == len(found[-1][0])
    assert repr(found[0]) == repr(found[1])


# The option -------------------------------------------------------------------------------------------------------------------------


def test_drafts_are_made_where_rows_are_exact() -> None:
    assert stepping.engine().runner._drafts is not None
    assert stepping.engine(drafts=False).runner._drafts is None
    with pytest.raises(ConfigError, match="drafts is True, but they change texts"):
        stepping.engine(executor="triton", drafts=True)
    with pytest.raises(ConfigError, match="drafts is 3, but must be True, False or None"):
        stepping.engine(drafts=3)
