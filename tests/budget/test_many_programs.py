"""Random programs on lying functions, the embedded engine, a faulty server and backends that misreport: no limit is
passed, and all books agree.

`make test-slow` runs 10,000 on each, by ranges of seeds that can be run alone; `test_budget_programs.py` has as many on
the toy.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.support.programs import PROBLEMS, Op, Program
from tests.support.runs import Clock, Solved, change_setup, check_books, make_run, solve_runs
from tts.backends.base import Backend, Caps, Extension, Reply, RowSet, Sample, SampleRequest
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.budget.account import Account
from tts.budget.budget import Budget, Rates
from tts.errors import BudgetExceeded, EngineError, VerifierError
from tts.randomness import hash64
from tts.search.needs import Needs
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.stop_rules.never import Never
from tts.search.stop_rules.unanimous import Unanimous
from tts.solver.run import solve_problem
from tts.solver.setup import ProblemRun
from tts.types import Problem, Solution
from tts.verifiers.function import FunctionVerifier

AT_ONCE = 25
COUNT = 1_000  # programs of a slow test
ten_thousand = [pytest.param(first, marks=pytest.mark.slow) for first in range(1_000, 11_000, COUNT)]
SUMS = ("What is 3 + 4?", "What is 12 + 7 * 3?", "What is 20 - 7 + 5 - 2?", "What is 6 * 9 - 8?")
OPS = (*["expand"] * 3, *["complete"] * 2, "score", "extend", "rollout", "keep", "finish", "open", "embed")


Make = Callable[[np.random.Generator, int], ProblemRun]


@dataclass(frozen=True, kw_only=True)
class Continuing(Program):
    """A program that asks for no probabilities of next tokens, which functions and servers do not give."""

    def needs(self) -> Needs:
        return Needs(capabilities=("steps", "extend"), verifiers=self.verifiers)


def pick(rng: np.random.Generator, things: Sequence[Any]) -> Any:
    return things[int(rng.integers(len(things)))]


def ops_of(rng: np.random.Generator, names: tuple[str, ...]) -> tuple[Op, ...]:
    return tuple(
        (pick(rng, names), int(rng.integers(12)), int(rng.integers(12)), int(rng.integers(12)))
        for _ in range(int(rng.integers(2, 13)))
    )


def budget_of(rng: np.random.Generator) -> Budget:
    """Return limits in one to four units that every backend counts."""
    counts: dict[str, Any] = {
        "tokens": pick(rng, [1, 20, 100, 300, 1000]),
        "generated_tokens": int(rng.integers(1, 401)),
        "verifier_calls": int(rng.integers(1, 31)),
        "verifier_tokens": int(rng.integers(1, 401)),
        "requests": int(rng.integers(1, 21)),
        "seconds": pick(rng, [0.3, 2.0, 30.0]),
    }
    return Budget(
        samples=int(rng.integers(1, 21)),
        **{unit: counts[unit] for unit in rng.choice(sorted(counts), int(rng.integers(0, 4)), replace=False).tolist()},
    )


def plan_of(rng: np.random.Generator, program: Program, *, verified: bool) -> Plan:
    selection = pick(rng, [None, "majority", "weighted", "best"] if verified else [None, "majority"])
    stopping = pick(rng, [Never(), Unanimous(window=2)])
    return Plan(program, stopping, None if selection is None else parse(f"single | {selection}").selection)


def programs(make: Make, first: int, count: int) -> Iterator[list[tuple[ProblemRun, int | None]]]:
    """Yield random programs in batches, each with the event-loop turn at which it is cancelled, or None."""
    for start in range(first, first + count, AT_ONCE):
        batch: list[tuple[ProblemRun, int | None]] = []
        for number in range(start, min(start + AT_ONCE, first + count)):
            rng = np.random.default_rng(number)
            batch.append((make(rng, number), pick(rng, [None, None, None, None, int(rng.integers(200))])))
        yield batch


async def checked(make: Make, backend: Backend, first: int, count: int) -> Counter[str]:
    """Run programs, check their books one by one and all together; return how they ended."""
    ends: Counter[str] = Counter()
    before, spent = (backend.counters.prompt_tokens, backend.counters.generated_tokens), [0, 0]
    for batch in programs(make, first, count):
        for (run, turn), end in zip(
            batch, await solve_runs([run for run, _ in batch], [turn for _, turn in batch]), strict=True
        ):
            ends[check_end(run, turn, end)] += 1
            if end.search is not None:
                total = end.search.account.ledger.total()
                spent[0] += total.prompt_tokens + total.verifier_tokens
                spent[1] += total.generated_tokens + total.cancelled_tokens
    counters = backend.counters
    assert sum(spent) == counters.prompt_tokens + counters.generated_tokens - sum(before)
    return ends


def check_end(run: ProblemRun, turn: int | None, end: Solved) -> str:
    if end.search is None:
        assert isinstance(end.solution, asyncio.CancelledError), f"{end.solution!r} before the search began"
        return "never began"
    solution = end.solution
    assert isinstance(solution, Solution), f"an unexpected exception: {solution!r}"
    check_books(end.search)
    for unit, left in solution.remaining.items():
        assert 0 <= left <= run.budget.limits[unit]
    assert solution.usage.tokens == end.search.account.ledger.total().tokens
    assert turn is not None or solution.stopped_by != "interrupted"
    if solution.error is None:
        return solution.stopped_by.partition(":")[0]
    assert isinstance(solution.error, EngineError | VerifierError | BudgetExceeded), (
        f"an unexpected failure: {solution.error!r}"
    )
    return type(solution.error).__name__


# Lying functions ------------------------------------------------------------------------------------------------------


def lying(ask: Ask) -> Any:
    """Write sums, and lie in one call of four: about tokens, types, ends and characters, or raise."""
    drawn = hash64("lie", ask.seed, len(ask.text))
    text = ["3 + 4 = 7\n", "so \ud83d\n", "A: 7\n", "A: 8", ""][drawn % 5]
    lie = drawn // 5 % 40
    if lie < 10:
        lies: list[Callable[[], Any]] = [
            lambda: Answer(text, tokens=-3),
            lambda: Answer(text, tokens=ask.max_tokens + 1),
            lambda: Answer(text, tokens=True),
            lambda: Answer(text, tokens=math.nan),
            lambda: Answer(7),
            lambda: None,
            text.encode,
            lambda: 1 / 0,  # type: ignore[arg-type]
            lambda: "x" * 20_000,
            lambda: exec("raise SystemExit(3)"),
        ]
        return lies[lie]()
    if lie < 15:
        return text
    return Answer(text, tokens=min(ask.max_tokens, lie), finished=lie % 2 == 0)


def lying_score(problem: Problem, text: str) -> float:
    drawn = hash64("score", text) % 20
    if drawn == 0:
        raise ValueError("no score")
    return [math.nan, 1.5, -0.1][drawn - 1] if drawn < 4 else drawn / 20


def run_functions(first: int, count: int) -> Counter[str]:
    async def run() -> Counter[str]:
        backend = FunctionBackend(lying, concurrency=64)
        verifiers = ({}, {"main": FunctionVerifier(lying_score)})

        def make(rng: np.random.Generator, number: int) -> ProblemRun:
            scored = pick(rng, verifiers)
            program = Continuing(ops=ops_of(rng, OPS), verifiers=("main",) if scored and rng.random() < 0.5 else ())
            plan = plan_of(rng, program, verified=bool(scored))
            more: dict[str, Any] = {"verifiers": scored, "seed": number, "clock": Clock(tick=0.01)}
            return make_run(PROBLEMS[number % 5], budget_of(rng), plan, backend, **more)

        try:
            return await checked(make, backend, first, count)
        finally:
            await backend.close()

    return asyncio.run(run())


# The embedded engine --------------------------------------------------------------------------------------------------


def run_engine(first: int, count: int) -> Counter[str]:
    pytest.importorskip("torch", reason="the engine runs on torch")
    from tts.models import registry
    from tts.solver.solver import Solver

    solvers = [Solver(replace(registry.get("pocket"), options=(("kv_budget", 1 << 20), ("threads", 1))), "process")]
    backend: Any = solvers[0].prepare("1 + 1", 10, strategy="single").setup.backends["policy"]
    solvers.append(Solver(backend, {}, task="pocket"))

    def make(rng: np.random.Generator, number: int) -> ProblemRun:
        verified = rng.random() < 0.5
        program = Program(
            ops=ops_of(rng, (*OPS, "ask")), verifiers=("main",) if verified and rng.random() < 0.5 else ()
        )
        plan = plan_of(rng, program, verified=verified)
        run = solvers[not verified].prepare(SUMS[number % 4], budget_of(rng), strategy=plan, seed=number)
        return change_setup(run, sampling=replace(run.setup.sampling), clock=time.monotonic)

    async def run() -> Counter[str]:
        ends = await checked(make, backend, first, count)
        for _ in range(1000):  # states that were dropped go in the engine's own thread
            if not (backend._states or backend._prompts):
                break
            gc.collect()
            backend.release([])  # what only a collection finds waits for the next call
            await asyncio.sleep(0.005)
        assert not backend._states
        assert not backend._prompts
        await backend.close()
        return ends

    return asyncio.run(run())


# A faulty server ------------------------------------------------------------------------------------------------------


def run_server(first: int, count: int) -> Counter[str]:
    pytest.importorskip("httpx", reason="the backend over HTTP needs it")
    from tests.backends.openai.faulty import BROKEN, REFUSED, SLOW
    from tests.backends.openai.making import all_ended, on, until
    from tests.backends.openai.server import ToyServer, serving
    from tts.backends.openai.http import Timeouts

    faults = [*REFUSED, *(fault for fault in BROKEN if fault not in SLOW), "usage"]

    def fault(number: int, body: object) -> str:
        drawn = hash64("program", number)
        return faults[drawn // 100 % len(faults)] if drawn % 100 < 30 else ""

    server = ToyServer(prompts=[*PROBLEMS, *map(str, range(12))], fault=fault)

    async def run(url: str) -> Counter[str]:
        backend = on(url, Timeouts(concurrency=64, wait_s=0.001, first_s=60.0, gap_s=60.0, call_s=90.0, tries=3))
        scored = FunctionVerifier(lambda problem, text: (hash64("score", text) + 0.5) * 2.0**-64)

        def make(rng: np.random.Generator, number: int) -> ProblemRun:
            verifiers: dict[str, Any] = {"main": scored} if rng.random() < 0.5 else {}
            program = Continuing(ops=ops_of(rng, OPS), verifiers=("main",) if verifiers and rng.random() < 0.5 else ())
            plan = plan_of(rng, program, verified=bool(verifiers))
            more: dict[str, Any] = {"verifiers": verifiers, "seed": number, "clock": time.monotonic}
            return make_run(PROBLEMS[number % 5], budget_of(rng), plan, backend, **more)

        ends = await checked(make, backend, first, count)
        await backend.close()
        await all_ended()
        return ends

    with serving(server) as url:
        ends = asyncio.run(run(url))
        asyncio.run(until(lambda: server.open == 0))
    assert sum(bool(one.fault) for one in server.served) > 0.2 * len(server.served)
    return ends


RUNS: dict[str, tuple[Callable[[int, int], Counter[str]], int]] = {  # with how many programs are quick
    "functions": (run_functions, 50),
    "engine": (run_engine, 15),
    "server": (run_server, 25),
}


@pytest.mark.parametrize("first", [0, *ten_thousand])
@pytest.mark.parametrize("kind", RUNS)
def test_random_programs_pass_no_limit(kind: str, first: int) -> None:
    run, few = RUNS[kind]
    count = COUNT if first else few
    ends = run(first, count)
    assert ends.total() == count
    assert not first or ends["BudgetExceeded"] == 0
    assert ends["VerifierError"] < 0.6 * count


# Backends of a user's class that misreport ----------------------------------------------------------------------------

PLANS = (
    "single",
    "best_of_n(n=6) | majority",
    "best_of_n | best",
    "best_of_n(n=12) | in_a_row(k=2) | weighted",
    "beam(n=4, branching=2) | weighted",
    "rebase(n=4) | weighted",
    "particle_filter(n=3) | weighted",
    "self_consistency(n=8)",
    "answer_convergence(n=2, k=2)",
    "dvts(n=4, branching=2) | best",
)
ODD: list[Any] = [-1000, -1, 10**9, math.nan, math.inf, True, 2.5, "7", None]


class Metered(Backend):
    """A backend that counts what it really reads and writes, and misreports one number of `one_of`."""

    caps = Caps(usage=True, steps="emulated", extend="emulated", fork="emulated")

    def __init__(self, rng: np.random.Generator, clock: Clock, one_of: int) -> None:
        self.rng, self.clock, self.one_of = rng, clock, one_of
        self.rates = Rates(
            flops=int(rng.integers(1, 5)), usd_in=10**6, usd_reused=pick(rng, [0, 10**5]), usd_out=4 * 10**6
        )
        self.read, self.written, self.begun = 0, 0, list[float]()

    def report(self, number: int) -> Any:
        return number if self.rng.integers(self.one_of) else pick(self.rng, ODD)

    def count(self, prompt: Any) -> int:
        return 5

    async def open(self, prompts: Sequence[Any]) -> list[Reply[Any]]:
        self.begun.append(self.clock.now)
        self.read += 5 * len(prompts)
        return [Reply("", 5) for _ in prompts]

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        sizes = [len(text.encode()) for text in texts]
        self.read += sum(sizes)
        extensions = [
            Extension(handle + text, tuple(range(size)))
            for handle, text, size in zip(handles, texts, sizes, strict=True)
        ]
        return [Reply(extension, size) for extension, size in zip(extensions, sizes, strict=True)]

    def sample(self, request: SampleRequest) -> RowSet:
        self.begun.append(self.clock.now)
        rows = RowSet(request)
        self.writing = asyncio.get_running_loop().create_task(self.write(rows, request))
        return rows

    async def write(self, rows: RowSet, request: SampleRequest) -> None:
        for index, row in enumerate(request.rows):
            self.clock.now += float(self.rng.random()) * 0.05
            tokens = int(min(self.rng.integers(0, 30), row.max_tokens))
            self.written += tokens
            text = pick(self.rng, ["3 + 4 = 7\n", "so \n", f"A: {self.rng.integers(3)}", ""])
            finish = pick(self.rng, ["eos", "stop", "length", "error"])
            handle = None if finish == "error" else request.handle + text
            num_tokens, seconds = self.report(tokens), self.report(0)
            rows.resolve(index, Sample(text, (), (), finish, handle, num_tokens, seconds=seconds))
            await asyncio.sleep(0)


def limits_of(rng: np.random.Generator) -> Budget:
    """Return limits in one to four units, dollars and FLOPs among them."""
    amounts: dict[str, Any] = {
        "tokens": pick(rng, [1, 20, 100, 300, 1000]),
        "generated_tokens": int(rng.integers(1, 401)),
        "samples": int(rng.integers(1, 21)),
        "flops": pick(rng, [5, 100, 2000]),
        "usd": pick(rng, [1e-8, 3e-7, 1e-6]),
        "seconds": pick(rng, [0.1, 0.5, 3.0]),
    }
    units = rng.choice(sorted(amounts), int(rng.integers(1, 5)), replace=False).tolist()
    return Budget(**{unit: amounts[unit] for unit in ("samples", *units) if unit in units or units == ["seconds"]})


def run_misreports(number: int) -> None:
    """Run one to three searches on one account, one after another or at once, and check the account."""
    rng, clock = np.random.default_rng([7, number]), Clock(tick=1e-6)
    backend = Metered(rng, clock, one_of=pick(rng, [3, 10, 10**9]))
    account = Account(limits_of(rng), clock=clock)
    scored = FunctionVerifier(lambda _problem, text: (hash64("score", text) + 0.5) * 2.0**-64)
    more: dict[str, Any] = {"verifiers": {"main": scored}, "seed": number, "clock": clock}
    runs = [
        make_run(PROBLEMS[number % 5], account, pick(rng, PLANS), backend, **more)
        for _ in range(int(rng.integers(1, 4)))
    ]

    at_once = bool(rng.random() < 0.5)

    async def solve() -> None:
        if at_once:
            await asyncio.gather(*(solve_problem(run) for run in runs), return_exceptions=True)
            return
        for run in runs:
            await asyncio.gather(solve_problem(run), return_exceptions=True)

    asyncio.run(solve())
    spent = account.spending
    for unit in account.units:
        assert type(spent(unit)) is int
        assert 0 <= spent(unit) <= account.limit(unit), unit
        assert account.reservation(unit) == 0, unit
    # what was really written is paid for, whatever was reported
    limited = {"tokens", "generated_tokens", "flops", "usd"} & set(account.units)
    if limited:
        assert backend.written <= spent("generated_tokens")
        assert backend.rates.cost("flops", computed=backend.read, generated=backend.written) <= spent("flops")
        assert backend.rates.cost("usd", computed=backend.read, generated=backend.written) <= spent("usd")
    # the rows of one search move the clock between the look at the clock and the call of another
    if (deadline := account.deadline) is not None and backend.begun and not at_once:
        assert max(backend.begun) <= deadline


@pytest.mark.parametrize("first", [*range(0, 200, 50), *ten_thousand])
def test_backends_that_misreport_pass_no_limit(first: int) -> None:
    for number in range(first, first + (COUNT if first >= COUNT else 50)):
        run_misreports(number)
