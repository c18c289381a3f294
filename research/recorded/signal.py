"""Rollouts where rewards differ: tokens for an equal signal, by expected variance and by equal groups.

    TTS_DATA_DIR=… python -m research.recorded.signal [--times 200] [--prompts 200] [--samples 40] [--out FOLDER]

The samples are those of recorded pools and of the pair. Each run orders the samples of every problem at random. Equal
groups take the first eight. `tts_addons.training.rollouts.SignalAllocator` draws from the same orders, wave by wave,
until its groups have as much as the equal ones. It ends early if it draws no more, or if a problem has no further
recorded sample.

Two quantities are compared: the signal, which is size times variance summed over groups, and the sum of the groups'
variances alone. The pair is `pocket` on countdowns. Its rewards are verdicts, or the scores of its own verifier.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

import tts
from research.recorded import pools
from research.stamps import stamp_line
from tts.errors import TTSError
from tts.experiments.datasets import countdown
from tts_addons.training.rollouts import SignalAllocator

RESULTS = Path(__file__).parents[2] / "docs/results"
POOLS = ("bestofn", "dates")  # the others have eight samples or fewer, or trees
REWARDS = ("verdicts", "scores")  # of the pair
GROUP = 8  # samples of an equal group
FIRSTS = (4, 2)  # samples of each prompt before prompts are compared; the first is the default of `tts.rollouts`
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recorded:
    """The samples of a pool by problem.

    Args:
        right: The reward of each sample in [0, 1], mostly whether it is right.
        tokens: The tokens of each sample.
    """

    right: tuple[Floats, ...]
    tokens: tuple[Floats, ...]

    @classmethod
    def from_pair(cls, reward: str, prompts: int, samples: int) -> Recorded:
        """Draw samples of the embedded pair on countdowns of the train split.

        Args:
            reward: "verdicts" on the answers, or the "scores" of its own verifier.
            prompts: The number of problems.
            samples: The samples of each.
        """
        problems = countdown.load(limit=prompts, split="train", numbers=(2, 3, 4), seed=11)
        with tts.Solver("pocket", task="countdown", temperature=1.0) as solver:
            task = solver.prepare(problems[0], 100, strategy="single").setup.task
            solutions = solver.solve_many(problems, each=tts.Budget(samples=samples), strategy="best_of_n | weighted")

        def value(problem: tts.Problem, one: tts.Candidate) -> float:
            if reward == "scores":
                return one.scores["main"]
            return float(one.answer is not None and task.equivalent(one.answer, problem.answer or ""))

        values = tuple(np.array([value(of.problem, one) for one in of.candidates]) for of in solutions)
        return cls(
            values, tuple(np.array([float(one.trajectory.num_tokens) for one in of.candidates]) for of in solutions)
        )

    @classmethod
    def of(cls, name: str) -> Recorded:
        """Return the samples of a pool whose problems have more than an equal group."""
        kept = [one.drawn for one in pools.pool(name).problems if len(one.drawn) > GROUP]
        right = tuple(np.array([float(drawn.right is True) for drawn in each]) for each in kept)
        return cls(right, tuple(np.array([float(max(1, drawn.tokens)) for drawn in each]) for each in kept))

    def shuffle(self, rng: np.random.Generator) -> Recorded:
        """Return the samples in a random order."""
        orders = [rng.permutation(len(one)) for one in self.right]
        return Recorded(
            tuple(one[order] for one, order in zip(self.right, orders, strict=True)),
            tuple(one[order] for one, order in zip(self.tokens, orders, strict=True)),
        )


@dataclass(frozen=True)
class Groups:
    """The figures of groups of some sizes.

    Args:
        tokens: The tokens of all groups.
        signal: The sum of size times variance.
        variances: The sum of the variances.
        silent: The share of groups without a difference.
    """

    tokens: float
    signal: float
    variances: float
    silent: float

    @classmethod
    def of(cls, recorded: Recorded, sizes: NDArray[np.int64]) -> Groups:
        """Return the groups of the first samples of each problem.

        Args:
            recorded: The samples.
            sizes: The number of samples of each problem.
        """
        variances = np.array(
            [one[:size].var() if size else 0.0 for one, size in zip(recorded.right, sizes.tolist(), strict=True)]
        )
        tokens = sum(float(one[:size].sum()) for one, size in zip(recorded.tokens, sizes.tolist(), strict=True))
        return cls(tokens, float((sizes * variances).sum()), float(variances.sum()), float((variances == 0).mean()))


def divide(recorded: Recorded, wanted: float, first: int, quantity: str = "signal") -> Groups | None:
    """Return the groups of the allocator once they have so much of a quantity; None: they never have.

    Costs are those of the samples seen so far. The tokens left are taken as a quarter of those of equal groups, so that
    waves are small.
    """
    most = min(len(one) for one in recorded.right)
    allocator, sizes = SignalAllocator(first=first, most=most), np.zeros(len(recorded.right), np.int64)
    cost = np.full(len(sizes), float(np.mean([one[0] for one in recorded.tokens])))
    total = len(sizes) * GROUP * float(cost.mean())
    while True:
        successes = np.array([one[:size].sum() for one, size in zip(recorded.right, sizes.tolist(), strict=True)])
        more = allocator.next(successes, sizes, cost, total / 4 if sizes.min() >= first else total)
        if not more.any():
            return None
        sizes = sizes + more
        cost = np.array([one[: max(1, size)].mean() for one, size in zip(recorded.tokens, sizes.tolist(), strict=True)])
        if sizes.min() >= first and getattr(groups := Groups.of(recorded, sizes), quantity) >= wanted:
            return groups


def measure(recorded: Recorded, times: int, first: int, quantity: str) -> tuple[Floats, list[Groups], list[Groups]]:
    """Return the tokens by expected variance as a share of those of equal groups, [times], and the groups.

    The groups are those of the runs that ended. A run whose groups never have as much of the quantity as equal ones has
    a
    share of infinity.
    """
    rng, equal, divided = np.random.default_rng(0), list[Groups](), list[Groups]()
    ratios = np.full(times, np.inf)
    for run in range(times):
        # problems are resampled: the interval is over problems
        places = rng.integers(len(recorded.right), size=len(recorded.right))
        resampled = Recorded(tuple(recorded.right[i] for i in places), tuple(recorded.tokens[i] for i in places))
        some = resampled.shuffle(rng)
        uniform = Groups.of(some, np.full(len(places), GROUP))
        groups = divide(some, getattr(uniform, quantity), first, quantity)
        if groups is not None:
            equal.append(uniform)
            divided.append(groups)
            ratios[run] = groups.tokens / uniform.tokens
    return ratios, equal, divided


def share(ratios: Floats) -> str:
    """Return the median of shares with the interval that has 95 % of them."""
    low, middle, high = (
        "never" if math.isinf(one) else f"{one:.2f}"
        for one in np.quantile(ratios, [0.025, 0.5, 0.975], method="nearest")
    )
    return f"{middle} [{low}, {high}], {int(np.isfinite(ratios).sum()):,} of {len(ratios):,}"


def row(name: str, recorded: Recorded, first: int, times: int) -> str:
    """Return the row of a pool."""
    sizes = sorted({len(one) for one in recorded.right})
    size_text = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    ratios, equal, divided = measure(recorded, times, first, "signal")
    figures = "– | – | –"
    if divided:
        figures = f"{mean(equal, 'silent'):.0%} | {mean(divided, 'silent'):.0%}"
        figures += f" | {mean(divided, 'variances') / mean(equal, 'variances'):.2f} times"
    variances, _, _ = measure(recorded, times, first, "variances")
    tokens = f"{share(ratios)} | {share(variances)}"
    return f"| {name} | {len(recorded.right):,} | {size_text} | {first} | {tokens} | {figures} |"


def page(times: int, prompts: int, samples: int) -> Iterator[str]:
    """Yield the lines of the page."""
    flags = f"--times {times} --prompts {prompts} --samples {samples}"
    yield from ("# Rollouts where rewards differ", "", stamp_line(f"python -m research.recorded.signal {flags}"), "")
    yield (
        f"Equal groups of {GROUP} samples beside groups that `tts.rollouts` sizes by expected variance; *pair* is "
        f"`pocket` on countdowns of 2 to 4 numbers. {times} runs resample the prompts and the orders of samples. "
        "Tokens are a share of those of equal groups: the median, the interval of 95 % of the runs, and how many "
        "reached the goal. *Never*: no further sample was drawn before it. *Signal* is the sum over groups of size "
        "times variance, *variances* that of variances. *Silent* groups have equal rewards. *First* samples are "
        "drawn before prompts are compared. The last three columns are for an equal signal."
    )
    yield ""
    yield (
        "| pool | prompts | samples | first | tokens for equal signal | tokens for equal variances | silent, equal | "
        "by variance | sum of variances |"
    )
    yield "| :-- | --: | --: | --: | :-- | :-- | --: | --: | --: |"
    for name in (*POOLS, *(f"pair, {reward}" for reward in REWARDS)):
        of = (
            Recorded.from_pair(name.removeprefix("pair, "), prompts, samples)
            if name not in POOLS
            else Recorded.of(name)
        )
        for first in FIRSTS:
            yield row(name, of, first, times)
    yield ""
    yield (
        "Half the tokens were the goal: an interval below 0.5 meets it. Where an interval for equal variances is "
        "above 1, groups by expected variance take more tokens, since larger groups hardly make up for those that "
        "stay silent: a group of four has 6/7 of the variance of one of eight. Fewer first samples save more tokens, "
        "and leave more groups silent. The default of four keeps about 0.8 of the sum of variances on simulated "
        "prompts."
    )


def mean(of: Sequence[Groups], name: str) -> float:
    """Return the mean of a field."""
    return float(np.mean([getattr(one, name) for one in of]))


def main() -> None:
    """Measure all pools, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=200, help="of the pair")
    parser.add_argument("--samples", type=int, default=40, help="of each of them")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    try:
        lines = list(page(options.times, options.prompts, options.samples))
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "signal.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(options.out / "signal.md")


if __name__ == "__main__":
    main()
