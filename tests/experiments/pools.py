"""Pools for tests: drawn live from the toy, or written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.experiments.made import cell, sample
from tts import tasks
from tts.backends.base import Sampling
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage, read_sum
from tts.budget.budget import Budget
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.run.candidates import judge_answer, record_candidates
from tts.experiments.study.record import RecordedSample, Result
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.solver.solver import Solver
from tts.types import Problem, Solution

VERIFIER = "toy(error=0.3)"
SEEDS = (0, 1)
LANGUAGE = ToyLanguage(accuracy=0.7, mute=0.1)


def sums(count: int = 8) -> list[Problem]:
    """Return sums of three, four and five numbers, with their answers."""
    texts = [
        f"{7 * i % 50} + {i % 9} - {i % 4} + {3 * i % 11} - {i % 7}"[: [None, -4, -8][i % 3]].rstrip(" +-")
        for i in range(count)
    ]
    return [
        Problem(text, answer=str(read_sum(text)[0] + sum(read_sum(text)[1])), id=f"sum/{i}")
        for i, text in enumerate(texts)
    ]


def live(
    strategy: str,
    samples: int,
    problems: Sequence[Problem] = tuple(sums()),
    *,
    verifier: Any = VERIFIER,
    max_tokens: int | None = None,
    language: ToyLanguage = LANGUAGE,
) -> list[Result]:
    """Return the results of a live study on the toy, candidates recorded, as its runner gives them.

    The toy errs often, some of its solutions have no answer, and some are cut short by `max_tokens`.
    """
    results: list[Result] = []
    backend, sampling = ToyBackend(language), Sampling(temperature=1.0, max_tokens=max_tokens)
    with Solver(
        backend, {} if verifier is None else verifier, task="arithmetic", strategy=strategy, sampling=sampling
    ) as solver:
        for seed in SEEDS:
            solutions = solver.solve_many(problems, each=Budget(samples=samples), seed=seed)
            results += [
                result_of(*pair, {"samples": samples}, verifier) for pair in zip(problems, solutions, strict=True)
            ]
    return results


def result_of(problem: Problem, solution: Solution, budget: Mapping[str, float], verifier: Any = VERIFIER) -> Result:
    task = tasks.get("arithmetic")
    of = cell(
        f"{problem.id} {solution.strategy} {budget} {solution.seed}",
        problem=problem.id or "",
        verifiers={"main": verifier} if isinstance(verifier, str) else {},
        strategy=solution.strategy,
        budget=budget,
        seed=solution.seed,
    )
    return Result(
        cell=of,
        answer=solution.answer,
        right=judge_answer(solution.answer, task, problem),
        confidence=solution.confidence,
        stopped_by=solution.stopped_by,
        usage=solution.usage,
        oracle=solution.oracle,
        drawn=record_candidates(solution, task, problem),
    )


def written(*samples: tuple[Any, ...], problem: str = "p", seed: int = 0, group: str | None = None) -> ProblemPool:
    """Return a pool that is written down: for each sample its class (None: no answer), its score, and its tokens (10
    unless given).

    Class 0 is right; a score costs as many tokens as its sample. Samples come in the order in which they are written.
    """
    drawn: list[RecordedSample] = []
    for kind, score, *rest in samples:
        tokens = rest[0] if rest else 10
        drawn.append(sample(kind, tokens, verifier_tokens=tokens, scores={} if score is None else {"main": score}))
    own = {"problem": problem, "group": group, "seed": seed, "budget": {"samples": len(drawn)}, "model": "none"}
    of = cell(f"{problem} {seed}", dataset="written", strategy="best_of_n", verifiers={"main": VERIFIER}, **own)
    return ProblemPool(cell=of, law=BestOfN(), drawn=tuple(drawn))
