"""Calibrated thresholds from the results of a study, or from its pools of samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tts.checks import check_int
from tts.errors import ConfigError, unknown_name
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.api import Study
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import load_problems
from tts.experiments.study.record import Cell, Result
from tts.scopes import file_scope
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.solver.risk import CalibratedUse
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

    Raises:
        ConfigError: The study has several settings and none is named, no result is known to be right or wrong, the
            problems are too few, or no threshold keeps the risk.
    """
    check_int("n", n, 1)
    if n is None:
        names, cell, outcomes = _result_outcomes(study.results(), strategy, model)
    else:
        names, cell, outcomes = _pool_outcomes(
            study.results(), parse(strategy or "best_of_n | majority", file_scope()), n, model
        )
    link = ProblemOutcomes(
        use=_use(study.config, cell), confidences=[one[0] for one in outcomes], right=[one[1] for one in outcomes]
    )
    return Thresholds.calibrate(names, [link], risk, delta)


Outcomes = list[tuple[float, bool]]  # confidence, and whether the answer is right


def _result_outcomes(
    results: Iterable[Result], strategy: str | None, model: str | None
) -> tuple[list[str], Cell, Outcomes]:
    known = [result for result in results if result.right is not None and result.error is None]
    first = _first(known, [result.cell for result in known], strategy, model)
    outcomes = [(result.confidence if result.answer is not None else math.nan, bool(result.right)) for result in first]
    return [_name(result.cell) for result in first], first[0].cell, outcomes


def _pool_outcomes(
    results: Iterable[Result], plan: Plan, n: int, model: str | None
) -> tuple[list[str], Cell, Outcomes]:
    if not isinstance(plan.strategy, BestOfN) or plan.stopping is not None or plan.strategy.n is not None:
        raise ConfigError(
            f"strategy is {str(plan)!r}, but samples of a pool are chosen from by best_of_n, without its n and "
            "without a stop rule",
            hint="write best_of_n | SELECTION, and n as --n",
        )
    pools = [pool for pool in pools_of(results).pools if not any(drawn.right is None for drawn in pool.drawn)]
    pools = [pool for pool in pools if pool.law == plan.strategy or plan.strategy == BestOfN()]
    if short := [pool for pool in pools if len(pool.drawn) < n]:
        raise ConfigError(
            f"n is {n}, but the pool of problem {short[0].cell.problem!r} has {len(short[0].drawn)} samples"
        )
    pools_of_setting = _first(pools, [pool.cell for pool in pools], None, model)
    plan = dataclasses.replace(
        plan,
        strategy=pools_of_setting[0].law,
        selection=plan.selection or plan.strategy.default_selection(verified=False),
    )
    outcomes = [_choose(pool, plan, n) for pool in pools_of_setting]
    whole = dataclasses.replace(plan, strategy=dataclasses.replace(pools_of_setting[0].law, n=n))
    cell = dataclasses.replace(pools_of_setting[0].cell, strategy=str(whole), budget={"samples": n})
    return [_name(pool.cell) for pool in pools_of_setting], cell, outcomes


def _choose(pool: ProblemPool, plan: Plan, n: int) -> tuple[float, bool]:
    """Return the confidence in the answer of a pool's first n samples, and whether this answer is right."""
    outcome, confidence = RecordedSearch(pool, plan).sure(range(n))
    return (math.nan if outcome.answer is None else confidence, bool(outcome.right))


def _first(found: Sequence[T], cells: Sequence[Cell], strategy: str | None, model: str | None) -> list[T]:
    """Return the items of the one setting that is named, each problem by its first seed.

    Raises:
        ConfigError: No item fits, or the fitting items have several settings.
    """
    by_setting: dict[tuple[str, ...], dict[str, T]] = {}
    first_seeds: dict[tuple[tuple[str, ...], str], int] = {}
    for item, cell in zip(found, cells, strict=True):
        if strategy not in (None, cell.strategy) or model not in (None, cell.model):
            continue
        budget = ", ".join(f"{unit}={limit:g}" for unit, limit in sorted(cell.budget.items()))
        key, name = (cell.model, cell.setting, cell.strategy, budget), _name(cell)
        if cell.seed < first_seeds.get((key, name), cell.seed + 1):
            by_setting.setdefault(key, {})[name] = item
            first_seeds[key, name] = cell.seed
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
    return list(next(iter(by_setting.values())).values())


def _name(cell: Cell) -> str:
    return f"{cell.dataset}:{cell.problem}"


def _use(config: StudyConfig, cell: Cell) -> CalibratedUse:
    """Return the use that thresholds are calibrated for, from a prepared run of a cell that is not begun."""
    spec, problems = config.models[cell.model], load_problems(config)
    tasks = {problem.task for of in problems.values() for problem in of.values()}
    if len(tasks) > 1:
        raise ConfigError(
            f"the problems of the study have {len(tasks)} tasks, but a calibration holds for one",
            hint="set task: … for all",
        )
    problem, plan = next(iter(problems[cell.dataset].values())), parse(cell.strategy, file_scope())
    with Solver(
        spec.records(),
        config.verifiers_of(cell.model),
        backend=spec.backend,
        url=next(iter(spec.url), None),
        task=config.task,
        sampling=config.sampling_of(cell.model),
        allow_oracle=config.allow_oracle,
        expected_tokens=spec.expected_tokens,
    ) as solver:
        return solver.prepare(problem, dict(cell.budget), strategy=plan).use
