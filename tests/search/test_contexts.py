"""A context that is full ends a path as it is, whoever filled it: forced text, or a model with a longer context."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import tts
from tests.support.runs import check_books, make_run, solve_and_show
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.types import Candidate

PROBLEM = "3 + 4 - 2 + 9 - 5 + 6"


class Short(ToyBackend):
    context: int | None = 25


class Mixed(tts.Strategy):
    """The draft writes a path beyond the policy's context between two that fit; the policy goes on with all."""

    def __init__(self, until: object = tts.STEP) -> None:
        self.until = until

    async def run(self, search: tts.Search) -> Sequence[Candidate]:
        before, after = (row[0] for row in await search.expand([search.root] * 2, 1, tts.Tokens(6), model="draft"))
        (long,) = (await search.expand([search.root], 1, tts.Tokens(24), model="draft"))[0]
        rows = await search.expand([before, long, after], 1, self.until)  # pyright: ignore[reportArgumentType]
        self.made = [[(t.status, t.num_tokens - t.parent.num_tokens) for t in of if t.parent] for of in rows]
        for t in (t for of in rows for t in of):
            search.finish(t)
        self.more = len(await search.complete([long], 2))
        return search.candidates


@pytest.mark.parametrize("until", [tts.STEP, tts.END, tts.Tokens(3)])
def test_a_path_longer_than_the_context_of_the_model_that_goes_on_ends_there(until: object) -> None:
    strategy = Mixed(until)
    end = solve_and_show(make_run(PROBLEM, 600, strategy, Short(), models={"draft": ToyBackend()}))
    check_books(end.search)
    assert end.solution.error is None
    (before,), (long,), (after,) = strategy.made
    assert long == ("truncated", 0)
    assert before[1] > 0
    assert after[1] > 0
    assert strategy.more == 2


def test_a_full_path_ends_also_where_it_is_the_first_to_be_completed() -> None:
    class First(tts.Strategy):
        async def run(self, search: tts.Search) -> Sequence[Candidate]:
            ((long,),) = await search.expand([search.root], 1, tts.Tokens(24), model="draft")
            ((short,),) = await search.expand([search.root], 1, tts.Tokens(6), model="draft")
            return await search.complete([long, short], 1)

    end = solve_and_show(make_run(PROBLEM, 600, First(), Short(), models={"draft": ToyBackend()}))
    check_books(end.search)
    assert end.solution.error is None
    assert [bool(c.trajectory.text) for c in end.solution.candidates] == [False, True]


def test_as_many_continuations_as_the_budget_pays_of_a_full_path_come_to_an_end() -> None:
    class Endless(tts.Strategy):
        async def run(self, search: tts.Search) -> Sequence[Candidate]:
            (long,) = (await search.expand([search.root], 1, tts.Tokens(24), model="draft"))[0]
            return await search.complete([long], None)

    end = solve_and_show(make_run(PROBLEM, 600, Endless(), Short(), models={"draft": ToyBackend()}))
    assert (end.solution.stopped_by, end.solution.error) == ("nothing is spent any more", None)


@pytest.mark.parametrize(
    "plan", ["budget_forcing(n=2, thought_tokens=20, waits=6)", "budget_forcing(n=2, thought_tokens=20, cue='A: ')"]
)
@pytest.mark.parametrize("context", range(16, 48, 4))
def test_forced_text_that_fills_the_context_ends_the_path(plan: str, context: int) -> None:
    backend = Short(ToyLanguage(thoughts=True))
    backend.context = context
    end = solve_and_show(make_run("3 + 4 - 2", 300, plan, backend))
    check_books(end.search)
    assert end.solution.error is None
