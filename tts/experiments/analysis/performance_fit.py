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
from tts._common.scopes import file_scope
from tts.allocator import repeats
from tts.allocator.auto import Auto
from tts.allocator.difficulty import LURES, RATES, Floats, Population, Whole
from tts.allocator.performance import MOST, PerformanceCurve, PerformanceModel, PilotedCurve, costs_by_rate, smooth
from tts.allocator.performance_file import UNITS, draws_plain, other_models
from tts.errors import ConfigError, quote
from tts.experiments.analysis.averaging import ReplaySettings, means_of
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import load_problems
from tts.experiments.study.record import Cell, RecordedSample, Result
from tts.search.parts import Plan, Selection
from tts.search.plan import parse
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.search.stop_rules.first_finish import FirstFinish
from tts.search.stop_rules.sprt import SPRT
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.search.strategies.samples.single import Single

_FEWEST = 20  # number of problems below which a curve by difficulty is noise
_DRAWS = 32  # number of subsets of a pool at each size, where there is no closed form
PARTS = 5  # number of parts of the problems, each predicted from the others
_RULED = (4, 8, 16)  # numbers of solutions that a stop rule may cut short
_COST_MARGIN = 1.25  # factor on the highest cost of any problem, which bounds the limit of a search
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
        others: The estimated number of other wrong answers of a problem; None: unknown. See `Population`.
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
    others: int | None = None

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
        pools = [pool for pool in plain_pools if all(sample.right is not None for sample in pool.drawn)]
        policies = {(pool.cell.model, pool.cell.setting, str(pool.law)) for pool in pools}
        if len(policies) > 1:
            raise ConfigError(
                f"the study has pools of {len(policies)} models or settings, but a performance model is of one",
                hint="sample one model at a time: tts sample STUDY.yaml --set models=MODEL",
            )
        by_problem: dict[_Problem, ProblemPool] = {}
        for pool in pools:  # the pool of a problem's first seed is taken
            by_problem.setdefault((pool.cell.dataset, pool.cell.problem), pool)
        if len(by_problem) < _FEWEST:
            raise ConfigError(
                f"the study has pools of {len(by_problem)} problems with reference answers, but at least {_FEWEST} "
                "are needed",
                hint="draw more with tts sample",
            )
        pool_list = list(by_problem.values())
        better_first = _better_first_sample(finished, pool_list)
        temperature, started_pools = better_first or (None, pool_list)
        sampled = _sample(started_pools, seed, begun=better_first is not None)
        best, *_ = sampled.values()
        tokens = float(best.tokens[-1] / best.sizes[-1])
        if any(other_models(parse(result.cell.strategy, file_scope()).strategy) for result in finished):
            sample_costs = _mean_sample_costs(finished, pool_list, unit)
            plain_cost = float(sample_costs.mean())
        else:
            unit, plain_cost = "tokens", tokens
            sample_costs = _mean_sample_tokens(pool_list)
        searched = _others(finished, list(by_problem), plain_cost, unit)
        ruled = _replay_rules(pool_list, best, seed)
        plain_shares = {text: (sampling.sizes, sampling.right) for text, sampling in sampled.items()}
        others = repeats.estimate([_wrong_votes(pool) for pool in pool_list], LURES)
        leader, second, num_samples = np.array([_votes(pool) for pool in started_pools]).T
        return cls(
            cell=pool_list[0].cell,
            known=np.stack([_log_likelihood(pool, others or 0) for pool in pool_list]),
            others=others,
            votes=(leader, second, num_samples),
            first=temperature,
            tokens=tokens,
            sampled=tuple(plain_shares),
            shares={**plain_shares, **ruled.shares, **searched.shares},
            unit=unit,
            limits={**ruled.limits, **searched.limits},
            spent={**ruled.spent, **searched.spent},
            plain=sample_costs / sample_costs.mean(),
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
        best_plain, *_ = curves.values()
        num_others = len(curves) - len(self.sampled)
        kept_curves = {
            text: curve
            for text, curve in curves.items()
            if text in self.sampled or _pays(curve, best_plain, num_others)
        }
        roles = [role for text in kept_curves for role in other_models(parse(text, file_scope()).strategy)]
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
            models={role: models.get(role, role) for role in roles},
            piloted=self._pilot_curve(population, kept_curves),
        )

    def _pilot_curve(self, population: Population, curves: Mapping[str, PerformanceCurve]) -> PilotedCurve | None:
        """Return what `auto` reaches after pilots: about what plain samples reach at the same limit.

        None: a kept strategy searches, with which pilots are worth more than plain samples.
        """
        others = [text for text in curves if text not in self.sampled]
        if not others or any(parse(text, file_scope()).stopping is None for text in others):
            return None
        plain = curves[self.sampled[0]]
        weight = population.weight.reshape(len(RATES), -1).sum(axis=1)
        return PilotedCurve(plain.sizes, weight @ plain.accuracy)

    def _fit_rows(self, rows: Whole, rng: np.random.Generator) -> tuple[Population, dict[str, PerformanceCurve]]:
        """Return the population of some of the problems, and the curve of each strategy on these problems.

        Args:
            rows: The indices of the problems.
            rng: The generator of the resampled problems, for errors.
        """
        population = dataclasses.replace(Population.beta(), others=self.others).fit(self.known[rows])
        posterior = _over_rates(population.posterior(self.known[rows]))  # [rows, G]
        curves: dict[str, PerformanceCurve] = {}
        for text, (sizes, right) in self.shares.items():
            accuracy, error = smooth(posterior, right[rows], rng)
            curves[text] = PerformanceCurve(
                sizes=sizes,
                accuracy=accuracy,
                error=error,
                limits=self.limits.get(text),
                costs=self._costs(text, posterior, rows),
            )
        return population, curves

    def _costs(self, text: str, posterior: Floats, rows: Whole) -> Floats | None:
        """Return the costs of a strategy by success rate; None: the strategy draws plain samples."""
        return costs_by_rate(posterior, self.spent[text][rows], self.plain[rows]) if text in self.spent else None

    def held_out(self, seed: int = 0) -> list[HeldOut]:
        """Return predicted and measured accuracies of each strategy, by cross-validation."""
        rng = np.random.default_rng(seed)
        fold_of_problem = rng.permutation(self.problems) % PARTS
        predicted = {text: np.full(right.shape, np.nan) for text, (_, right) in self.shares.items()}  # [P, B] each
        for fold in range(PARTS):
            held_out_rows = np.flatnonzero(fold_of_problem == fold)
            population, curves = self._fit_rows(np.flatnonzero(fold_of_problem != fold), rng)
            leader, second, num_samples = (counts[held_out_rows] for counts in self.votes)
            likelihood = population.vote_likelihood(leader, second, num_samples)
            posterior = _over_rates(population.posterior(likelihood))  # [held-out problems, G]
            for text, curve in curves.items():
                predicted[text][held_out_rows] = posterior @ curve.accuracy
        return [_held_out(text, sizes, predicted[text], right) for text, (sizes, right) in self.shares.items()]


def _pays(curve: PerformanceCurve, plain: PerformanceCurve, num_others: int) -> bool:
    """Return whether a strategy is significantly better than plain samples at equal cost.

    A better accuracy at one size and success rate is enough. The level is 95 % over all strategies, sizes and rates
    together, by Bonferroni's bound.

    Args:
        curve: The curve of the strategy.
        plain: The curve of plain samples.
        num_others: The number of strategies that are compared.
    """
    log_sizes, log_plain_sizes = np.log(curve.sizes), np.log(plain.sizes)
    plain_accuracy = np.stack([np.interp(log_sizes, log_plain_sizes, row) for row in plain.accuracy])  # [G, B]
    plain_error = np.stack([np.interp(log_sizes, log_plain_sizes, row) for row in plain.error])  # [G, B]
    num_errors = float(special.ndtri(1 - 0.05 / (curve.accuracy.size * num_others)))
    margin = num_errors * np.hypot(curve.error, plain_error) + 1e-9
    return bool((curve.accuracy - plain_accuracy > margin).any())


def described_keys(config: StudyConfig, cell: Cell) -> tuple[str, str, dict[str, str]]:
    """Return the names of a cell's policy, task, and models by role, which a performance model describes."""
    records = config.models[cell.model].records()
    policy = records["policy"]
    (source,) = (source for source in config.problems if source.title == cell.dataset)
    one_problem = config.model_copy(update={"problems": [source.model_copy(update={"limit": 1})]})
    problem, *_ = load_problems(one_problem)[cell.dataset].values()
    task = tasks.get(problem.task or config.task or policy.task)
    return policy.name, task.name, {role: record.name for role, record in records.items()}


def keys_of_import(settings: Mapping[str, Any], cell: Cell) -> tuple[str, str, dict[str, str]]:
    """Return the same as `described_keys` for imported samples, whose study has no models.

    Args:
        settings: The settings of the import, by the names of `ImportSettings`.
        cell: A cell of the import.
    """
    return cell.model, tasks.get(settings.get("task", "math")).name, {"policy": cell.model}


def _held_out(text: str, sizes: Floats, predicted: Floats, right: Floats) -> HeldOut:
    """Return predicted beside measured accuracy.

    Args:
        text: The text of the strategy.
        sizes: [B], the sizes in plain samples.
        predicted: [P, B], the predicted shares of right answers.
        right: [P, B], the measured shares; NaN: not measured.
    """
    is_measured = ~np.isnan(right)
    predictions, measurements = predicted[is_measured], right[is_measured]  # one value a measurement
    order = np.argsort(predictions, kind="stable")
    gaps = [
        abs(predictions[group].mean() - measurements[group].mean()) * len(group)
        for group in np.array_split(order, _GROUPS)
        if len(group)
    ]
    return HeldOut(
        strategy=text,
        sizes=(float(sizes[0]), float(sizes[-1])),
        predicted=float(predictions.mean()),
        measured=float(measurements.mean()),
        error=float(sum(gaps) / len(order)),
    )


def _over_rates(posterior: Floats) -> Floats:
    """Return weights over success rates [P, G] from weights over kinds [P, Z]."""
    return posterior.reshape(len(posterior), len(RATES), -1).sum(axis=2)


def _votes(pool: ProblemPool) -> tuple[int, int, int]:
    """Return the votes of the two most frequent answers among the first `PILOTS` samples, and the samples' number."""
    first_samples = pool.drawn[:PILOTS]
    votes = Counter(sample.answer_class for sample in first_samples if sample.answer_class is not None)
    leader, second, *_ = *sorted(votes.values(), reverse=True), 0, 0
    return leader, second, len(first_samples)


def _wrong_votes(pool: ProblemPool) -> list[int]:
    """Return the votes of each wrong answer of a pool."""
    votes = Counter(s.answer_class for s in pool.drawn if s.right is not True and s.answer_class is not None)
    return list(votes.values())


def _log_likelihood(pool: ProblemPool, others: int) -> Floats:
    """Return the log-likelihood [Z] of a pool's samples.

    The likelihood is of the number of right samples, and of the votes of each wrong answer. A sample without an answer
    is one of the other wrong ones. Where these never repeat, the lure is the most frequent wrong answer, and all
    further wrong samples differ.

    Args:
        pool: The pool.
        others: The number of other wrong answers; 0: infinitely many.
    """
    kinds, votes = Population.beta(), _wrong_votes(pool)
    num_right = sum(sample.right is True for sample in pool.drawn)
    num_wrong = len(pool.drawn) - num_right
    if not others:
        most = max(votes, default=0)
        votes = [n for n in (most, *[1] * (num_wrong - most)) if n]
    log_silent = special.xlogy(num_wrong - sum(votes), kinds.scattered)
    log_wrong = repeats.wrong_likelihood(kinds.lure, kinds.scattered, others, votes)
    return special.xlogy(num_right, kinds.rate) + log_silent + log_wrong


def _mean_sample_tokens(pools: Sequence[ProblemPool]) -> Floats:
    """Return the mean tokens of a sample of each pool, [P]; a sample without tokens counts as one token."""
    return np.array([np.mean([max(1, sample.tokens) for sample in pool.drawn]) for pool in pools], np.float64)


def _mean_sample_costs(results: Sequence[Result], pools: Sequence[ProblemPool], unit: str) -> Floats:
    """Return the mean cost of a sample of each pool in a unit, [P].

    Args:
        results: The results of a study, among them the results of the pools.
        pools: The pools.
        unit: The unit of costs.

    Raises:
        ConfigError: A cost is unknown.
    """
    costs = {result.cell.key: _cost(result, unit) / len(result.drawn) for result in results if result.drawn}
    return np.array([costs[pool.cell.key] for pool in pools])


def _better_first_sample(
    results: Sequence[Result], pools: Sequence[ProblemPool]
) -> tuple[float, Sequence[ProblemPool]] | None:
    """Return a temperature whose single sample is more accurate, and the pools with that sample prepended.

    The single sample is compared with a sample of the pools. None: the study has no recorded `single` at another
    temperature on all the problems, or the single sample is no better.
    """
    samples_by_temperature: dict[float, dict[_Problem, RecordedSample]] = defaultdict(dict)
    for result in results:
        strategy = parse(result.cell.strategy, file_scope()).strategy
        if isinstance(strategy, Single) and strategy.temperature is not None and result.drawn:
            sample, by_problem = result.drawn[0], samples_by_temperature[strategy.temperature]
            problem = (result.cell.dataset, result.cell.problem)
            if problem not in by_problem or len(sample.scores) > len(by_problem[problem].scores):
                by_problem[problem] = sample
    problems = [(pool.cell.dataset, pool.cell.problem) for pool in pools]
    plain_accuracy = np.mean([np.mean([sample.right is True for sample in pool.drawn]) for pool in pools])
    accuracies = {
        temperature: np.mean([samples[problem].right is True for problem in problems])
        for temperature, samples in samples_by_temperature.items()
        if all(problem in samples for problem in problems)
    }
    if not accuracies:
        return None
    best = max(accuracies, key=lambda temperature: accuracies[temperature])
    if accuracies[best] <= plain_accuracy:
        return None
    best_samples = samples_by_temperature[best]
    return best, [_prepend_sample(pool, best_samples[problem]) for pool, problem in zip(pools, problems, strict=True)]


def _prepend_sample(pool: ProblemPool, first: RecordedSample) -> ProblemPool:
    """Return a pool with another sample prepended. The sample joins the class of an equal answer, if any."""
    classes = {sample.answer: sample.answer_class for sample in pool.drawn}
    unused_class = len(pool.drawn)
    class_ = None if first.answer is None else classes.get(first.answer, unused_class)
    first = dataclasses.replace(first, answer_class=class_, like=None, same=None)
    # `like` and `same` are numbers of samples, which the prepended sample moves by one
    other_samples = [
        dataclasses.replace(
            sample,
            like=None if sample.like is None else sample.like + 1,
            same=None if sample.same is None else sample.same + 1,
        )
        for sample in pool.drawn
    ]
    return dataclasses.replace(pool, drawn=(first, *other_samples))


def _sample(pools: Sequence[ProblemPool], seed: int, *, begun: bool) -> Mapping[str, PlainSampling]:
    """Return plain sampling under each selection that the pools have scores for, beginning with the best.

    Args:
        pools: The recorded samples of each problem.
        seed: The seed of the subsets.
        begun: Whether every run starts with the pool's first sample; else all subsets are equally likely.
    """
    largest_size = min(len(pool.drawn) for pool in pools)
    if begun:
        largest_size -= 1
    sizes = tuple(2**i for i in range(min(largest_size, MOST).bit_length()))
    selections: list[Selection] = [Majority()]
    if all(pool.has("main") for pool in pools):
        selections.append(Weighted())
    settings = ReplaySettings(sizes=sizes, draws=_DRAWS, seed=seed)
    means_of_pool = _begun_means if begun else _means
    samplings: dict[str, PlainSampling] = {}
    for selection in selections:
        plan = Plan(pools[0].law, None, selection)
        # for each problem and size, the pair of right and tokens
        means = np.array([means_of_pool(pool, plan, settings) for pool in pools])
        right, tokens = means[:, :, 0], means[:, :, 1]  # [P, B] each
        samplings[str(plan)] = PlainSampling(sizes=np.array(sizes, np.float64), right=right, tokens=tokens.mean(axis=0))
    lowest_common = max(sampling.tokens[0] for sampling in samplings.values())
    highest_common = min(sampling.tokens[-1] for sampling in samplings.values())
    log_costs = np.linspace(math.log(lowest_common), math.log(highest_common), 32)  # where accuracies are compared

    def mean_accuracy(text: str) -> float:
        sampling = samplings[text]
        return float(np.interp(log_costs, np.log(sampling.tokens), sampling.right.mean(axis=0)).mean())

    return {text: samplings[text] for text in sorted(samplings, key=mean_accuracy, reverse=True)}


def _means(pool: ProblemPool, plan: Plan, settings: ReplaySettings) -> list[tuple[float, float]]:
    """Return the share of right answers and the tokens at each size, over all subsets of a pool."""
    return [(means.right, means.generated_tokens + means.verifier_tokens) for means in means_of(pool, plan, settings)]


class _Measured(NamedTuple):
    """The measured strategies, each by its text, as in `PerformanceData`.

    `shares` has the sizes [B] and the shares of right answers [P, B]. `limits` are [B], and `spent` are [P, B].
    """

    shares: dict[str, tuple[Floats, Floats]]
    limits: dict[str, Floats]
    spent: dict[str, Floats]


def _replay_rules(pools: Sequence[ProblemPool], plain: PlainSampling, seed: int) -> _Measured:
    """Return votes that a stop rule cuts short, replayed from pools, whose limits are all their solutions.

    The rules are the first k of n solutions to finish, with k at most n / 2, and a lead of three votes. Plans that are
    no more accurate than plain samples at equal cost are left out.
    """
    smallest_pool = min(len(pool.drawn) for pool in pools)
    mean_tokens = _mean_sample_tokens(pools).mean()
    measured = _Measured({}, {}, {})
    for count in _RULED:
        if count > smallest_pool:
            continue
        finishers = [FirstFinish(k=2**i) for i in range((count // 2).bit_length())]
        for rule in (*finishers, SPRT(preset="consol")):
            plan = Plan(BestOfN(n=count), rule, Majority())
            settings = ReplaySettings(sizes=(count,), draws=_DRAWS, seed=seed)
            means = [means_of(pool, plan, settings)[0] for pool in pools]
            cost = np.array([[pool_means.generated_tokens] for pool_means in means]) / mean_tokens  # [P, 1]
            right = np.array([[pool_means.right] for pool_means in means])  # [P, 1]
            plain_right = np.interp(math.log(cost.mean()), np.log(plain.sizes), plain.right.mean(axis=0))
            if right.mean() > plain_right:
                measured.shares[str(plan)] = (cost.mean(axis=0), right)
                measured.spent[str(plan)] = cost
                measured.limits[str(plan)] = np.maximum(cost.mean(axis=0), count)
    return measured


def _begun_means(pool: ProblemPool, plan: Plan, settings: ReplaySettings) -> list[tuple[float, float]]:
    """Return the share of right answers and the tokens at each size, over runs that start with the first sample."""
    search, rng = RecordedSearch(pool, plan), settings.rng(pool)
    other_samples = np.arange(1, len(pool.drawn))
    orders = [[0, *rng.permutation(other_samples).tolist()] for _ in range(settings.draws)]
    means: list[tuple[float, float]] = []
    for size in settings.sizes:
        run_orders = orders[:1] if size == 1 else orders  # all orders begin with the same sample
        outcomes = [search.run(order[:size]) for order in run_orders]
        right = np.mean([outcome.right is True for outcome in outcomes])
        tokens = np.mean([outcome.generated_tokens + outcome.verifier_tokens for outcome in outcomes])
        means.append((float(right), float(tokens)))
    return means


def _cost(result: Result, unit: str) -> float:
    """Return the cost of a result in a unit.

    Raises:
        ConfigError: the cost is unknown.
    """
    cost = getattr(result.usage, unit)
    if cost is None:
        raise ConfigError(
            f"{result.cell.strategy} has no cost in {unit}, in which models are compared",
            hint="give the rates of all models in their records and run again, or compare them in another unit (tts "
            "fit --unit)",
        )
    return float(cost)


def _others(results: Sequence[Result], problems: Sequence[_Problem], plain: float, unit: str) -> _Measured:
    """Return the strategies that search, measured on their own runs. Each budget gives a size.

    Args:
        results: The results of a study.
        problems: The problems of the study.
        plain: The cost of a plain sample in the unit.
        unit: The unit of costs.
    """
    runs: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))  # by strategy and budget
    for result in results:
        strategy = parse(result.cell.strategy, file_scope()).strategy
        if result.right is not None and (other_models(strategy) or not isinstance(strategy, _NOT_SEARCHES)):
            runs[result.cell.strategy][str(sorted(result.cell.budget.items()))].append(result)
    measured = _Measured({}, {}, {})
    for text, runs_by_budget in runs.items():
        points = [_measure_budget(budget_runs, problems, plain, unit) for budget_runs in runs_by_budget.values()]
        increasing: list[_MeasuredBudget] = []
        smaller_size = 0.0
        for point in sorted((point for point in points if point is not None), key=lambda point: point.size):
            if point.size > smaller_size:  # a larger budget that buys no more is left out
                increasing.append(point)
            smaller_size = point.size
        if increasing:
            sizes = np.array([point.size for point in increasing])
            limits = np.array([point.limit for point in increasing])
            measured.shares[text] = (sizes, np.stack([point.right for point in increasing], axis=1))
            measured.spent[text] = np.stack([point.spent for point in increasing], axis=1)
            if np.isfinite(limits).all():
                measured.limits[text] = np.maximum(limits, sizes)
    return measured


class _MeasuredBudget(NamedTuple):
    """A strategy's runs under one budget.

    `size` is the mean cost of a run, and `limit` the budget, both in plain samples. `right` [P] is the share of right
    answers, and `spent` [P] the mean cost, of each problem; NaN: the problem was not run.
    """

    size: float
    limit: float
    right: Floats
    spent: Floats


def _measure_budget(
    runs: Sequence[Result], problems: Sequence[_Problem], plain: float, unit: str
) -> _MeasuredBudget | None:
    """Return the measurement of a strategy's runs under one budget; None: no run is of one of the problems."""
    index_of = {problem: i for i, problem in enumerate(problems)}
    right, spent, num_runs = np.zeros(len(problems)), np.zeros(len(problems)), np.zeros(len(problems))
    for run in runs:
        index = index_of.get((run.cell.dataset, run.cell.problem))
        if index is not None:
            right[index] += run.right is True
            spent[index] += _cost(run, unit) / plain
            num_runs[index] += 1
    if not num_runs.any():
        return None
    safe_num_runs = np.maximum(num_runs, 1)
    costs = np.array([_cost(run, unit) for run in runs]) / plain
    budget = float(runs[0].cell.budget.get(unit, math.nan)) / plain
    return _MeasuredBudget(
        size=float(costs.mean()),
        limit=min(budget, _COST_MARGIN * float(costs.max())),
        right=np.where(num_runs > 0, right / safe_num_runs, np.nan),
        spent=np.where(num_runs > 0, spent / safe_num_runs, np.nan),
    )
