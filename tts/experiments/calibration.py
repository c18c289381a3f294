"""Calibrated thresholds from the results of a study, or from its pools of samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tts._common.scopes import file_scope
from tts.budget.budget import format_limits
from tts.checks import check_int
from tts.errors import ConfigError, unknown_name
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.api import Study
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import load_problems
from tts.experiments.study.record import Cell, Result
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.solver.risk import CalibratedUse, text_by_role, use_of
from tts.solver.solver import Solver
from tts.solver.thresholds import ProblemOutcomes, Thresholds

T = TypeVar("T", Result, ProblemPool)
_CURE = "run it on problems with reference answers that are not reported on"


def calibrate_study(
    study: Study,
    risk: float,
    *,
    delta: float = 0.05,
    strategy: str | None = None,
    n: int | None = None,
    model: str | None = None,
    of: int = 1,
) -> Thresholds:
    """Return thresholds calibrated on the results of a study, or on pools.

    Each problem counts once, by its first seed.

    Args:
        study: The study; its problems are not to be reported on.
        risk: The share of given answers that may be wrong, above 0 and below 1.
        delta: The probability that the risk is exceeded, above 0 and below 1.
        strategy: The strategy, as the study writes it; on pools, such as "best_of_n | majority". None: the study's
            only strategy; on pools, the majority vote.
        n: The number of samples of each problem that are taken from a pool; None: results are used as they are.
        model: The model, as the study names it; None: the study's only model.
        of: The number of plans that are tried on these problems, of which this is one; delta is divided by it.

    Raises:
        ConfigError: The study has several settings and none is named, no result is known to be right or wrong, the
            problems are too few, or no threshold keeps the risk.
    """
    check_int("n", n, 1)
    if n is None and study.imported is not None:
        raise ConfigError("n is None, but imported samples are calibrated at a size", hint="for example --n 8")
    if n is None:
        outcomes = _result_outcomes(study.results(), strategy, model)
    else:
        plan = parse(strategy or "best_of_n | majority", file_scope())
        outcomes = _pool_outcomes(study.results(), plan, n, model)
    imported = study.imported
    use = _use(study.config, outcomes.cell) if imported is None else _use_of_import(imported, outcomes.cell)
    problem_outcomes = ProblemOutcomes(use=use, confidences=outcomes.confidences, right=outcomes.right)
    return Thresholds.calibrate(outcomes.names, [problem_outcomes], risk, delta, of)


class _Outcomes(NamedTuple):
    """The outcomes of the problems of one setting.

    `names` has a name for each problem. `cell` is a cell (one problem with one seed) of the setting. `confidences` has
    the confidence in each answer; NaN: there is no answer. `right` has whether each answer is right.
    """

    names: list[str]
    cell: Cell
    confidences: list[float]
    right: list[bool]


def _result_outcomes(results: Iterable[Result], strategy: str | None, model: str | None) -> _Outcomes:
    """Return the outcomes of the results of a strategy and a model, each problem by its first seed.

    Raises:
        ConfigError: No result fits, or the fitting results have several settings.
    """
    judged_results = [result for result in results if result.right is not None and result.error is None]
    first_results = _first_of_problems(judged_results, [result.cell for result in judged_results], strategy, model)
    return _Outcomes(
        names=[_name(result.cell) for result in first_results],
        cell=first_results[0].cell,
        confidences=[math.nan if result.answer is None else result.confidence for result in first_results],
        right=[bool(result.right) for result in first_results],
    )


def _pool_outcomes(results: Iterable[Result], plan: Plan, n: int, model: str | None) -> _Outcomes:
    """Return the outcomes of a plan on the first n samples of each pool.

    Raises:
        ConfigError: The plan cannot be replayed on pools, a pool is too small, or no pool fits.
    """
    if not isinstance(plan.strategy, BestOfN) or plan.stopping is not None or plan.strategy.n is not None:
        raise ConfigError(
            f"strategy is {str(plan)!r}, but samples of a pool are chosen from by best_of_n, without its n and "
            "without a stop rule",
            hint="write best_of_n | SELECTION, and n as --n",
        )
    pools: list[ProblemPool] = []
    for pool in pools_of(results).pools:
        has_law = plan.strategy in (pool.law, BestOfN())
        if has_law and all(sample.right is not None for sample in pool.drawn):
            pools.append(pool)
    too_small_pools = [pool for pool in pools if len(pool.drawn) < n]
    if too_small_pools:
        pool = too_small_pools[0]
        raise ConfigError(f"n is {n}, but the pool of problem {pool.cell.problem!r} has {len(pool.drawn)} samples")
    first_pools = _first_of_problems(pools, [pool.cell for pool in pools], None, model)
    law = first_pools[0].law
    selection = plan.selection or plan.strategy.default_selection(verified=False)
    pool_plan = dataclasses.replace(plan, strategy=law, selection=selection)
    names: list[str] = []
    confidences: list[float] = []
    is_right: list[bool] = []
    for pool in first_pools:
        outcome, confidence = RecordedSearch(pool, pool_plan).sure(range(n))
        names.append(_name(pool.cell))
        confidences.append(math.nan if outcome.answer is None else confidence)
        is_right.append(bool(outcome.right))
    live_plan = dataclasses.replace(pool_plan, strategy=dataclasses.replace(law, n=n))
    cell = dataclasses.replace(first_pools[0].cell, strategy=str(live_plan), budget={"samples": n})
    return _Outcomes(names=names, cell=cell, confidences=confidences, right=is_right)


def _first_of_problems(items: Sequence[T], cells: Sequence[Cell], strategy: str | None, model: str | None) -> list[T]:
    """Return the item of each problem's first seed, in the only setting that fits a strategy and a model.

    Args:
        items: Results or pools.
        cells: The cell of each item.
        strategy: The strategy of the items; None: any.
        model: The model of the items; None: any.

    Raises:
        ConfigError: No item fits, or the fitting items have several settings.
    """
    by_setting: dict[tuple[str, ...], dict[str, T]] = {}  # by setting and problem
    first_seeds: dict[tuple[tuple[str, ...], str], int] = {}
    for item, cell in zip(items, cells, strict=True):
        if strategy not in (None, cell.strategy) or model not in (None, cell.model):
            continue
        budget = ", ".join(f"{unit}={limit:g}" for unit, limit in sorted(cell.budget.items()))
        setting = (cell.model, cell.setting, cell.strategy, budget)
        problem = _name(cell)
        if (setting, problem) not in first_seeds or cell.seed < first_seeds[setting, problem]:
            by_setting.setdefault(setting, {})[problem] = item
            first_seeds[setting, problem] = cell.seed
    if not by_setting:
        if not cells:
            raise ConfigError("no result of the study is known to be right or wrong", hint=_CURE)
        if model is not None and all(cell.model != model for cell in cells):
            raise unknown_name("model of the study", model, dict.fromkeys(cell.model for cell in cells))
        raise unknown_name("strategy of the study", str(strategy), dict.fromkeys(cell.strategy for cell in cells))
    if len(by_setting) > 1:
        listed = "; ".join(f"{model} by {plan} with {budget}" for model, _, plan, budget in by_setting)
        raise ConfigError(
            f"the study has {len(by_setting)} settings, but one is calibrated: {listed}",
            hint="name --strategy, or --model",
        )
    ((_, items_by_problem),) = by_setting.items()
    return list(items_by_problem.values())


def _name(cell: Cell) -> str:
    return f"{cell.dataset}:{cell.problem}"


def _use_of_import(settings: Mapping[str, Any], cell: Cell) -> CalibratedUse:
    """Return the use of imported samples, whose sampling is not known.

    Args:
        settings: The settings of the import, by the names of `ImportSettings`.
        cell: A cell of the import, with the plan and the budget that are calibrated.
    """
    return CalibratedUse(
        model=text_by_role({"policy": cell.model}), strategy=cell.strategy, budget=format_limits(cell.budget),
        task=str(settings["task"]), verifiers=text_by_role(cell.verifiers), sampling="not stated by the import",
    )  # fmt: skip


def _use(config: StudyConfig, cell: Cell) -> CalibratedUse:
    """Return the use that thresholds are calibrated for: the parts of a search of a cell's first problem.

    The search is prepared, but not run.
    """
    spec, problems = config.models[cell.model], load_problems(config)
    tasks = {problem.task for dataset_problems in problems.values() for problem in dataset_problems.values()}
    if len(tasks) > 1:
        raise ConfigError(
            f"the problems of the study have {len(tasks)} tasks, but a calibration holds for one",
            hint="set task: … for all",
        )
    first_problem, *_ = problems[cell.dataset].values()
    plan = parse(cell.strategy, file_scope())
    with Solver(
        spec.records(),
        config.verifiers_of(cell.model),
        backend=spec.backend,
        url=spec.url[0] if spec.url else None,
        task=config.task,
        sampling=config.sampling_of(cell.model),
        allow_oracle=config.allow_oracle,
        expected_tokens=spec.expected_tokens,
    ) as solver:
        return use_of(solver.prepare(first_problem, dict(cell.budget), strategy=plan))
