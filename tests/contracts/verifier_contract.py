"""What every verifier promises. A subclass says how one is made; it is asked through a search on the toy language."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.support.chaos import ChaosBackend
from tests.support.runs import check_books, make_run, solve_and_show
from tts.backends.base import CAPABILITIES, Backend, Counters
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.calls import MeteredCalls
from tts.search.ends import END, STEP
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.types import Candidate, Problem, Trajectory
from tts.verifiers.base import StepScores, Verifier, bind, traits_of

Check = Callable[[Search], Awaitable[None]]
PROBLEM = Problem("3 + 4 - 2 + 9", answer="14", id="p")


@dataclass(frozen=True, kw_only=True)
class Do(Strategy):
    """Runs a check as a strategy."""

    registered_as: ClassVar[str] = "do"
    check: Check

    async def run(self, search: Search) -> Sequence[Candidate]:
        await self.check(search)
        return search.candidates

    def default_selection(self, *, verified: bool) -> Selection:
        return Majority()


def values(score: StepScores) -> list[float]:
    return [*(score.steps or ()), *([] if score.whole is None else [score.whole])]


def same(a: StepScores, b: StepScores) -> bool:
    return repr(a) == repr(b)  # NaN equals NaN


class VerifierContract:
    """Override `make`.

    Attributes:
        name: in the table of verifiers; None: it is not listed there.
        cut: where a text may be cut in two and be the same to it: anywhere, or for what reads tokens, where a line
            ends.
        rounding: how far the scores of one text, cut in other pieces, may be apart: what the policy's own pass rounds
            is its path's.

    Between a batch and one by one, in any order, nothing may be apart: the absolute tolerance is 0 for every verifier
    here.
    """

    name: str | None = None
    cut: int = 7
    rounding: float = 0.0

    def make(self) -> Verifier:
        raise NotImplementedError

    def backend(self) -> Backend:
        """Return the model that it asks."""
        return ToyBackend(ToyLanguage(accuracy=0.5, mute=0.2))

    def own_counters(self) -> Counters:
        """Return the counters of a model of the verifier's own, beside the backend's."""
        return Counters()

    def run(
        self, check: Check, problem: Problem = PROBLEM, budget: Budget | None = None
    ) -> tuple[Search, ChaosBackend]:
        """Run a check inside a search that has the verifier as "main"."""
        backend = ChaosBackend(self.backend(), seed=1)
        run = make_run(
            problem, budget or Budget(tokens=10**6), Do(check=check), backend, verifiers=self.make(), allow_oracle=True
        )
        end = solve_and_show(run)
        if isinstance(end.solution, BaseException):
            raise end.solution
        if end.solution.error is not None:
            raise end.solution.error
        assert end.search is not None
        check_books(end.search)
        assert not backend.live
        return end.search, backend

    def calls(self, search: Search) -> MeteredCalls:
        verifier = self.make()
        backend = search._prompts._backends[verifier.model]
        handles = lambda ts, charge: search._prompts.handles(ts, verifier.model, charge)  # noqa: E731
        return MeteredCalls(backend, search.task, 10**9, handles, 7, granted_prompt=10**9)

    def within_bounds(self, calls: MeteredCalls, prompt: int, prefix: int, new: int) -> bool:
        """Whether what was computed keeps both bounds of a verifier: of the path, and of the prompt."""
        verifier = self.make()
        of_prompt = traits_of(verifier).prompt_bound
        return calls.computed <= verifier.bound(prefix, new) and calls.prompt <= (
            0 if of_prompt is None else of_prompt(prompt)
        )

    async def ask(self, search: Search, ts: Sequence[Trajectory], problem: Problem = PROBLEM) -> list[StepScores]:
        """Return scores as a search would get them: checked against the stated range and number of steps."""
        return await bind(self.make(), problem)(ts, self.calls(search))

    async def some(self, search: Search) -> list[Trajectory]:
        """Return trajectories of all kinds: unfinished, finished, truncated, forced."""
        [first] = await search.expand([search.root], 4, STEP)
        seconds = [t for of in await search.expand(first[:2], 2, STEP) for t in of]
        [ended] = await search.expand([search.root], 6, END)
        [cut] = await search.expand([search.root], 2, END, max_tokens=8)
        forced = await search.extend(first[2:3], "so, then\n")
        return [*first, *seconds, *ended, *cut, *forced]

    # What it states ---------------------------------------------------------------------------------------------------

    def test_it_is_a_verifier_and_states_what_it_is(self) -> None:
        verifier = self.make()
        assert isinstance(verifier, Verifier)
        assert self.name is None or verifier.name == self.name
        low, high = verifier.range
        assert low < high
        assert all(need in CAPABILITIES for need in verifier.needs)
        if dataclasses.is_dataclass(verifier):
            assert hash(verifier) == hash(self.make()) or not verifier.__dataclass_params__.frozen  # type: ignore[attr-defined]

    def test_its_bound_is_whole_and_never_decreases_in_the_new_tokens(self) -> None:
        verifier = self.make()
        for prefix in (0, 1, 100):
            bounds = [verifier.bound(prefix, new) for new in (0, 1, 2, 10, 1000)]
            assert bounds == sorted(bounds)
            assert all(type(bound) is int and bound >= 0 for bound in bounds)

    def test_an_oracle_needs_an_answer_and_no_other_verifier_sees_one(self) -> None:
        verifier = self.make()
        if verifier.oracle:
            with pytest.raises(ConfigError, match="needs the reference answer"):
                bind(verifier, PROBLEM.without_answer())
            return
        found: list[list[StepScores]] = []

        async def check(search: Search) -> None:
            found.append(await self.ask(search, await self.some(search), search.problem))

        for problem in (
            PROBLEM,
            Problem(PROBLEM.prompt, answer="-1", id="p", metadata={"x": 1}),
            PROBLEM.without_answer(),
        ):
            self.run(check, problem)
        assert all(same(a, b) for others in found[1:] for a, b in zip(found[0], others, strict=True))

    # What it says -----------------------------------------------------------------------------------------------------

    def test_scores_keep_their_range_and_there_is_one_a_step_or_one_of_the_whole(self) -> None:
        async def check(search: Search) -> None:
            ts = await self.some(search)
            scores = await self.ask(search, ts)
            low, high = self.make().range
            for t, score in zip(ts, scores, strict=True):
                assert score.steps is not None or score.whole is not None
                assert score.steps is None or len(score.steps) == len(search.task.split(t.full_text))
                assert all(math.isnan(value) or low <= value <= high for value in values(score))

        self.run(check)

    def test_a_score_depends_neither_on_the_order_nor_on_what_is_scored_with_it(self) -> None:
        async def check(search: Search) -> None:
            ts = await self.some(search)
            together = await self.ask(search, ts)
            backwards = (await self.ask(search, ts[::-1]))[::-1]
            alone = [(await self.ask(search, [t]))[0] for t in ts]
            twice = await self.ask(search, [ts[0], ts[0]])
            for a, b, c in zip(together, backwards, alone, strict=True):
                assert same(a, b)
                assert same(a, c)
            assert same(twice[0], twice[1])
            assert await self.ask(search, []) == []

        self.run(check)

    def test_a_score_is_a_function_of_the_problem_and_the_text(self) -> None:
        text = "3 + 4 = 7\n7 - 2 = 6\n"

        async def check(search: Search) -> None:
            [at_once] = await search.extend([search.root], text)
            [part] = await search.extend([search.root], text[: self.cut])
            [in_parts] = await search.extend([part], text[self.cut :])
            one, other = await self.ask(search, [at_once, in_parts])
            assert len(values(one)) == len(values(other))
            assert values(one) == pytest.approx(values(other), rel=0, abs=self.rounding, nan_ok=True)

        self.run(check)

    # What it costs ----------------------------------------------------------------------------------------------------

    def test_it_computes_no_more_than_its_bound_for_a_fresh_path(self) -> None:
        async def check(search: Search) -> None:
            prompt = search.tree.prompt_tokens[search.root.node]
            for t in await self.some(search):
                calls = self.calls(search)
                await bind(self.make(), PROBLEM)([t], calls)
                assert self.within_bounds(calls, prompt, prompt, t.num_tokens)

        self.run(check)

    def test_it_computes_no_more_than_its_bound_for_one_more_step(self) -> None:
        async def check(search: Search) -> None:
            prompt, t = search.tree.prompt_tokens[search.root.node], search.root
            scorer = bind(self.make(), PROBLEM)  # one for a search, as what it has read of it
            while t.status == "active":
                [[child]] = await search.expand([t], 1, STEP)
                calls = self.calls(search)
                await scorer([child], calls)
                assert self.within_bounds(calls, prompt, prompt + t.num_tokens, child.num_tokens - t.num_tokens)
                t = child
            assert t.depth > 2

        self.run(check)

    def test_its_work_is_counted_and_no_trajectory_is_judged_twice(self) -> None:
        asked: list[int] = []
        before = self.own_counters().prompt_tokens

        async def check(search: Search) -> None:
            ts = await self.some(search)
            first = await search.score([*ts, ts[0]], aggregate="last")
            again = await search.score(ts, aggregate="last")
            asked.append(len(ts))
            assert repr(first[:-1].tolist()) == repr(again.tolist())

        search, backend = self.run(check)
        total = search.account.ledger.total()
        assert total.verifier_calls == asked[0]
        own = self.own_counters().prompt_tokens - before
        assert (
            total.prompt_tokens + total.tokens
            == backend.counters.prompt_tokens + backend.counters.generated_tokens + own
        )

    @pytest.mark.parametrize("limit", [1, 30, 60, 200])
    @pytest.mark.parametrize("unit", ["tokens", "verifier_tokens", "verifier_calls"])
    def test_a_small_budget_leaves_scores_unknown_but_is_never_passed(self, unit: str, limit: int) -> None:
        async def check(search: Search) -> None:
            [ts] = await search.expand([search.root], 5, STEP)
            scores = await search.score(ts)
            known = [not math.isnan(score) for score in scores]
            assert known == sorted(known, reverse=True), "the first are the ones that are paid"

        self.run(check, budget=Budget(**{unit: limit}))  # type: ignore[arg-type]

    def test_it_survives_pickling_with_its_settings(self) -> None:
        import pickle

        verifier: Any = self.make()
        try:
            again = pickle.loads(pickle.dumps(verifier))
        except (pickle.PicklingError, AttributeError):
            pytest.skip("it holds a function that cannot be pickled")
        if dataclasses.is_dataclass(verifier):
            assert again == verifier
        else:
            assert vars(again) == vars(verifier)
