"""Replay: what selections and stop rules would have made of recorded samples, at any size and within any tokens, for no new token.

Idea: the samples of a pool are exchangeable, so any n of them, in any order, are a run of best-of-n that might have been; a point is
    the mean over such runs (`tts.experiments.averaging`). Whatever has no closed form is computed by the selection and the stop rule
    of a live search, on recorded scores (`tts.experiments.recorded`). With `first` everything is, on the first n samples: what a live
    run with the pool's seed comes to. What a stop rule ends costs what was drawn until then, where a live run that draws its samples
    side by side also pays for those that it cancels.
Source: algorithms A18 (pass@k) and C3; Chen et al. (2107.03374) for subsets in place of the first n.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.experiments.averaging import Floats, Reading, Unit, means_of, tokens_of
from tts.experiments.curves import Curve, accuracies
from tts.experiments.gathering import Line, labels_of, verifiers_in_words
from tts.experiments.pool import Pool
from tts.search.base import Plan, whole
from tts.search.best_of_n import BestOfN
from tts.search.registry import parse

COVERAGE: Final = "pass@k"  # whether any of the samples is right: no strategy, but what a perfect selection would reach
DRAWS: Final = 100  # subsets of a pool; over 200 problems, an error of at most 0.004


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """A curve that was computed from pools.

    Args:
        curve: with what a point's runs cost on average. unit, sizes: what bounds them, as in `replay`.
        errors: the standard error of each accuracy from subsets that were drawn; 0: it is exact, given the pools. The interval of the
            accuracy, which is over problems, contains it.
        too_small: problems at each point none of whose pools is large enough to tell; they are not in it.
    """

    curve: Curve
    unit: Unit
    sizes: Sequence[int]
    errors: Floats
    too_small: Sequence[int]


def replay(
    pools: Sequence[Pool],
    strategies: Sequence[str],
    sizes: Sequence[int],
    *,
    unit: Unit = "samples",
    first: bool = False,
    draws: int = DRAWS,
    by_group: bool = False,
    seed: int = 0,
) -> list[Replayed]:
    """Return the curves of strategies on recorded samples: of each strategy one for each data set, model, setting and law of samples.

    A problem's share at a point is the mean over its seeds; a point is the mean over problems.

    Args:
        pools: recorded. strategies: such as "best_of_n | weighted", "best_of_n | unanimous(window=4) | majority", or "pass@k".
        sizes: n, or the tokens of a problem. unit: with "tokens", samples are drawn while the next one fits, with the score that the
            selection may ask for; a live run differs in that it starts one that may not fit, and cuts it.
        first: only the first samples, in the order of drawing. draws: subsets of a pool, where they are drawn; at least 2.
        by_group: a curve for each group of problems. seed: of the subsets, and of the intervals.

    Raises:
        ConfigError: there is nothing to replay; a strategy is not of best_of_n, names its n, or is of another law than all pools; a
            score was not recorded; a problem has no reference answer, and more than pass@k is asked for, which leaves such problems out;
            or no pool is large enough for a size.
    """
    for size in sizes:
        whole("a size", size, 1, optional=False)
    whole("draws", draws, 2, optional=False)
    if not (pools and strategies and sizes):
        raise ConfigError(f"there are {len(pools)} pools, {len(strategies)} strategies and {len(sizes)} sizes, but must be some of each")
    plans = [_plan(strategy) for strategy in strategies]
    pools = _answered(pools, coverage_alone=not any(plans))
    reading = Reading(sizes=tuple(sorted(set(sizes))), unit=unit, first=first, draws=draws, seed=seed)
    lines: dict[tuple[object, ...], list[Pool]] = {}
    for pool in pools:
        cell, group = pool.cell, pool.cell.group if by_group else None
        lines.setdefault((cell.dataset, group, cell.model, cell.setting, pool.law), []).append(pool)
    asked = [(plan, line) for plan in plans for line in _of_law(list(lines.values()), plan)]
    curves = [_replayed(line, plan, reading, group=line[0].cell.group if by_group else None) for plan, line in asked]
    return _told_apart(curves, [line[0].cell.setting for _, line in asked])


def unanswered(pools: Sequence[Pool]) -> list[str]:
    """Return the problems of pools that have no reference answer, those of each data set once."""
    return [problem for _, problem in dict.fromkeys((pool.cell.dataset, pool.cell.problem) for pool in pools if _is_unanswered(pool))]


def _is_unanswered(pool: Pool) -> bool:
    return any(drawn.right is None for drawn in pool.drawn)


def _answered(pools: Sequence[Pool], *, coverage_alone: bool) -> Sequence[Pool]:
    """Return the pools that are read: all; for coverage alone, those of problems with a reference answer.

    Raises:
        ConfigError: a problem has none, and accuracy is asked for too; or none has one.
    """
    problems = unanswered(pools)
    answered = [pool for pool in pools if not _is_unanswered(pool)]
    if problems and not (coverage_alone and answered):
        cure = f"; or ask for {COVERAGE} alone, which is read from the others" if answered else ""
        raise ConfigError(
            f"{len(pools) - len(answered):,} of {len(pools):,} pools are of problems without a reference answer, such as {problems[0]!r}, "
            "but accuracy needs one",
            hint=f"give the problems answers, or leave them out{cure}",
        )
    return answered


def _plan(strategy: str) -> Plan | None:
    """Return what to choose with; None: a perfect selection."""
    if strategy.strip() == COVERAGE:
        return None
    plan = parse(strategy)
    if not isinstance(plan.strategy, BestOfN) or plan.strategy.n is not None:
        raise ConfigError(
            f"strategy is {strategy!r}, but what is replayed is {COVERAGE}, or best_of_n without its n",
            hint="write best_of_n | SELECTION, and n as a size",
        )
    return plan


def _of_law(lines: Sequence[list[Pool]], plan: Plan | None) -> list[list[Pool]]:
    """Return the lines whose samples are drawn as a plan says: at the temperature that it states, if it states one."""
    if plan is None or plan.strategy == BestOfN():
        return list(lines)
    of_law = [line for line in lines if line[0].law == plan.strategy]
    if not of_law:
        laws = ", ".join(sorted({str(line[0].law) for line in lines}))
        raise ConfigError(f"strategy is {str(plan)!r}, but no pool was drawn by {plan.strategy}", hint=f"there are pools of {laws}")
    return of_law


def _replayed(pools: Sequence[Pool], plan: Plan | None, reading: Reading, *, group: str | None) -> Replayed:
    """Return the curve of one strategy on the pools of one line."""
    if plan is not None:
        default = plan.strategy.default_selection(verified=all(pool.has("main") for pool in pools))
        plan = dataclasses.replace(plan, strategy=pools[0].law, selection=plan.selection or default)
    problems = list(dict.fromkeys(pool.cell.problem for pool in pools))
    column = {problem: i for i, problem in enumerate(problems)}
    at = np.array([column[pool.cell.problem] for pool in pools])
    means = np.array([means_of(pool, plan, reading) for pool in pools])  # [pools, B, fields of Mean]
    known = ~np.isnan(means[:, :, 0])
    if not known.any(axis=0).all():
        raise _too_large(pools, reading, int(known.any(axis=0).argmin()))
    runs = _summed(known, at, len(problems))  # [P, B]
    with np.errstate(invalid="ignore"):  # 0 / 0: no run of a problem at a point
        by_problem = _summed(np.nan_to_num(means), at, len(problems)) / runs[:, :, None]
        errors = np.sqrt(_summed(np.nan_to_num(means[:, :, 1]) ** 2, at, len(problems))) / runs
    _, _, samples, generated, verifier = np.nanmean(by_problem, axis=0).T
    shares, cell = by_problem[:, :, 0].T, pools[0].cell
    curve = Curve(
        label=COVERAGE if plan is None else str(plan),
        dataset=cell.dataset,
        model=cell.model,
        verifier=verifiers_in_words(cell),
        costs={"samples": samples, "generated_tokens": generated, "verifier_tokens": verifier, "tokens": generated + verifier},
        accuracy=accuracies(shares, np.random.Generator(np.random.Philox(key=reading.seed))),
        shares=shares,
        problems=problems,
        seeds=sorted({pool.cell.seed for pool in pools}),
        kind="replayed",
        role="oracle" if plan is None or (pools[0].oracle and plan.selection and plan.selection.verifiers) else "strategy",
        group=group,
    )
    return Replayed(
        curve=curve,
        unit=reading.unit,
        sizes=reading.sizes,
        errors=np.sqrt(np.nansum(errors**2, axis=0)) / (runs > 0).sum(axis=0),
        too_small=(runs == 0).sum(axis=0).tolist(),
    )


def _told_apart(curves: Sequence[Replayed], settings: Sequence[str]) -> list[Replayed]:
    """Return curves whose labels say what tells them from others of the same strategy."""
    lines = [
        Line(curve.dataset, curve.group, curve.label, curve.model, curve.verifier, "", setting)
        for curve, setting in zip((one.curve for one in curves), settings, strict=True)
    ]
    return [
        dataclasses.replace(one, curve=dataclasses.replace(one.curve, label=label))
        for one, label in zip(curves, labels_of(lines), strict=True)
    ]


def _summed(values: NDArray[Any], at: NDArray[np.int64], num_problems: int) -> Floats:
    """Return the sums of values [pools, …] over the pools of each problem: [P, …]."""
    sums = np.zeros((num_problems, *values.shape[1:]))
    np.add.at(sums, at, values)
    return sums


def _too_large(pools: Sequence[Pool], reading: Reading, point: int) -> ConfigError:
    largest = max(len(pool.drawn) if reading.unit == "samples" else int(tokens_of(pool, verified=False).sum()) for pool in pools)
    return ConfigError(
        f"a size is {reading.sizes[point]:,} {reading.unit}, but the largest pool has {largest:,}", hint="draw larger pools: tts sample --n"
    )
