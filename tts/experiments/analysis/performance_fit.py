"""Fits a performance model to a recorded study, for the allocator.

The model has the accuracy of each strategy by difficulty and size.

Recorded pools give the difficulty: checked samples of a problem give a posterior over its success rate. Replay of the
pools gives the accuracy of plain sampling at every size, without new tokens. The accuracies of other strategies come
from the study's own results, at the budgets that were run. Cross-validation over parts of the problems shows how good
the model is.

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

_FEWEST = 20  # number of problems below which a curve by difficulty is noise
_DRAWS = 32  # number of subsets of a pool at each size, where there is no closed form
PARTS = 5  # number of parts of the problems, each predicted from the others
_FINISHERS = (4, 8, 16)  # numbers of solutions; the first half to finish votes
_SPARE = 1.25  # factor on the highest cost of any problem, which bounds the limit of a search
_GROUPS = 10  # number of groups of predictions, by predicted value
PILOTS = 4  # number of samples that a prediction is made from
_Problem = tuple[str, str]
_NOT_SEARCHES = (BestOfN, Single, Auto)  # plain sampling, which pools cover, and the allocator


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The predicted and measured accuracy of a strategy on held-out problems, with `PILOTS` samples each.

    Args:
        strategy: The text of the strategy.
        sizes: The least and the greatest size, in plain samples.
        predicted: The predicted mean accuracy over problems and sizes.
        measured: The measured mean accuracy over problems and sizes.
        error: The mean absolute difference of predictions and measurements over ten groups by predicted value.
    """

    strategy: str
    sizes: tuple[float, float]
    predicted: float
    measured: float
    error: float


class PlainSampling(NamedTuple):
    """Results of plain sampling.

    `sizes` [B] are in samples. `right` [P, B] are shares of right answers. `tokens` [B] are mean costs with scores.
    """

    sizes: Floats
    right: Floats
    tokens: Floats


@refuse_old_members
@dataclass(frozen=True, slots=True, eq=False)
class PerformanceData:
    """The data of a study's problems from which a performance model is fitted.

    Args:
        cell: A cell of the study.
        known: [P, Z], the log-likelihood of all samples of each pool.
        votes: The leader's votes, the second answer's votes, and the number of samples, among the first `PILOTS`
            samples, [P] each.
        first: The temperature of the first sample of each problem, where a better temperature than the others' was
            found.
        tokens: The mean cost of a plain sample, with its score if its selection reads scores.
        sampled: The strategies that draw plain samples.
        unit: The unit of the costs that are compared: "tokens", or the requested unit where strategies name models
            beside the policy.
        shares: The sizes [B] of each strategy in plain samples, and its shares of right answers [P, B]; NaN: not
            measured.
        limits: The limits of each searching strategy by size [B], in plain samples, at most a quarter above the
            highest cost of any problem. Strategies whose budgets are in another unit than the costs are left out.
        spent: The costs of each searching strategy by problem [P, B], in mean plain samples; NaN: not measured.
        plain: [P], the cost of a plain sample of each problem, in mean plain samples.
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
            unit: The unit, "tokens", "flops" or "usd", in which strategies with models beside the policy are compared
                to plain samples.

        Raises:
            ConfigError: there are no pools, or the pools are of several models, of too few problems, or without
                reference answers; or models are compared, and a result has no cost in the unit.
        """
        if unit not in UNITS:
            raise ConfigError(f"unit is {quote(unit)}, but must be {' or '.join(map(repr, UNITS))}")
        finished = [result for result in results if result.error is None]
        plain_pools = (pool for pool in pools_of(finished).pools if draws_plain(Plan(pool.law, None, Majority())))
        pools = [pool for pool in plain_pools if all(one.right is not None for one in pool.drawn)]
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
        pool_list = list(by_problem.values())
        greedy = _greedy(finished, pool_list)
        first, drawn = greedy or (None, pool_list)
        sampled = _sample(drawn, seed, begun=greedy is not None)
        best = next(iter(sampled.values()))
        tokens = float(best.tokens[-1] / best.sizes[-1])
        shares = {text: (sampling.sizes, sampling.right) for text, sampling in sampled.items()}
        leader, second, samples = np.array([_votes(pool) for pool in drawn]).T
        if not any(other_models(parse(result.cell.strategy, file_scope()).strategy) for result in finished):
            unit, plain = "tokens", tokens
            sample_costs = np.array([np.mean([max(1, one.tokens) for one in pool.drawn]) for pool in pool_list])
        else:
            costs = {
                result.cell.key: _cost(result, unit) / len(result.drawn or ()) for result in finished if result.drawn
            }
            sample_costs = np.array([costs[pool.cell.key] for pool in pool_list])
            plain = float(sample_costs.mean())
        searched, limits, spent = _others(finished, list(by_problem), plain, unit)
        finish_order, costs = _replay_finish_order(pool_list, best, seed)
        searched, spent = {**finish_order, **searched}, {**costs, **spent}
        return cls(
            pool_list[0].cell,
            np.stack([_log_likelihood(pool) for pool in pool_list]),
            (leader, second, samples),
            first,
            tokens,
            tuple(shares),
            {**shares, **searched},
            unit,
            limits,
            spent,
            sample_costs / sample_costs.mean(),
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
            model: The name of the policy (`described_keys`).
            task: The name of the task.
            models: The names of the models, by role.
            source: The study's name.
            seed: The seed of the resampled problems, for errors.
        """
        population, curves = self._fit_rows(np.arange(self.problems), np.random.default_rng(seed))
        plain = next(iter(curves.values()))
        kept_curves = {text: curve for text, curve in curves.items() if text in self.sampled or _pays(curve, plain)}
        return PerformanceModel(
            model=model,
            task=task,
            verifiers=dict(self.cell.verifiers),
            source=source,
            problems=self.problems,
            tokens=self.tokens,
            population=population,
            curves=kept_curves,
            first=self.first,
            unit=self.unit,
            models={
                role: models.get(role, role)
                for text in kept_curves
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
        """Return the costs of a strategy by success rate; None: the strategy draws plain samples."""
        return costs_by_rate(posterior, self.spent[text][rows], self.plain[rows]) if text in self.spent else None

    def held_out(self, seed: int = 0) -> list[HeldOut]:
        """Return predicted and measured accuracies of each strategy, by cross-validation."""
        rng = np.random.default_rng(seed)
        part = rng.permutation(self.problems) % PARTS
        predicted = {text: np.full(right.shape, np.nan) for text, (_, right) in self.shares.items()}
        for fold in range(PARTS):
            rows, others = np.flatnonzero(part == fold), np.flatnonzero(part != fold)
            population, curves = self._fit_rows(others, rng)
            chance = _over_rates(
                population.posterior(population.vote_likelihood(*(votes[rows] for votes in self.votes)))
            )
            for text, curve in curves.items():
                predicted[text][rows] = chance @ curve.accuracy
        return [_held_out(text, sizes, predicted[text], right) for text, (sizes, right) in self.shares.items()]


def _pays(curve: PerformanceCurve, plain: PerformanceCurve) -> bool:
    """Return whether a strategy is significantly better than plain samples at equal cost.

    One size and success rate is enough. The level is 95 % over all sizes and rates together, by Bonferroni's bound.
    """
    logs = np.log(curve.sizes), np.log(plain.sizes)
    plain_accuracy, plain_error = (
        np.stack([np.interp(*logs, row) for row in table]) for table in (plain.accuracy, plain.error)
    )
    threshold = float(special.ndtri(1 - 0.05 / curve.accuracy.size))
    return bool((curve.accuracy - plain_accuracy > threshold * np.hypot(curve.error, plain_error) + 1e-9).any())


def described_keys(config: StudyConfig, cell: Cell) -> tuple[str, str, dict[str, str]]:
    """Return the names of a cell's policy, task, and models by role, which a performance model describes."""
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
        cell: A cell of the import.
    """
    return cell.model, tasks.get(settings.get("task", "math")).name, {"policy": cell.model}


def _held_out(text: str, sizes: Floats, predicted: Floats, right: Floats) -> HeldOut:
    is_measured = ~np.isnan(right)
    order = np.argsort(predicted[is_measured], kind="stable")
    groups = np.array_split(order, _GROUPS)
    gaps = [
        abs(predicted[is_measured][group].mean() - right[is_measured][group].mean()) * len(group)
        for group in groups
        if len(group)
    ]
    return HeldOut(
        strategy=text,
        sizes=(float(sizes[0]), float(sizes[-1])),
        predicted=float(predicted[is_measured].mean()),
        measured=float(right[is_measured].mean()),
        error=float(sum(gaps) / len(order)),
    )


def _over_rates(posterior: Floats) -> Floats:
    """Return weights over success rates [P, G] from weights over kinds [P, Z]."""
    return posterior.reshape(len(posterior), len(RATES), -1).sum(axis=2)


def _votes(pool: ProblemPool) -> tuple[int, int, int]:
    """Return the votes of the two most frequent answers among the first samples, and the samples' number."""
    first_samples = pool.drawn[:PILOTS]
    counts = [
        count
        for _, count in Counter(
            sample.answer_class for sample in first_samples if sample.answer_class is not None
        ).most_common(2)
    ]
    leader, second = (*counts, 0, 0)[:2]
    return leader, second, len(first_samples)


def _log_likelihood(pool: ProblemPool) -> Floats:
    """Return the log-likelihood [Z] of a pool's samples.

    The likelihood is of the number of right samples, and of the votes of the most frequent wrong answer.
    """
    kinds = Population.beta()
    right = sum(sample.right is True for sample in pool.drawn)
    wrong = Counter(
        sample.answer_class for sample in pool.drawn if sample.right is not True and sample.answer_class is not None
    )
    lure, num_wrong = max(wrong.values(), default=0), len(pool.drawn) - right
    base = special.xlogy(right, kinds.rate)
    if lure > 1:
        return base + special.xlogy(lure, kinds.lure) + special.xlogy(num_wrong - lure, kinds.scattered)
    alone = special.xlogy(num_wrong, kinds.scattered)
    if not num_wrong:
        return base + alone
    return base + np.logaddexp(
        alone, math.log(num_wrong) + special.xlogy(1, kinds.lure) + special.xlogy(num_wrong - 1, kinds.scattered)
    )


def _greedy(results: Sequence[Result], pools: Sequence[ProblemPool]) -> tuple[float, Sequence[ProblemPool]] | None:
    """Return a temperature whose single sample is more accurate, and the pools with that sample prepended.

    The single sample is compared with a sample of the pools. None: the study has no recorded `single` at another
    temperature on all the problems, or that sample is no better.
    """
    samples_by_temperature: dict[float, dict[_Problem, RecordedSample]] = defaultdict(dict)
    for result in results:
        strategy = parse(result.cell.strategy, file_scope()).strategy
        if isinstance(strategy, Single) and strategy.temperature is not None and result.drawn:
            drawn, by_problem = result.drawn[0], samples_by_temperature[strategy.temperature]
            place = (result.cell.dataset, result.cell.problem)
            if place not in by_problem or len(drawn.scores) > len(by_problem[place].scores):
                by_problem[place] = drawn
    keys = [(pool.cell.dataset, pool.cell.problem) for pool in pools]
    plain = np.mean([np.mean([sample.right is True for sample in pool.drawn]) for pool in pools])
    shares = {
        t: np.mean([samples[key].right is True for key in keys])
        for t, samples in samples_by_temperature.items()
        if all(key in samples for key in keys)
    }
    best = max(shares, key=lambda t: shares[t], default=None)
    if best is None or shares[best] <= plain:
        return None
    return best, [
        _prepend_sample(pool, samples_by_temperature[best][key]) for pool, key in zip(pools, keys, strict=True)
    ]


def _prepend_sample(pool: ProblemPool, first: RecordedSample) -> ProblemPool:
    """Return a pool with another sample prepended. The sample joins the class of an equal answer, if any."""
    classes = {sample.answer: sample.answer_class for sample in pool.drawn}
    class_ = None if first.answer is None else classes.get(first.answer, len(pool.drawn))
    others = (
        dataclasses.replace(
            sample,
            like=None if sample.like is None else sample.like + 1,
            same=None if sample.same is None else sample.same + 1,
        )
        for sample in pool.drawn
    )
    return dataclasses.replace(
        pool, drawn=(dataclasses.replace(first, answer_class=class_, like=None, same=None), *others)
    )


def _sample(pools: Sequence[ProblemPool], seed: int, *, begun: bool) -> Mapping[str, PlainSampling]:
    """Return plain sampling under each selection that the pools have scores for, beginning with the best.

    Args:
        pools: The recorded samples of each problem.
        seed: The seed of the subsets.
        begun: Whether every run starts with the pool's first sample; else all subsets are equally likely.
    """
    smallest = min(len(pool.drawn) for pool in pools) - begun
    counts = tuple(2**i for i in range(min(smallest, MOST).bit_length()))
    selections: list[Selection] = [Majority()]
    if all(pool.has("main") for pool in pools):
        selections.append(Weighted())
    reading, samplings = ReplaySettings(sizes=counts, draws=_DRAWS, seed=seed), dict[str, PlainSampling]()
    for selection in selections:
        plan = Plan(pools[0].law, None, selection)
        # [P, B, right and tokens]  # noqa: ERA001
        means = np.array([(_begun_means if begun else _means)(pool, plan, reading) for pool in pools])
        samplings[str(plan)] = PlainSampling(np.array(counts, np.float64), means[:, :, 0], means[:, :, 1].mean(axis=0))
    return dict(
        sorted(samplings.items(), key=lambda item: -_mean_accuracy_over_costs(item[1], list(samplings.values())))
    )


def _means(pool: ProblemPool, plan: Plan, reading: ReplaySettings) -> list[tuple[float, float]]:
    """Return the share of right answers and the tokens at each size, over all subsets of a pool."""
    return [(one.right, one.generated_tokens + one.verifier_tokens) for one in means_of(pool, plan, reading)]


def _replay_finish_order(
    pools: Sequence[ProblemPool], plain: PlainSampling, seed: int
) -> tuple[Mapping[str, tuple[Floats, Floats]], Mapping[str, Floats]]:
    """Return sizes and shares of votes of the first half to finish, and their costs; see `_others`.

    The votes are replayed from pools. Votes that are no more accurate than plain samples at equal cost are left out.
    """
    smallest = min(len(pool.drawn) for pool in pools)
    mean_tokens = np.array([np.mean([max(1, item.tokens) for item in pool.drawn]) for pool in pools])
    shares: dict[str, tuple[Floats, Floats]] = {}
    spent: dict[str, Floats] = {}
    for count in (n for n in _FINISHERS if n <= smallest):
        plan = Plan(BestOfN(n=count), FirstFinish(k=count // 2), Majority())
        reading = ReplaySettings(sizes=(count,), draws=_DRAWS, seed=seed)
        means = [means_of(pool, plan, reading)[0] for pool in pools]
        cost, right = (
            np.array([[item.generated_tokens] for item in means]) / mean_tokens.mean(),
            np.array([[item.right] for item in means]),
        )
        if right.mean() > np.interp(math.log(cost.mean()), np.log(plain.sizes), plain.right.mean(axis=0)):
            shares[str(plan)], spent[str(plan)] = (cost.mean(axis=0), right), cost
    return shares, spent


def _begun_means(pool: ProblemPool, plan: Plan, reading: ReplaySettings) -> list[tuple[float, float]]:
    """Return the same as `_means`, over runs that start with the pool's first sample."""
    run, rng = RecordedSearch(pool, plan).run, reading.rng(pool)
    orders = [[0, *(1 + rng.permutation(len(pool.drawn) - 1)).tolist()] for _ in range(reading.draws)]
    outcomes_by_size = [[run(order[:size]) for order in orders[: 1 if size == 1 else None]] for size in reading.sizes]
    return [
        (
            float(np.mean([outcome.right is True for outcome in outcomes])),
            float(np.mean([outcome.generated_tokens + outcome.verifier_tokens for outcome in outcomes])),
        )
        for outcomes in outcomes_by_size
    ]


def _mean_accuracy_over_costs(one: PlainSampling, every: Sequence[PlainSampling]) -> float:
    """Return the mean accuracy over the common costs of all selections, spaced evenly in the logarithm."""
    low, high = (
        math.log(limit) for limit in (max(each.tokens[0] for each in every), min(each.tokens[-1] for each in every))
    )
    return float(np.interp(np.linspace(low, high, 32), np.log(one.tokens), one.right.mean(axis=0)).mean())


def _cost(result: Result, unit: str) -> float:
    """Return the cost of a result in a unit.

    Raises:
        ConfigError: the cost is unknown.
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
    """Return sizes with shares, limits, and costs of the strategies that search, from their own runs.

    Each budget gives a size.

    Args:
        results: The results of a study.
        problems: The problems of the study.
        plain: The cost of a plain sample in the unit.
        unit: The unit of costs.
    """
    place = {problem: i for i, problem in enumerate(problems)}
    runs: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        strategy = parse(result.cell.strategy, file_scope()).strategy
        if result.right is not None and (other_models(strategy) or not isinstance(strategy, _NOT_SEARCHES)):
            runs[result.cell.strategy][str(sorted(result.cell.budget.items()))].append(result)
    shares: dict[str, tuple[Floats, Floats]] = {}
    limits, spent = dict[str, Floats](), dict[str, Floats]()
    for text, budgets in runs.items():
        columns: list[tuple[float, float, Floats, Floats]] = []
        for group in budgets.values():
            right, cost, run_counts = np.zeros((3, len(problems)))
            for result in group:
                if (index := place.get((result.cell.dataset, result.cell.problem))) is not None:
                    right[index] += result.right is True
                    cost[index] += _cost(result, unit) / plain
                    run_counts[index] += 1
            if run_counts.any():
                share, mean_cost = (
                    np.where(run_counts > 0, values / np.maximum(run_counts, 1), np.nan) for values in (right, cost)
                )
                costs = np.array([_cost(result, unit) for result in group]) / plain
                limit = min(float(group[0].cell.budget.get(unit, math.nan)) / plain, _SPARE * float(costs.max()))
                columns.append((float(costs.mean()), limit, share, mean_cost))
        columns.sort(key=lambda values: values[0])
        smaller = [0.0, *(column[0] for column in columns)]
        # a larger budget may not buy more
        larger = [values for smaller_size, values in zip(smaller, columns, strict=False) if values[0] > smaller_size]
        if larger:
            sizes, allowed_limits = (
                np.array([column[0] for column in larger]),
                np.array([column[1] for column in larger]),
            )
            shares[text] = (sizes, np.stack([column[2] for column in larger], axis=1))
            spent[text] = np.stack([column[3] for column in larger], axis=1)
            if np.isfinite(allowed_limits).all():
                limits[text] = np.maximum(allowed_limits, sizes)
    return shares, limits, spent
