"""Whatever code of others raises, and wherever, it is one error that names the part, with what was spent; nothing stays
held.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import tts
from tests.support.chaos import ChaosBackend
from tests.support.runs import change_setup, check_books, make_run, solve_and_show
from tts._common.blame import Blame
from tts.backends.toy.backend import ToyBackend
from tts.errors import EngineError, TTSError, VerifierError
from tts.tasks.arithmetic.task import ArithmeticTask
from tts.types import Problem, Solution, Trajectory
from tts.verifiers.base import PairComparison, StepScores, Traits, Verifier
from tts.verifiers.toy import ToyVerifier

KINDS = (
    SystemExit,
    MemoryError,
    RecursionError,
    asyncio.CancelledError,
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    KeyError,
)
SUM = "3 + 4 - 2"
JUDGED = (
    "best_of_n(n=4) | weighted",
    "best_of_n(n=4) | pairwise",
    "best_of_n(n=4) | score_threshold(threshold=0.99) | best",
    "beam(n=4)",
)
RESULTS = ("few", "many", "none", "range", "text")


@dataclass
class Fault:
    """Raises at the nth use of a call, or bends what it returns."""

    at: str
    what: Any
    nth: int = 1
    seen: int = 0

    def meet(self, call: str) -> None:
        if call == self.at and isinstance(self.what, type):
            self.seen += 1
            if self.seen >= self.nth:
                raise self.what("boom")

    def bend(self, call: str, made: list[Any], of: Any) -> Any:
        if call != self.at or isinstance(self.what, type):
            return made
        wrong = [of({"range": 7.0, "text": "x"}.get(self.what)) for _ in made]
        return {"few": made[1:], "many": made + made, "none": None}.get(self.what, wrong)


class FaultyBackend(ChaosBackend):
    """A backend one call of which fails."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(ToyBackend(), seed=1)
        self.fault = fault


def _faulty(name: str) -> Any:
    call = getattr(ChaosBackend, name)

    async def reads(self: FaultyBackend, *args: Any) -> Any:
        self.fault.meet(name)
        return await call(self, *args)

    def plain(self: FaultyBackend, *args: Any) -> Any:
        self.fault.meet(name)
        return call(self, *args)

    return reads if inspect.iscoroutinefunction(call) else plain


for _name in ("open", "sample", "extend", "score", "count"):
    setattr(FaultyBackend, _name, _faulty(_name))


class FaultyVerifier(Verifier):
    """A verifier one call of which fails or breaks its contract."""

    name, oracle, needs, model, range = "faulty", False, (), "policy", (0.0, 1.0)

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    @property
    def traits(self) -> Traits:
        return Traits(comparison=PairComparison(self.compare, pair_bound=0))

    def bound(self, prefix_tokens: int, new_tokens: int) -> Any:
        self.fault.meet("bound")
        return (
            {"few": -5, "many": 0.5, "none": None, "text": "x"}.get(self.fault.what, 0)
            if self.fault.at == "bound"
            else 0
        )

    async def compare(self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Any) -> Any:
        self.fault.meet("compare")
        return self.fault.bend("compare", [0.75] * len(pairs), lambda one: one)

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Any) -> Any:
        self.fault.meet("score")
        return self.fault.bend(
            "score", [StepScores(whole=0.5) for _ in trajectories], lambda one: StepScores(whole=one)
        )


class FaultyTask(ArithmeticTask):
    """A task one method of which fails."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def extract(self, text: str) -> Any:
        self.fault.meet("extract")
        return super().extract(text)

    def key(self, answer: str) -> Any:
        self.fault.meet("key")
        return super().key(answer)


def check(end: Any, backend: ChaosBackend, kind: type[TTSError], part: str) -> None:
    """Assert that a search ended by one error of a kind that names a part, and that nothing stays held or unbooked."""
    solution = end.solution
    assert isinstance(solution, Solution), repr(solution)
    assert type(solution.error) is kind
    assert str(solution.error).startswith(part)
    assert "\n" not in str(solution.error)
    assert solution.stopped_by == "failed"
    assert not backend.live
    check_books(end.search)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["open", "sample", "extend"])
def test_a_backend_that_raises_is_an_engine_error(call: str, kind: type[BaseException]) -> None:
    for nth in (1, 2, 3):
        fault = Fault(call, kind, nth)
        backend = FaultyBackend(fault)
        plan = "beam(n=4)" if call != "extend" else "answer_convergence(n=3)"
        end = solve_and_show(make_run(SUM, 400, plan, backend, verifiers={"main": ToyVerifier(error=0.1)}))
        if fault.seen >= nth:
            check(end, backend, EngineError, "the backend 'toy' ")
    assert fault.seen or call == "open"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["extract", "key"])
def test_a_task_that_raises_is_named_and_fails_one_candidate(call: str, kind: type[BaseException]) -> None:
    for nth in (1, 2):
        backend, fault = ChaosBackend(ToyBackend(), seed=1), Fault(call, kind, nth)
        run = make_run(SUM, 400, "best_of_n(n=4)", backend)
        end = solve_and_show(change_setup(run, task=FaultyTask(fault)))
        if fault.seen < nth:
            continue
        assert end.solution.error is None
        assert any(line.startswith("the task 'arithmetic' failed in ") for line in end.solution.warnings)


@pytest.mark.parametrize("what", [*KINDS, *RESULTS])
@pytest.mark.parametrize("call", ["score", "compare", "bound"])
def test_a_verifier_that_raises_or_breaks_its_contract_is_a_verifier_error(call: str, what: Any) -> None:
    for plan in JUDGED:
        for nth in (1, 3):
            backend, fault = ChaosBackend(ToyBackend(), seed=1), Fault(call, what, nth)
            run = make_run(SUM, 400, plan, backend, verifiers={"main": FaultyVerifier(fault)}, on_error="keep")
            end = solve_and_show(run)
            if isinstance(end.solution, VerifierError):  # asked for its bound before anything was spent
                assert call == "bound"
                assert not backend.counters.generated_tokens
            elif end.solution.error is not None:
                check(end, backend, VerifierError, "the verifier ")
                assert end.solution.answer is not None or not end.solution.candidates
            else:
                assert (
                    (fault.seen < nth)
                    if isinstance(what, type)
                    else (call, plan) not in {("score", JUDGED[0]), ("compare", JUDGED[1])}
                )


@pytest.mark.parametrize("what", [SystemExit, MemoryError, asyncio.CancelledError, *RESULTS])
@pytest.mark.parametrize("plan", JUDGED)
def test_an_error_that_is_kept_is_returned_even_without_a_candidate(plan: str, what: Any) -> None:
    call = "compare" if "pairwise" in plan else "score"
    options: dict[str, Any] = {"backend": ToyBackend(), "task": "arithmetic", "strategy": plan}
    found = tts.solve(SUM, 400, **options, verifier=FaultyVerifier(Fault(call, what)), on_error="keep")
    assert isinstance(found.error, VerifierError)
    assert found.usage.generated_tokens > 0
    with pytest.raises(VerifierError) as caught:
        tts.solve(SUM, 400, **options, verifier=FaultyVerifier(Fault(call, what)))
    assert caught.value.partial.usage.generated_tokens > 0
    assert math.isnan(caught.value.partial.confidence)


def test_an_error_that_is_raised_has_what_was_spent() -> None:
    with pytest.raises(EngineError) as caught:
        tts.solve(
            SUM,
            400,
            backend=FaultyBackend(Fault("extend", KeyError)),
            task="arithmetic",
            strategy="answer_convergence(n=3)",
        )
    assert caught.value.partial.usage.generated_tokens > 0
    assert isinstance(caught.value.__cause__, KeyError)


def test_ctrl_c_and_the_cancellation_of_the_task_are_no_failures() -> None:
    with pytest.raises(KeyboardInterrupt), Blame("it"):
        raise KeyboardInterrupt

    async def waits() -> None:
        with Blame("it"):
            await asyncio.sleep(60)

    async def cancels() -> None:
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancels())


def test_a_coroutine_that_nobody_awaits_any_more_ends_quietly() -> None:
    async def waits() -> None:
        with Blame("it"):
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    task = loop.create_task(waits())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    coroutine: Any = task.get_coro()
    coroutine.close()
    assert coroutine.cr_frame is None
    task._log_destroy_pending = False  # type: ignore[attr-defined]
