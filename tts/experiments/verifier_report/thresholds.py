"""Chooses thresholds for selective answering from calibration problems: the least confidence that keeps a given risk, for each setting."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.experiments.analysis.curves import verifiers_in_words
from tts.experiments.output.tables import text_of
from tts.experiments.output.words import in_percent
from tts.experiments.study.record import Result
from tts.scopes import file_scope
from tts.search.algorithms.calibration import Threshold, choose_threshold
from tts.search.parts import SELECTIONS, Plan, Selection
from tts.search.plan import parse
from tts.search.selections.selective import Selective
from tts.trace.trace import plain_values


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerThreshold:
    """The threshold of one setting of a study.

    Args:
        dataset, model, verifier, strategy, budget: of its cells. problems: those with a result, each by its first seed.
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


def answer_thresholds(results: Iterable[Result], *, risk: float, delta: float = 0.05) -> list[AnswerThreshold]:
    """Return the thresholds of a study's settings. A problem counts once, by its first seed: its seeds are not independent.

    Args:
        results: of calibration problems, which are not to be reported on. risk, delta: as in `choose_threshold`.

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


def _chosen(results: Sequence[Result], budget: str, risk: float, delta: float) -> AnswerThreshold:
    confidences = [result.confidence if result.answer is not None else math.nan for result in results]
    right = [bool(result.right) for result in results]
    threshold, cell = choose_threshold(confidences, right, risk, delta), results[0].cell
    return AnswerThreshold(
        dataset=cell.dataset,
        model=cell.model,
        verifier=verifiers_in_words(cell),
        strategy=cell.strategy,
        budget=budget,
        problems=len(results),
        accuracy=sum(right) / len(right),
        threshold=threshold,
        plan="" if math.isinf(threshold.value) else _with(parse(cell.strategy, file_scope()), threshold.value),
    )


def _with(plan: Plan, threshold: float) -> str:
    """Return a plan that answers only from a threshold on; "" where `selective` cannot use its selection."""
    chooses = plan.selection
    if chooses is None or chooses.registered_as not in SELECTIONS or isinstance(chooses, Selective):
        return ""
    shared = {f.name for f in dataclasses.fields(Selective)} & _settings(chooses).keys()
    selective = Selective(threshold=threshold, by=chooses.registered_as, **{name: _settings(chooses)[name] for name in shared})
    return str(dataclasses.replace(plan, selection=selective)) if selective.inner == chooses else ""


def _settings(selection: Selection) -> dict[str, str]:
    return dataclasses.asdict(selection) if dataclasses.is_dataclass(selection) else {}


def as_json(found: Sequence[AnswerThreshold]) -> str:
    """Return thresholds as a JSON list. Values that do not exist are null."""
    rows = [plain_values(each) | {"threshold": plain_values(each.threshold._asdict())} for each in found]
    return json.dumps(rows, indent=2, allow_nan=False)


def as_text(found: Sequence[AnswerThreshold], risk: float) -> str:
    """Return thresholds as a table."""
    of = [each.threshold for each in found]
    return text_of(
        {
            "data set": [each.dataset for each in found],
            "model": [each.model for each in found],
            "verifier": [each.verifier for each in found],
            "strategy": [each.strategy for each in found],
            "budget": [each.budget for each in found],
            "problems": [f"{each.problems:,}" for each in found],
            "right if all are answered": [in_percent(each.accuracy) for each in found],
            f"answers for a risk of {risk:g}": [in_percent(each.coverage) for each in of],
            "wrong of those": ["–" if math.isnan(each.risk) else in_percent(each.risk) for each in of],
            "at most": ["–" if math.isnan(each.bound) else in_percent(each.bound) for each in of],
            "write": [each.plan or "none keeps it" * math.isinf(each.threshold.value) for each in found],
        }
    )
