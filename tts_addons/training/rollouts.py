"""Rollouts for reinforcement learning: groups of samples with rewards and advantages.

More samples are drawn where the rewards of a group differ.

    until the total is used up:
        of the prompts whose next samples promise most variance for their tokens, draw a few more of each
    a group's advantages are rewards less the group's mean, over its standard deviation

A group whose rewards are all equal has no advantage, and so no gradient. `objective="signal"` draws a few samples of
every prompt. It then divides the rest by the expected variance E[p (1 - p)] of a reward in {0, 1}, under a Beta
posterior over the success rate p of each prompt. Prompts that are almost surely all right or all wrong get no more.

Source: Shao et al., "DeepSeekMath" (2402.03300): the group's mean as a baseline, and its standard deviation as the
scale (GRPO). Yu et al., "DAPO" (2503.14476): groups without a difference teach nothing, so their dynamic sampling draws
other prompts. The division by expected variance is our choice. Differs:
- Groups have different sizes. Sizes depend on earlier rewards, so a group's mean has a bias of order 1 / size.
  `baseline="others"` uses the mean of the other rollouts, as RLOO does (2402.14740), which has the same bias. Equal
  groups (`objective="uniform"`) have none.
- A sample that the total cuts is no rollout: it stands in `RolloutGroup.cut`, and counts in no mean. Long samples are
  cut more often, so the last group leans towards short ones.
- The posterior begins as a Beta law that is fitted to all prompts by moments after the first samples, and not by a
  model of prompts.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Unpack

import numpy as np
from numpy.typing import NDArray

from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.checks import check_choice, check_int, columns_in, read_problems
from tts.errors import ConfigError, TTSError, quote
from tts.experiments.datasets import load
from tts.experiments.datasets.rows import hold
from tts.search.parts import Plan, Selected, Selection, Strategy
from tts.search.plan import parse
from tts.search.search import Search
from tts.solver.api import SolveOptions, make_solver
from tts.solver.solver import ProblemLike, Solver
from tts.types import Candidate, Problem, Solution
from tts_addons.training.records import PathSample, PathTokens, search_rows

Floats = NDArray[np.float64]
Reward = Callable[[Problem, str], float]

OBJECTIVES: Final = ("signal", "uniform")
BASELINES: Final = ("group", "others")
_FIRST: Final = 4  # samples of each prompt before the rest is divided
_STEP: Final = 4  # samples of a prompt in one wave after that
_MOST: Final = 4  # times n: the most samples of one prompt
_SETTLED_VARIANCE: Final = 0.02  # expected variance below which a group gets no more; .25 is the greatest
_SPREAD: Final = 2.0  # times the mean cost that a wave reserves for each sample, so that few are cut
_OVERESTIMATE: Final = 4.0  # times a sample's cost that a task's usual length may be
_EPSILON: Final = 1e-4  # added to a standard deviation, as TRL does


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sample of a prompt.

    Args:
        text: What the model wrote, a thought included.
        answer: The extracted answer; None: there is none.
        reward: Its reward.
        tokens: Its token ids with log-probabilities; None: the backend does not show them.
        num_tokens: How many tokens the model wrote.
        truncated: Whether a limit cut it: `max_tokens`, the context, or the total.
    """

    text: str
    answer: str | None
    reward: float
    tokens: PathTokens | None
    num_tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The rollouts of one prompt.

    Args:
        problem: The prompt, with its reference answer.
        rollouts: The rollouts, in draw order.
        cut: Samples without a reward, which is NaN: the total cut them, or the reward function failed on them. They
            count in nothing but the spend.
    """

    problem: Problem
    rollouts: tuple[Rollout, ...]
    cut: tuple[Rollout, ...] = ()

    @property
    def rewards(self) -> Floats:
        """The rewards, [n]."""
        return np.array([one.reward for one in self.rollouts], np.float64)

    @property
    def variance(self) -> float:
        """The variance of the rewards, over n; 0 for an empty group."""
        return float(self.rewards.var()) if self.rollouts else 0.0

    def advantages(self, *, baseline: str = "group", scaled: bool = True) -> Floats:
        """Return the advantage of each rollout, [n]: its reward less a baseline.

        Args:
            baseline: "group": the mean of the group; "others": the mean of the group's other rollouts.
            scaled: Whether advantages are divided by the standard deviation (over n - 1) plus 1e-4, as TRL does by
                default.

        Raises:
            ConfigError: The baseline is unknown.
        """
        check_choice("baseline", baseline, BASELINES)
        rewards = self.rewards
        if len(rewards) < 2:
            return np.zeros(len(rewards))
        advantages = rewards - rewards.mean()
        if baseline == "others":
            advantages *= len(rewards) / (len(rewards) - 1)
        if scaled:
            advantages /= rewards.std(ddof=1) + _EPSILON
        return advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """The groups of some prompts.

    Args:
        groups: A group for each prompt, in the order given.
        spent: The cost of all samples, by unit of the total, verifiers of the solver included. Flops and dollars that
            are not known are missing.
        stopped_by: Why no more samples were drawn.
    """

    groups: tuple[RolloutGroup, ...]
    spent: dict[str, float]
    stopped_by: str

    @property
    def signal(self) -> float:
        """The squared advantages before scaling, summed over all rollouts: the sum of size times variance."""
        return float(sum(len(group.rollouts) * group.variance for group in self.groups))

    @property
    def silent(self) -> float:
        """The share of groups whose rewards do not differ."""
        return sum(group.variance == 0 for group in self.groups) / len(self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalAllocator:
    """Divides samples among prompts by expected variance. It depends on its arguments alone.

    Shapes: P prompts.

    Args:
        first: The samples of each prompt before prompts are compared.
        step: The samples of a prompt in one wave.
        most: The most samples of one prompt.
        sure: The expected variance below which a prompt gets no more.
    """

    first: int = _FIRST
    step: int = _STEP
    most: int = 32
    sure: float = _SETTLED_VARIANCE

    def next(self, successes: Floats, samples: NDArray[np.int64], cost: Floats, payable: float) -> NDArray[np.int64]:
        """Return how many more samples each prompt gets, [P]; all 0: no prompt is worth more.

        Args:
            successes: The summed rewards of each prompt, [P]; each reward is in [0, 1].
            samples: The samples of each prompt, [P].
            cost: The expected cost of one sample of each prompt, [P].
            payable: The amount that is left of the total, in the unit of the cost.
        """
        more = np.zeros(len(samples), np.int64)
        new_prompts = np.flatnonzero(samples < self.first)  # prompts without their first samples
        if len(new_prompts):
            first_costs = (self.first - samples[new_prompts]) * cost[new_prompts]
            num_paid = int(np.searchsorted(np.cumsum(first_costs), payable, side="right"))
            new_prompts = new_prompts[: max(1, num_paid)]
            more[new_prompts] = self.first - samples[new_prompts]
            return more
        value = expected_variance(successes, samples)
        is_open = (value >= self.sure) & (samples < self.most)
        worth = np.where(is_open, value / cost, -np.inf)
        order = np.argsort(-worth, kind="stable")[: int(is_open.sum())]  # the open prompts, best first
        grants = np.minimum(self.step, self.most - samples[order])
        grant_costs = grants * cost[order]
        # a wave spends at most half of what is left, so that the rest is divided by newer values
        is_served = np.cumsum(grant_costs) <= max(payable / 2, 0.0)
        if len(order) and grant_costs[0] <= payable:  # the best prompt may take all that is left
            is_served[0] = True
        more[order[is_served]] = grants[is_served]
        return more

    def reason(self, successes: Floats, samples: NDArray[np.int64]) -> str:
        """Return the reason why `next` gives no more samples.

        Args:
            successes: As in `next`.
            samples: As in `next`.
        """
        if (samples >= self.most).all():
            return "samples drawn"
        if samples.min() >= self.first:
            is_open = (expected_variance(successes, samples) >= self.sure) & (samples < self.most)
            if not is_open.any():
                return "settled: no group promises a difference"
        return "budget: what is left pays for no further sample"


def expected_variance(successes: Floats, samples: NDArray[np.int64]) -> Floats:
    """Return the expected variance of a reward, E[p (1 - p)], of each prompt, [P].

    The success rate p of a prompt has a Beta prior, which is fitted to all prompts by moments. With the posterior
    Beta(a, b) the value is a b / ((a + b) (a + b + 1)).

    Args:
        successes: The summed rewards of each prompt, [P].
        samples: The samples of each prompt, [P], at least 1.
    """
    prior_a, prior_b = fit_beta(successes, samples)
    a, b = prior_a + successes, prior_b + samples - successes
    return a * b / ((a + b) * (a + b + 1))


def fit_beta(successes: Floats, samples: NDArray[np.int64]) -> tuple[float, float]:
    """Return the parameters a and b of the Beta distribution of success rates, fitted by moments.

    The variance that comes from few samples a prompt is subtracted. The weight a + b is at least half a sample. Where
    prompts differ no more than by chance, it is 20 samples.

    Args:
        successes: The summed rewards of each prompt, [P].
        samples: The samples of each prompt, [P], at least 1.
    """
    shares = successes / samples
    mean = float(np.clip(shares.mean(), 0.01, 0.99))
    variance_between, variance_of_sample = float(shares.var()), mean * (1 - mean)
    noise = float((1 / samples).mean())
    # variance_between = variance_of_sample * (rho + (1 - rho) * noise), with rho = 1 / (a + b + 1)
    rho = 0.0
    if variance_of_sample:
        rho = (variance_between / variance_of_sample - noise) / max(1e-9, 1 - noise)
    weight = float(np.clip(1 / rho - 1, 0.5, 20)) if rho > 0 else 20.0
    return mean * weight, (1 - mean) * weight


def rollouts(  # noqa: PLR0913 - settings, by name
    prompts: Iterable[ProblemLike | Mapping[str, Any]],
    total: Budget | Account | float,
    *,
    solver: Solver | None = None,
    reward: Reward | None = None,
    strategy: str | Plan | Strategy = "best_of_n",
    objective: str = "uniform",
    n: int = 8,
    most: int | None = None,
    seed: int = 0,
    **options: Unpack[SolveOptions],
) -> Rollouts:
    """Draw groups of samples under one total, and give each sample a reward.

    A sample that `max_tokens` cuts counts as it stands, mostly with a reward of 0; `Rollout.truncated` marks it. A
    sample that the total cuts is not judged, and counts in no group: it stands in `RolloutGroup.cut`.

    Args:
        prompts: The prompts, with reference answers unless `reward` is given. A data frame, a data set or a list of
            rows has them under the usual names, such as `question` and `answer`.
        total: The budget of all samples together, with a limit in tokens; a number limits tokens. The cost never
            exceeds it.
        solver: The writer of the samples, with its task and sampling; None: a solver with the options.
        reward: A function of a problem and the whole text, its thought included, that returns a number; "signal" asks
            for one in [0, 1]. `tts.thoughts.THINK.response` gives the text after the thought. None: 1 for a
            right answer, else 0.
        strategy: The strategy of a group, which has a parameter `n`.
        objective: "uniform": n samples of each prompt. "signal": groups have different sizes, more samples where
            rewards differ: the total is divided by expected variance.
        n: The samples of each prompt under "uniform"; under "signal" a quarter of the default `most`.
        most: The most samples of one prompt under "signal"; None: 4 n.
        seed: The seed of all samples.
        options: Options of `tts.solve`, such as `model`, `task` and `temperature`, in place of `solver`.

    Returns:
        A group for each prompt, in the order given. A group that the total did not reach is empty.

    Raises:
        ConfigError: There are no prompts; a prompt has no reference answer, and no `reward` is given; the strategy has
            no size; the objective is unknown; a reward is not finite or, under "signal", not in [0, 1]; or as
            `Solver.solve_many`.
        TTSError: `reward` raised. The `partial` of every error has the `Rollouts` so far, where samples without a
            reward stand in `cut`.

    Example:
        >>> import tts
        >>> sums = [tts.Problem(text, answer=str(eval(text))) for text in ("3 + 4 - 2", "9 - 5 + 1 - 3", "8 + 8")]
        >>> found = tts.rollouts(sums, 2000, model="toy", task="arithmetic", temperature=1.0, n=4)
        >>> found.spent["tokens"] <= 2000, [len(group.rollouts) for group in found.groups]
        (True, [4, 4, 4])
    """
    is_table = columns_in(prompts) is not None
    has_rows = isinstance(prompts, list | tuple) and any(isinstance(prompt, Mapping) for prompt in prompts)
    problems = load(hold(prompts)) if is_table or has_rows else read_problems(prompts, "prompts")
    check_choice("objective", objective, OBJECTIVES)
    check_int("n", n, 2, optional=False)
    check_int("most", most, 2)
    plan = _plan_of(problems, strategy, judged=reward is None)
    account = total if isinstance(total, Account) else Account(Budget.of(total))
    if "tokens" not in account.units:
        hint = "for example tts.Budget(tokens=100_000)"
        raise ConfigError(f"total limits {[*account.units]}, but must limit tokens", hint=hint)
    if most is not None and objective == "uniform":
        raise ConfigError(f'most is {most}, but belongs to objective="signal"', hint="give n alone")
    if solver is None:
        solver = make_solver(account, options)
    elif options:
        raise ConfigError(f"{min(options)} is given beside solver, which has its own", hint="leave one of them out")
    most = 4 * n if most is None else most
    by_signal = objective == "signal"
    sizes = {"first": min(_FIRST, n, most), "most": most} if by_signal else {"first": n, "most": n}
    drawing = _Drawing(
        problems=problems, account=account, solver=solver, plan=plan, reward=reward, seed=seed, is_bounded=by_signal
    )
    try:
        stop_reason = drawing.run(SignalAllocator(**sizes))
    except TTSError as failure:
        failure.partial = Rollouts(groups=drawing.groups(), spent=drawing.spending(), stopped_by="failed")
        raise
    return Rollouts(groups=drawing.groups(), spent=drawing.spending(), stopped_by=stop_reason)


def is_cut_by_total(candidate: Candidate, max_tokens: int | None, context: int | None, prompt: int) -> bool:
    """Return whether neither the model, nor `max_tokens`, nor the context ended a sample.

    Args:
        candidate: The sample.
        max_tokens: The most tokens of a sample; None: no such limit.
        context: The model's context; None: unknown.
        prompt: The tokens of the prompt.
    """
    size = candidate.trajectory.num_tokens
    if not candidate.truncated or (max_tokens is not None and size >= max_tokens):
        return False
    return context is None or prompt + size < context


def _plan_of(problems: Sequence[Problem], strategy: str | Plan | Strategy, *, judged: bool) -> Plan:
    """Return the plan of a group, after a check of the prompts and the strategy.

    Args:
        problems: The prompts.
        strategy: As in `rollouts`.
        judged: Whether the reward is the verdict on the answer.

    Raises:
        ConfigError: There are no prompts, a judged prompt has no reference answer, or the strategy has no size.
    """
    if not problems:
        raise ConfigError("there are no prompts, but a group needs one", hint="give a list of tts.Problem")
    for problem in problems:
        if judged and problem.answer is None:
            raise ConfigError(
                f"the prompt {quote(problem.text)} has no reference answer",
                hint="give Problem(..., answer=...), or reward=",
            )
    plan = Plan.of(parse(strategy) if isinstance(strategy, str) else strategy)
    if plan.selection is None:
        plan = dataclasses.replace(plan, selection=_NoChoice())
    if not hasattr(plan.strategy, "n"):
        raise ConfigError(
            f"strategy is {quote(str(strategy))}, but a group needs one with a size",
            hint="give one with n, such as best_of_n",
        )
    return plan


class _NoChoice(Selection):
    """Ranks nothing: a group has no answer of its own, and no verifier is to score it."""

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Return the candidates in draw order, with the first answer."""
        del search
        answers = tuple(c.answer for c in candidates if c.answer is not None)
        return Selected(answers=answers[:1], ranked=tuple(candidates), confidence=math.nan)


@dataclass(eq=False, kw_only=True)
class _Drawing:
    """The groups while they grow.

    Attributes:
        found: The rollouts of each prompt.
        cut: The samples of each prompt that the total cut.
    """

    problems: Sequence[Problem]
    account: Account
    solver: Solver
    plan: Plan
    reward: Reward | None
    seed: int
    is_bounded: bool  # whether rewards must be in [0, 1]

    def __post_init__(self) -> None:
        self._spent_before = dict(self.account.spent)
        self.found: list[list[Rollout]] = [[] for _ in self.problems]
        self.cut: list[list[Rollout]] = [[] for _ in self.problems]
        self._cost = np.full(len(self.problems), math.nan)  # tokens of one sample of each problem, prompt included
        self._num_calls = 0  # calls of the solver; each has a seed of its own
        self._failure: TTSError | None = None  # the first failure, after which no further wave is drawn
        run = self.solver.prepare(self.problems[0], Budget(samples=1), strategy="single")
        self._expected_cost = float(run.expected_tokens or run.setup.task.typical_tokens())  # until a cost is known
        backend = run.setup.backends["policy"]
        if not backend.caps.token_ids:
            warnings.warn(
                f"the backend {backend.name!r} shows no token ids: Rollout.tokens will be None, and trainers that need "
                "them cannot use these rollouts; run the model in this process, such as with backend='engine'",
                stacklevel=4,
            )

    def spending(self) -> dict[str, float]:
        """Return what was spent of the account, by unit, without those that are not known."""
        total = self.account.ledger.total()
        spent = {unit: amount for unit, amount in self.account.spent.items() if getattr(total, unit, 0) is not None}
        return {unit: amount - self._spent_before.get(unit, 0) for unit, amount in spent.items()}

    def groups(self) -> tuple[RolloutGroup, ...]:
        """Return the group of each prompt."""
        return tuple(
            RolloutGroup(problem=problem, rollouts=tuple(judged), cut=tuple(cut))
            for problem, judged, cut in zip(self.problems, self.found, self.cut, strict=True)
        )

    def run(self, allocator: SignalAllocator) -> str:
        """Draw wave after wave, and return why no further wave is drawn."""
        while True:
            available = self.account.available("tokens")
            samples = np.array([len(group) for group in self.found])
            rewards_by_prompt = [[rollout.reward for rollout in group] for group in self.found]
            successes = np.array([float(np.clip(rewards, 0, 1).sum()) for rewards in rewards_by_prompt])
            known_costs = self._cost[~np.isnan(self._cost)]
            mean_cost = float(known_costs.mean()) if len(known_costs) else self._expected_cost
            cost = np.where(np.isnan(self._cost), mean_cost, self._cost)
            if len(known_costs) and available < _SPREAD * cost.min():
                return "budget: what is left pays for no further sample"
            more = allocator.next(successes, samples, np.maximum(1.0, _SPREAD * cost), float(available))
            if self.is_bounded and not len(known_costs) and available >= cost.sum() / _OVERESTIMATE:
                # the first wave draws samples of every prompt, fewer where the total is small
                more[:] = np.clip(int(available / (_SPREAD * cost.sum())), 1, allocator.first)
            if not more.any():
                return allocator.reason(successes, samples)
            if not self._draw(more):
                return "budget: it paid for no further sample"

    def _draw(self, more: NDArray[np.int64]) -> bool:
        """Draw samples of each prompt, and return whether any was drawn.

        Args:
            more: The number of samples of each prompt, [P].
        """
        num_drawn = 0
        for size in np.unique(more[more > 0]).tolist():  # one call for all prompts that get equally many
            places = np.flatnonzero(more == size).tolist()
            strategy = dataclasses.replace(self.plan.strategy, n=size)  # pyright: ignore[reportArgumentType]
            (call_seed,) = np.random.SeedSequence([self.seed, self._num_calls]).generate_state(1, np.uint32)
            self._num_calls += 1
            problems = [self.problems[place] for place in places]
            plan = dataclasses.replace(self.plan, strategy=strategy)
            solutions = self.solver.solve_for_training(problems, self.account, plan, int(call_seed))
            for place, solution in zip(places, solutions, strict=True):
                if isinstance(solution.error, ConfigError):
                    self._failure = self._failure or solution.error
                samples = self._judge(place, solution)
                self.found[place] += [sample for sample in samples if not math.isnan(sample.reward)]
                self.cut[place] += [sample for sample in samples if math.isnan(sample.reward)]
                num_drawn += len(samples)
                if samples:
                    self._note_cost(place, solution.usage.tokens / len(samples))
        if self._failure is not None:
            raise self._failure
        return num_drawn > 0

    def _note_cost(self, place: int, tokens: float) -> None:
        earlier_cost = self._cost[place]
        self._cost[place] = tokens if math.isnan(earlier_cost) else (earlier_cost + tokens) / 2

    def _judge(self, place: int, solution: Solution) -> list[Rollout]:
        """Return the samples of a solution with their rewards; NaN for a sample that the total cut."""
        problem, trace = self.problems[place], solution.trace
        if trace is None:
            return []
        setup = self.solver.prepare(problem, Budget(samples=1), strategy="single").setup
        samples = search_rows(trace, setup.task, problem.id, problem.answer).samples
        candidates = sorted(solution.candidates, key=lambda candidate: candidate.index)
        results = list[Rollout]()
        for sample, candidate in zip(samples, candidates, strict=True):
            prompt_tokens = len(sample.tokens.prompt) if sample.tokens is not None else 0
            context = setup.backends["policy"].context
            is_cut = solution.stopped_by.startswith("budget") and is_cut_by_total(
                candidate, setup.sampling.max_tokens, context, prompt_tokens
            )
            results.append(
                Rollout(
                    text=sample.text,
                    answer=sample.answer,
                    reward=math.nan if is_cut else self._reward_or_nan(problem, sample),
                    tokens=sample.tokens,
                    num_tokens=candidate.trajectory.num_tokens,
                    truncated=candidate.truncated,
                )
            )
        return results

    def _reward_or_nan(self, problem: Problem, sample: PathSample) -> float:
        """Return the reward of a sample; NaN where the reward fails, which ends the drawing after this wave."""
        try:
            return self._reward_of(problem, sample)
        except TTSError as failure:
            self._failure = self._failure or failure
        except Exception as cause:  # noqa: BLE001 - the function of a caller
            failure = TTSError(
                f"the reward of the prompt {quote(problem.text)} failed: {quote(cause)}",
                hint="error.partial has all rollouts so far",
            )
            failure.__cause__ = cause
            self._failure = self._failure or failure
        return math.nan

    def _reward_of(self, problem: Problem, sample: PathSample) -> float:
        """Return the reward of a sample.

        Raises:
            ConfigError: The reward is no finite number, or must be in [0, 1] and is not.
        """
        if self.reward is None:
            return float(sample.right is True)
        value: Any = self.reward(problem, sample.text)
        if not isinstance(value, int | float | np.number) or not math.isfinite(float(value)):
            raise ConfigError(
                f"the reward is {quote(value)}, but must be a finite number",
                hint="return 0.0 for what it cannot judge",
            )
        if self.is_bounded and not 0 <= float(value) <= 1:
            raise ConfigError(
                f'the reward is {quote(value)}, but objective "signal" needs one in [0, 1]',
                hint='scale it, or take "uniform"',
            )
        return float(value)
