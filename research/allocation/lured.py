"""One total divided by votes alone where wrong answers agree: `auto` beside uniform.

    python -m research.allocation.lured [--seeds 40] [--problems 200] [--totals 2 8] [--out FILE]

With a checker, `auto` stands beside policies that know more. Problems have success rates of three laws. The lure is
the share of wrong samples that give the same wrong answer. With a lure of 0.6, the wrong answer has more votes than
the right one wherever the success rate is below 0.375. Then enough votes are surely wrong. Every seed is a world of
its own, and all policies see the same draws. The defaults of `auto` divide, wave by wave, with its cap for a problem.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from research.allocation.world import MOST, World
from research.stamps import stamp_line
from tts.allocator.allocate import Allocator
from tts.allocator.auto import Auto
from tts.allocator.difficulty import Floats, Population, Whole

LURES = (0.1, 0.3, 0.6)
TOTALS = (2, 8)
ALLOWED = 0.005  # that votes may lose against uniform
REPEATS = "## Where wrong answers repeat"  # the heading of the page's second section
_KINDS = 400  # of one law, evenly spaced in its quantiles


class Line(NamedTuple):
    """One law with one lure at one total.

    Args:
        law: The law of success rates.
        lure: The share of wrong samples with the same answer.
        total: The samples of a problem, on average.
        uniform: The accuracy of as many samples of each problem.
        auto: The accuracy of `auto`.
        gain: The difference of the two accuracies.
        error: The standard error of the difference, by worlds.
        checked: The accuracy of `auto` with a checker.
        oracle: The accuracy of the adaptive oracle with a checker.
    """

    law: str
    lure: float
    total: int
    uniform: float
    auto: float
    gain: float
    error: float
    checked: float
    oracle: float


def laws() -> Mapping[str, Floats]:
    """Return the success rates of the laws, in equal shares."""
    from scipy import special

    quantiles = (np.arange(_KINDS) + 0.5) / _KINDS
    return {
        "Beta(.5, .5)": special.betaincinv(0.5, 0.5, quantiles),
        "half .9, half .15": np.where(quantiles < 0.5, 0.9, 0.15),
        "Beta(.3, 2)": special.betaincinv(0.3, 2.0, quantiles),
    }


def draw_world(rates: Floats, lure: float, problems: int, seed: int) -> World:
    """Return a world of problems of one law."""
    population = Population(rates, (1 - rates) * lure, np.full(len(rates), 1 / len(rates)))
    return World.draw(population, problems, np.random.default_rng([seed, round(100 * lure)]))


def divide(world: World, total: int, allocator: Allocator, *, checked: bool) -> Whole:
    """Return the samples of each problem, as `solve_many` divides them.

    The allocator learns when the number of samples has doubled, and has a cap for each problem.
    """
    samples, seen, most = np.zeros(world.problems, np.int64), 0, max(16, 8 * total)
    while True:
        state = world.state(samples, total * world.problems - float(samples.sum()), checked=checked)
        state = dataclasses.replace(state, open=(samples < most) & ~state.solved)
        if samples.sum() >= max(world.problems, 2 * seen):
            allocator, seen = allocator.adapt(state), int(samples.sum())
        grant = allocator.next(state)
        if grant.reason:
            return samples
        samples = np.minimum(samples + grant.samples, most)


def oracle_accuracy(world: World, total: int) -> float:
    """Return the share of problems that the adaptive oracle solves with a checker.

    The oracle takes the likeliest problem first, and samples it until it is solved.
    """
    order = np.argsort(-world.population.rate[world.kind], kind="stable")
    spent = np.cumsum(np.minimum(world.first[order] + 1, MOST))
    return float(((spent <= total) & (world.first[order] < MOST)).mean())


def compare(law: str, rates: Floats, lure: float, total: int, problems: int, seeds: int) -> Line:
    """Return how `auto` does on the worlds of one law."""
    accuracies = np.zeros((seeds, 4))
    for seed in range(seeds):
        world = draw_world(rates, lure, problems, seed)
        even = np.full(problems, total)
        by_votes, by_verdicts = (
            Auto().allocator(alone=False, checked=checked, each=float(total)) for checked in (False, True)
        )
        accuracies[seed] = (
            world.score(even, checked=False).mean(),
            world.score(divide(world, total, by_votes, checked=False), checked=False).mean(),
            world.score(divide(world, total, by_verdicts, checked=True), checked=True).mean(),
            oracle_accuracy(world, total * problems),
        )
    gain = accuracies[:, 1] - accuracies[:, 0]
    uniform, auto, checked, best = accuracies.mean(axis=0).tolist()
    error = float(gain.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else 0.0
    return Line(law, lure, total, uniform, auto, float(gain.mean()), error, checked, best)


def page(lines: list[Line], command: str, problems: int, seeds: int) -> Iterator[str]:
    """Yield the lines of the page."""
    worst, largest = min(line.gain for line in lines), max(line.error for line in lines)
    kept = "holds" if worst >= -ALLOWED else "does not hold"
    yield from (
        "# When votes cannot be trusted",
        "",
        stamp_line(command),
        "",
        "Votes do not show which answer is right. So without a verifier `auto` gives problems with a split vote no "
        "more samples than others, saves samples where nearly all agree, and spends them where few do. If the most "
        "frequent answer may well be wrong, more votes do not help: use a verifier, a checker or tests.",
        "",
        f"- Votes alone are never below uniform by more than {ALLOWED}: **{kept}** (the least gain is {worst:+.4f}).",
        f"- {problems} problems share a total; each row is the mean over {seeds} simulated worlds, the same for all "
        f"policies. A gain has its standard error over worlds, at most {largest:.4f}.",
        "- *Lure*: the share of wrong samples with the same answer; no other wrong answer repeats. With a checker, "
        "`auto` learns the success rates, and the adaptive oracle knows them.",
        "",
        "| success rates | lure | samples a problem | uniform | `auto` | gain | with a checker | adaptive oracle |",
        "| :-- | --: | --: | --: | --: | :-- | --: | --: |",
    )
    for line in lines:
        gain = f"{line.gain:+.4f} ± {line.error:.4f}"
        yield (
            f"| {line.law} | {line.lure} | {line.total} | {line.uniform:.3f} | {line.auto:.3f} | {gain} "
            f"| {line.checked:.3f} | {line.oracle:.3f} |"
        )
    yield ""


def main() -> None:
    """Compare, print, and write the page where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=40, help="worlds of each row")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--totals", type=int, nargs="+", default=list(TOTALS), help="samples a problem")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    lines: list[Line] = []
    for total in options.totals:
        for law, rates in laws().items():
            for lure in LURES:
                lines.append(compare(law, rates, lure, total, options.problems, options.seeds))
                print(lines[-1], flush=True)
    command = (
        f"python -m research.allocation.lured --seeds {options.seeds} --problems {options.problems} "
        f"--totals {' '.join(map(str, options.totals))}"
    )
    if options.out is not None:
        found = "\n".join(page(lines, command, options.problems, options.seeds))
        before = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
        _, heading, kept = before.partition(REPEATS)  # the section of `research.allocation.repeated`
        options.out.write_text(found + (f"\n{heading}{kept}" if heading else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
