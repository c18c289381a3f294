"""Forecasts a study's cost before a run: from earlier results of the same rows, else from budgets."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tts.budget.units import USD_UNIT
from tts.experiments.study.grid import ScoringCost, Setting, Settings
from tts.experiments.study.record import Cell, Result
from tts.solver.setup import ProblemRun
from tts.verifiers.base import Verifier, members_of

# The source of a forecast: earlier results of the same row (all cells with the same strategy, model, data set and
# budget), the limit itself, samples of typical length, or none.
Basis = Literal["measured", "limit", "typical", "unknown"]
RowKey = tuple[object, ...]
_FEWEST: Final = 3  # results that count as measured


@dataclass(frozen=True, slots=True, kw_only=True)
class RowForecast:
    """The expected cost of one row of the final table.

    Sums are over cells without a result; None: unknown.

    Args:
        dataset: The data set of the row.
        model: The model of the row.
        strategy: The strategy of the row.
        budget: The budget of the row.
        cells: The number of cells of the row.
        done: The number of these cells that have a result, or are in an earlier row under another name.
        tokens: The tokens that are generated and verified.
        whole: Whether verifier tokens are included; else they are unknown and come on top.
        at_most: The upper bound by the budget.
        basis: The source of `tokens`.
        usd: Dollars.
        seconds: The seconds with as many cells at once as the study runs.
    """

    dataset: str
    model: str
    strategy: str
    budget: Mapping[str, float]
    cells: int
    done: int
    tokens: float | None
    whole: bool
    at_most: float | None
    basis: Basis
    usd: float | None
    seconds: float | None


@dataclass(slots=True)
class _CostSums:
    """Sums over earlier results."""

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0
    usd: float | None = 0.0

    def add(self, result: Result) -> None:
        """Add the cost of a result."""
        usage = result.usage
        self.count += 1
        self.tokens += usage.tokens
        self.seconds += usage.seconds
        self.usd = None if self.usd is None or usage.usd is None else self.usd + usage.usd


@dataclass(slots=True)
class EarlierResults:
    """Costs of the results in a store, by row and by setting, and the keys of finished cells."""

    keys: set[str] = field(default_factory=set[str])
    rows: dict[RowKey, _CostSums] = field(default_factory=lambda: defaultdict(_CostSums))
    settings: dict[str, _CostSums] = field(default_factory=lambda: defaultdict(_CostSums))

    def add(self, results: Iterable[Result]) -> None:
        """Count results. Failed results are left out of costs."""
        for result in results:
            if result.cell.key in self.keys:
                continue
            self.keys.add(result.cell.key)
            if result.error is None:
                self.rows[row_key(result.cell)].add(result)
                self.settings[result.cell.setting].add(result)


def forecast(cells: Iterable[Cell], settings: Settings, earlier: EarlierResults, *, slots: int) -> list[RowForecast]:
    """Return the forecast of each row of the final table.

    Args:
        cells: The cells of the study.
        settings: The settings of the study.
        earlier: The costs of stored results.
        slots: The number of cells that run at once.
    """
    cell_counts: Counter[RowKey] = Counter()
    finished_counts: Counter[RowKey] = Counter()
    first_cells: dict[RowKey, Cell] = {}
    seen_keys: set[str] = set()
    for cell in cells:
        row = row_key(cell)
        cell_counts[row] += 1
        finished_counts[row] += cell.key in earlier.keys or cell.key in seen_keys
        seen_keys.add(cell.key)
        first_cells.setdefault(row, cell)
    setting_of = {(name, setting.digest): setting for (name, _), setting in settings.items()}
    return [
        _forecast_row(
            cell,
            count=cell_counts[row],
            done=finished_counts[row],
            setting=setting_of[cell.model, cell.setting],
            earlier=earlier,
            slots=slots,
        )
        for row, cell in first_cells.items()
    ]


def row_key(cell: Cell) -> RowKey:
    """Return the key of a cell's row in the final table."""
    return (cell.dataset, cell.model, cell.setting, cell.strategy, tuple(sorted(cell.budget.items())))


def _forecast_row(
    cell: Cell, *, count: int, done: int, setting: Setting, earlier: EarlierResults, slots: int
) -> RowForecast:
    """Return the forecast of one row.

    Args:
        cell: A cell of the row.
        count: The number of cells of the row.
        done: The number of these cells with a result.
        setting: The setting of the row.
        earlier: The costs of stored results.
        slots: The number of cells that run at once.
    """
    unfinished = count - done
    concurrent_cells = min(slots, max(1, unfinished))
    row_results = earlier.rows.get(row_key(cell))
    if row_results is not None and row_results.count >= _FEWEST:
        cost = _CellCost(row_results.tokens / row_results.count, "measured")
        similar_results = row_results
    else:
        cost = _forecast_budget(cell.budget, setting, setting.scoring[cell.strategy])
        similar_results = earlier.settings.get(cell.setting)
    seconds, usd = None, cost.usd
    if cost.tokens is not None and cost.whole and similar_results is not None and similar_results.tokens:
        # seconds and dollars in proportion to tokens
        seconds = cost.tokens * similar_results.seconds / similar_results.tokens / concurrent_cells
        usd = None if similar_results.usd is None else cost.tokens * similar_results.usd / similar_results.tokens
    if seconds is None and "seconds" in cell.budget:
        seconds = cell.budget["seconds"] / concurrent_cells
    if usd is None:
        usd = cell.budget.get("usd")
    return RowForecast(
        dataset=cell.dataset,
        model=cell.model,
        strategy=cell.strategy,
        budget=cell.budget,
        cells=count,
        done=done,
        basis=cost.basis,
        tokens=_times(unfinished, cost.tokens),
        whole=cost.whole or not unfinished,
        at_most=_times(unfinished, _most_tokens(cell.budget, setting)),
        usd=_times(unfinished, usd),
        seconds=_times(unfinished, seconds),
    )


class _CellCost(NamedTuple):
    """The expected cost of one cell; fields as in `RowForecast`."""

    tokens: float | None
    basis: Basis
    usd: float | None = None
    whole: bool = True


def _forecast_budget(budget: Mapping[str, float], setting: Setting, scoring: ScoringCost | None) -> _CellCost:
    """Return the expected cost of a cell without earlier results like it.

    Args:
        budget: The limits of the cell by unit.
        setting: The setting of the cell.
        scoring: The cost of scoring a sample of typical length; None: unknown.
    """
    length = typical_length(setting)
    limit = budget.get("tokens", math.inf)
    typical = budget.get("samples", math.inf) * length
    generated = min(budget.get("generated_tokens", math.inf), typical)
    price = setting.usd_per_token
    if limit <= generated:
        if limit == math.inf:
            return _CellCost(None, "unknown")
        return _CellCost(limit, "limit", usd=None if price is None else limit * price)
    basis: Basis = "typical" if generated == typical else "limit"
    if scoring is None:
        return _CellCost(generated, basis, whole=False)
    scored_samples = min(generated / length, budget.get("verifier_calls", math.inf))
    tokens = generated + min(scored_samples * scoring.tokens, budget.get("verifier_tokens", math.inf))
    usd = None if price is None or scoring.usd is None else generated * price + scored_samples * scoring.usd
    if limit <= tokens:
        return _CellCost(limit, "limit", usd=usd)
    return _CellCost(tokens, basis, usd=usd)


def typical_length(setting: Setting) -> int:
    """Return the expected tokens of a sample, which are at most `max_tokens` of the sampling."""
    largest = setting.sampling.get("max_tokens")
    return setting.typical_tokens if largest is None else min(setting.typical_tokens, largest)


def cost_by_budget(budget: Mapping[str, float], setting: Setting, scoring: ScoringCost | None) -> dict[str, float]:
    """Return the expected tokens and dollars of a cell by unit, without units of unknown cost.

    The costs follow from the cell's budget, not from results.
    """
    cost = _forecast_budget(budget, setting, scoring)
    costs: dict[str, float] = {}
    if cost.tokens is not None:
        costs["tokens"] = cost.tokens
    if cost.usd is not None:
        costs["usd"] = cost.usd
    return costs


def _most_tokens(budget: Mapping[str, float], setting: Setting) -> float | None:
    """Return the most tokens of a cell, by its limits and by `max_tokens` of its samples."""
    longest_sample = setting.sampling.get("max_tokens") or math.inf
    of_samples = budget.get("samples", math.inf) * longest_sample
    generated = min(budget.get("generated_tokens", math.inf), of_samples)
    verified = budget.get("verifier_tokens", math.inf) if setting.verifiers else 0
    most_tokens = min(budget.get("tokens", math.inf), generated + verified)
    return None if most_tokens == math.inf else most_tokens


def scoring_of(run: ProblemRun) -> ScoringCost | None:
    """Return the cost of scoring a sample of typical length in a run; None: unknown before a run.

    The cost is known for verifiers whose bound is at most the number of generated tokens. Such verifiers read each
    token at most once. A larger bound includes reserves that may stay unused, such as a judge's replies. The cost of a
    selection that scores only some candidates is unknown.
    """
    setup = run.setup
    length = run.expected_tokens or setup.task.typical_tokens()
    if setup.sampling.max_tokens is not None:
        length = min(length, setup.sampling.max_tokens)
    total_cost = ScoringCost()
    for role in setup.declared:
        verifier = setup.verifiers[role]
        scores_steps = role in setup.needs.verifiers
        tokens = _read_tokens(verifier, length, stepwise=scores_steps)
        scores_some_candidates = role in setup.selection_needs.verifiers and not setup.selection_needs.scores_all
        if tokens is None or (tokens and scores_some_candidates and not scores_steps):
            return None
        price = setup.token_rates[role].usd_in if tokens else 0
        usd = None if price is None or total_cost.usd is None else total_cost.usd + tokens * price / USD_UNIT
        total_cost = ScoringCost(total_cost.tokens + tokens, usd)
    return total_cost


def _read_tokens(verifier: Verifier, written: int, *, stepwise: bool) -> int | None:
    """Return the number of tokens that a verifier reads to score a text; None: unknown before a run.

    Args:
        verifier: The verifier. If it has members, each of its members reads the text.
        written: The number of tokens of the text.
        stepwise: Whether the verifier scores each step.
    """
    members = members_of(verifier)
    if members:
        member_tokens = [_read_tokens(member, written, stepwise=stepwise) for member in members]
        known_tokens = [tokens for tokens in member_tokens if tokens is not None]
        return sum(known_tokens) if len(known_tokens) == len(member_tokens) else None
    most_tokens = verifier.bound(0, written)
    if most_tokens > written:  # the bound includes reserves that may stay unused
        return None
    # the bounds of the steps sum to the bound of the text only if the bound is linear in the written tokens
    is_linear = verifier.bound(0, 2 * written) == 2 * most_tokens
    if stepwise and not is_linear:
        return None
    return most_tokens


def _times(count: int, cost: float | None) -> float | None:
    """Return the cost of a number of cells, of which each has the given cost; None: unknown."""
    if count == 0:
        return 0.0
    return None if cost is None else count * cost


def total(parts: Iterable[float | None]) -> float | None:
    """Return a sum; None where a part of it is None."""
    values = list(parts)
    return None if None in values else sum(value for value in values if value is not None)
