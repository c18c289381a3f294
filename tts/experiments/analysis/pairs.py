"""Compares two strategies of a study on the same problems, under each budget that both have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tts.errors import ConfigError
from tts.experiments.analysis.names import condition_of, strategy_of
from tts.experiments.study.record import Cell, Result
from tts.statistics import Difference, Estimate, holm, paired_difference

if TYPE_CHECKING:
    from tts.experiments.analysis.replay import ReplayedCurve

_Condition = tuple[object, ...]
_Runs = dict[str, dict[int, tuple[bool, int]]]  # whether a run of one strategy was right, and its tokens


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
        first_accuracy: The mean over problems of the first strategy's share of right answers.
        second_accuracy: The mean over problems of the second strategy's share of right answers.
        cost_ratio: The mean tokens of the first strategy, verifiers included, divided by those of the second; None: the
            second spent none.
        difference: The first accuracy less the second, with its interval. Problems are the clusters: the seeds of a
            problem are averaged first.
        p: The p-value of the difference, of the resamples of its interval.
        p_holm: The p-value adjusted for the number of rows by Holm's method.
        first_better: The number of problems on which the first strategy is better.
        second_better: The number of problems on which the second strategy is better.
        mcnemar: The p-value of McNemar's exact test of `first_better` and `second_better`.
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
    cost_ratio: float | None
    difference: Estimate
    p: float
    p_holm: float
    first_better: int
    second_better: int
    mcnemar: float


def compare_pairs(results: Iterable[Result], first: str, second: str, *, rng: np.random.Generator) -> list[PairedRow]:
    """Return the comparison of two strategies, with a row for each condition, in the table's order.

    A condition is a data set, model, setting, set of verifiers and budget.

    Random: resamples of the intervals, and signs of the tests, as in `tts.statistics.paired_difference`.

    Args:
        results: The results of a study. Failed runs, and runs without a reference answer, are left out.
        first: A strategy, as the study or its table writes it. The selection may be omitted where only one strategy
            fits.
        second: Another strategy.
        rng: The source of the resamples.

    Raises:
        ConfigError: A strategy is unknown, both are the same, or no problem was finished by both under one budget.
    """
    result_list = list(results)
    strategies = {result.cell.strategy for result in result_list}
    first, second = (strategy_of(name, strategies) for name in (first, second))
    if first == second:
        raise ConfigError(
            f"both strategies are {first!r}, but a comparison needs two", hint="name another one of the study's table"
        )
    runs: dict[_Condition, dict[str, _Runs]] = defaultdict(dict)  # by condition and strategy
    cells: dict[_Condition, Cell] = {}  # by condition, the cell of its first run
    for result in result_list:
        cell = result.cell
        if cell.strategy not in (first, second):
            continue
        condition = (*condition_of(cell), *sorted(cell.budget.items()))
        cells.setdefault(condition, cell)
        if result.error is None and result.right is not None:
            by_seed = runs[condition].setdefault(cell.strategy, {}).setdefault(cell.problem, {})
            by_seed[cell.seed] = result.right, result.usage.tokens
    compared: list[tuple[Cell, _Shares, Difference]] = []
    # as in the table: a budget that was added later is not the last row
    lines = {condition: (*condition_of(cell), *sorted(cell.budget)) for condition, cell in cells.items()}
    rank = {line: i for i, line in enumerate(dict.fromkeys(lines.values()))}
    for condition in sorted(
        cells, key=lambda one: (rank[lines[one]], [limit for _, limit in sorted(cells[one].budget.items())])
    ):
        runs_by_strategy = runs[condition]
        shares = _shares(runs_by_strategy.get(first, {}), runs_by_strategy.get(second, {}))
        if shares.first:
            difference = paired_difference(shares.first, shares.second, rng=rng)
            compared.append((cells[condition], shares, difference))
    if not compared:
        raise ConfigError(
            f"{first!r} and {second!r} have no problem in common that both finished under one budget and whose answer "
            "is known",
            hint="finish the study with tts run, or give its problems reference answers",
        )
    return _rows(first, second, compared)


def compare_replays(
    first: Sequence[ReplayedCurve], second: Sequence[ReplayedCurve], *, rng: np.random.Generator
) -> list[PairedRow]:
    """Return the comparison of two replayed strategies, with a row for each curve and size.

    Args:
        first: The curves of a strategy.
        second: The curves of another strategy on the same samples, in the same order.
        rng: The source of the resamples.

    Raises:
        ConfigError: Both strategies are the same.
    """
    names = first[0].curve.strategy, second[0].curve.strategy
    if names[0] == names[1]:
        raise ConfigError(f"both strategies are {names[0]!r}, but a comparison needs two", hint="name another one")
    compared: list[tuple[Cell, _Shares, Difference]] = []
    for one, other in zip(first, second, strict=True):
        tokens = zip(one.curve.cost("tokens").tolist(), other.curve.cost("tokens").tolist(), strict=True)
        for size, one_shares, other_shares in zip(one.sizes, one.curve.shares, other.curve.shares, strict=True):
            is_known = ~np.isnan(one_shares + other_shares)
            shares = _Shares(one_shares[is_known].tolist(), other_shares[is_known].tolist(), [next(tokens)])
            curve = one.curve
            cell = Cell(
                key="", dataset=curve.dataset, problem="", model=curve.model, setting="", strategy="", seed=0,
                budget={"samples": size},
            )  # fmt: skip
            compared.append((cell, shares, paired_difference(shares.first, shares.second, rng=rng)))
    return _rows(*names, compared)


def _rows(first: str, second: str, compared: Sequence[tuple[Cell, _Shares, Difference]]) -> list[PairedRow]:
    """Return the row of two strategies under each condition.

    Args:
        first: The first strategy.
        second: The second strategy.
        compared: One cell of each condition, the shares of right answers, and their difference.
    """
    p_values = [difference.resampled_p for _, _, difference in compared]
    return [
        PairedRow(
            dataset=cell.dataset,
            model=cell.model,
            verifiers=cell.verifiers,
            budget=cell.budget,
            first=first,
            second=second,
            problems=len(shares.first),
            first_accuracy=float(np.mean(shares.first)),
            second_accuracy=float(np.mean(shares.second)),
            cost_ratio=shares.cost_ratio(),
            difference=difference.mean,
            p=difference.resampled_p,
            p_holm=float(p_holm),
            first_better=difference.first_better,
            second_better=difference.second_better,
            mcnemar=difference.mcnemar,
        )
        for (cell, shares, difference), p_holm in zip(compared, holm(p_values), strict=True)
    ]


class _Shares(NamedTuple):
    """Both strategies' shares of right answers, one value for each common problem, and their mean tokens."""

    first: list[float]
    second: list[float]
    tokens: list[tuple[float, float]]

    def cost_ratio(self) -> float | None:
        """Return the mean tokens of the first strategy divided by those of the second; None: it has none."""
        first, second = np.mean(self.tokens, axis=0).tolist()
        return first / second if second else None


def _shares(first: _Runs, second: _Runs) -> _Shares:
    """Return both strategies' shares of right answers on each common problem, over their common seeds."""
    shares = _Shares([], [], [])
    for problem, first_runs in first.items():
        second_runs = second.get(problem, {})
        seeds = first_runs.keys() & second_runs.keys()
        if seeds:
            means = [np.mean([runs[seed] for seed in seeds], axis=0).tolist() for runs in (first_runs, second_runs)]
            shares.first.append(means[0][0])
            shares.second.append(means[1][0])
            shares.tokens.append((means[0][1], means[1][1]))
    return shares
