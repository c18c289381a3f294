"""A performance model from a recorded study: accuracy of every strategy in it by difficulty and size, for the allocator to go by.

Difficulty comes from recorded pools: samples whose answers were checked give each problem a posterior over success rates. The pools also
give plain sampling at every size, by replay, with no new tokens; other strategies are read from the study's own results, at the
budgets that they were run with.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy import special

from tts.allocator.difficulty import RATES, Floats, Population
from tts.allocator.performance import MOST, Curve, PerformanceModel, smooth
from tts.errors import ConfigError
from tts.experiments.averaging import Reading, means_of
from tts.experiments.pool import Pool, pools_of
from tts.experiments.record import Result
from tts.search.base import Plan
from tts.search.registry import parse
from tts.search.selection import Majority, Weighted

_FEWEST = 20  # problems; with fewer, a curve by difficulty is noise
_DRAWS = 64  # subsets of a pool at each size, where there is no closed form
_Problem = tuple[str, str]


def fit(results: Iterable[Result], *, task: str, source: str, seed: int = 0) -> PerformanceModel:
    """Return the performance model of a study.

    Args:
        results: of one model with one setting, some of them pools (`tts sample`). task: of its problems. source: the study's name.
        seed: of the subsets that are replayed and the problems drawn again.

    Raises:
        ConfigError: there are no pools, of several models, of too few problems, or without reference answers.
    """
    every = [result for result in results if result.error is None]
    pools = [pool for pool in pools_of(every).pools if all(one.right is not None for one in pool.drawn)]
    names = {(pool.cell.model, pool.cell.setting, str(pool.law)) for pool in pools}
    if len(names) > 1:
        raise ConfigError(f"the study has pools of {len(names)} models or settings, but a performance model is of one")
    by_problem: dict[_Problem, Pool] = {}
    for pool in pools:  # the first seed's
        by_problem.setdefault((pool.cell.dataset, pool.cell.problem), pool)
    if len(by_problem) < _FEWEST:
        raise ConfigError(
            f"the study has pools of {len(by_problem)} problems with reference answers, but at least {_FEWEST} are needed",
            hint="draw more with tts sample",
        )
    chosen, rng = list(by_problem.values()), np.random.default_rng(seed)
    known = np.stack([_seen(pool) for pool in chosen])
    broad = Population.beta()
    population = broad.fitted(known)
    posterior = population.posterior(known).reshape(len(chosen), len(RATES), -1).sum(axis=2)
    tokens = float(np.mean([one.tokens for pool in chosen for one in pool.drawn]))
    curves: dict[str, Curve] = {}
    for text, (sizes, right) in {**_sampled(chosen, tokens, seed), **_others(every, list(by_problem), tokens)}.items():
        curves[text] = Curve(sizes, *smooth(posterior, right, rng))
    cell = chosen[0].cell
    return PerformanceModel(
        model=cell.model, task=task, verifiers=dict(cell.verifiers), source=source, problems=len(chosen), tokens=tokens,
        population=population, curves=curves,
    )  # fmt: skip


def _seen(pool: Pool) -> Floats:
    """Return the log-likelihood [Z] of a pool's samples: how many are right, and how many gave the most frequent wrong answer."""
    kinds = Population.beta()
    right = sum(one.right is True for one in pool.drawn)
    wrong: dict[int | None, int] = defaultdict(int)
    for one in pool.drawn:
        if one.right is not True and one.answer_class is not None:
            wrong[one.answer_class] += 1
    lure, missed = max(wrong.values(), default=0), len(pool.drawn) - right
    base = special.xlogy(right, kinds.rate)
    if lure > 1:
        return base + special.xlogy(lure, kinds.lure) + special.xlogy(missed - lure, kinds.scattered)
    alone = special.xlogy(missed, kinds.scattered)
    if not missed:
        return base + alone
    return base + np.logaddexp(alone, math.log(missed) + special.xlogy(1, kinds.lure) + special.xlogy(missed - 1, kinds.scattered))


def _sampled(pools: Sequence[Pool], tokens: float, seed: int) -> Mapping[str, tuple[Floats, Floats]]:
    """Return sizes in plain samples and shares right [P, B] of plain sampling, under each selection that the pools have scores for."""
    least = min(len(pool.drawn) for pool in pools)
    counts = tuple(2**i for i in range(min(least, MOST).bit_length()))
    plans = [Plan(pools[0].law, None, Majority())]
    if all(pool.has("main") for pool in pools):
        plans.append(Plan(pools[0].law, None, Weighted()))
    found: dict[str, tuple[Floats, Floats]] = {}
    for plan in plans:
        means = [means_of(pool, plan, Reading(sizes=counts, draws=_DRAWS, seed=seed)) for pool in pools]
        cost = np.array([[one.generated_tokens + one.verifier_tokens for one in row] for row in means]).mean(axis=0) / tokens
        found[str(plan)] = (cost, np.array([[one.right for one in row] for row in means]))
    return found


def _others(results: Sequence[Result], problems: Sequence[_Problem], tokens: float) -> Mapping[str, tuple[Floats, Floats]]:
    """Return the same of strategies that are no plain sampling, from their own runs: a size for each budget."""
    place = {problem: i for i, problem in enumerate(problems)}
    runs: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        if result.right is not None and parse(result.cell.strategy).strategy.registered_as != "best_of_n":
            runs[result.cell.strategy][str(sorted(result.cell.budget.items()))].append(result)
    found: dict[str, tuple[Floats, Floats]] = {}
    for text, budgets in runs.items():
        columns: list[tuple[float, Floats]] = []
        for group in budgets.values():
            right, seen = np.zeros(len(problems)), np.zeros(len(problems))
            for result in group:
                if (at := place.get((result.cell.dataset, result.cell.problem))) is not None:
                    right[at] += result.right is True
                    seen[at] += 1
            if seen.any():
                share = np.where(seen > 0, right / np.maximum(seen, 1), np.nan)
                columns.append((float(np.mean([result.usage.tokens for result in group])) / tokens, share))
        columns.sort(key=lambda each: each[0])
        sizes = np.array([size for size, _ in columns])
        if len(sizes) and sizes[0] > 0 and (np.diff(sizes) > 0).all():
            found[text] = (sizes, np.stack([share for _, share in columns], axis=1))
    return found
