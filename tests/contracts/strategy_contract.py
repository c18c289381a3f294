"""What every strategy promises, for its text forms. A subclass names the strategy; everything runs on the toy
language.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.chaos import ChaosBackend
from tests.support.runs import Clock, check_books, make_run, solve, solve_and_show, solve_runs
from tts.backends.base import CAPABILITIES
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget, Rates
from tts.errors import CapabilityError, ConfigError
from tts.search.needs import needs_of
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES, Plan, Selection, Strategy
from tts.search.plan import parse
from tts.solver.solver import Solver
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, ListChoice, PairComparison, Traits
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.toy import ToyVerifier

SLOW = pytest.mark.slow
PROBLEMS = tuple(Problem(text, id=text) for text in ("3 + 4 - 2", "10 - 7 + 5 - 20", "1 + 1", "2 + 2 + 2 + 2 - 9"))
RATES = Rates(flops=2, usd_in=10**6, usd_reused=0, usd_out=4 * 10**6)
BUDGETS = {
    "tokens": (1, 7, 64, 65, 200, 1000),
    "generated_tokens": (1, 30, 64, 500),
    "verifier_tokens": (1, 20, 300),
    "verifier_calls": (1, 2, 9),
    "samples": (1, 2, 7),
    "requests": (1, 2, 5),
    "flops": (1, 10, 300, 2000),
    "usd": (1e-9, 1e-7, 2e-6),
}


@functools.cache
def _names() -> list[Sequence[str]]:
    """Return the names of all strategies, selections and stop rules, for which all installed packages are looked at."""
    return [table.names() for table in (STRATEGIES, SELECTIONS, STOP_RULES)]


def verified() -> dict[str, Any]:
    return {"main": ToyVerifier(error=0.1)}


def backend() -> ToyBackend:
    return ToyBackend(ToyLanguage(accuracy=0.5, mute=0.1))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparingVerifier(ToyVerifier):
    """The toy's verifier, which also prefers one text to another, at no cost."""

    async def compare(
        self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls
    ) -> list[float]:
        del problem, calls
        return [0.75 if a.full_text < b.full_text else 0.25 for a, b in pairs]

    async def choose(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls, by: str) -> list[float]:
        del problem, calls, by
        first = min(t.full_text for t in trajectories)
        return [float(t.full_text == first) for t in trajectories]

    @property
    def traits(self) -> Traits:
        return Traits(comparison=PairComparison(self.compare, pair_bound=0), choice=ListChoice(self.choose, bound=0))


class StrategyContract:
    """Override `texts`: forms of the strategy, each bounded by itself (sizes given), the first one the default of
    tests.

    Attributes:
        name: in the table. unsized: the form with all sizes left out; None: it has none to leave out. width: whether it
            makes several candidates, one after the other. steady: whether it takes the same turns of the event loop
            each time, which it does not where it works in threads. looks: at the clock, within which it comes to an
            answer, and to more.
        language: of the model. plain: whether it does what `alone` does with one sample, as far as the model does not
            think.
        alone: the plan of one plain sample: of the law that the strategy draws from.
    """

    name: str
    texts: Sequence[str]
    unsized: str | None = None
    width = True
    steady = True
    looks = (40, 70)
    plain = True
    alone = "single"
    language = ToyLanguage(accuracy=0.5, mute=0.1)

    def plan(self, which: int = 0) -> Plan:
        return parse(self.texts[which])

    def backend(self) -> ToyBackend:
        return ToyBackend(self.language)

    # How it is written ------------------------------------------------------------------------------------------------

    def test_it_is_a_frozen_dataclass_with_named_parameters_only(self) -> None:
        strategy = self.plan().strategy
        assert isinstance(strategy, Strategy)
        assert strategy.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert all(f.kw_only for f in dataclasses.fields(strategy) if f.init)  # type: ignore[arg-type]
        for f in dataclasses.fields(strategy):  # type: ignore[arg-type]
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(strategy, f.name, 1)
        assert STRATEGIES.get(self.name)
        assert all(need in CAPABILITIES for need in needs_of(strategy).capabilities)
        assert hash(strategy) == hash(self.plan().strategy)

    def test_its_text_form_parses_back(self) -> None:
        for text in self.texts:
            for more in ("", " | unanimous(window=3)", " | never"):
                plan = parse(text + more)
                assert parse(str(plan)) == plan
                assert str(parse(str(plan))) == str(plan)
        assert self.plan() == self.plan()

    def test_an_unknown_parameter_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="nonsense"):
            parse(f"{self.name}(nonsense=1)")

    def test_it_has_a_selection_with_and_without_a_verifier(self) -> None:
        strategy = self.plan().strategy
        assert isinstance(strategy.default_selection(verified=True), Selection)
        assert needs_of(strategy.default_selection(verified=False)).verifiers == ()

    # What it spends ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("turn", [0, pytest.param(1, marks=SLOW)])
    @pytest.mark.parametrize("unit", BUDGETS)
    def test_no_limit_is_passed_and_nothing_stays_held(self, unit: str, turn: int) -> None:
        for index, limit in enumerate(BUDGETS[unit]):
            # each limit with failures or without; the other way round in the other turn
            fail = (0.0, 0.3)[(index + turn) % 2]
            chaos = ChaosBackend(self.backend(), seed=3, fail=fail, rates=RATES)
            budget = Budget(**{unit: limit})  # type: ignore[arg-type]
            end = solve_and_show(
                make_run(PROBLEMS[0], budget, self.plan() | SELECTIONS.get("weighted")(), chaos, verifiers=verified())
            )
            if isinstance(end.solution, ConfigError):  # a budget that its thoughts alone would use up
                assert needs_of(self.plan().strategy).thought_tokens
                continue
            # the only rows it could pay failed
            assert end.solution.error is None or (fail and not end.solution.candidates)
            check_books(end.search)
            assert not chaos.live
            assert 0 <= end.solution.remaining[unit] <= limit

    @pytest.mark.parametrize("limit", [0.5, 3.0, 10.0, 30.0])
    def test_no_call_starts_after_the_last_second(self, limit: float) -> None:
        run = make_run(
            PROBLEMS[0], Budget(seconds=limit), self.plan(), self.backend(), verifiers=verified(), clock=Clock(tick=1.0)
        )
        end = solve_and_show(run)
        check_books(end.search)
        assert sum(call.usage.seconds for call in end.search.account.ledger.calls[:-1]) < limit
        assert end.solution.remaining["seconds"] >= 0

    def test_it_fills_its_sizes_from_the_budget_or_says_that_it_cannot(self) -> None:
        sized = self.plan().strategy
        for units in (1, 2, 64):
            assert sized.size(units).size(units) == sized.size(units)
        assert sized.size(None) == sized
        if self.unsized is None:
            return
        loose = parse(self.unsized).strategy
        with pytest.raises(ConfigError, match="does not bound"):
            loose.size(None)
        for units in (1, 5):
            assert type(loose.size(units)) is type(loose)
        solution = solve(make_run(PROBLEMS[0], Budget(tokens=2000), self.unsized, self.backend(), verifiers=verified()))
        assert solution.answer is not None

    def test_time_alone_bounds_it(self) -> None:
        """It widens until its time is over, and what it draws does not depend on how much of that there is."""
        if self.unsized is None:
            return
        drawn: list[list[str]] = []
        for looks in self.looks:
            clock, budget = Clock(tick=1e-3), Budget(seconds=looks / 1000)
            end = solve_and_show(
                make_run(PROBLEMS[0], budget, self.unsized, self.backend(), verifiers=verified(), clock=clock)
            )
            assert end.solution.answer is not None
            drawn.append([c.trajectory.full_text for c in end.search.candidates if c.trajectory.status == "finished"])
        assert set(drawn[0]) <= set(drawn[1])
        assert len(drawn[0]) <= len(drawn[1])

    # What it gives ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("turn", [0, pytest.param(1, marks=SLOW)])
    def test_one_seed_gives_one_trace_and_another_seed_another(self, turn: int) -> None:
        for which in range(len(self.texts)):
            problems, tokens = [PROBLEMS[(which + turn) % 2], PROBLEMS[2 + (which + turn) % 2]], (900, 2000)[turn]
            traces = [
                [
                    solve(
                        make_run(p, tokens, self.plan(which), self.backend(), seed=seed, verifiers=verified())
                    ).trace.canonical()
                    for p in problems
                ]
                for seed in (5, 5, 6)
            ]
            assert traces[0] == traces[1]
            if "temperature=0.0" not in self.texts[which]:
                assert [trace["nodes"] for trace in traces[0]] != [trace["nodes"] for trace in traces[2]]

    def test_it_does_not_depend_on_what_else_is_solved(self) -> None:
        with Solver(self.backend(), ToyVerifier(error=0.1), task="arithmetic", strategy=self.plan()) as solver:
            alone = [solver.solve(problem, 900, seed=2).trace.canonical() for problem in PROBLEMS]
            together = [s.trace.canonical() for s in solver.solve_many(PROBLEMS, each=900, seed=2)]
            backwards = [s.trace.canonical() for s in solver.solve_many(PROBLEMS[::-1], each=900, seed=2)]
            few = [s.trace.canonical() for s in solver.solve_many(PROBLEMS[:2], 1800, seed=2)]
        assert together == alone
        assert backwards[::-1] == alone
        assert few == alone[:2]

    @pytest.mark.parametrize("most", [3, pytest.param(9, marks=SLOW)])
    def test_cancellation_keeps_what_was_found(self, most: int) -> None:
        partial = 0
        for turn in itertools.count() if self.steady else range(0, 80, 2):
            chaos = ChaosBackend(self.backend(), seed=1, slow=9)
            run = make_run(PROBLEMS[0], Budget(samples=8), self.plan(), chaos, verifiers=verified())
            end = asyncio.run(solve_runs([run], [turn]))[0]
            if end.search is None:
                continue  # cancelled before it began
            solution = end.solution
            check_books(end.search)
            assert not chaos.live
            answers = Counter(c.answer for c in solution.candidates if c.answer is not None)
            if solution.stopped_by != "interrupted" or partial == most:
                break  # it was done before
            assert not solution.reproducible
            assert (solution.answer is None) == (not answers)
            assert not answers or answers[solution.answer] == max(answers.values())
            partial += bool(solution.candidates)
        assert partial or not (self.width and self.steady), (
            "no cancellation met a search with candidates: the test saw nothing"
        )

    @pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 6), marks=SLOW)], ids=str)
    def test_an_answer_comes_whenever_a_plain_sample_gives_one(self, seeds: range) -> None:
        for tokens in (8, 15, 20, 64, 100):
            for seed in seeds:
                single = solve(make_run(PROBLEMS[0], tokens, "single", self.backend(), seed=seed))
                mine = solve(
                    make_run(PROBLEMS[0], tokens, self.plan(), self.backend(), seed=seed, verifiers=verified())
                )
                # a path that the language itself ends without an answer is one, whatever the budget
                ended = bool(mine.candidates) and all(c.trajectory.status == "finished" for c in mine.candidates)
                assert mine.answer is not None or single.answer is None or ended

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Pair every selection with every stop rule for one strategy; elsewhere each occurs with the strategy, a third
        in `make test`.
        """
        if "stop" not in metafunc.fixturenames:
            return
        strategies, selections, stops = _names()
        pairs = list(itertools.product(selections, stops))
        if self.name != "best_of_n":
            first = strategies.index(self.name)
            pairs = [
                (selections[i % len(selections)], stops[(first + i) % len(stops)])
                for i in range(max(len(selections), len(stops)))
            ]
            pairs = [pytest.param(*pair, marks=[SLOW] * ((first + i) % 3 > 0)) for i, pair in enumerate(pairs)]
        metafunc.parametrize(("selection", "stop"), pairs)

    def test_it_works_with_every_selection_and_stop_rule(self, selection: str, stop: str) -> None:
        plan = self.plan() | STOP_RULES.get(stop)() | SELECTIONS.get(selection)()
        end = solve_and_show(make_run(PROBLEMS[0], 3000, plan, self.backend(), verifiers=ComparingVerifier(error=0.1)))
        solution = end.solution
        assert solution.error is None
        assert solution.answer is not None
        assert parse(solution.strategy) == plan
        assert 0 <= solution.confidence <= 1
        check_books(end.search)

    def test_what_the_backend_lacks_is_refused_before_anything_is_spent(self) -> None:
        needs = needs_of(self.plan().strategy).capabilities
        model = FunctionBackend(lambda asked: "A: 5")
        lacking = [need for need in needs if getattr(model.caps, need) in ("absent", False)]
        verifiers = {"main": FunctionVerifier(lambda problem, text: 0.5)}
        run = make_run(PROBLEMS[0], Budget(tokens=300), self.plan(), model, verifiers=verifiers)
        if lacking:
            with pytest.raises(CapabilityError, match=lacking[0]):
                solve(run)
            assert model.counters.prompt_tokens == 0
        else:
            assert solve(run).error is None
