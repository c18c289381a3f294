"""One total divided by votes alone where wrong answers repeat: `auto` beside uniform and Blend-ASC.

    python -m research.allocation.repeated [--seeds 40] [--problems 200] [--total 8] [--out FILE]

Beside the lure, each problem has 10, 50 or 200 other wrong answers, all equally likely, or they never repeat. A tenth
of wrong samples are the lure. `auto` divides without a performance model, and with populations that were fitted to 200
other problems with 16 verdicts each, as `tts fit` does. One of these knows success rates alone, the other the number of
wrong answers too, which is estimated from the same samples. Every seed is a world of its own, and all policies see the
same draws. FILE is the page: its section on repeats is replaced, the rest is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from research.allocation.lured import REPEATS, divide, laws
from research.allocation.world import RIGHT, World, draw_answers
from research.stamps import stamp_line
from tts.allocator import repeats
from tts.allocator.allocate import Allocator
from tts.allocator.auto import Auto
from tts.allocator.difficulty import LURES, Floats, Population, Whole
from tts.allocator.values import Voted

NUMBERS = (10, 50, 200, 0)
_LURED = 0.1  # share of wrong samples with the most tempting answer
_LAWS = ("half .9, half .15", "Beta(.5, .5)")
_DRAWN = 16  # samples with verdicts of each problem of the fit
_ROOM = 64  # votes that tables tell apart
_POLICIES = ("uniform", "`auto`", "fitted", "fitted, number known", "Blend-ASC")
_95 = 1.96  # standard errors of an interval


class Line(NamedTuple):
    """One law with one number of wrong answers.

    Args:
        law: The law of success rates.
        others: The number of other wrong answers; 0: they never repeat.
        estimates: The estimated numbers of the worlds; None: unknown.
        accuracies: The accuracy of each policy in each world, [seeds, policies].
    """

    law: str
    others: int
    estimates: list[int | None]
    accuracies: Floats

    def difference(self, one: int, other: int) -> str:
        """Return the mean difference of two policies over worlds, with its 95 % interval."""
        gain = self.accuracies[:, one] - self.accuracies[:, other]
        return f"{gain.mean():+.3f} ± {_95 * gain.std(ddof=1) / np.sqrt(len(gain)):.3f}"


def fit(answers: Whole) -> tuple[Population, Population]:
    """Return the population of success rates alone, and that with the number of wrong answers.

    Args:
        answers: The answers of problems' samples with verdicts, [P, samples].
    """
    votes = [list(Counter(row[row != RIGHT].tolist()).values()) for row in answers]
    right = (answers == RIGHT).sum(axis=1)
    plain = Population.beta()
    plain = plain.fit(plain.verdict_likelihood(right, answers.shape[1] - right))
    return plain, dataclasses.replace(plain, others=repeats.estimate(votes, LURES))


def compare(law: str, rates: Floats, others: int, total: int, problems: int, seeds: int) -> Line:
    """Return how the policies do on the worlds of one law."""
    weight = np.full(len(rates), 1 / len(rates))
    population = Population(rates, (1 - rates) * _LURED, weight, others=others)
    accuracies, estimates = np.zeros((seeds, len(_POLICIES))), list[int | None]()
    for seed in range(seeds):
        world = World.draw(population, problems, np.random.default_rng([seed, others]))
        rng = np.random.default_rng([seed, others, 1])
        kind = rng.choice(len(weight), problems, p=weight)
        plain, known = fit(draw_answers(population, kind, _DRAWN, rng))
        estimates.append(known.others)
        allocators = (
            Auto().allocator(alone=False, each=float(total)),
            Allocator(values=Voted(plain, _ROOM)),
            Allocator(values=Voted(known, _ROOM)),
            Auto(division="blend_asc").allocator(alone=False),
        )
        counts = [divide(world, total, allocator, checked=False) for allocator in allocators]
        counts = [np.full(problems, total), *counts]
        accuracies[seed] = [world.score(samples, checked=False).mean() for samples in counts]
    return Line(law, others, estimates, accuracies)


def section(lines: list[Line], command: str, problems: int, total: int, seeds: int) -> Iterator[str]:
    """Yield the lines of the page's section."""
    yield from (
        REPEATS,
        "",
        stamp_line(command),
        "",
        "Real models repeat wrong answers. Below, a problem has a number of *other answers* beside the lure, all "
        f"equally likely, and a tenth of wrong samples are the lure. {problems} problems share {total} samples each; "
        f"means over {seeds} worlds, differences paired by world with 95 % intervals.",
        "",
        "- *`auto`* takes wrong answers as never given twice, without a performance model. *Fitted*: success rates of "
        f"{problems} other problems with {_DRAWN} verdicts each. *Number known*: the number of other answers is "
        "estimated from them too, as by `tts fit`.",
        "- *Blend-ASC* is `auto(division='blend_asc')`, which asks for the most frequent answer, without a prior.",
        "",
        f"| success rates | other answers | estimated | {' | '.join(_POLICIES)} |",
        f"| :-- | --: | --: |{' --: |' * len(_POLICIES)}",
    )
    for line in lines:
        low, *_, high = sorted(line.estimates, key=lambda each: np.inf if each == 0 else -1 if each is None else each)
        estimated = _show(low) if low == high else f"{_show(low)} to {_show(high)}"
        means = " | ".join(f"{mean:.3f}" for mean in line.accuracies.mean(axis=0))
        yield f"| {line.law} | {_show(line.others)} | {estimated} | {means} |"
    pairs = ((1, 0), (3, 0), (3, 2), (4, 0), (3, 4), (1, 4))
    names = [f"{_POLICIES[one]} − {_POLICIES[other]}" for one, other in pairs]
    yield from ("", f"| success rates | other answers | {' | '.join(names)} |", f"| :-- | --: |{' :-- |' * len(pairs)}")
    for line in lines:
        gains = " | ".join(line.difference(*pair) for pair in pairs)
        yield f"| {line.law} | {_show(line.others)} | {gains} |"
    yield ""


def _show(others: int | None) -> str:
    return {None: "unknown", 0: "endless"}.get(others, str(others))


def main() -> None:
    """Compare, print, and write the section where a page is named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=40, help="worlds of each row, at least 2")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--total", type=int, default=8, help="samples a problem")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page")
    options = parser.parse_args()
    lines: list[Line] = []
    for law in _LAWS:
        for others in NUMBERS:
            lines.append(compare(law, laws()[law], others, options.total, options.problems, options.seeds))
            print(law, others, lines[-1].accuracies.mean(axis=0), flush=True)
    command = (
        f"python -m research.allocation.repeated --seeds {options.seeds} --problems {options.problems} "
        f"--total {options.total}"
    )
    found = "\n".join(section(lines, command, options.problems, options.total, options.seeds))
    print(found)
    if options.out is not None:
        kept = options.out.read_text(encoding="utf-8").split(REPEATS)[0]
        options.out.write_text(kept.rstrip("\n") + "\n\n" + found, encoding="utf-8")


if __name__ == "__main__":
    main()
