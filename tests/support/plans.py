"""Random plans: every registered part, with sizes up to a thousand million.

The models and verifiers lie.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random  # noqa: TID251 - it draws programs, not texts
import typing
from dataclasses import dataclass
from typing import Any

from tests.support.chaos import ChaosBackend
from tests.support.odd import OddLogprobs, OddVerifier
from tests.support.programs import PROBLEMS
from tests.support.revising import RevisingTask
from tests.support.runs import Clock, Solved, change_setup, check_books, make_run, solve_and_show
from tts.backends.base import Backend
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.budget import Budget, Rates
from tts.errors import ConfigError, EngineError, TTSError, VerifierError
from tts.randomness import hash64
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.search.plan import parse
from tts.types import Solution
from tts.verifiers.confidence import Confidence
from tts.verifiers.toy import ToyVerifier

SLOW_PLANS = frozenset({"ets", "program_aided"})  # an integer program, or a sandbox, at every step
RATES = Rates(flops=2, usd_in=10**6, usd_reused=0, usd_out=4 * 10**6)
ODD = (-9999.0, -math.inf, math.nan, None, 0.1)
MODELS = ("toy", "weak", "fails", "breaks", "odd", "function", "lies", "raises", "thinks")
VERIFIERS = ("none", "toy", "toy", "toy", "confidence", "nan", "few", "range", "steps", "raises")
BREAKING_MODELS = ("fails", "breaks", "raises", "lies")
LYING_VERIFIERS = ("few", "range", "steps", "raises")
SIZES = {
    "tokens": (1, 30, 100, 300, 1000, 2000),
    "generated_tokens": (1, 30, 300, 1000),
    "verifier_tokens": (1, 30, 300),
    "verifier_calls": (1, 4, 40),
    "samples": (1, 4, 30),
    "requests": (1, 2, 5, 20),
    "flops": (1, 30, 300, 3000, 30_000),
    "usd": (1e-9, 1e-7, 1e-6, 1e-5),
    "seconds": (0.5, 2.0),
}


@dataclass(frozen=True)
class PlanProgram:
    """One random solve, by its number alone."""

    number: int
    plan: str
    budget: Budget
    model: str
    verifier: str
    problem: str
    seed: int


def draw(number: int) -> PlanProgram:
    """Return the program of a number."""
    rng = random.Random(number)
    slow = rng.random() < 0.01
    name = rng.choice([name for name in STRATEGIES.names() if (name in SLOW_PLANS) is slow])
    text, chooses = _draw_part(STRATEGIES.get(name), name, rng), name != "self_consistency"
    if rng.random() < 0.5:
        name = rng.choice(STOP_RULES.names())
        text += " | " + _draw_part(STOP_RULES.get(name), name, rng)
    if chooses and rng.random() < 0.7:
        name = rng.choice(SELECTIONS.names())
        text += " | " + _draw_part(SELECTIONS.get(name), name, rng)
    units = rng.sample(sorted(SIZES), rng.choice((1, 1, 2, 3)))
    if {*units} <= {"verifier_tokens", "verifier_calls"}:  # which bound no samples
        units.append("tokens")
    sizes: dict[str, Any] = {unit: rng.choice(SIZES[unit]) for unit in sorted(units)}
    budget = Budget(**sizes)
    return PlanProgram(
        number, text, budget, rng.choice(MODELS), rng.choice(VERIFIERS), rng.choice(PROBLEMS), rng.randrange(4)
    )


def _draw_part(part: Any, name: str, rng: random.Random) -> str:
    """Return the text of a part with some of its whole numbers drawn, as far as the part takes them."""
    hints: dict[str, Any] = typing.get_type_hints(part) if dataclasses.is_dataclass(part) else {}
    whole = [f.name for f in dataclasses.fields(part) if f.init and hints[f.name] in (int, int | None)] if hints else []
    chosen = {size: rng.choice((1, 2, 3, 5, 17, 10 ** rng.randint(1, 9))) for size in whole if rng.random() < 0.5}
    while True:
        text = f"{name}({', '.join(f'{size}={value}' for size, value in chosen.items())})"
        try:
            parse(text if name in STRATEGIES.names() else f"single | {text}")
        except ConfigError:
            if not chosen:
                return name
            chosen.pop(rng.choice(sorted(chosen)))
        else:
            return text


def make_model(program: PlanProgram) -> Backend:
    """Return the model of a program."""
    kind, seed = program.model, program.number
    if kind in ("function", "lies", "raises", "thinks"):
        return FunctionBackend(lambda asked: _write(kind, asked))
    inner = (
        OddLogprobs(ODD[seed % len(ODD)], every=seed % 2 > 0)
        if kind == "odd"
        else ToyBackend(ToyLanguage(accuracy=0.5, mute=0.1))
    )
    faults: dict[str, Any] = {"fails": {"fail": 0.4}, "breaks": {"broken": 0.2, "unread": 0.1}}.get(kind, {})
    return ChaosBackend(inner, seed=seed, rates=RATES, **faults)


def _write(kind: str, asked: Ask) -> Answer:
    chance = hash64("write", asked.seed, asked.text) % 10
    if kind == "raises" and chance < 4:
        raise RuntimeError("no luck today")
    tokens = (
        {0: 0, 1: 10**9, 2: None}.get(chance, min(5, asked.max_tokens)) if kind == "lies" else min(5, asked.max_tokens)
    )
    thought = "<think>let me see</think>" if kind == "thinks" and chance < 7 else "<think>" if kind == "thinks" else ""
    return Answer(f"{thought}3 + 4 = 7\nA: {chance % 3}\n", tokens=tokens, finished=chance != 5)


def make_verifiers(program: PlanProgram) -> dict[str, Any]:
    """Return the verifiers of a program."""
    kind = program.verifier
    if kind == "none":
        return {}
    return {"main": {"toy": ToyVerifier(error=0.1), "confidence": Confidence()}.get(kind) or OddVerifier(kind)}


def run(program: PlanProgram) -> Solved | TTSError:
    """Solve a program once; the error where it was refused.

    Raises:
        AssertionError: it raised something else than an error of this package.
    """
    tick = 0.01 if "seconds" in program.budget.limits else 1e-6
    backend = make_model(program)
    made = make_run(
        program.problem,
        program.budget,
        program.plan,
        backend,
        verifiers=make_verifiers(program),
        seed=program.seed,
        clock=Clock(tick=tick),
        models=dict.fromkeys(("draft", "large", "small"), backend),
    )
    made = change_setup(made, task=RevisingTask())
    end = solve_and_show(made)
    assert isinstance(end.solution, Solution | TTSError), f"{program}: {end.solution!r}"
    assert not isinstance(end.solution, asyncio.CancelledError)
    if isinstance(backend, ChaosBackend):
        assert not backend.live, f"{program}: {len(backend.live)} handles were never released"
        assert not backend.late, f"{program}: rows are still on their way"
    return end if isinstance(end.solution, Solution) else end.solution


def check(program: PlanProgram) -> str:
    """Run a program twice, and assert what every search promises; return how it ended."""
    end = run(program)
    if isinstance(end, TTSError):
        return type(end).__name__
    solution, search = end.solution, end.search
    assert search is not None
    check_books(search)
    assert solution.error is None or isinstance(solution.error, TTSError), f"{program}: {solution.error!r}"
    assert all(0 <= left <= program.budget.limits[unit] for unit, left in solution.remaining.items()), str(program)
    answers = {c.answer for c in solution.candidates}
    assert set(solution.answers) <= answers, f"{program}: {solution.answers} of {answers}"
    if solution.answer is not None:
        first = solution.candidates[0]
        classes = {c.answer_class for c in solution.candidates if c.answer == solution.answer}
        assert first.answer_class in classes, f"{program}: answer {solution.answer!r}, first {first.answer!r}"
    assert solution.stopped_by != "every row failed" or solution.failures, f"{program}: no row failed"
    check_failure(program, solution)
    check_spent(program, solution)
    for unit in program.budget.limits.keys() & {"tokens", "generated_tokens"}:
        most = 4 * program.budget.limits[unit] + 64
        assert len(search.tree.nodes) <= most, f"{program}: {len(search.tree.nodes)} nodes"
    if "seconds" not in program.budget.limits:
        again = run(program)
        assert isinstance(again, Solved), str(program)
        assert again.solution.trace.canonical() == solution.trace.canonical(), (
            f"{program}: another search with the same seed"
        )
    return solution.stopped_by


def check_failure(program: PlanProgram, solution: Solution) -> None:
    """Assert that an error is that of a part that lies or breaks."""
    if isinstance(solution.error, VerifierError):
        assert program.verifier in LYING_VERIFIERS, f"{program}: {solution.error!r}"
    elif isinstance(solution.error, EngineError):
        assert program.model in BREAKING_MODELS, f"{program}: {solution.error!r}"
    else:
        assert solution.error is None, f"{program}: {solution.error!r}"
        assert solution.stopped_by != "failed", str(program)


def check_spent(program: PlanProgram, solution: Solution) -> None:
    """Assert that four fifths of a limit are spent, or that the end names another reason."""
    limits, end = program.budget.limits, solution.stopped_by
    if any(solution.remaining[unit] <= 0.2 * limit for unit, limit in limits.items() if unit != "seconds"):
        return
    if end == "done":
        strategy = program.plan.partition("|")[0]
        is_bounded = "=" in strategy or strategy.startswith("single")
        reasons = ("none begins later", "goals=None goes on")
        assert is_bounded or any(one in line for line in solution.warnings for one in reasons), (
            f"{program}: {solution.remaining} are left"
        )
    elif end.startswith("budget: ") and end != "budget: seconds":
        reasons = ("are left, but", "were held for", "were cut short")
        assert any(one in line for line in solution.warnings for one in reasons), (
            f"{program}: {solution.remaining} are left after {end!r}"
        )
