"""From a study on calibration problems to selective answering: the least confidence that keeps a wanted risk, for each of its settings."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tts.budget import Budget
from tts.errors import ConfigError
from tts.experiments.gathering import verifiers_in_words
from tts.experiments.record import Result
from tts.experiments.rows import plain
from tts.experiments.table import text_of
from tts.search.base import Plan, Selection
from tts.search.calibration import Threshold, choose_threshold
from tts.search.registry import SELECTIONS, parse
from tts.search.selective import Selective


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What is chosen for one setting of a study.

    Args:
        dataset, model, verifier, strategy, budget: of its cells. problems: those that have a result, each by its first seed.
        accuracy: share of them that is right. threshold: that keeps the risk. plan: the strategy with it; "" where none does.
    """

    dataset: str
    model: str
    verifier: str
    strategy: str
    budget: str
    problems: int
    accuracy: float
    threshold: Threshold
    plan: str


def answering(results: Iterable[Result], *, risk: float, delta: float = 0.05) -> list[Answering]:
    """Return the thresholds of a study's settings; a problem counts once, by its first seed, for seeds of one are not independent.

    Args:
        results: of problems that nothing is reported on. risk, delta: as in `choose_threshold`.

    Raises:
        ConfigError: no result is known to be right or wrong, or a number is out of its range.
    """
    settings: dict[tuple[str, ...], dict[str, Result]] = {}
    for result in results:
        cell = result.cell
        if result.right is not None and result.error is None:
            budget = str(Budget(**dict(cell.budget)))  # pyright: ignore[reportArgumentType]
            of = settings.setdefault((cell.dataset, cell.model, cell.setting, cell.strategy, budget), {})
            if cell.problem not in of or cell.seed < of[cell.problem].cell.seed:
                of[cell.problem] = result
    if not settings:
        raise ConfigError("no result of the study is known to be right or wrong", hint="run it on problems with reference answers")
    return [_chosen(list(of.values()), budget, risk, delta) for (*_, budget), of in settings.items()]


def _chosen(results: Sequence[Result], budget: str, risk: float, delta: float) -> Answering:
    confidences = [result.confidence if result.answer is not None else math.nan for result in results]
    right = [bool(result.right) for result in results]
    threshold, cell = choose_threshold(confidences, right, risk, delta), results[0].cell
    return Answering(
        dataset=cell.dataset,
        model=cell.model,
        verifier=verifiers_in_words(cell),
        strategy=cell.strategy,
        budget=budget,
        problems=len(results),
        accuracy=sum(right) / len(right),
        threshold=threshold,
        plan="" if math.isinf(threshold.value) else _with(parse(cell.strategy), threshold.value),
    )


def _with(plan: Plan, threshold: float) -> str:
    """Return a plan that answers only from a threshold on; "" where its selection is one that `selective` cannot choose by."""
    chooses = plan.selection
    if chooses is None or chooses.registered_as not in SELECTIONS or isinstance(chooses, Selective):
        return ""
    shared = {f.name for f in dataclasses.fields(Selective)} & _settings(chooses).keys()
    selective = Selective(threshold=threshold, by=chooses.registered_as, **{name: _settings(chooses)[name] for name in shared})
    return str(dataclasses.replace(plan, selection=selective)) if selective.inner == chooses else ""


def _settings(selection: Selection) -> dict[str, str]:
    return dataclasses.asdict(selection) if dataclasses.is_dataclass(selection) else {}


def as_json(found: Sequence[Answering]) -> str:
    """Return them as a JSON list; what does not exist is null."""
    rows = [dataclasses.asdict(each) | {"threshold": each.threshold._asdict()} for each in found]
    for row in rows:
        row["threshold"]["value"] = row["threshold"]["value"] if row["threshold"]["coverage"] else None
    return json.dumps([plain(row) for row in rows], indent=2, allow_nan=False)


def as_text(found: Sequence[Answering], risk: float) -> str:
    """Return them for people."""
    of = [each.threshold for each in found]
    return text_of(
        {
            "data set": [each.dataset for each in found],
            "model": [each.model for each in found],
            "verifier": [each.verifier for each in found],
            "strategy": [each.strategy for each in found],
            "budget": [each.budget for each in found],
            "problems": [f"{each.problems:,}" for each in found],
            "right if all are answered": [f"{100 * each.accuracy:.1f} %" for each in found],
            f"answers for a risk of {risk:g}": [f"{100 * each.coverage:.1f} %" for each in of],
            "wrong of those": ["–" if math.isnan(each.risk) else f"{100 * each.risk:.1f} %" for each in of],
            "at most": ["–" if math.isnan(each.bound) else f"{100 * each.bound:.1f} %" for each in of],
            "write": [each.plan or "none keeps it" * math.isinf(each.threshold.value) for each in found],
        }
    )
