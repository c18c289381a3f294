"""A performance model from a recorded study: accuracy of every strategy in it by difficulty and size, for the allocator to go by.

Difficulty comes from recorded pools: samples whose answers were checked give each problem a posterior over success rates. The pools also
give plain sampling at every size, by replay, with no new tokens; other strategies are read from the study's own results, at the
budgets that they were run with. How good the model is, is seen on problems that it was not fitted to, part by part.

Shapes: P problems, Z kinds, G success rates, B sizes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from tts import tasks
from tts.allocator.difficulty import RATES, Floats, Population, Whole
from tts.allocator.performance import MOST, Curve, PerformanceModel, smooth
from tts.errors import ConfigError
from tts.experiments.averaging import Reading, means_of
from tts.experiments.config import StudyConfig
from tts.experiments.grid import load_problems
from tts.experiments.pool import Pool, pools_of
from tts.experiments.record import Cell, Result
from tts.models import registry
from tts.search.base import Plan, Selection
from tts.search.registry import parse
from tts.search.selection import Majority, Weighted

_FEWEST = 20  # problems; with fewer, a curve by difficulty is noise
_DRAWS = 64  # subsets of a pool at each size, where there is no closed form
PARTS = 5  # of the problems, each predicted from the others
_GROUPS = 10  # of predictions, by size, that are compared with what came true
PILOTS = 4  # samples that a prediction is made from
_Problem = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well a strategy's accuracy was predicted for problems that the model was not fitted to, from `PILOTS` samples of each.

    Args:
        strategy: its text. sizes: the least and the greatest, in plain samples. predicted, measured: mean accuracy over problems and
            sizes. error: mean difference of the two over ten groups of equally many predictions, by what was predicted.
    """

    strategy: str
    sizes: tuple[float, float]
    predicted: float
    measured: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What a study says of each of its problems.

    Args:
        cell: one of them. known: [P, Z], log-likelihood of all samples of each pool. votes: [P] each, of the first `PILOTS` samples.
        tokens: that a plain sample costs on average, its score included. shares: by strategy, its sizes [B] in plain samples, and the
            share of right answers [P, B]; NaN: not measured.
    """

    cell: Cell
    known: Floats
    votes: tuple[Whole, Whole, Whole]
    tokens: float
    shares: Mapping[str, tuple[Floats, Floats]]

    @classmethod
    def of(cls, results: Iterable[Result], *, seed: int = 0) -> Measured:
        """Return what results say.

        Args:
            results: of one model with one setting, some of them pools (`tts sample`). seed: of the subsets that are replayed.

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
        chosen = list(by_problem.values())
        verified = all(pool.has("main") for pool in chosen)
        tokens = float(np.mean([one.tokens + verified * one.verifier_tokens for pool in chosen for one in pool.drawn]))
        leader, second, samples = np.array([_votes(pool) for pool in chosen]).T
        shares = {**_sampled(chosen, seed, verified=verified), **_others(every, list(by_problem), tokens)}
        return cls(chosen[0].cell, np.stack([_seen(pool) for pool in chosen]), (leader, second, samples), tokens, shares)

    @property
    def problems(self) -> int:
        """How many there are."""
        return len(self.known)

    def fitted(self, *, model: str, task: str, source: str, seed: int = 0) -> PerformanceModel:
        """Return the performance model.

        Args:
            model, task: of what it is, by name (`of_what`). source: the study's name. seed: of the problems drawn again, for errors.
        """
        named = {"model": model, "task": task, "source": source}
        return self._fitted(np.arange(self.problems), np.random.default_rng(seed), **named)

    def _fitted(self, rows: Whole, rng: np.random.Generator, *, model: str = "", task: str = "", source: str = "") -> PerformanceModel:
        population = Population.beta().fitted(self.known[rows])
        posterior = _over_rates(population.posterior(self.known[rows]))
        return PerformanceModel(
            model=model, task=task, verifiers=dict(self.cell.verifiers), source=source, problems=len(rows), tokens=self.tokens,
            population=population,
            curves={text: Curve(sizes, *smooth(posterior, right[rows], rng)) for text, (sizes, right) in self.shares.items()},
        )  # fmt: skip

    def held_out(self, seed: int = 0) -> list[HeldOut]:
        """Return how well each strategy is predicted: the problems in parts, each by a model that was fitted to the others."""
        rng = np.random.default_rng(seed)
        part = rng.permutation(self.problems) % PARTS
        predicted = {text: np.full(right.shape, np.nan) for text, (_, right) in self.shares.items()}
        for each in range(PARTS):
            rows, others = np.flatnonzero(part == each), np.flatnonzero(part != each)
            model = self._fitted(others, rng)
            seen = model.population.voted(*(votes[rows] for votes in self.votes))
            chance = _over_rates(model.population.posterior(seen))
            for text, curve in model.curves.items():
                predicted[text][rows] = chance @ curve.accuracy
        return [_held_out(text, sizes, predicted[text], right) for text, (sizes, right) in self.shares.items()]


def of_what(config: StudyConfig, cell: Cell) -> tuple[str, str]:
    """Return the names of the policy and of the task that a study runs a cell with: what a performance model of it is of."""
    policy = config.models[cell.model].model["policy"]
    (source,) = (one for one in config.problems if one.title == cell.dataset)
    problem = next(
        iter(load_problems(config.model_copy(update={"problems": [source.model_copy(update={"limit": 1})]}))[cell.dataset].values())
    )
    return policy, tasks.get(problem.task or config.task or registry.get(policy).task).name


def _held_out(text: str, sizes: Floats, predicted: Floats, right: Floats) -> HeldOut:
    known = ~np.isnan(right)
    order = np.argsort(predicted[known], kind="stable")
    groups = np.array_split(order, _GROUPS)
    gaps = [abs(predicted[known][group].mean() - right[known][group].mean()) * len(group) for group in groups if len(group)]
    return HeldOut(
        strategy=text,
        sizes=(float(sizes[0]), float(sizes[-1])),
        predicted=float(predicted[known].mean()),
        measured=float(right[known].mean()),
        error=float(sum(gaps) / len(order)),
    )


def _over_rates(posterior: Floats) -> Floats:
    """Return weights over success rates [P, G] from those over kinds [P, Z]."""
    return posterior.reshape(len(posterior), len(RATES), -1).sum(axis=2)


def _votes(pool: Pool) -> tuple[int, int, int]:
    """Return the most and the second most frequent answer's votes among the first samples, and how many samples those are."""
    first = pool.drawn[:PILOTS]
    counts = [count for _, count in Counter(one.answer_class for one in first if one.answer_class is not None).most_common(2)]
    leader, second = (*counts, 0, 0)[:2]
    return leader, second, len(first)


def _seen(pool: Pool) -> Floats:
    """Return the log-likelihood [Z] of a pool's samples: how many are right, and how many gave the most frequent wrong answer."""
    kinds = Population.beta()
    right = sum(one.right is True for one in pool.drawn)
    wrong = Counter(one.answer_class for one in pool.drawn if one.right is not True and one.answer_class is not None)
    lure, missed = max(wrong.values(), default=0), len(pool.drawn) - right
    base = special.xlogy(right, kinds.rate)
    if lure > 1:
        return base + special.xlogy(lure, kinds.lure) + special.xlogy(missed - lure, kinds.scattered)
    alone = special.xlogy(missed, kinds.scattered)
    if not missed:
        return base + alone
    return base + np.logaddexp(alone, math.log(missed) + special.xlogy(1, kinds.lure) + special.xlogy(missed - 1, kinds.scattered))


def _sampled(pools: Sequence[Pool], seed: int, *, verified: bool) -> Mapping[str, tuple[Floats, Floats]]:
    """Return sizes in plain samples and shares right [P, B] of plain sampling, under each selection that the pools have scores for.

    The selection that a strategy has by default comes first.
    """
    least = min(len(pool.drawn) for pool in pools)
    counts = tuple(2**i for i in range(min(least, MOST).bit_length()))
    selections: list[Selection] = [Weighted(), Majority()] if verified else [Majority()]
    found: dict[str, tuple[Floats, Floats]] = {}
    for selection in selections:
        plan = Plan(pools[0].law, None, selection)
        means = [means_of(pool, plan, Reading(sizes=counts, draws=_DRAWS, seed=seed)) for pool in pools]
        found[str(plan)] = np.array(counts, np.float64), np.array([[one.right for one in row] for row in means])
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
