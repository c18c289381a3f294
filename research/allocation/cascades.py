"""Cascades and `auto` over priced models, beside each model alone and the best router in hindsight.

    python -m research.allocation.cascades [--problems 400] [--samples 3] [--out docs/results/cascades.md]

The models are three toy languages of rising accuracy and price. All three see the same sums of rising length. So all
is known, and nothing is said of real models.

Every model is sampled on all problems. For each limit on the mean cost of a problem, the validation half of the
problems decides the thresholds: those of the greatest accuracy. The strategy `cascade` runs with these thresholds on
the test half, in dollars. `auto` runs under as many dollars for the whole test half. Its performance model is fitted
to runs on the validation half.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tts
from research.stamps import stamp_line
from tts import tasks
from tts.allocator.performance import PerformanceModel
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Rates
from tts.experiments.analysis.performance_fit import PerformanceData
from tts.experiments.run.candidates import judge_answer, record_candidates
from tts.experiments.study.record import Cell, Result
from tts.search.selections.majority import Majority
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.types import Problem, Solution

PAGE = Path(__file__).parents[2] / "docs/results/cascades.md"
POOL = 16  # samples of the policy on each problem that the performance model is fitted to
UNIT = 10**15  # of a dollar
# accuracy of a step, dollars for a million tokens written
MODELS = {"policy": (0.75, 1), "middle": (0.9, 5), "large": (0.98, 25)}


@dataclass(frozen=True)
class Asked:
    """The answers of one model to N problems.

    Args:
        right: Whether each answer is right [N].
        score: The confidence in each answer [N], in [0, 1].
        cost: The cost of each answer [N], in dollars.
    """

    right: NDArray[np.bool_]
    score: NDArray[np.float64]
    cost: NDArray[np.float64]

    def select(self, chosen: slice) -> Asked:
        """Return the answers to some of the problems."""
        return Asked(self.right[chosen], self.score[chosen], self.cost[chosen])


def replay_cascade(
    models: Sequence[Asked], thresholds: Sequence[float]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return whether a cascade is right [N] and what it costs [N].

    A model ends the cascade on a problem where its score reaches its threshold.
    """
    right, cost, going = models[0].right.copy(), np.zeros(len(models[0].right)), np.ones(len(models[0].right), bool)
    for i, model in enumerate(models):
        right[going] = model.right[going]
        cost[going] += model.cost[going]
        if i < len(thresholds):
            going &= ~(model.score >= thresholds[i])
    return right, cost


@dataclass(frozen=True)
class Chosen:
    """The models of a cascade, by place and in order, and the thresholds of all but the last."""

    models: tuple[int, ...]
    thresholds: tuple[float, ...]


def choose(models: Sequence[Asked], limit: float) -> Chosen | None:
    """Return the cascade of the greatest accuracy whose mean cost is within a limit; None: there is none.

    Among cascades of equal accuracy, the cheapest is taken. Cascades have any of the models, in their order. Thresholds
    are the scores that occur.
    """
    cascades: list[tuple[float, float, int, Chosen]] = []
    for length in range(1, len(models) + 1):
        for places in itertools.combinations(range(len(models)), length):
            levels = [sorted({float(score) for score in models[i].score if score > 0}) for i in places[:-1]]
            for thresholds in itertools.product(*levels):
                right, cost = replay_cascade([models[i] for i in places], thresholds)
                if cost.mean() <= limit * (1 + 1e-9):
                    cascades.append((float(right.mean()), -float(cost.mean()), -length, Chosen(places, thresholds)))
    return max(cascades, key=lambda one: one[:3])[3] if cascades else None


def hindsight_accuracy(models: Sequence[Asked], limit: float) -> float:
    """Return the accuracy of the router that knows which models are right, within a mean cost.

    The router asks for each problem the cheapest model that is right. Every problem is asked of its cheapest model at
    least. The rest of the cost goes to problems that another model alone solves, the cheapest step up first. No router
    of
    single models is better.
    """
    cost, right = np.stack([model.cost for model in models]), np.stack([model.right for model in models])
    base = cost.argmin(axis=0)
    every = np.arange(cost.shape[1])
    least = cost[base, every]
    solved = np.where(right, cost, np.inf).min(axis=0) - least
    left = limit * len(every) - least.sum()
    if left < 0:
        return math.nan
    steps = np.sort(solved[np.isfinite(solved)])
    return (
        float((np.cumsum(steps) <= left * (1 + 1e-9) + 1e-12).mean() * len(steps) / len(every)) if len(steps) else 0.0
    )


def make_problems(count: int) -> list[Problem]:
    """Return sums of two to nine terms with their values, in no order of difficulty."""
    rng, problems = np.random.default_rng(7), list[Problem]()
    for i in range(count):
        terms = [int(term) for term in rng.integers(1, 10, int(rng.integers(2, 10)))]
        problems.append(Problem(" + ".join(map(str, terms)), answer=str(sum(terms)), id=f"sum{i}"))
    return problems


def backends() -> dict[str, ToyBackend]:
    """Return the models."""
    models: dict[str, ToyBackend] = {}
    for role, (accuracy, dollars) in MODELS.items():
        models[role] = ToyBackend(ToyLanguage(accuracy=accuracy))
        price = dollars * UNIT // 10**6
        models[role].rates = Rates(flops=2, usd_in=price // 5, usd_reused=price // 5, usd_out=price)
    return models


def ask_model(problems: Sequence[Problem], backend: ToyBackend, samples: int) -> Asked:
    """Return what one model answers to problems: its vote, and the share of samples that agree with it."""
    with tts.Solver(backend, task="arithmetic", strategy=f"best_of_n(n={samples}) | majority") as solver:
        solutions = solver.solve_many(problems, each=tts.Budget(samples=samples), seed=0)
    score = [
        max(map(float, np.unique([str(c.answer) for c in s.candidates], return_counts=True)[1])) / samples
        for s in solutions
    ]
    right = [s.answer == problem.answer for s, problem in zip(solutions, problems, strict=True)]
    return Asked(np.array(right), np.array(score), np.array([s.usage.usd or 0.0 for s in solutions]))


def run_cascade(
    problems: Sequence[Problem], chosen: Chosen, samples: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Run the strategy on problems, and return whether it is right [N] and what it costs [N]."""
    roles = [list(MODELS)[i] for i in chosen.models]
    plan = f"cascade(models={roles}, samples={[samples] * len(roles)}, thresholds={list(chosen.thresholds)})"
    with tts.Solver(backends(), {}, task="arithmetic") as solver:
        solutions = solver.solve_many(problems, each=tts.Budget(samples=samples * len(roles)), strategy=plan, seed=1)
    right = np.array([s.answer == problem.answer for s, problem in zip(solutions, problems, strict=True)])
    return right, np.array([s.usage.usd or 0.0 for s in solutions])


def result(problem: Problem, solution: Solution) -> Result:
    """Return a solution as a study records it."""
    task, limits = tasks.get("arithmetic"), solution.trace.budget
    cell = Cell(
        key=f"{problem.id} {solution.strategy} {limits}",
        dataset="sums",
        problem=problem.id or "",
        model="toy",
        setting="here",
        strategy=solution.strategy,
        budget={"samples": solution.usage.samples},
        seed=solution.seed,
    )
    return Result(
        cell=cell,
        answer=solution.answer,
        right=judge_answer(solution.answer, task, problem),
        confidence=solution.confidence,
        stopped_by=solution.stopped_by,
        usage=solution.usage,
        drawn=record_candidates(solution, task, problem),
    )


def fit_model(problems: Sequence[Problem], sizes: Sequence[int] = (1, 3)) -> PerformanceModel:
    """Return the performance model of all models, from runs on problems.

    The runs are a pool of samples of the policy, and single samples of the other models.
    """
    results: list[Result] = []
    models = backends()
    with tts.Solver(models, {}, task="arithmetic") as solver:
        for role, n in (("policy", POOL), *itertools.product(list(models)[1:], sizes)):
            plan = BestOfN(writer=role) | Majority()
            results += map(
                result, problems, solver.solve_many(problems, each=tts.Budget(samples=n), strategy=plan, seed=0)
            )
    return PerformanceData.of(results).fit(
        model=models["policy"].name,
        task="arithmetic",
        source="cascades",
        models={role: one.name for role, one in models.items()},
    )


def run_auto(
    problems: Sequence[Problem], model: PerformanceModel, limit: float
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Run `auto` on problems, and return whether it is right [N] and what it costs [N].

    Args:
        problems: The problems.
        model: The performance model.
        limit: The dollars for each problem; their sum is one total for all problems.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "prices.json")
        model.save(file)
        with tts.Solver(backends(), {}, task="arithmetic") as solver:
            solutions = solver.solve_many(
                problems, tts.Budget(usd=limit * len(problems)), strategy=f"auto(model={file!r}) | majority", seed=1
            )
    right = np.array([s.answer == problem.answer for s, problem in zip(solutions, problems, strict=True)])
    return right, np.array([s.usage.usd or 0.0 for s in solutions])


def page(answers: Mapping[str, Asked], problems: Sequence[Problem], samples: int, command: str) -> Iterator[str]:
    """Yield the lines of the page."""
    half = len(problems) // 2
    validation = [one.select(slice(half)) for one in answers.values()]
    test = [one.select(slice(half, None)) for one in answers.values()]
    dear = max(float(one.cost.mean()) for one in validation)
    yield from ("# Cascades over priced models", "", stamp_line(command), "")
    yield (
        f"- {half} problems were used to choose thresholds, and {len(problems) - half} to test them. Each model "
        f"that is asked draws {samples} samples."
    )
    prices = ", ".join(
        f"`{role}` ({accuracy:.0%} of steps right, ${dollars} a million tokens)"
        for role, (accuracy, dollars) in MODELS.items()
    )
    yield (
        f"- Models: toy languages {prices}. They are simulations with a known truth, so this page does not "
        "measure real models."
    )
    yield (
        "- A cost is the mean cost of a problem, divided by that of the most expensive model. Accuracy is on "
        "the test half, in percent."
    )
    yield (
        f"- `auto` uses one total, and a performance model of the first half ({POOL} samples of the policy, 1 "
        "and 3 of each other model)."
    )
    yield (
        "- *Hindsight* knows which models are right on which problem. It asks one model for each problem, "
        "within the same mean cost."
    )
    yield from ("", "## Each model alone", "", "| model | cost | accuracy |", "| :-- | :-- | :-- |")
    for role, one in zip(answers, test, strict=True):
        yield f"| `{role}` | {one.cost.mean() / dear:.3f} | {100 * one.right.mean():.1f} |"
    yield from ("", "## Within a mean cost", "")
    yield (
        "| limit | cascade, with thresholds | its cost | accuracy | foretold | `auto`, its cost | accuracy | best "
        "alone | hindsight |"
    )
    yield "| :-- | :-- | :-- | :-- | :-- | :-- | :-- | :-- | :-- |"
    performance = fit_model(problems[:half])
    for share in (0.04, 0.06, 0.1, 0.2, 0.4, 0.7, 1.0):
        limit = share * dear
        chosen, best = choose(validation, limit), hindsight_accuracy(test, limit)
        alone = [
            float(t.right.mean()) for k, t in zip(validation, test, strict=True) if k.cost.mean() <= limit * (1 + 1e-9)
        ]
        single, bound = f"{100 * max(alone):.1f}" if alone else "–", "–" if math.isnan(best) else f"{100 * best:.1f}"
        right, cost = run_auto(problems[half:], performance, limit)
        auto = f"{cost.mean() / dear:.3f} | {100 * right.mean():.1f}"
        if chosen is None:
            yield f"| {share} | – | – | – | – | {auto} | {single} | {bound} |"
            continue
        right, cost = run_cascade(problems[half:], chosen, samples)
        foretold, _ = replay_cascade([validation[i] for i in chosen.models], chosen.thresholds)
        steps = "".join(
            f"`{list(MODELS)[i]}` to {t:.2f}, " for i, t in zip(chosen.models, chosen.thresholds, strict=False)
        )
        last = f"`{list(MODELS)[chosen.models[-1]]}`"
        figures = (f"{cost.mean() / dear:.3f}", f"{100 * right.mean():.1f}", f"{100 * foretold.mean():.1f}")
        yield f"| {share} | {steps}{last} | {' | '.join(figures)} | {auto} | {single} | {bound} |"


def main() -> None:
    """Ask all models about all problems, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--samples", type=int, default=3, help="of each model")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    problems = make_problems(options.problems)
    answers = {role: ask_model(problems, backend, options.samples) for role, backend in backends().items()}
    command = f"python -m research.allocation.cascades --problems {options.problems} --samples {options.samples}"
    options.out.write_text("\n".join(page(answers, problems, options.samples, command)) + "\n", encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
