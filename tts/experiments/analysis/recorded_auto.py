"""`auto` on recorded samples: the live search itself, on a backend of recorded samples.

The backend hands out a pool's samples in order. The text of a sample is its number and its class. The task reads the
class as the answer, and a verifier reads the recorded score. Classes, scores and tokens therefore equal the pool's.
Departures from a live run: scores cost nothing within the budget, and their recorded tokens are added to the cost
afterwards; no problem gets more samples than the smallest pool has.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from tts.allocator import shipped
from tts.allocator.auto import Auto
from tts.backends.base import Backend, Caps, Finish, Reply, Row, RowSet, Sample, SampleRequest
from tts.budget.budget import Budget
from tts.experiments.analysis.averaging import ReplaySettings, RunMeans, mean_of
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import RecordedScores, ReplayOutcome
from tts.experiments.analysis.scoring_cost import cost_of
from tts.experiments.study.record import RecordedSample
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.solver.solver import Solver
from tts.tasks.base import Task
from tts.types import Problem, Prompt, Solution
from tts.verifiers.base import Verifier, traits_of
from tts.verifiers.function import FunctionVerifier

_MOST_ORDERS: Final = 16  # orders of samples, each of which takes a whole search


class RecordedTask(Task):
    """The task of recorded samples.

    The text of a sample is "NUMBER CLASS": the sample's number, and the class of its answer. A text of a number alone
    has no answer.
    """

    name = "recorded"
    step_stop = ()

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> Prompt:
        """Return the name of the problem."""
        del kind, texts
        return problem.prompt

    def extract(self, text: str) -> str | None:
        """Return the class of a text; None: it has no answer."""
        return text.split()[1] if " " in text else None


class RecordedBackend(Backend):
    """Returns the samples of each problem in an order.

    A sample with more tokens than its row (one requested continuation) allows is cut. A row that continues the sample
    gets the remaining tokens.

    Args:
        pools: The pools by their prompts.
        orders: The orders of the pools' samples, by prompt.

    Attributes:
        next: The number of samples drawn so far, by prompt.
        path_tokens: The tokens written one after another so far, by prompt. The samples of one request are written at
            once, and a further request follows them.
    """

    caps = Caps(steps="emulated", streams=True)  # so that rows that nobody waits for are written piece by piece
    identity = "recorded"

    def __init__(self, pools: Mapping[str, ProblemPool], orders: Mapping[str, Sequence[int]]) -> None:
        self._pools = pools
        self._orders = orders
        self.next = dict.fromkeys(pools, 0)
        self.path_tokens = dict.fromkeys(pools, 0)

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return a handle for each prompt.

        A handle is a tuple of the prompt, the sample's number (None: no sample is drawn yet), the number of the
        sample's tokens that earlier rows returned, and the tokens of the path up to their end.
        """
        return [Reply((prompt, None, 0, 0), 0, None) for prompt in prompts]

    def sample(self, request: SampleRequest) -> RowSet:
        """Return the next samples of the problem, one a row. A handle of a cut sample continues the sample."""
        rows = RowSet(request)
        prompt, number, returned_tokens, end = request.handle
        start = self.path_tokens[prompt] if number is None else end
        for index, row in enumerate(request.rows):
            sample = self._draw_row((prompt, number, returned_tokens, start), row)
            self.path_tokens[prompt] = max(self.path_tokens[prompt], start + sample.num_tokens)
            rows.resolve(index, sample)
        return rows

    def _draw_row(self, handle: tuple[str, int | None, int, int], row: Row) -> Sample:
        """Return the next sample of a problem, or the continuation of a cut sample, in at most `row.max_tokens`."""
        prompt, number, returned_tokens, start = handle
        if number is None:
            order = self._orders[prompt]
            if self.next[prompt] >= len(order):
                return _reply(
                    "", "error", handle=None, num_tokens=0, error="PoolUsedUp: the pool has no further sample"
                )
            number = order[self.next[prompt]]
            self.next[prompt] += 1
        drawn = self._pools[prompt].drawn[number]
        remaining_tokens = drawn.tokens - returned_tokens
        if remaining_tokens > row.max_tokens:
            self.counters.generated_tokens += row.max_tokens
            cut_handle = (prompt, number, returned_tokens + row.max_tokens, start + row.max_tokens)
            return _reply("", "length", handle=cut_handle, num_tokens=row.max_tokens)
        self.counters.generated_tokens += remaining_tokens
        text = f"{number}" if drawn.answer_class is None else f"{number} {drawn.answer_class}"
        finish = "length" if drawn.status == "truncated" else "eos"
        return _reply(
            text, finish, handle=(prompt, number, drawn.tokens, start + remaining_tokens), num_tokens=remaining_tokens
        )


def _reply(text: str, finish: Finish, *, handle: object, num_tokens: int, error: str = "") -> Sample:
    """Return a row's continuation, without ids and log-probabilities of tokens."""
    return Sample(
        text=text, token_ids=(), logprobs=(), finish=finish, handle=handle, num_tokens=num_tokens, error=error
    )


def auto_means(pools: Sequence[ProblemPool], plan: Plan, reading: ReplaySettings) -> NDArray[np.float64]:
    """Return the means of `auto` on each pool at each size, as `means_of` does.

    The result has the shape [pools, sizes, fields of `RunMeans`]. It is NaN where a pool is smaller than a size.

    Args:
        pools: The recorded samples of each problem.
        plan: The plan of `auto`.
        reading: The settings of the replay. If `shared`, problems share one total, and sizes are means over problems.

    Cost: a search for each order and size; at most 16 random orders are drawn.
    """
    if reading.first:
        num_orders = 1
        pool_orders = [[np.arange(len(pool.drawn))] for pool in pools]
    else:
        num_orders = min(reading.draws, _MOST_ORDERS)
        pool_orders = [reading.orders(pool)[:num_orders] for pool in pools]
    means = np.full((len(pools), len(reading.sizes), len(RunMeans._fields)), math.nan)
    for size_index, size in enumerate(reading.sizes):
        if reading.shared:
            large_enough = list(range(len(pools))) if size <= payable(pools) else []
        else:
            large_enough = [i for i, pool in enumerate(pools) if size <= len(pool.drawn)]
        if not large_enough:
            continue
        outcomes_by_pool: dict[int, list[ReplayOutcome]] = {i: [] for i in large_enough}
        for order_index in range(num_orders):
            orders = [pool_orders[i][order_index] for i in large_enough]
            outcomes = _outcomes([pools[i] for i in large_enough], orders, plan, size, reading)
            for i, outcome in zip(large_enough, outcomes, strict=True):
                outcomes_by_pool[i].append(outcome)
        for i, outcomes in outcomes_by_pool.items():
            means[i, size_index] = mean_of(outcomes, exact=False)
    return means


def payable(pools: Sequence[ProblemPool]) -> int:
    """Return the largest shared total that recorded samples can fill, as the mean over problems.

    No problem gets more samples than the smallest pool has.
    """
    return min(len(pool.drawn) for pool in pools)


def _outcomes(
    pools: Sequence[ProblemPool], orders: Sequence[NDArray[np.int64]], plan: Plan, size: int, settings: ReplaySettings
) -> list[ReplayOutcome]:
    """Return the outcome of each problem in one search of all problems.

    Args:
        pools: The recorded samples of each problem.
        orders: The order in which each pool's samples are drawn.
        plan: The plan of `auto`.
        size: The limit of each problem; if `settings.shared`, the mean limit.
        settings: The settings of the replay.
    """
    pool_of = {f"problem {i}": pool for i, pool in enumerate(pools)}
    order_of = {name: order.tolist() for name, order in zip(pool_of, orders, strict=True)}
    auto: Any = plan.strategy  # of the class Auto, as `is_auto` checks
    smallest = min(len(pool.drawn) for pool in pools)
    capped_auto = dataclasses.replace(auto, n=min(smallest, auto.n or smallest))
    mean_tokens = float(np.mean([sample.tokens for pool in pools for sample in pool.drawn]))
    backend, task = RecordedBackend(pool_of, order_of), RecordedTask()
    backend.name = pools[0].cell.model
    if auto.model is not None:
        task.name = shipped.load(str(auto.model)).task  # pools do not state their task
    with Solver(
        backend,
        _verifiers(pool_of, plan),
        task=task,
        strategy=dataclasses.replace(plan, strategy=capped_auto),
        expected_tokens=max(1, round(mean_tokens)),
    ) as solver:
        problems = [Problem(name, id=name) for name in pool_of]
        if settings.shared:
            solutions = solver.solve_many(problems, Budget(samples=size * len(pools)), seed=settings.seed)
        else:
            solutions = solver.solve_many(problems, each=Budget(samples=size), seed=settings.seed)
    paths = backend.path_tokens.values()
    return [_outcome(*outcome) for outcome in zip(pools, solutions, paths, strict=True)]


def _verifiers(pools: Mapping[str, ProblemPool], plan: Plan) -> dict[str, Verifier]:
    """Return verifiers that read recorded scores, by role, for the roles that scored all samples.

    Args:
        pools: The pools by the text of their problems; all pools are of cells with the same verifiers.
        plan: The plan of `auto`. No verifier is returned where neither its selection nor `auto` reads scores.
    """
    auto: Any = plan.strategy  # of the class Auto, as `is_auto` checks
    if plan.selection is not None and not needs_of(plan.selection).verifiers and auto.verifier is None:
        return {}
    scores_of = {name: RecordedScores(pool) for name, pool in pools.items()}
    first_pool, *_ = pools.values()
    first_scores, *_ = scores_of.values()

    def verifier_of(role: str) -> Verifier:
        def score(problem: Problem, text: str) -> float:
            if not text:
                return math.nan
            scores = scores_of[problem.text].aggregates_of([_sample_number(text)], role, "last")
            return float(scores[0])

        verifier = first_scores.get(role)
        named = type("Recorded", (FunctionVerifier,), {"name": first_pool.cell.verifiers[role], "__slots__": ()})
        return named(score, range=verifier.range, inferred=traits_of(verifier).range_by_scores)

    roles = [role for role in first_pool.cell.verifiers if all(pool.has(role) for pool in pools.values())]
    return {role: verifier_of(role) for role in roles}


def _sample_number(text: str) -> int:
    """Return the number of a sample from its text, as `RecordedTask` describes it."""
    return int(text.split(maxsplit=1)[0])


def _outcome(pool: ProblemPool, solution: Solution, path_tokens: int) -> ReplayOutcome:
    """Return the outcome of a solution, whose answer is a class of the pool."""
    if solution.error is not None:
        raise solution.error
    texts = [candidate.trajectory.full_text for candidate in solution.candidates]
    drawn_numbers = [_sample_number(text) for text in texts if text]
    scored = drawn_numbers if solution.usage.verifier_calls else []
    chosen: RecordedSample | None = None
    if solution.answer is not None:
        answer_class = int(solution.answer)
        chosen = next(sample for sample in pool.drawn if sample.answer_class == answer_class)
    return ReplayOutcome(
        answer=None if chosen is None else chosen.answer,
        right=chosen is not None and chosen.right,
        samples=solution.usage.samples,
        generated_tokens=solution.usage.generated_tokens + solution.usage.cancelled_tokens,
        path_tokens=path_tokens,
        verifier_tokens=cost_of(pool.drawn, scored) if scored else 0,
        stopped_by=solution.stopped_by,
    )


def is_auto(plan: Plan | str) -> TypeGuard[Plan]:
    """Return whether a plan has the strategy `auto`; False for the name of a measure."""
    return isinstance(plan, Plan) and isinstance(plan.strategy, Auto)
