"""The allocator on a toy world of known truth, against the best policy with the same information and against those that know more.

    python benchmarks/allocator.py [--problems 10000] [--budgets 2,4,8,16,32,64,128] [--seed 0] [--quick]

Two settings: a perfect checker, and votes without a verifier. For each budget, in samples a problem: accuracies, and the share of the
gain over uniform best-of-N that the allocator has of what the reference has, with 95 % intervals from problems drawn again (all policies
see the same draws, so differences are paired). The reference draws one sample at a time, by the exact index under the true population.
Then: what pilots are worth to a division made once, and how long deciding takes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from benchmarks.allocation import policies
from benchmarks.allocation.world import MOST, World, population
from tts.allocator.allocate import Allocator
from tts.allocator.baselines import at_random
from tts.allocator.difficulty import Population
from tts.allocator.greedy import coverage_gains, greedy
from tts.allocator.values import Checked, Voted

Scores = NDArray[np.float64]
RESAMPLES = 1000


def main() -> None:
    options = arguments()
    budgets = [int(each) for each in options.budgets.split(",")]
    problems, most = (1000, 64) if options.quick else (options.problems, MOST)
    world = World.drawn(population(), problems, np.random.default_rng(options.seed))
    print(f"{problems:,} problems, mean success rate {world.population.weight @ world.population.rate:.3f}, seed {options.seed}")
    for checked in (True, False):
        print(f"\n{'with a perfect checker' if checked else 'by votes, without a verifier'}")
        compare(world, [b for b in budgets if b <= most], most, checked=checked)
        pilots_pay(world, most, checked=checked)
    deciding()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--budgets", default="2,4,8,16,32,64,128", help="samples a problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="1,000 problems, tables of 64 samples")
    return parser.parse_args()


def compare(world: World, budgets: list[int], most: int, *, checked: bool) -> None:
    """One line a policy and budget."""
    known = policies.values_of(world.population, most, checked=checked)
    broad = policies.values_of(Population.beta(), min(most, 64), checked=checked)
    gains = gains_of(world, most, checked=checked)
    best, knowing = (
        policies.in_order(world, known, checked=checked, pilots=1),
        policies.oracle_order(world, checked=checked, most=min(most, 64)),
    )
    rng = np.random.default_rng(0)
    again = rng.multinomial(world.problems, np.full(world.problems, 1 / world.problems), RESAMPLES).astype(np.float32)
    for budget in budgets:
        total = budget * world.problems
        counts = {
            "uniform best-of-N": np.full(world.problems, budget),
            "random": np.minimum(at_random(world.problems, total, rng), MOST),
            "A14, five oracle bins": policies.binned(world, gains, total, checked=checked, pilots=None),
            "A14, five predicted bins": policies.binned(world, gains, total, checked=checked, pilots=min(8, budget)),
            "allocator, population learnt": policies.allocated(
                world, Allocator(values=broad, pilots=min(2, budget)), total, checked=checked, learn=True
            ),
            "allocator": policies.allocated(world, Allocator(values=known, pilots=1), total, checked=checked),
            "reference": policies.taken(best, world.problems, total),
            "static oracle": policies.static_oracle(world, gains, total),
            "adaptive oracle": policies.taken(knowing, world.problems, total),
        }
        if not checked:
            counts["best stop rule in hindsight"] = policies.stop_rule(world, total)
        right = {name: world.score(each, checked=checked) for name, each in counts.items()}
        bound = f", bound {known.table.bound(budget):.4f}" if isinstance(known, Voted) else ""
        print(f"  {budget} samples a problem{bound}")
        for name, scored in right.items():
            share = share_of_gain(scored, right["uniform best-of-N"], right["reference"], again)
            print(
                f"    {name:30} {scored.mean():.4f}   of the reference's gain {share}   spent {counts[name].sum() / total:.3f}", flush=True
            )


def gains_of(world: World, most: int, *, checked: bool) -> Scores:
    """What further samples bring for each kind, were it known: of the checker in closed form, of votes from the states."""
    if checked:
        return policies.checked_gains(world.population, most)
    return policies.vote_gains(world.population, min(most, 64))


def share_of_gain(scored: Scores, uniform: Scores, reference: Scores, again: NDArray[np.float32]) -> str:
    """The share of the reference's gain over uniform, with a 95 % interval from problems drawn again."""
    mine, best = scored - uniform, reference - uniform
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.nanquantile((again @ mine) / (again @ best), [0.025, 0.975])
        return f"{mine.mean() / best.mean():6.3f} [{low:.3f}, {high:.3f}]"


def pilots_pay(world: World, most: int, *, checked: bool, budget: int = 8) -> None:
    """Regret of a division made once, behind pilots, to the one that knows every problem's kind."""
    gains, total = gains_of(world, most, checked=checked), budget * world.problems
    expected = np.concatenate([np.zeros((len(gains), 1)), np.cumsum(gains, axis=1)], axis=1)[world.kind]

    def worth(counts: NDArray[np.int64]) -> float:
        return float(expected[np.arange(world.problems), np.minimum(counts, expected.shape[1] - 1)].mean())

    oracle, uniform = worth(policies.static_oracle(world, gains, total)), worth(np.full(world.problems, budget))
    print(f"  a division made once, {budget} samples a problem: expected accuracy {uniform:.4f} uniform, {oracle:.4f} with known kinds")
    for pilots in (1, 2, 4, 8, 16, 32):
        counts = policies.static(world, gains, total, checked=checked, pilots=pilots)
        print(f"    {pilots:3} pilots, not charged: regret {oracle - worth(counts):.4f}")


def deciding() -> None:
    """How long it takes to decide: a wave of 10,000 problems, and 100,000 problems divided at once."""
    rng = np.random.default_rng(0)
    world = World.drawn(population(), 10_000, rng)
    samples = rng.integers(1, 33, 10_000)
    print("\ndeciding")
    for name, values in (("checker", Checked(world.population)), ("votes", Voted(world.population, 64))):
        state = world.state(samples, 50_000.0, checked=name == "checker")
        started = time.perf_counter()
        Allocator(values=values, pilots=1).next(state)
        print(f"  one wave over 10,000 problems, {name}: {(time.perf_counter() - started) / 10_000 * 1e6:.2f} µs a problem")
    started = time.perf_counter()
    Voted(world.population, 64)
    print(f"  the table of votes up to 64, once: {time.perf_counter() - started:.2f} s")
    gains = coverage_gains(rng.beta(0.5, 0.8, 100_000), 128)
    started = time.perf_counter()
    greedy(gains, 1_600_000)
    print(f"  100,000 problems of 128 samples at most, divided at once: {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
