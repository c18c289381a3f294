"""Two strategies of a study on the same problems, under each budget that both have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tts.errors import ConfigError
from tts.experiments.analysis.names import strategy_of
from tts.experiments.study.record import Cell, Result
from tts.statistics import Difference, Estimate, holm, paired_difference

_Condition = tuple[object, ...]
_Runs = dict[str, dict[int, bool]]  # whether a run was right, by problem and seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRow:
    """A first strategy beside a second one, on the problems that both finished under one budget.

    Args:
        dataset: The data set.
        model: The model.
        verifiers: The verifiers by role.
        budget: The limits by unit.
        first: The first strategy.
        second: The second strategy.
        problems: The number of problems that both finished with a common seed.
        first_accuracy: The mean over problems of the share of right answers of the first strategy.
        second_accuracy: The same of the second strategy.
        difference: The first accuracy less the second, with its interval. Problems are the clusters: seeds of one are
            averaged first.
        p: The p-value of the sign-flip test of the difference.
        p_holm: This p-value, adjusted for the number of rows by Holm's method.
        first_better: The number of problems on which the first strategy is better.
        second_better: The number of problems on which the second one is.
        mcnemar: The p-value of McNemar's exact test of these two numbers.
    """

    dataset: str
    model: str
    verifiers: Mapping[str, str]
    budget: Mapping[str, float]
    first: str
    second: str
    problems: int
    first_accuracy: float
    second_accuracy: float
    difference: Estimate
    p: float
    p_holm: float
    first_better: int
    second_better: int
    mcnemar: float


def compare_pairs(results: Iterable[Result], first: str, second: str, *, rng: np.random.Generator) -> list[PairedRow]:
    """Return two strategies beside each other, a row for each data set, model and budget that both have.

    Random: resamples of the intervals, and signs of the tests, as in `tts.statistics.paired_difference`.

    Args:
        results: The results of a study. Failed runs, and those without a reference answer, are left out.
        first: A strategy, as the study or its table writes it; without its selection where the study has one such
            strategy.
        second: Another one.
        rng: The source of the resamples.

    Raises:
        ConfigError: A strategy is unknown, both are the same, or no problem was finished by both under one budget.
    """
    given = list(results)
    strategies = {result.cell.strategy for result in given}
    first, second = (strategy_of(name, strategies) for name in (first, second))
    if first == second:
        raise ConfigError(
            f"both strategies are {first!r}, but a comparison needs two", hint="name another one of the study's table"
        )
    runs: dict[_Condition, dict[str, _Runs]] = defaultdict(dict)
    cells: dict[_Condition, Cell] = {}
    for result in given:
        cell = result.cell
        if result.error is None and result.right is not None and cell.strategy in (first, second):
            condition = (
                cell.dataset,
                cell.model,
                cell.setting,
                *sorted(cell.verifiers.items()),
                *sorted(cell.budget.items()),
            )
            cells.setdefault(condition, cell)
            runs[condition].setdefault(cell.strategy, {}).setdefault(cell.problem, {})[cell.seed] = result.right
    found = [
        (cells[condition], *pairs, paired_difference(*pairs, rng=rng))
        for condition, of in runs.items()
        if len((pairs := _pairs(of.get(first, {}), of.get(second, {})))[0])
    ]
    if not found:
        raise ConfigError(
            f"{first!r} and {second!r} have no problem in common that both finished under one budget and whose answer "
            "is known",
            hint="finish the study with tts run, or give its problems reference answers",
        )
    adjusted = holm([difference.p for *_, difference in found])
    return [_row(first, second, *one, p_holm=float(p)) for one, p in zip(found, adjusted, strict=True)]


def _pairs(first: _Runs, second: _Runs) -> tuple[list[float], list[float]]:
    """Return for each problem the shares of right answers of both, over the seeds that both have."""
    pairs = list[tuple[float, float]]()
    for problem in first:
        mine, theirs = first[problem], second.get(problem, {})
        if seeds := mine.keys() & theirs.keys():
            pairs.append(
                (sum(mine[seed] for seed in seeds) / len(seeds), sum(theirs[seed] for seed in seeds) / len(seeds))
            )
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]


def _row(
    first: str,
    second: str,
    cell: Cell,
    mine: list[float],
    theirs: list[float],
    difference: Difference,
    *,
    p_holm: float,
) -> PairedRow:
    return PairedRow(
        dataset=cell.dataset,
        model=cell.model,
        verifiers=cell.verifiers,
        budget=cell.budget,
        first=first,
        second=second,
        problems=len(mine),
        first_accuracy=float(np.mean(mine)),
        second_accuracy=float(np.mean(theirs)),
        difference=difference.mean,
        p=difference.p,
        p_holm=p_holm,
        first_better=difference.first_better,
        second_better=difference.second_better,
        mcnemar=difference.mcnemar,
    )
