"""The allocator on a toy world of known truth, against policies with the same information or more.

    python -m research.allocation.toy [--problems 10000] [--seeds 0,1,2] [--budgets 2,4,8,16,32,64,128] [--out PAGE]

There are two settings: a perfect checker, and votes without a verifier. For each budget, in samples a problem, the
page gives each policy's accuracy, and its gain over uniform best-of-N as a share of the reference's gain. The 95 %
intervals are from problems drawn again. All policies see the same draws, so differences are paired.

The reference draws one sample at a time, by the exact index under the true population. It is the best policy with the
allocator's information. Each seed is a world of its own, and the problems of all worlds are counted together.

The page also shows what pilots are worth to a division made once, whether difficulty is estimated rightly, and how
long decisions take.
"""

from __future__ import annotations

import argparse
import os
from functools import cache
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from research.allocation.baselines import random_counts
from research.allocation.toy import policies, report
from research.allocation.toy.deciding import time_decisions
from research.allocation.toy.reliability import reliability
from research.allocation.world import MOST, World, population
from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import Population
from tts.allocator.values import Values

Scores = NDArray[np.float64]
RESAMPLES = 1000
DECIDED = 10_000  # problems that decisions are timed on
SETTINGS = {True: "a perfect checker", False: "votes, without a verifier"}
_BROAD = Population.beta()  # before anything is learnt
_ROOM = 128  # votes that are told apart where it is learnt, as `auto` does at large budgets


def main() -> None:
    options = arguments()
    budgets, seeds = ([int(each) for each in text.split(",")] for text in (options.budgets, options.seeds))
    most = 64 if options.quick else MOST
    problems = population()
    worlds = [World.draw(problems, options.problems, np.random.default_rng(seed)) for seed in seeds]
    page = report.Page(f"{options.problems:,} problems in each of {len(seeds)} worlds (seeds {options.seeds})")
    for checked, setting in SETTINGS.items():
        page.add_setting(
            setting, {budget: compare(worlds, budget, most, checked=checked) for budget in budgets if budget <= most}
        )
        page.add_pilots(setting, pilot_regret(worlds[0], most, checked=checked))
        page.add_reliability(setting, reliability(worlds[0], checked=checked))
    page.add_timings(time_decisions(DECIDED // 50 if options.quick else DECIDED))
    page.write(options.out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--budgets", default="2,4,8,16,32,64,128", help="samples a problem")
    parser.add_argument("--seeds", default="0", help="of the worlds")
    parser.add_argument(
        "--quick", action="store_true", help="tables of 64 samples, no budget above, decisions timed on few problems"
    )
    parser.add_argument(
        "--out", type=Path, help="page to write, with its figure beside it; left out: the page is printed"
    )
    return parser.parse_args()


def compare(worlds: list[World], budget: int, most: int, *, checked: bool) -> report.Row:
    """Return the row of every policy at one budget, over all worlds."""
    right: dict[str, list[Scores]] = {}
    spent: dict[str, list[float]] = {}
    for i, world in enumerate(worlds):
        for name, counts in allocations(
            world, budget, most, np.random.default_rng([i, budget]), checked=checked
        ).items():
            right.setdefault(name, []).append(world.score(counts, checked=checked))
            spent.setdefault(name, []).append(float(counts.mean()) / budget)
    every = {name: np.concatenate(each) for name, each in right.items()}
    problems = len(every[report.UNIFORM])
    rng = np.random.default_rng(0)
    mine = {name: each - every[report.UNIFORM] for name, each in every.items()}
    picked = (rng.integers(0, problems, problems) for _ in range(RESAMPLES))
    drawn = np.array([[gain[of].mean() for gain in mine.values()] for of in picked])
    best = list(mine).index(report.REFERENCE)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.nanquantile(drawn / drawn[:, [best]], [0.025, 0.975], axis=0)
        share = {name: float(gain.mean() / mine[report.REFERENCE].mean()) for name, gain in mine.items()}
    row = {
        name: report.Line(float(each.mean()), share[name], float(low[i]), float(high[i]), float(np.mean(spent[name])))
        for i, (name, each) in enumerate(every.items())
    }
    print(
        f"{SETTINGS[checked]}, {budget} samples a problem: "
        + ", ".join(f"{n} {line.accuracy:.4f}" for n, line in row.items()),
        flush=True,
    )
    return row


@cache
def sample_values(population: Population, most: int, *, checked: bool) -> Values:
    """Return the values of samples under a population."""
    return policies.values_of(population, most, checked=checked)


@cache
def orders(world: World, most: int, *, checked: bool) -> tuple[policies.Counts, policies.Counts]:
    """Return the samples of two policies in the order in which the policies draw them.

    The first policy is the reference. The second one knows every problem's kind.
    """
    best = policies.index_order(
        world, sample_values(world.population, most, checked=checked), checked=checked, pilots=1
    )
    return best, policies.oracle_order(world, checked=checked, most=min(most, 64))


def allocations(
    world: World, budget: int, most: int, rng: np.random.Generator, *, checked: bool
) -> dict[str, policies.Counts]:
    """Return the samples of each problem, by policy."""
    total, everyone = budget * world.problems, world.problems
    gains, (best, oracle) = gains_of(world.population, most, checked=checked), orders(world, most, checked=checked)
    broad = sample_values(_BROAD, min(most, _ROOM), checked=checked)
    sure = sample_values(world.population, most, checked=checked)
    counts = {
        report.UNIFORM: np.full(everyone, budget),
        "random": np.minimum(random_counts(everyone, total, rng), MOST),
        "A14, five oracle bins": policies.divide_by_bins(world, gains, total, checked=checked, pilots=None),
        "A14, five predicted bins": policies.divide_by_bins(
            world, gains, total, checked=checked, pilots=min(8, budget)
        ),
        "allocator, population learnt": policies.allocate(
            world, Allocator(values=broad), total, checked=checked, learn=True
        ),
        report.ALLOCATOR: policies.allocate(world, Allocator(values=sure), total, checked=checked),
        report.REFERENCE: policies.count_first(best, everyone, total),
        "static oracle": policies.static_oracle(world, gains, total),
        "adaptive oracle": policies.count_first(oracle, everyone, total),
    }
    if not checked:
        counts["best stop rule in hindsight"] = policies.stop_rule(world, total)
    return counts


@cache
def gains_of(population: Population, most: int, *, checked: bool) -> Scores:
    """Return the gains of further samples for each kind, if the kind were known.

    Gains of the checker are in closed form, and gains of votes are summed over the states.
    """
    if checked:
        return policies.checked_gains(population, most)
    return policies.vote_gains(population, min(most, 64))


def pilot_regret(world: World, most: int, *, checked: bool, budget: int = 8) -> report.Pilots:
    """Return the expected accuracy of a division made once after pilots, and its regret.

    The regret is the distance to the division that knows every problem's kind.
    """
    gains, total = gains_of(world.population, most, checked=checked), budget * world.problems
    expected = np.concatenate([np.zeros((len(gains), 1)), np.cumsum(gains, axis=1)], axis=1)[world.kind]

    def worth(counts: NDArray[np.int64]) -> float:
        return float(expected[np.arange(world.problems), np.minimum(counts, expected.shape[1] - 1)].mean())

    oracle, uniform = worth(policies.static_oracle(world, gains, total)), worth(np.full(world.problems, budget))
    regret = {
        pilots: oracle - worth(policies.divide_after_pilots(world, gains, total, checked=checked, pilots=pilots))
        for pilots in (1, 2, 4, 8, 16, 32)
    }
    return report.Pilots(budget, uniform, oracle, regret)


if __name__ == "__main__":
    main()
