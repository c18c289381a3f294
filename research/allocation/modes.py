"""Modes of a model that thinks: little thought first, or full thought at once, on simulated thinkers.

    python -m research.allocation.modes [--problems 300] [--seeds 20] [--out docs/results/modes.md]

A thinker has a short mode and a full one. In either mode, each problem has a chance of a right answer and a mean
length. Both are known, so the least expected tokens for any accuracy can be computed. Nothing is said of real models.

`cascade` draws two short samples, and asks for full thought where they disagree. `auto` divides one total by a
performance model, which is fitted to other problems of the same law. It chooses from plain votes in either mode and
the cascade.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tts
from research.allocation.cascades import result
from research.stamps import stamp_line
from tts.allocator.performance import PerformanceModel
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.experiments.analysis.performance_fit import PerformanceData
from tts.search.plan import parse
from tts.types import Problem, Solution

PAGE = Path(__file__).parents[2] / "docs/results/modes.md"
POOL = 16  # short samples of each problem that the performance model is fitted to
ONE, THREE = (f"best_of_n(n={n}, writer='full') | majority" for n in (1, 3))
ESCALATION = "cascade(models=['policy', 'full'], samples=[2, 1], thresholds=[1.0]) | majority"
SPREAD = 0.3  # of the logarithm of lengths
LONGEST = 20_000  # tokens, which no full thought reaches
VOTES = (1, 2, 3, 5, 8)  # samples of one mode that hindsight may take of a problem
DRAWS = 4000  # votes that estimate the accuracy of a size
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """The problems of one kind.

    Args:
        chances: The chance of a right answer in the short mode and in the full one.
        tokens: The mean tokens in the short mode and in the full one.
    """

    chances: tuple[float, float]
    tokens: tuple[int, int]


def _kind(prompt: str) -> int:
    """Return the kind of a problem, which its text states."""
    return int(re.findall(r"of kind (\d+)", prompt)[-1])


@dataclass(frozen=True)
class World:
    """A thinker.

    Args:
        name: The name of the thinker.
        kinds: The kinds of its problems.
        shares: The share of each kind.
        wrong: The number of wrong answers, which are equally likely.
    """

    name: str
    kinds: tuple[Kind, ...]
    shares: tuple[float, ...]
    wrong: int = 8

    def problems(self, count: int, seed: int) -> list[Problem]:
        """Return problems; the text of each states its kind."""
        kinds = np.random.default_rng([11, seed]).choice(len(self.kinds), count, p=self.shares)
        return [
            Problem(f"problem {seed} {i} of kind {kind}", answer="0", id=f"{seed}-{i}") for i, kind in enumerate(kinds)
        ]

    def backend(self, mode: int) -> FunctionBackend:
        """Return the thinker in the short mode (0) or the full one (1)."""

        def write(ask: Ask) -> Answer:
            rng = np.random.default_rng([ask.seed, mode])
            kind = self.kinds[_kind(str(ask.prompt))]
            right = rng.random() < kind.chances[mode]
            length = round(kind.tokens[mode] * math.exp(SPREAD * rng.standard_normal() - SPREAD**2 / 2))
            answer = 0 if right else 1 + int(rng.integers(self.wrong))
            return Answer(f"The answer is {answer}.", tokens=max(8, min(length, ask.max_tokens)))

        return FunctionBackend(write)

    def options(self, kind: int, prompt: int) -> list[tuple[float, float]]:
        """Return expected tokens and accuracy of a vote in either mode at each size, for a problem of a kind.

        Args:
            kind: The place of the kind.
            prompt: The tokens of the prompt, which each sample reads.
        """
        problem_kind = self.kinds[kind]
        return [
            (float(size * (prompt + tokens)), vote_accuracy(chance, size, self.wrong))
            for chance, tokens in zip(problem_kind.chances, problem_kind.tokens, strict=True)
            for size in VOTES
        ]


@lru_cache
def vote_accuracy(chance: float, size: int, wrong: int) -> float:
    """Return how often a vote of samples is right, where all wrong answers are equally likely.

    Ties are broken at random.
    """
    rng = np.random.default_rng(5)
    answers = np.where(rng.random((DRAWS, size)) < chance, 0, 1 + rng.integers(wrong, size=(DRAWS, size)))
    counts = np.stack([(answers == answer).sum(axis=1) for answer in range(wrong + 1)], axis=1)
    top = counts.max(axis=1)
    return float(np.where(counts[:, 0] == top, 1 / (counts == top[:, None]).sum(axis=1), 0.0).mean())


def least_tokens(options: Sequence[Sequence[tuple[float, float]]], shares: Sequence[float], accuracy: float) -> float:
    """Return the least expected tokens of a problem for a mean accuracy, where the kind of each is known.

    An option may be taken for a part of the problems of a kind. The steps along the upper hull of each kind are taken
    in
    order of their gain for a token, which is exact.

    Args:
        options: The expected tokens and the accuracy of each option, by kind.
        shares: The share of each kind.
        accuracy: The accuracy; NaN is returned where no option reaches it.
    """
    steps: list[tuple[float, float, float]] = []  # gain for a token, gain, tokens
    for kind, share in zip(options, shares, strict=True):
        point = (0.0, 0.0)
        while True:
            further = [one for one in kind if one[1] > point[1] and one[0] > point[0]]
            if not further:
                break
            best = max(further, key=lambda one: ((one[1] - point[1]) / (one[0] - point[0]), one[0]))
            gain, cost = best[1] - point[1], best[0] - point[0]
            steps.append((gain / cost, share * gain, share * cost))
            point = best
    spent = reached = 0.0
    for _, gain, cost in sorted(steps, reverse=True):
        part = min(1.0, (accuracy - reached) / gain)
        spent, reached = spent + part * cost, reached + part * gain
        if reached >= accuracy - 1e-12:
            return spent
    return math.nan


@dataclass(frozen=True)
class Outcome:
    """What a method did with the problems of one seed.

    Args:
        accuracy: The share of right answers.
        tokens: The mean tokens of a problem.
        shares: The share of each kind among the problems.
        prompt: The mean tokens of a prompt.
    """

    accuracy: float
    tokens: float
    shares: tuple[float, ...]
    prompt: int


def outcome(world: World, problems: Sequence[Problem], solutions: Sequence[Solution]) -> Outcome:
    """Return what solutions of some problems have reached and spent."""
    kinds = np.bincount([_kind(str(problem.prompt)) for problem in problems], minlength=len(world.kinds)) / len(
        problems
    )
    accuracy = float(np.mean([s.answer == problem.answer for s, problem in zip(solutions, problems, strict=True)]))
    prompt = round(sum(s.usage.prompt_tokens for s in solutions) / sum(s.usage.samples for s in solutions))
    return Outcome(accuracy, float(np.mean([s.usage.tokens for s in solutions])), tuple(kinds.tolist()), prompt)


def ratio(world: World, each: Sequence[Outcome]) -> tuple[float, float]:
    """Return the tokens of runs as a multiple of the least tokens for their accuracy, and its error.

    The error is the standard error of the jackknife over seeds.
    """

    def multiple(some: Sequence[Outcome]) -> float:
        shares = np.mean([one.shares for one in some], axis=0)
        options = [world.options(kind, some[0].prompt) for kind in range(len(world.kinds))]
        least = least_tokens(options, list(shares), float(np.mean([one.accuracy for one in some])))
        return float(np.mean([one.tokens for one in some])) / least

    without = np.array(
        [multiple([*each[:at], *each[at + 1 :]]) for at in range(len(each))] if len(each) > 1 else [math.nan]
    )
    return multiple(each), math.sqrt((len(each) - 1) / len(each) * float(((without - without.mean()) ** 2).sum()))


def fit_modes(world: World, problems: Sequence[Problem], seed: int) -> PerformanceModel:
    """Return the performance model of both modes, from runs on problems.

    The runs are a pool of short samples, votes of full ones, and the cascade.
    """
    models = {"policy": world.backend(0), "full": world.backend(1)}
    results = []
    with tts.Solver(models, {}, task="math") as solver:
        for plan, n, limit in (
            ("best_of_n | majority", POOL, None),
            (ONE, 1, LONGEST),
            (THREE, 3, 3 * LONGEST),
            (ESCALATION, 3, LONGEST),
        ):
            solutions = solver.solve_many(
                problems, each=tts.Budget(samples=n, tokens=limit), strategy=parse(plan), seed=seed
            )
            budget = {"samples": n} if limit is None else {"tokens": limit}
            results += [replace(one, cell=replace(one.cell, budget=budget)) for one in map(result, problems, solutions)]
    return PerformanceData.of(results, unit="tokens").fit(
        model=models["policy"].name,
        task="math",
        source="modes",
        models={role: one.name for role, one in models.items()},
    )


def runs(world: World, count: int, seed: int, shares: Sequence[float]) -> Iterator[tuple[str, Outcome]]:
    """Yield what each method does with the problems of one seed."""
    problems, level = world.problems(count, seed), 0
    models = {"policy": world.backend(0), "full": world.backend(1)}
    with tts.Solver(models, {}, task="math") as solver, tempfile.TemporaryDirectory() as folder:
        for name, plan, n in (
            ("one short sample", "best_of_n(n=1) | majority", 1),
            ("one full sample", ONE, 1),
            ("vote of 3 full samples", THREE, 3),
            ("`cascade`", ESCALATION, 3),
        ):
            solutions = solver.solve_many(problems, each=tts.Budget(samples=n), strategy=plan, seed=seed)
            yield name, outcome(world, problems, solutions)
            level = sum(s.usage.tokens for s in solutions)  # in the end, that of the cascade
        file = str(Path(folder) / "modes.json")
        fit_modes(world, world.problems(count, 1000 + seed), seed).save(file)
        for share in shares:
            total = round(share * level)
            solutions = solver.solve_many(
                problems, tts.Budget(tokens=total), strategy=f"auto(model={file!r}) | majority", seed=seed
            )
            spent = sum(s.usage.tokens for s in solutions)
            if spent > total:
                raise SystemExit(f"auto spent {spent} tokens of {total}")
            yield f"`auto`, {share:g} times the cascade's tokens", outcome(world, problems, solutions)


WORLDS = (
    World(
        "half easy, full thoughts 10 to 30 times as long",
        (Kind((0.97, 0.98), (150, 1500)), Kind((0.1, 0.9), (200, 6000))),
        (0.5, 0.5),
    ),
    World("mostly hard", (Kind((0.97, 0.98), (150, 1500)), Kind((0.1, 0.9), (200, 6000))), (0.2, 0.8)),
    World(
        "three kinds, the middle one in doubt",
        (Kind((0.97, 0.98), (150, 1500)), Kind((0.5, 0.95), (200, 3000)), Kind((0.05, 0.8), (250, 8000))),
        (0.4, 0.3, 0.3),
    ),
    World(
        "full thoughts only 4 times as long",
        (Kind((0.95, 0.98), (400, 1600)), Kind((0.2, 0.9), (600, 2400))),
        (0.5, 0.5),
    ),
)


def page(
    outcomes: dict[str, dict[str, list[Outcome]]], worlds: Sequence[World], count: int, seeds: int, command: str
) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Modes of a model that thinks", "", stamp_line(command), "")
    yield (
        "The models of this page are simulated, so it says nothing about real models. They think in a short mode or "
        "in a full one. The chance of a right answer and the length of a thought are known for each problem. So "
        "*hindsight* is known: the smallest expected number of tokens for the same accuracy, by votes of 1 to 8 "
        "samples in the better mode of each problem."
    )
    yield ""
    yield (
        f"- {count} problems a seed, {seeds} seeds; a performance model is fitted for each seed to {count} other "
        "problems."
    )
    yield "- Wrong answers: 8, equally likely. Lengths are log-normal with a spread of 0.3."
    yield "- `cascade`: `" + ESCALATION.replace("|", "\\|") + "`; a role stands for a mode of the same model."
    yield (
        "- `auto` divides one total among all problems of a seed. The total is a multiple of what the cascade "
        "spent. No run exceeded its total."
    )
    yield "- Tokens are those of the prompt, which each sample reads, plus those that the model writes."
    yield (
        "- *Times hindsight*: the tokens, divided by those of hindsight for the same accuracy. The interval is "
        "a jackknife over seeds (t)."
    )
    for world in worlds:
        yield from ("", f"## {world.name.capitalize()}", "")
        kinds = "; ".join(
            f"{share:.0%}: short {kind.chances[0]:.0%} right in {kind.tokens[0]} tokens, full {kind.chances[1]:.0%} "
            f"in {kind.tokens[1]:,}"
            for kind, share in zip(world.kinds, world.shares, strict=True)
        )
        yield from (
            f"{kinds}.",
            "",
            "| method | accuracy | tokens a problem | times hindsight |",
            "| :-- | --: | --: | :-- |",
        )
        for method, each in outcomes[world.name].items():
            told = interval(*ratio(world, each), len(each))
            accuracy, tokens = np.mean([one.accuracy for one in each]), np.mean([one.tokens for one in each])
            yield f"| {method} | {100 * accuracy:.1f} | {tokens:,.0f} | {told} |"
    yield from ("", "## What keeps `auto` from hindsight", "")
    yield (
        "- `auto` draws two short samples of every problem, and its cascade draws two more. Hindsight needs none "
        "of these samples."
    )
    yield (
        "- When a search begins, it gets what the most expensive problem of the fit needed. So the last part of "
        "a total pays only for short samples."
    )
    yield (
        "- Near the highest possible accuracy, a small gain costs hindsight many tokens. Such ratios have wide "
        "intervals."
    )


def interval(value: float, error: float, count: int) -> str:
    """Return a value with its 95 % interval by Student's law; NaN: no method reaches the accuracy."""
    from scipy import stats

    if math.isnan(value):
        return "out of its reach"
    half = float(stats.t.ppf(0.975, count - 1)) * error if count > 1 else math.nan
    return f"{value:.2f} [{value - half:.2f}, {value + half:.2f}]"


def main() -> None:
    """Run all methods in all worlds, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    outcomes: dict[str, dict[str, list[Outcome]]] = {}
    for world in WORLDS:
        for seed in range(options.seeds):
            for method, one in runs(world, options.problems, seed, (1, 2)):
                outcomes.setdefault(world.name, {}).setdefault(method, []).append(one)
        print(
            world.name,
            {method: interval(*ratio(world, each), len(each)) for method, each in outcomes[world.name].items()},
            flush=True,
        )
    command = f"python -m research.allocation.modes --problems {options.problems} --seeds {options.seeds}"
    options.out.write_text(
        "\n".join(page(outcomes, WORLDS, options.problems, options.seeds, command)) + "\n", encoding="utf-8"
    )
    print(options.out)


if __name__ == "__main__":
    main()
