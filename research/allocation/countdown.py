"""`auto` on countdowns under a budget of each problem, beside every method that it may choose: what it chooses well, and what it costs.

    python -m research.allocation.countdown [--problems 300] [--seeds 1] [--budgets 124 248 500 1000] [--jobs 1] [--store FILE]
        [--choose 100] [--out FILE]

Budgets are hard limits on all tokens of a problem, those of the verifier included. Of each budget, the best single method is the one with
the highest accuracy on countdowns of the validation split, as many as `--choose`. All others are counted on fresh problems of the test
split. Random choice is the mean of the single methods. Hindsight takes for each problem the method that was right most often: with one
seed it is the share of problems that any method solves. Stopped, the command goes on where it was.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process

import numpy as np

from research.allocation.pair import studies
from research.claims import plans
from research.methods import running
from tts.allocator.difficulty import Floats
from tts.experiments.analysis.curves import Curve, curves_of
from tts.experiments.store.store import Store, default_store
from tts.experiments.study.config import study_config
from tts.search.plan import parse
from tts.statistics import Estimate, clustered_mean

BUDGETS = (124, 248, 500, 1000)
SINGLE: Mapping[str, str] = {
    "weighted best-of-N": "best_of_n | weighted",
    **dict(zip(("A*", "REBASE"), studies.COUNTDOWN_TREES, strict=True)),
}
AUTO: Mapping[str, str] = {
    "auto": plans.AUTO,
    "auto, four pilots": plans.AUTO.replace(")", ", pilots=4)", 1),
}
BEST, RANDOM, HINDSIGHT = "best single method", "random choice", "hindsight per problem"
_WITHIN = 0.02  # of the best single method, that is asked of `auto`


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: The method.
        right: The share of seeds that were right, by budget, of each problem [P].
        tokens: The mean tokens of a problem, by budget; empty: the row is computed from others.
        chosen: What the row is at each budget, where it is one of several methods.
    """

    name: str
    right: Mapping[int, Floats]
    tokens: Mapping[int, float]
    chosen: Mapping[int, str]


def measure(
    store: Path, split: str, names: Mapping[str, str], problems: int, seeds: int, budgets: Sequence[int], jobs: int
) -> dict[str, Curve]:
    """Run what is missing of methods on countdowns of four numbers, and return their curves by name."""
    study = study_config(
        {
            "name": f"allocator-countdown-{split}",
            "models": {plans.LEARNT: {"model": "pocket", "verifiers": dict(plans.VERIFIERS[plans.LEARNT])}},
            "problems": {"dataset": "countdown", "split": split, "numbers": [plans.NUMBERS], "limit": problems, "seed": plans.FRESH},
            "strategies": list(names.values()), "budgets": {"tokens": list(budgets)}, "seeds": seeds, "record": {"traces": 0},
            "concurrency": running.CONCURRENCY,
        }
    )  # fmt: skip
    number = running.run(study, store, jobs)
    known = {str(parse(text)): name for name, text in names.items()}
    with Store(store) as opened:
        found = curves_of(opened.results(number, drawn=False), rng=np.random.default_rng(0))
    return {known[str(parse(curve.strategy))]: curve for curve in found}


def rows(test: Mapping[str, Curve], validation: Mapping[str, Curve], budgets: Sequence[int]) -> list[Row]:
    """Return every method, and what choosing among the single ones comes to."""
    found: list[Row] = []
    for name, curve in test.items():
        right = dict(zip(budgets, curve.shares, strict=True))
        found.append(Row(name, right, dict(zip(budgets, curve.costs["tokens"].tolist(), strict=True)), {}))
    by = {row.name: row for row in found}
    best = {budget: max(validation, key=lambda name: float(np.nanmean(validation[name].shares[at]))) for at, budget in enumerate(budgets)}
    single = {budget: np.stack([by[name].right[budget] for name in validation]) for budget in budgets}
    found.append(
        Row(BEST, {budget: by[name].right[budget] for budget, name in best.items()}, {b: by[n].tokens[b] for b, n in best.items()}, best)
    )
    found.append(Row(RANDOM, {budget: each.mean(axis=0) for budget, each in single.items()}, {}, {}))
    found.append(Row(HINDSIGHT, {budget: each.max(axis=0) for budget, each in single.items()}, {}, {}))
    return found


def page(found: Sequence[Row], budgets: Sequence[int], chosen_on: int, command: str) -> Iterator[str]:
    """Yield the lines of the page."""
    by = {row.name: row for row in found}
    problems = len(next(iter(by["auto"].right.values())))
    yield from (
        "# `auto` on countdowns, beside the methods that it chooses from",
        "",
        f"Made by `{command}`.",
        "",
        f"- Problems: {problems} countdowns of {plans.NUMBERS} numbers of the test split. Budgets are hard limits on all tokens of a",
        "  problem, those of the verifier included.",
        f"- The best single method of each budget was chosen on {chosen_on} countdowns of the validation split.",
        "- Random choice is the mean of the single methods. Hindsight takes for each problem the single method that was right most",
        "  often. With one seed that is the share of problems that any of them solves, which no choice can expect to reach.",
        "- Accuracy in percent with 95 % intervals over problems; differences are paired by problem.",
        "",
        f"| | {' | '.join(f'{budget} tokens' for budget in budgets)} |",
        f"| :-- | {' | '.join(':--' for _ in budgets)} |",
    )
    for row in found:
        cells = [_accuracy(row.right[budget]) + (f" ({row.chosen[budget]})" if row.chosen else "") for budget in budgets]
        yield f"| {row.name} | {' | '.join(cells)} |"
    yield from ("", "Tokens that a problem took, on average:", "")
    yield f"| | {' | '.join(f'{budget} tokens' for budget in budgets)} |"
    yield f"| :-- | {' | '.join('--:' for _ in budgets)} |"
    for row in found:
        if row.tokens and not row.chosen:
            yield f"| {row.name} | {' | '.join(f'{row.tokens[budget]:.0f}' for budget in budgets)} |"
    yield from ("", "## `auto` minus others, in points", "")
    yield f"| minus | {' | '.join(f'{budget} tokens' for budget in budgets)} |"
    yield f"| :-- | {' | '.join(':--' for _ in budgets)} |"
    for row in found:
        if row.name != "auto":
            yield f"| {row.name} | {' | '.join(_difference(by['auto'].right[budget], row.right[budget]) for budget in budgets)} |"
    lost = {budget: float(np.nanmean(by[BEST].right[budget]) - np.nanmean(by["auto"].right[budget])) for budget in budgets}
    kept = [str(budget) for budget, loss in lost.items() if loss <= _WITHIN]
    yield from (
        "",
        f"`auto` is within {100 * _WITHIN:g} points of the best single method at {', '.join(kept) or 'no'} tokens, in the mean.",
        "",
    )


def _accuracy(right: Floats) -> str:
    found = _mean(right, (0, 1))
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _difference(right: Floats, other: Floats) -> str:
    found = _mean(right - other, (-1, 1))
    return f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def _mean(values: Floats, bounds: tuple[float, float]) -> Estimate:
    return clustered_mean(values, rng=np.random.default_rng(0), bounds=bounds)


def main() -> None:
    """Measure, print, and write the page where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--problems", type=int, default=300, help="of the test split")
    parser.add_argument(
        "--choose", type=int, default=100, help="problems of the validation split, by which the best single method is chosen"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS), help="tokens of a problem")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    store, budgets = options.store or default_store(), sorted(options.budgets)
    validation = measure(store, studies.VALIDATION, SINGLE, options.choose, 1, budgets, options.jobs)
    test = measure(store, studies.TEST, {**SINGLE, **AUTO}, options.problems, options.seeds, budgets, options.jobs)
    command = (
        f"python -m research.allocation.countdown --problems {options.problems} --choose {options.choose} --seeds {options.seeds} "
        f"--budgets {' '.join(map(str, budgets))}"
    )
    text = "\n".join(page(rows(test, validation, budgets), budgets, options.choose, command))
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
