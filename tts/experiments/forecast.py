"""What a study would cost, before anything is spent: from earlier results where there are any, else from budgets and typical lengths."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tts.experiments.grid import Setting, Settings
from tts.experiments.record import Cell, Result

# What an expectation rests on: earlier results of the same row, the limit itself, samples of typical length, or nothing.
Basis = Literal["measured", "limit", "typical", "unknown"]
_FEWEST: Final = 3  # results that count as measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the cells of one row of the final table are expected to cost; sums over those that are yet to be run, None: unknown.

    Args:
        dataset, model, strategy, budget: of the row. cells: asked for. done: of these, with a result already, or in a row above by other
            names.
        tokens: generated and verified. at_most: the most that the budget lets them be. basis: what `tokens` rests on.
        usd: dollars. seconds: with as many cells at once as the study runs.
    """

    dataset: str
    model: str
    strategy: str
    budget: Mapping[str, float]
    cells: int
    done: int
    tokens: float | None
    at_most: float | None
    basis: Basis
    usd: float | None
    seconds: float | None


@dataclass(slots=True)
class _Sums:
    """Sums over earlier results."""

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0
    usd: float | None = 0.0

    def add(self, result: Result) -> None:
        usage = result.usage
        self.count += 1
        self.tokens += usage.tokens
        self.seconds += usage.seconds
        self.usd = None if self.usd is None or usage.usd is None else self.usd + usage.usd


@dataclass(slots=True)
class Earlier:
    """What a store already knows. keys: of finished cells."""

    keys: set[str] = field(default_factory=set[str])
    rows: dict[tuple[object, ...], _Sums] = field(default_factory=lambda: defaultdict(_Sums))
    settings: dict[str, _Sums] = field(default_factory=lambda: defaultdict(_Sums))

    def add(self, results: Iterable[Result]) -> None:
        """Count results; those that failed say nothing of what a cell costs."""
        for result in results:
            if result.cell.key in self.keys:
                continue
            self.keys.add(result.cell.key)
            if result.error is None:
                self.rows[_row(result.cell)].add(result)
                self.settings[result.cell.setting].add(result)


def forecast(cells: Iterable[Cell], settings: Settings, earlier: Earlier, *, slots: int) -> list[Expected]:
    """Return what each row of the final table is expected to cost.

    Args:
        cells: of the study. settings: of it. earlier: what is there already. slots: how many cells are run at once.
    """
    counted: Counter[tuple[object, ...]] = Counter()
    finished: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], Cell] = {}
    asked: set[str] = set()
    for cell in cells:
        row = _row(cell)
        counted[row] += 1
        finished[row] += cell.key in earlier.keys or cell.key in asked
        asked.add(cell.key)
        first.setdefault(row, cell)
    by_digest = {(name, setting.digest): setting for (name, _), setting in settings.items()}
    return [
        _expected(cell, counted[row], finished[row], by_digest[cell.model, cell.setting], earlier, slots) for row, cell in first.items()
    ]


def _row(cell: Cell) -> tuple[object, ...]:
    return (cell.dataset, cell.model, cell.setting, cell.strategy, tuple(sorted(cell.budget.items())))


def _expected(cell: Cell, count: int, done: int, setting: Setting, earlier: Earlier, slots: int) -> Expected:
    left, known = count - done, earlier.rows.get(_row(cell))
    measured = known is not None and known.count >= _FEWEST
    tokens, basis = (known.tokens / known.count, "measured") if measured and known is not None else _by_budget(cell.budget, setting)
    like = known if measured else earlier.settings.get(cell.setting)
    seconds = usd = None
    if tokens is not None and like is not None and like.tokens:
        seconds = tokens * like.seconds / like.tokens / min(slots, max(1, left))
        usd = None if like.usd is None else tokens * like.usd / like.tokens
    elif tokens is not None and setting.usd_per_token is not None:
        usd = tokens * setting.usd_per_token
    if seconds is None and "seconds" in cell.budget:
        seconds = cell.budget["seconds"] / min(slots, max(1, left))
    usd = cell.budget.get("usd") if usd is None else usd
    return Expected(
        dataset=cell.dataset, model=cell.model, strategy=cell.strategy, budget=cell.budget, cells=count, done=done, basis=basis,
        tokens=_times(left, tokens), at_most=_times(left, cell.budget.get("tokens")), usd=_times(left, usd), seconds=_times(left, seconds),
    )  # fmt: skip


def _by_budget(budget: Mapping[str, float], setting: Setting) -> tuple[float | None, Basis]:
    """Return what one cell may come to where nothing like it has been run."""
    limit = min(budget.get("tokens", math.inf), budget.get("generated_tokens", math.inf))
    typical = budget.get("samples", math.inf) * setting.typical_tokens
    if min(limit, typical) == math.inf:
        return None, "unknown"
    return (limit, "limit") if limit <= typical else (typical, "typical")


def _times(count: int, each: float | None) -> float | None:
    return 0.0 if not count else None if each is None else count * each


def total(parts: Iterable[float | None]) -> float | None:
    """Return a sum; None where a part of it is unknown."""
    values = list(parts)
    return None if None in values else sum(value for value in values if value is not None)
