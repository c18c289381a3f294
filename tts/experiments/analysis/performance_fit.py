"""Fits a performance model to a recorded study, for the allocator.

The model has the accuracy of each strategy by difficulty and size.

Recorded pools give the difficulty: checked samples of a problem give a posterior over its success rate. Replay of the
pools gives plain sampling at every size, without new tokens. Other strategies are read from the study's own results, at
the budgets that were run. Cross-validation over parts of the problems shows how good the model is.

Shapes: P problems, Z kinds, G success rates, B sizes.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from tts import tasks
from tts.allocator.auto import Auto
from tts.allocator.difficulty import RATES, Floats, Population, Whole
from tts.allocator.performance import MOST, PerformanceCurve, PerformanceModel, costs_by_rate, smooth
from tts.allocator.performance_file import UNITS, draws_plain, other_models
from tts.errors import ConfigError, quote
from tts.experiments.analysis.averaging import ReplaySettings, means_of
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import load_problems
from tts.experiments.study.record import Cell, RecordedSample, Result
from tts.renamed import refuse_old_members
from tts.scopes import file_scope
from tts.search.parts import Plan, Selection
from tts.search.plan import parse
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.search.stop_rules.first_finish import FirstFinish
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.search.strategies.samples.single import Single

_FEWEST = 20  # problems; with fewer, a curve by difficulty is noise
_DRAWS = 32  # subsets of a pool at each size, where there is no closed form
PARTS = 5  # of the problems, each predicted from the others
_FINISHERS = (4, 8, 16)  # solutions, the first half of which to finish may have a vote of its own
_SPARE = 1.25  # of the most that any problem spent, which a search is allowed again
_GROUPS = 10  # of predictions, by predicted value
PILOTS = 4  # samples that a prediction is made from
_Problem = tuple[str, str]
_NOT_SEARCHES = (BestOfN, Single, Auto)  # plain sampling, which pools cover, and the allocator


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well a strategy's accuracy was predicted on held-out problems, from `PILOTS` samples of each.

    Args:
        strategy: Its text.
        sizes: The least and the greatest, in plain samples.
        predicted: The predicted mean accuracy over problems and sizes.
        measured: The measured mean accuracy over problems and sizes.
        error: Mean absolute difference of the two over ten groups of predictions, divided by predicted value.
    """

    strategy: str
    sizes: tuple[float, float]
    predicted: float
    measured: float
    error: float


class PlainSampling(NamedTuple):
    """Results of plain sampling.

    `sizes` are [B], samples. `right` is [P, B], share right. `tokens` are [B], mean cost, scores included.
    """

    sizes: Floats
    right: Floats
    tokens: Floats


@refuse_old_members
@dataclass(frozen=True, slots=True, eq=False)
class PerformanceData:
    """What a study shows of each of its problems.

    Args:
        cell: One of the study's.
        known: [P, Z], log-likelihood of all samples of each pool.
        votes: [P] each, of the first `PILOTS` samples.
        first: Temperature of the first sample of each problem, where a better one than the others' was found.
        tokens: Mean cost of a plain sample, with its score if its selection reads one.
        sampled: The strategies that draw plain samples.
        unit: The unit of the costs that are compared: "tokens", or the requested one where strategies name models
            beside the policy.
        shares: The shares by strategy, its sizes [B] in plain samples, and the share of right answers [P, B]; NaN: not
            measured.
        limits: What each strategy that searches was allowed to spend at each size [B], in plain samples. It is left out
            where the budgets are in another unit than the costs. Where no problem needed as much, it is what the
            dearest one spent, and a quarter more.
        spent: What each strategy that searches spent on each problem [P, B], in mean plain samples; NaN: not measured.
        plain: [P], what a plain sample of each problem costs, in mean plain samples.
    """

    cell: Cell
    known: Floats
    votes: tuple[Whole, Whole, Whole]
    first: float | None
    tokens: float
    sampled: tuple[str, ...]
    shares: Mapping[str, tuple[Floats, Floats]]
    unit: str = "tokens"
    limits: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    spent: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    plain: Floats = field(default_factory=lambda: np.ones(0))

    @classmethod
    def of(cls, results: Iterable[Result], *, seed: int = 0, unit: str = "usd") -> PerformanceData:
        """Return the data of results.

        Args:
            results: The results of one model with one setting, some of them pools (`tts sample`).
            seed: The seed of the subsets that are replayed.
            unit: "tokens", "flops" or "usd", in which strategies with models beside the policy are compared to plain
                samples.

        Raises:
            ConfigError: there are no pools, or pools of several models, of too few problems, or without reference
                answers; models are to be compared, and a result has no cost in the unit.
        """
        if unit not in UNITS:
            raise ConfigError(f"unit is {quote(unit)}, but must be {' or '.join(map(repr, UNITS))}")
        every = [result for result in results if result.error is None]
        found = (pool for pool in pools_of(every).pools if draws_plain(Plan(pool.law, None, Majority())))
        pools = [pool for pool in found if all(one.right is not None for one in pool.drawn)]
        names = {(pool.cell.model, pool.cell.setting, str(pool.law)) for pool in pools}
        if len(names) > 1:
            raise ConfigError(
                f"the study has pools of {len(names)} models or settings, but a performance model is of one",
                hint="sample one model at a time: tts sample STUDY.yaml --set models=MODEL",
            )
        by_problem: dict[_Problem, ProblemPool] = {}
        for pool in pools:  # the first seed's
            by_problem.setdefault((pool.cell.dataset, pool.cell.problem), pool)
        if len(by_problem) < _FEWEST:
            raise ConfigError(
                f"the study has pools of {len(by_problem)} problems with reference answers, but at least {_FEWEST} "
                "are needed",
                hint="draw more with tts sample",
            )
        chosen = list(by_problem.values())
        greedy = _greedy(every, chosen)
        first, drawn = greedy or (None, chosen)
        sampled = _sample(drawn, seed, begun=greedy is not None)
        best = next(iter(sampled.values()))
        tokens = float(best.tokens[-1] / best.sizes[-1])
        shares = {text: (each.sizes, each.right) for text, each in sampled.items()}
        leader, second, samples = np.array([_votes(pool) for pool in drawn]).T
        if not any(other_models(parse(result.cell.strategy, file_scope()).strategy) for result in every):
            unit, plain = "tokens", tokens
            own = np.array([np.mean([max(1, one.tokens) for one in pool.drawn]) for pool in chosen])
        else:
            costs = {result.cell.key: _cost(result, unit) / len(result.drawn or ()) for result in every if result.drawn}
            own = np.array([costs[pool.cell.key] for pool in chosen])
            plain = float(own.mean())
        others, limits, spent = _others(every, list(by_problem), plain, unit)
        taken, costs = _replay_finish_order(chosen, best, seed)
        others, spent = {**taken, **others}, {**costs, **spent}
        return cls(
            chosen[0].cell,
            np.stack([_log_likelihood(pool) for pool in chosen]),
            (leader, second, samples),
            first,
            tokens,
            tuple(shares),
            {**shares, **others},
            unit,
            limits,
            spent,
            own / own.mean(),
        )

    @property
    def problems(self) -> int:
        """The number of problems."""
        return len(self.known)

    def fit(
        self, *, model: str, task: str, source: str, models: Mapping[str, str] = MappingProxyType({}), seed: int = 0
    ) -> PerformanceModel:
        """Return the performance model.

        Strategies that are nowhere significantly better than plain samples are left out.

        Args:
            model: The name of the policy that it describes (`described_keys`).
            task: The name of the task that it describes.
            models: The names of the models that it describes, by role.
            source: The study's name.
            seed: The seed of the resampled problems, for errors.
        """
        population, curves = self._fit_rows(np.arange(self.problems), np.random.default_rng(seed))
        plain = next(iter(curves.values()))
        kept = {text: curve for text, curve in curves.items() if text in self.sampled or _pays(curve, plain)}
        return PerformanceModel(
            model=model,
            task=task,
            verifiers=dict(self.cell.verifiers),
            source=source,
            problems=self.problems,
            tokens=self.tokens,
            population=population,
            curves=kept,
            first=self.first,
            unit=self.unit,
            models={
                role: models.get(role, role)
                for text in kept
                for role in other_models(parse(text, file_scope()).strategy)
            },
        )

    def _fit_rows(self, rows: Whole, rng: np.random.Generator) -> tuple[Population, dict[str, PerformanceCurve]]:
        """Return the population and the curves of some of the problems."""
        population = Population.beta().fit(self.known[rows])
        posterior = _over_rates(population.posterior(self.known[rows]))
        return population, {
            text: PerformanceCurve(
                sizes, *smooth(posterior, right[rows], rng), self.limits.get(text), self._costs(text, posterior, rows)
            )
            for text, (sizes, right) in self.shares.items()
        }

    def _costs(self, text: str, posterior: Floats, rows: Whole) -> Floats | None:
        """Return the costs of a strategy by success rate; None: it draws plain samples."""
        return costs_by_rate(posterior, self.spent[text][rows], self.plain[rows]) if text in self.spent else None

    def held_out(self, seed: int = 0) -> list[HeldOut]:
        """Return how well each strategy is predicted by cross-validation."""
        rng = np.random.default_rng(seed)
        part = rng.permutation(self.problems) % PARTS
        predicted = {text: np.full(right.shape, np.nan) for text, (_, right) in self.shares.items()}
        for each in range(PARTS):
            rows, others = np.flatnonzero(part == each), np.flatnonzero(part != each)
            population, curves = self._fit_rows(others, rng)
            chance = _over_rates(
                population.posterior(population.vote_likelihood(*(votes[rows] for votes in self.votes)))
            )
            for text, curve in curves.items():
                predicted[text][rows] = chance @ curve.accuracy
        return [_held_out(text, sizes, predicted[text], right) for text, (sizes, right) in self.shares.items()]


def _pays(curve: PerformanceCurve, plain: PerformanceCurve) -> bool:
    """Return whether a strategy is significantly better than plain samples at equal cost, at some size and success
    rate.

    The level is 95 % over all sizes and rates together, by Bonferroni's bound.
    """
    logs = np.log(curve.sizes), np.log(plain.sizes)
    as_good, doubt = (np.stack([np.interp(*logs, row) for row in table]) for table in (plain.accuracy, plain.error))
    sure = float(special.ndtri(1 - 0.05 / curve.accuracy.size))
    return bool((curve.accuracy - as_good > sure * np.hypot(curve.error, doubt) + 1e-9).any())


def described_keys(config: StudyConfig, cell: Cell) -> tuple[str, str, dict[str, str]]:
    """Return the names of what a performance model of a cell describes.

    They are those of the policy, of the task, and of the models by role.
    """
    records = config.models[cell.model].records()
    policy = records["policy"]
    (source,) = (one for one in config.problems if one.title == cell.dataset)
    problem = next(
        iter(
            load_problems(config.model_copy(update={"problems": [source.model_copy(update={"limit": 1})]}))[
                cell.dataset
            ].values()
        )
    )
    return (
        policy.name,
        tasks.get(problem.task or config.task or policy.task).name,
        {role: one.name for role, one in records.items()},
    )


def keys_of_import(settings: Mapping[str, Any], cell: Cell) -> tuple[str, str, dict[str, str]]:
    """Return the same as `described_keys` for imported samples, whose study has no models.

    Args:
        settings: The settings of the import, by the names of `ImportSettings`.
        cell: One of its cells.
    """
    return cell.model, tasks.get(settings.get("task", "math")).name, {"policy": cell.model}


def _held_out(text: str, sizes: Floats, predicted: Floats, right: Floats) -> HeldOut:
    known = ~np.isnan(right)
    order = np.argsort(predicted[known], kind="stable")
    groups = np.array_split(order, _GROUPS)
    gaps = [
        abs(predicted[known][group].mean() - right[known][group].mean()) * len(group) for group in groups if len(group)
    ]
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


def _votes(pool: ProblemPool) -> tuple[int, int, int]:
    """Return the votes of the two most frequent answers among the first samples, and the number of these samples."""
    first = pool.drawn[:PILOTS]
    counts = [
        count for _, count in Counter(one.answer_class for one in first if one.answer_class is not None).most_common(2)
    ]
    leader, second = (*counts, 0, 0)[:2]
    return leader, second, len(first)


def _log_likelihood(pool: ProblemPool) -> Floats:
    """Return the log-likelihood [Z] of a pool's samples, by the number right and the votes of the most frequent wrong
    answer.
    """
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
    return base + np.logaddexp(
        alone, math.log(missed) + special.xlogy(1, kinds.lure) + special.xlogy(missed - 1, kinds.scattered)
    )


def _greedy(results: Sequence[Result], pools: Sequence[ProblemPool]) -> tuple[float, Sequence[ProblemPool]] | None:
    """Return the temperature of a single sample that is more accurate than one of the pools, and the pools with that
    sample prepended.

    None: the study has no `single` at another temperature on the same problems with recorded candidates, or it is no
    better.
    """
    found: dict[float, dict[_Problem, RecordedSample]] = defaultdict(dict)
    for result in results:
        strategy = parse(result.cell.strategy, file_scope()).strategy
        if isinstance(strategy, Single) and strategy.temperature is not None and result.drawn:
            drawn, known = result.drawn[0], found[strategy.temperature]
            place = (result.cell.dataset, result.cell.problem)
            if place not in known or len(drawn.scores) > len(known[place].scores):
                known[place] = drawn
    keys = [(pool.cell.dataset, pool.cell.problem) for pool in pools]
    plain = np.mean([np.mean([one.right is True for one in pool.drawn]) for pool in pools])
    right = {
        t: np.mean([of[key].right is True for key in keys]) for t, of in found.items() if all(key in of for key in keys)
    }
    best = max(right, key=lambda t: right[t], default=None)
    if best is None or right[best] <= plain:
        return None
    return best, [_prepend_sample(pool, found[best][key]) for pool, key in zip(pools, keys, strict=True)]


def _prepend_sample(pool: ProblemPool, first: RecordedSample) -> ProblemPool:
    """Return a pool with another sample prepended. Its answer joins the class of an equal text, if there is one."""
    classes = {one.answer: one.answer_class for one in pool.drawn}
    kind = None if first.answer is None else classes.get(first.answer, len(pool.drawn))
    rest = (
        dataclasses.replace(
            one, like=None if one.like is None else one.like + 1, same=None if one.same is None else one.same + 1
        )
        for one in pool.drawn
    )
    return dataclasses.replace(pool, drawn=(dataclasses.replace(first, answer_class=kind, like=None, same=None), *rest))


def _sample(pools: Sequence[ProblemPool], seed: int, *, begun: bool) -> Mapping[str, PlainSampling]:
    """Return plain sampling under each selection that the pools have scores for, the best for its cost first.

    Args:
        pools: The recorded samples of each problem.
        seed: The seed of the subsets.
        begun: Whether every run starts with the pool's first sample; else all subsets are equally likely.
    """
    least = min(len(pool.drawn) for pool in pools) - begun
    counts = tuple(2**i for i in range(min(least, MOST).bit_length()))
    selections: list[Selection] = [Majority()]
    if all(pool.has("main") for pool in pools):
        selections.append(Weighted())
    read, found = ReplaySettings(sizes=counts, draws=_DRAWS, seed=seed), dict[str, PlainSampling]()
    for selection in selections:
        plan = Plan(pools[0].law, None, selection)
        # [P, B, right and tokens]  # noqa: ERA001
        means = np.array([(_begun_means if begun else _means)(pool, plan, read) for pool in pools])
        found[str(plan)] = PlainSampling(np.array(counts, np.float64), means[:, :, 0], means[:, :, 1].mean(axis=0))
    return dict(sorted(found.items(), key=lambda each: -_mean_accuracy_over_costs(each[1], list(found.values()))))


def _means(pool: ProblemPool, plan: Plan, reading: ReplaySettings) -> list[tuple[float, float]]:
    """Return share right and tokens at each size, over all subsets of a pool."""
    return [(one.right, one.generated_tokens + one.verifier_tokens) for one in means_of(pool, plan, reading)]


def _replay_finish_order(
    pools: Sequence[ProblemPool], plain: PlainSampling, seed: int
) -> tuple[Mapping[str, tuple[Floats, Floats]], Mapping[str, Floats]]:
    """Return size and shares of votes of the first half to finish, replayed from pools, and what they cost; see
    `_others`.

    Those that are no more accurate than plain samples at equal cost are left out.
    """
    least = min(len(pool.drawn) for pool in pools)
    own = np.array([np.mean([max(1, one.tokens) for one in pool.drawn]) for pool in pools])
    found: dict[str, tuple[Floats, Floats]] = {}
    spent: dict[str, Floats] = {}
    for count in (n for n in _FINISHERS if n <= least):
        plan = Plan(BestOfN(n=count), FirstFinish(k=count // 2), Majority())
        read = ReplaySettings(sizes=(count,), draws=_DRAWS, seed=seed)
        means = [means_of(pool, plan, read)[0] for pool in pools]
        cost, right = (
            np.array([[one.generated_tokens] for one in means]) / own.mean(),
            np.array([[one.right] for one in means]),
        )
        if right.mean() > np.interp(math.log(cost.mean()), np.log(plain.sizes), plain.right.mean(axis=0)):
            found[str(plan)], spent[str(plan)] = (cost.mean(axis=0), right), cost
    return found, spent


def _begun_means(pool: ProblemPool, plan: Plan, reading: ReplaySettings) -> list[tuple[float, float]]:
    """Return the same over runs that start with the pool's first sample."""
    run, rng = RecordedSearch(pool, plan).run, reading.rng(pool)
    orders = [[0, *(1 + rng.permutation(len(pool.drawn) - 1)).tolist()] for _ in range(reading.draws)]
    every = [[run(order[:size]) for order in orders[: 1 if size == 1 else None]] for size in reading.sizes]
    return [
        (
            float(np.mean([one.right is True for one in of])),
            float(np.mean([one.generated_tokens + one.verifier_tokens for one in of])),
        )
        for of in every
    ]


def _mean_accuracy_over_costs(one: PlainSampling, every: Sequence[PlainSampling]) -> float:
    """Return the mean accuracy over the costs that all selections have in common, evenly spaced in their logarithms."""
    low, high = (
        math.log(limit) for limit in (max(each.tokens[0] for each in every), min(each.tokens[-1] for each in every))
    )
    return float(np.interp(np.linspace(low, high, 32), np.log(one.tokens), one.right.mean(axis=0)).mean())


def _cost(result: Result, unit: str) -> float:
    """Return what a result cost in a unit.

    Raises:
        ConfigError: it is unknown.
    """
    if (cost := getattr(result.usage, unit)) is None:
        raise ConfigError(
            f"{result.cell.strategy} has no cost in {unit}, in which models are compared",
            hint="give the rates of all models in their records and run again, or compare them in another unit (tts "
            "fit --unit)",
        )
    return float(cost)


def _others(
    results: Sequence[Result], problems: Sequence[_Problem], plain: float, unit: str
) -> tuple[Mapping[str, tuple[Floats, Floats]], Mapping[str, Floats], Mapping[str, Floats]]:
    """Return sizes and shares of strategies that search, from their own runs, a size for each budget; their limits, and
    what they spent.

    Args:
        results: The results of a study.
        problems: Its problems.
        plain: The cost of a plain sample in the unit.
        unit: The unit of costs.
    """
    place = {problem: i for i, problem in enumerate(problems)}
    runs: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        strategy = parse(result.cell.strategy, file_scope()).strategy
        if result.right is not None and (other_models(strategy) or not isinstance(strategy, _NOT_SEARCHES)):
            runs[result.cell.strategy][str(sorted(result.cell.budget.items()))].append(result)
    found: dict[str, tuple[Floats, Floats]] = {}
    limits, spent = dict[str, Floats](), dict[str, Floats]()
    for text, budgets in runs.items():
        columns: list[tuple[float, float, Floats, Floats]] = []
        for group in budgets.values():
            right, cost, seen = np.zeros((3, len(problems)))
            for result in group:
                if (at := place.get((result.cell.dataset, result.cell.problem))) is not None:
                    right[at] += result.right is True
                    cost[at] += _cost(result, unit) / plain
                    seen[at] += 1
            if seen.any():
                share, own = (np.where(seen > 0, each / np.maximum(seen, 1), np.nan) for each in (right, cost))
                every = np.array([_cost(result, unit) for result in group]) / plain
                limit = min(float(group[0].cell.budget.get(unit, math.nan)) / plain, _SPARE * float(every.max()))
                columns.append((float(every.mean()), limit, share, own))
        columns.sort(key=lambda each: each[0])
        smaller = [0.0, *(column[0] for column in columns)]
        # a larger budget may not buy more
        rising = [each for before, each in zip(smaller, columns, strict=False) if each[0] > before]
        if rising:
            sizes, allowed = np.array([column[0] for column in rising]), np.array([column[1] for column in rising])
            found[text] = (sizes, np.stack([column[2] for column in rising], axis=1))
            spent[text] = np.stack([column[3] for column in rising], axis=1)
            if np.isfinite(allowed).all():
                limits[text] = np.maximum(allowed, sizes)
    return found, limits, spent
