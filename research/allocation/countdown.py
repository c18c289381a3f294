"""`auto` on countdowns under a budget of each problem, beside every method that `auto` may choose.

    python -m research.allocation.countdown [--problems 300] [--seeds 1] [--budgets 124 248 500 1000] [--jobs 1]
        [--store FILE] [--choose 100] [--pilots] [--out FILE]

Budgets are hard limits on all tokens of a problem, those of the verifier included. At each budget, the best single
method is the one with the highest accuracy on `--choose` countdowns of the validation split. All other figures are of
fresh problems of the test split. Random choice is the mean of the single methods. Hindsight takes for each problem the
method that was right most often: with one seed, the share of problems that any method solves. `--pilots` adds `auto`
with four pilots in place of one. A command that was stopped goes on where it ended.
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
from research.stamps import stamp_line
from tts.allocator.difficulty import Floats
from tts.experiments.analysis.curves import Curve, curves_of
from tts.experiments.store.store import Store, default_store
from tts.experiments.study.config import study_config
from tts.experiments.study.record import Result
from tts.search.plan import parse
from tts.statistics import Estimate, clustered_mean

BUDGETS = (124, 248, 500, 1000)
WIDE, NARROW = "REBASE", "REBASE, n = 8"
SINGLE: Mapping[str, str] = {
    "weighted best-of-N": "best_of_n | weighted",
    **dict(zip(("A*", WIDE), studies.COUNTDOWN_TREES, strict=True)),
    NARROW: "rebase(n=8, balance_temperature=0.2) | weighted",
    # as the one above and the one below: of docs/results/claims_choices.json
    "beam": "beam(n=8, branching=4) | weighted",
    "particle filter": "particle_filter(n=8, weight_temperature=1.0) | weighted",
}
AUTO: Mapping[str, str] = {"auto": plans.AUTO}
PILOTS: Mapping[str, str] = {"auto, four pilots": plans.AUTO.replace(")", ", pilots=4)", 1)}
Measured = Mapping[str, Mapping[int, Curve]]  # by method and budget
BEST, RANDOM, HINDSIGHT = "best single method", "random choice", "hindsight per problem"
_WITHIN = 0.02  # of the best single method, that is asked of `auto`


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: The method.
        right: The share of seeds that were right, by budget, of each problem [P].
        tokens: The mean tokens of a problem, by budget; empty: the row is computed from others.
        chosen: The method that the row takes at each budget; empty: the row is one method.
    """

    name: str
    right: Mapping[int, Floats]
    tokens: Mapping[int, float]
    chosen: Mapping[int, str]


def measure(
    store: Path, split: str, names: Mapping[str, str], problems: int, seeds: int, budgets: Sequence[int], jobs: int
) -> Measured:
    """Run what is missing of methods on countdowns of four numbers, and return their curves by budget."""
    study = study_config(
        {
            "name": f"allocator-countdown-{split}",
            "models": {plans.LEARNT: {"model": "pocket", "verifiers": dict(plans.VERIFIERS[plans.LEARNT])}},
            "problems": {
                "dataset": "countdown",
                "split": split,
                "numbers": [plans.NUMBERS],
                "limit": problems,
                "seed": plans.FRESH,
            },
            "strategies": list(names.values()),
            "budgets": {"tokens": list(budgets)},
            "seeds": seeds,
            "record": {"traces": 0},
            "concurrency": running.CONCURRENCY,
        }
    )
    number = running.run(study, store, jobs)
    known = {str(parse(text)): name for name, text in names.items()}
    by_budget: dict[int, list[Result]] = {budget: [] for budget in budgets}
    with Store(store) as opened:
        for result in opened.results(number, drawn=False):
            by_budget[int(result.cell.budget["tokens"])].append(result)
    curves_by_method: dict[str, dict[int, Curve]] = {name: {} for name in names}
    for budget, results in by_budget.items():
        for curve in curves_of(results, rng=np.random.default_rng(0)):
            curves_by_method[known[str(parse(curve.strategy))]][budget] = curve
    return curves_by_method


def rows(test: Measured, validation: Measured) -> list[Row]:
    """Return a row for every method, and rows for choosing among the single ones."""
    table = [
        Row(
            name,
            {budget: curve.shares[0] for budget, curve in curves.items()},
            {budget: float(curve.costs["tokens"][0]) for budget, curve in curves.items()},
            {},
        )
        for name, curves in test.items()
    ]
    row_of, budgets = {row.name: row for row in table}, list(test["auto"])
    best = {
        budget: max(validation, key=lambda name: float(np.nanmean(validation[name][budget].shares)))
        for budget in budgets
    }
    single = {budget: np.stack([row_of[name].right[budget] for name in validation]) for budget in budgets}
    table.append(
        Row(
            BEST,
            {budget: row_of[name].right[budget] for budget, name in best.items()},
            {b: row_of[n].tokens[b] for b, n in best.items()},
            best,
        )
    )
    table.append(Row(RANDOM, {budget: each.mean(axis=0) for budget, each in single.items()}, {}, {}))
    table.append(Row(HINDSIGHT, {budget: each.max(axis=0) for budget, each in single.items()}, {}, {}))
    return table


def page(table_rows: Sequence[Row], budgets: Sequence[int], chosen_on: int, command: str) -> Iterator[str]:
    """Yield the lines of the page."""
    row_of = {row.name: row for row in table_rows}
    problems = len(next(iter(row_of["auto"].right.values())))
    yield from (
        "# `auto` on countdowns, beside the methods that it chooses from",
        "",
        stamp_line(command),
        "",
        f"{problems} countdowns of {plans.NUMBERS} numbers. Budgets are hard limits on all tokens of a problem. The "
        f"best single method of each was chosen on {chosen_on} countdowns of the validation split. *Random choice* is "
        "the mean of the single methods. *Hindsight* takes for each problem the method that was right most often, "
        "which no choice can expect to reach.",
        "",
        "| method | budget | accuracy | tokens | `auto` minus it |",
        "| :-- | --: | :-- | --: | :-- |",
    )
    for row, budget in ((row, budget) for row in table_rows for budget in budgets):
        name = f"{row.name}: {row.chosen[budget]}" if row.chosen else row.name
        gap = "–" if row.name == "auto" else _difference(row_of["auto"].right[budget], row.right[budget])
        spent = f"{row.tokens[budget]:.0f}" if row.tokens else "–"
        yield f"| {name} | {budget} | {_accuracy(row.right[budget])} | {spent} | {gap} |"
    wide = [f"{_difference(row_of[WIDE].right[b], row_of[NARROW].right[b])} at {b} tokens" for b in budgets]
    yield from (
        "",
        "REBASE without `n` keeps as many paths as the budget pays, and has, minus REBASE with n = 8, "
        f"{', '.join(wide)}.",
    )
    gained = {budget: _mean(row_of["auto"].right[budget] - row_of[BEST].right[budget], (-1, 1)) for budget in budgets}
    near = [budget for budget, gain in gained.items() if gain.value >= -_WITHIN]
    sure = [budget for budget, gain in gained.items() if gain.low >= -_WITHIN]
    least = f"`auto` is at most {100 * _WITHIN:g} points below the best single method"
    yield from (
        "",
        f"{least} at {_list(near)} tokens in the mean, and at {_list(sure)} tokens by its whole interval.",
        "",
    )


def _list(budgets: Sequence[int]) -> str:
    return ", ".join(map(str, budgets)) or "no"


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
        "--choose",
        type=int,
        default=100,
        help="problems of the validation split, by which the best single method is chosen",
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pilots", action="store_true", help="measure auto with four pilots too")
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS), help="tokens of a problem")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    store, budgets = options.store or default_store(), sorted(options.budgets)
    validation = measure(store, studies.VALIDATION, SINGLE, options.choose, 1, budgets, options.jobs)
    every = {**SINGLE, **AUTO, **(PILOTS if options.pilots else {})}
    test = measure(store, studies.TEST, every, options.problems, options.seeds, budgets, options.jobs)
    command = (
        f"python -m research.allocation.countdown --problems {options.problems} --choose {options.choose} --seeds "
        f"{options.seeds} --budgets {' '.join(map(str, budgets))}{' --pilots' if options.pilots else ''}"
    )
    text = "\n".join(page(rows(test, validation), budgets, options.choose, command))
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
