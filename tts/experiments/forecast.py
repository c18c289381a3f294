"""What a study would cost, before anything is spent: from earlier results where there are any, else from budgets and typical lengths."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tts.budget import USD_UNIT
from tts.experiments.grid import Scoring, Setting, Settings
from tts.experiments.record import Cell, Result
from tts.run import Run
from tts.search.base import ScoresAll
from tts.verifiers.base import Composed, Verifier
from tts.verifiers.fitting import token_rates

# What an expectation rests on: earlier results of the same row, the limit itself, samples of typical length, or nothing.
Basis = Literal["measured", "limit", "typical", "unknown"]
_FEWEST: Final = 3  # results that count as measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the cells of one row of the final table are expected to cost; sums over those that are yet to be run, None: unknown.

    Args:
        dataset, model, strategy, budget: of the row. cells: asked for. done: of these, with a result already, or in a row above by other
            names.
        tokens: generated and verified. whole: whether they have what verifiers read; else that comes on top, and nobody knows how much.
        at_most: the most that the budget lets them be. basis: what `tokens` rests on.
        usd: dollars. seconds: with as many cells at once as the study runs.
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
    one = _measured(known) if measured and known is not None else _by_budget(cell.budget, setting, setting.scoring[cell.strategy])
    like = known if measured else earlier.settings.get(cell.setting)
    seconds, usd = None, one.usd
    if one.tokens is not None and one.whole and like is not None and like.tokens:
        seconds = one.tokens * like.seconds / like.tokens / min(slots, max(1, left))
        usd = None if like.usd is None else one.tokens * like.usd / like.tokens
    if seconds is None and "seconds" in cell.budget:
        seconds = cell.budget["seconds"] / min(slots, max(1, left))
    usd = cell.budget.get("usd") if usd is None else usd
    return Expected(
        dataset=cell.dataset, model=cell.model, strategy=cell.strategy, budget=cell.budget, cells=count, done=done, basis=one.basis,
        tokens=_times(left, one.tokens), whole=one.whole or not left, at_most=_times(left, _at_most(cell.budget)), usd=_times(left, usd),
        seconds=_times(left, seconds),
    )  # fmt: skip


class _One(NamedTuple):
    """What one cell is expected to cost; the fields as of `Expected`."""

    tokens: float | None
    basis: Basis
    usd: float | None = None
    whole: bool = True


def _measured(known: _Sums) -> _One:
    return _One(known.tokens / known.count, "measured")


def _by_budget(budget: Mapping[str, float], setting: Setting, scoring: Scoring | None) -> _One:
    """Return what one cell may come to where nothing like it has been run."""
    limit, typical = budget.get("tokens", math.inf), budget.get("samples", math.inf) * setting.typical_tokens
    written = min(budget.get("generated_tokens", math.inf), typical)
    price = setting.usd_per_token
    if limit <= written:
        return _One(None, "unknown") if limit == math.inf else _One(limit, "limit", None if price is None else limit * price)
    basis: Basis = "typical" if written == typical else "limit"
    if scoring is None:
        return _One(written, basis, whole=False)
    scored = min(written / setting.typical_tokens, budget.get("verifier_calls", math.inf))
    tokens = written + min(scored * scoring.tokens, budget.get("verifier_tokens", math.inf))
    usd = None if price is None or scoring.usd is None else written * price + scored * scoring.usd
    return _One(limit, "limit", usd) if limit <= tokens else _One(tokens, basis, usd)


def _at_most(budget: Mapping[str, float]) -> float | None:
    most = min(budget.get("tokens", math.inf), budget.get("generated_tokens", math.inf) + budget.get("verifier_tokens", math.inf))
    return None if most == math.inf else most


def scoring_of(run: Run) -> Scoring | None:
    """Return what the scores of a sample of typical length cost in a run; None: nobody knows beforehand.

    It is known of verifiers whose bound is no more than what was written: they read each token once, or none. A bound that is more has
    room for what may not be needed, such as a judge's replies. A selection that asks about some candidates alone is not foreseen.
    """
    typical, selection, found = run.task.typical_tokens(), run.selection, Scoring()
    for role in run.declared:
        verifier = run.verifiers[role]
        stepwise = role in run.plan.strategy.verifiers
        tokens = _read(verifier, typical, stepwise=stepwise)
        chosen = role in selection.verifiers and not (isinstance(selection, ScoresAll) and selection.scores_all)
        if tokens is None or (tokens and chosen and not stepwise):
            return None
        price = token_rates(verifier, run.backends[verifier.model]).usd_in if tokens else 0
        usd = None if price is None or found.usd is None else found.usd + tokens * price / USD_UNIT
        found = Scoring(found.tokens + tokens, usd)
    return found


def _read(verifier: Verifier, written: int, *, stepwise: bool) -> int | None:
    """Return the tokens that a verifier reads of so many that were written, step by step or once; None: nobody knows beforehand."""
    if isinstance(verifier, Composed):
        parts = [_read(member, written, stepwise=stepwise) for member in verifier.members]
        return None if None in parts else sum(part for part in parts if part is not None)
    tokens = verifier.bound(0, written)
    grows = verifier.bound(0, 2 * written) == 2 * tokens  # by what is written, so that it is no matter in how many steps
    return tokens if tokens <= written and (grows or not stepwise) else None


def _times(count: int, each: float | None) -> float | None:
    return 0.0 if not count else None if each is None else count * each


def total(parts: Iterable[float | None]) -> float | None:
    """Return a sum; None where a part of it is unknown."""
    values = list(parts)
    return None if None in values else sum(value for value in values if value is not None)
