"""Replay: the accuracy of selections and stop rules on recorded samples.

Accuracy is computed at any size, without new tokens.

Idea: the samples of a pool are exchangeable, so any n of them, in any order, are a possible run of best-of-n. A point
    is the mean over such runs (`tts.experiments.analysis.averaging`). Means without a closed form run the selection
    and stop rule of a live search on recorded scores (`tts.experiments.analysis.recorded_search`). With `first`, every
    point is run on the first n samples, and equals a live run with the pool's seed.
Departure from a live run: a stop rule pays for the samples drawn until it fires. A live run that samples concurrently
    also pays for the samples that it cancels.
Source: algorithms A18 (pass@k) and C3; Chen et al. (2107.03374) for subsets in place of the first n.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tts._core.logs import get_logger
from tts.checks import check_int
from tts.errors import ConfigError
from tts.experiments.analysis.averaging import (
    MEASURES,
    Measure,
    ReplaySettings,
    RunMeans,
    means_of,
)
from tts.experiments.analysis.curves import Curve, Floats, accuracies, labels_of, verifiers_in_words
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_auto import auto_means, is_auto, payable
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.selections.last_finish import LastFinish
from tts.search.selections.selective import Selective
from tts.search.selections.shortest import Shortest
from tts.search.strategies.samples.best_of_n import BestOfN

Order = Literal["recorded", "all"]
COVERAGE: Final = "pass@k"  # a perfect selection: right where any sample is
CHANCE: Final = "random choice"  # a random sample's answer, which every selection must beat
DRAWS: Final = 200  # orders of a pool; over 200 problems, an error of at most 0.003
LOG = get_logger("tts.replay")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayedCurve:
    """A curve that was computed from pools.

    Args:
        curve: The curve; its costs are means over runs.
        sizes: The numbers of samples of the runs.
        errors: The standard error of each accuracy from random subsets; 0 if the accuracy is exact for the given pools.
            The interval of the accuracy over problems includes this error.
        too_small: The number of problems left out at each point, because all their pools are too small.
        order: "recorded" if runs take the samples in recorded order; "all" if a point is the mean over orders.
        coverage: The share of runs that give an answer, at each point; None: the plan does not abstain.
    """

    curve: Curve
    sizes: Sequence[int]
    errors: Floats
    too_small: Sequence[int]
    order: Order = "all"
    coverage: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars for a million tokens.

    Prices are for prompt tokens, which every sample reads, and for generated tokens. Verifier tokens have no price.
    """

    usd_in: float = 0.0
    usd_out: float = 0.0


def replay(  # noqa: PLR0913 - the options of a replay
    pools: Sequence[ProblemPool],
    strategies: Sequence[str],
    sizes: Sequence[int],
    *,
    first: bool = False,
    draws: int = DRAWS,
    by_group: bool = False,
    seed: int = 0,
    shared: bool = False,
    prices: Prices | None = None,
) -> list[ReplayedCurve]:
    """Return the curves of strategies on recorded samples.

    Each strategy has a curve for each data set, model, setting and sampling. The value of a problem at a point is the
    mean over its seeds. A point is the mean over problems. Problems without a reference answer are left out; see
    `problems_without_answer`.

    Args:
        pools: The recorded samples.
        strategies: Texts such as "best_of_n | weighted" or "best_of_n | unanimous(window=4) | majority", or measures:
            "pass@k", "pass^k" (right where all samples are) and "random choice" (the share of right samples).
        sizes: The numbers of samples of a run.
        first: Whether to take only the first samples, in the order of drawing.
        draws: The number of random subsets of a pool, at least 2.
        by_group: Whether each group of problems has its own curve.
        seed: The seed of random subsets and intervals.
        shared: Whether `auto` divides one total among the problems, with the size as mean. Other strategies have the
            size for each problem.
        prices: The prices for costs in dollars; None: costs as the samples' source states them, if it states all.

    Raises:
        ConfigError: there is nothing to replay; a strategy is neither best_of_n nor auto, names its n, or has another
            sampling; a score was not recorded; no problem has a reference answer; a total is requested without `auto`;
            or all pools are too small.
    """
    for size in sizes:
        check_int("a size", size, 1, optional=False)
    check_int("draws", draws, 2, optional=False)
    if not (pools and strategies and sizes):
        raise ConfigError(
            f"there are {len(pools)} pools, {len(strategies)} strategies and {len(sizes)} sizes, but must be some of "
            "each"
        )
    plans = [_plan(strategy) for strategy in strategies]
    if shared and not any(is_auto(plan) for plan in plans):
        raise ConfigError(
            f"a shared total was requested, but {', '.join(map(repr, strategies))} cannot divide one; auto can",
            hint="add the strategy auto, or leave the total out",
        )
    settings = ReplaySettings(sizes=tuple(sorted(set(sizes))), first=first, draws=draws, seed=seed, shared=shared)
    # each line (all pools of one curve) by the fields that its pools have in common
    pools_by_line: dict[tuple[object, ...], list[ProblemPool]] = {}
    for pool in _pools_with_reference(pools):
        cell = pool.cell
        group = cell.group if by_group else None
        pools_by_line.setdefault((cell.dataset, group, cell.model, cell.setting, pool.law), []).append(pool)
    lines = list(pools_by_line.values())
    plans_and_lines = [(plan, line_pools) for plan in plans for line_pools in _filter_by_sampling(lines, plan)]
    curves: list[ReplayedCurve] = []
    for plan, line_pools in plans_and_lines:
        _warn_of_lengths(plan, line_pools)
        group = line_pools[0].cell.group if by_group else None
        curves.append(_replay(line_pools, plan, settings, prices, group=group))
    labels = labels_of([replayed.curve for replayed in curves])
    return [
        dataclasses.replace(replayed, curve=dataclasses.replace(replayed.curve, label=label))
        for replayed, label in zip(curves, labels, strict=True)
    ]


def _warn_of_lengths(plan: Plan | str, pools: Sequence[ProblemPool]) -> None:
    """Warn where a plan goes by the lengths of samples, and some of these are estimated from texts."""
    num_estimated = sum(pool.estimated for pool in pools)
    if not num_estimated or isinstance(plan, str):
        return
    is_ordered = plan.stopping is not None and plan.stopping.order == "finished"
    if is_ordered or isinstance(plan.selection, Shortest | LastFinish):
        LOG.warning(
            "%s goes by the tokens of samples, but those of %s of %s problems are estimated from texts",
            plan,
            f"{num_estimated:,}",
            f"{len(pools):,}",
        )


def fitting_strategies(pools: Sequence[ProblemPool]) -> list[str]:
    """Return the default strategies: pass@k, a random choice, the vote, and selections by score or tests.

    The vote needs an answer. Selections by score need a score of every sample, and selections by tests the outcomes of
    its tests.
    """
    selections = ["majority"] if have_answers(pools) else []
    if all(pool.has("main") for pool in pools):
        selections += ["best", "weighted", "best_of_majority"]
    if all("tests" in sample.steps for pool in pools for sample in pool.drawn):
        selections.append("codet(verifier='tests')")
    return [COVERAGE, CHANCE, *(f"best_of_n | {selection}" for selection in selections)]


def have_answers(pools: Sequence[ProblemPool]) -> bool:
    """Return whether a sample has an answer."""
    return any(drawn.answer_class is not None for pool in pools for drawn in pool.drawn)


def sizes_of(pools: Sequence[ProblemPool]) -> list[int]:
    """Return the powers of two up to the size of the largest pool."""
    return [2**i for i in range(max(len(pool.drawn) for pool in pools).bit_length())]


def problems_without_answer(pools: Sequence[ProblemPool]) -> list[str]:
    """Return the ids of problems without a reference answer, once for each data set."""
    problems = dict.fromkeys((pool.cell.dataset, pool.cell.problem) for pool in pools if _is_unanswered(pool))
    return [problem for _, problem in problems]


def _is_unanswered(pool: ProblemPool) -> bool:
    return any(drawn.right is None for drawn in pool.drawn)


def _pools_with_reference(pools: Sequence[ProblemPool]) -> Sequence[ProblemPool]:
    """Return the pools of problems with a reference answer.

    Raises:
        ConfigError: no problem has a reference answer.
    """
    answered = [pool for pool in pools if not _is_unanswered(pool)]
    if not answered:
        raise ConfigError(
            f"all {len(pools):,} pools are of problems without a reference answer, such as {pools[0].cell.problem!r}, "
            "but one is needed",
            hint="give the problems answers, or samples their verdicts",
        )
    return answered


def _plan(strategy: str) -> Plan | str:
    """Return the plan of a strategy, or the name of a measure."""
    if strategy.strip() in MEASURES:
        return strategy.strip()
    plan = parse(strategy)
    if not is_auto(plan) and (not isinstance(plan.strategy, BestOfN) or plan.strategy.n is not None):
        raise ConfigError(
            f"strategy is {strategy!r}, but what is replayed is {', '.join(MEASURES)}, best_of_n without its n, or "
            "auto",
            hint="write best_of_n | SELECTION, and n as a size",
        )
    return plan


def _filter_by_sampling(lines: Sequence[list[ProblemPool]], plan: Plan | str) -> list[list[ProblemPool]]:
    """Return the lines (pools with one curve) of a plan's sampling law.

    All lines are returned for a measure, for `auto`, and for `best_of_n` without parameters.

    Raises:
        ConfigError: The plan states a sampling, such as a temperature, by which no pool was drawn.
    """
    if isinstance(plan, str) or is_auto(plan) or plan.strategy == BestOfN():
        return list(lines)
    matches = [line_pools for line_pools in lines if line_pools[0].law == plan.strategy]
    if not matches:
        laws = ", ".join(sorted({str(line_pools[0].law) for line_pools in lines}))
        raise ConfigError(
            f"strategy is {str(plan)!r}, but no pool was drawn by {plan.strategy}", hint=f"there are pools of {laws}"
        )
    return matches


def _replay(
    pools: Sequence[ProblemPool],
    plan: Plan | str,
    settings: ReplaySettings,
    prices: Prices | None,
    *,
    group: str | None,
) -> ReplayedCurve:
    """Return the curve of one strategy on pools of one data set, model, setting and sampling."""
    if isinstance(plan, Plan):
        default = plan.strategy.default_selection(verified=all(pool.has("main") for pool in pools))
        law = plan.strategy if is_auto(plan) else pools[0].law
        plan = dataclasses.replace(plan, strategy=law, selection=plan.selection or default)
    problems = list(dict.fromkeys(pool.cell.problem for pool in pools))
    index_of = {problem: i for i, problem in enumerate(problems)}
    problem_index = np.array([index_of[pool.cell.problem] for pool in pools])  # [pools]
    means = _means(pools, plan, settings)
    has_value = ~np.isnan(_field(means, "right"))  # [pools, sizes]; NaN: the pool is too small
    size_has_value = has_value.any(axis=0)
    if not size_has_value.all():
        raise _too_large(pools, plan, settings, int(size_has_value.argmin()))
    num_pools = _sum(has_value, problem_index, len(problems))  # [problems, sizes]
    variances = np.nan_to_num(_field(means, "error")) ** 2  # [pools, sizes]
    with np.errstate(invalid="ignore"):  # 0 / 0 where all pools of a problem are too small
        problem_means = _sum(np.nan_to_num(means), problem_index, len(problems)) / num_pools[:, :, None]
        problem_errors = np.sqrt(_sum(variances, problem_index, len(problems))) / num_pools
    is_usd_known = not np.isnan(_field(means, "usd"))[has_value].any()
    costs = _mean_costs(problem_means)
    dollars = costs.pop("usd")
    if prices is not None:
        prompt_sums = _sum(np.array([pool.prompt_tokens for pool in pools]), problem_index, len(problems))
        prompt_means = prompt_sums / np.bincount(problem_index)  # [problems]
        prompt_tokens = np.nanmean(_field(problem_means, "samples") * prompt_means[:, None], axis=0)
        costs["usd"] = (prices.usd_in * prompt_tokens + prices.usd_out * costs["generated_tokens"]) / 1e6
    elif is_usd_known:
        costs["usd"] = dollars
    cell = pools[0].cell
    shares = _field(problem_means, "right").T  # [sizes, problems]
    coverage: Floats | None = None
    if isinstance(plan, Plan) and isinstance(plan.selection, Selective):
        answered = np.nan_to_num(_field(_means([_all_right(pool) for pool in pools], plan, settings), "right"))
        coverage = np.nanmean(_sum(answered, problem_index, len(problems)) / num_pools, axis=0)
    curve = Curve(
        label=str(plan),
        strategy=str(plan),
        dataset=cell.dataset,
        model=cell.model,
        verifier=verifiers_in_words(cell),
        costs=costs,
        accuracy=accuracies(shares, np.random.Generator(np.random.Philox(key=settings.seed))),
        shares=shares,
        problems=problems,
        seeds=sorted({pool.cell.seed for pool in pools}),
        kind="replayed",
        role="oracle" if _sees_answers(plan, pools[0]) else "strategy",
        group=group,
        setting=cell.setting,
    )
    return ReplayedCurve(
        curve=curve,
        sizes=settings.sizes,
        errors=np.sqrt(np.nansum(problem_errors**2, axis=0)) / (num_pools > 0).sum(axis=0),
        too_small=(num_pools == 0).sum(axis=0).tolist(),
        order="recorded" if settings.first else "all",
        coverage=coverage,
    )


def _all_right(pool: ProblemPool) -> ProblemPool:
    """Return a pool in which every sample is right, so that its accuracy is the share of runs with an answer."""
    return dataclasses.replace(pool, drawn=tuple(dataclasses.replace(drawn, right=True) for drawn in pool.drawn))


def _means(pools: Sequence[ProblemPool], plan: Plan | str, settings: ReplaySettings) -> Floats:
    """Return the means of a plan or measure: [pools, sizes, fields of RunMeans]."""
    if is_auto(plan):
        return auto_means(pools, plan, settings)
    plan_or_measure: Plan | Measure = MEASURES[plan] if isinstance(plan, str) else plan
    return np.array([means_of(pool, plan_or_measure, settings) for pool in pools])


def _field(means: Floats, name: str) -> Floats:
    """Return one field of means […, fields of `RunMeans`], by its name: […]."""
    return means[..., RunMeans._fields.index(name)]


def _mean_costs(problem_means: Floats) -> dict[str, Floats]:
    """Return each cost's mean over problems, by its name in `AXES`, [sizes].

    Args:
        problem_means: [problems, sizes, fields of `RunMeans`]; NaN: the problem has no pool of the size.
    """
    means = np.nanmean(problem_means, axis=0)  # [sizes, fields of RunMeans]
    generated, verifier = _field(means, "generated_tokens"), _field(means, "verifier_tokens")
    return {
        "samples": _field(means, "samples"),
        "generated_tokens": generated,
        "verifier_tokens": verifier,
        "tokens": generated + verifier,
        "path_tokens": _field(means, "path_tokens"),
        "usd": _field(means, "usd"),
    }


def _sees_answers(plan: Plan | str, pool: ProblemPool) -> bool:
    """Return whether a plan or measure uses the knowledge of which samples are right."""
    if isinstance(plan, str):
        return MEASURES[plan].oracle
    return bool(pool.oracle and plan.selection and needs_of(plan.selection).verifiers)


def _sum(values: NDArray[Any], problem_index: NDArray[np.int64], num_problems: int) -> Floats:
    """Return the sums of values [pools, …] over the pools of each problem: [problems, …].

    Args:
        values: A value or a row of values for each pool.
        problem_index: [pools], the index of each pool's problem.
        num_problems: The number of problems.
    """
    sums = np.zeros((num_problems, *values.shape[1:]))
    np.add.at(sums, problem_index, values)
    return sums


def _too_large(pools: Sequence[ProblemPool], plan: Plan | str, settings: ReplaySettings, point: int) -> ConfigError:
    """Return the error where all pools are smaller than the size with the index `point`."""
    size = f"a size is {settings.sizes[point]:,} samples"
    if settings.shared and is_auto(plan):
        return ConfigError(
            f"{size} of each problem in the total, but {payable(pools):,} can be drawn: "
            "no problem gets more samples than the smallest pool has",
            hint="take a smaller total, or draw larger pools: tts sample --n",
        )
    largest = max(len(pool.drawn) for pool in pools)
    return ConfigError(f"{size}, but the largest pool has {largest:,}", hint="draw larger pools: tts sample --n")
