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

from tts.allocator.auto import Auto
from tts.backends.base import Backend, Caps, Reply, Row, RowSet, Sample, SampleRequest
from tts.budget.budget import Budget
from tts.experiments.analysis.averaging import ReplaySettings, RunMeans, mean_of
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import RecordedScores, ReplayOutcome
from tts.experiments.analysis.scoring_cost import cost_of
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.solver.solver import Solver
from tts.tasks.base import Task
from tts.types import Problem, Prompt, Solution
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

    A sample that does not fit its row is cut. A row that continues the sample gets the rest.

    Args:
        pools: The pools by their prompts.
        orders: The orders of the pools' samples, by prompt.
    """

    caps = Caps()
    identity = "recorded"

    def __init__(self, pools: Mapping[str, ProblemPool], orders: Mapping[str, Sequence[int]]) -> None:
        self._pools = pools
        self._orders = orders
        self.next = dict.fromkeys(pools, 0)

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Return a handle for each prompt.

        A handle has the problem, the sample (None: not drawn), and the number of tokens returned before.
        """
        return [Reply((prompt, None, 0), 0, None) for prompt in prompts]

    def sample(self, request: SampleRequest) -> RowSet:
        """Return the next samples of the problem, one a row. A handle of a cut sample continues the sample."""
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            rows.resolve(index, self._draw_row(request.handle, row))
        return rows

    def _draw_row(self, handle: tuple[str, int | None, int], row: Row) -> Sample:
        problem, number, returned_tokens = handle
        if number is None:
            order = self._orders[problem]
            if self.next[problem] >= len(order):
                return Sample("", (), (), "error", None, 0, error="PoolUsedUp: the pool has no further sample")
            number = order[self.next[problem]]
            self.next[problem] += 1
        drawn = self._pools[problem].drawn[number]
        remaining = drawn.tokens - returned_tokens
        if remaining > row.max_tokens:
            self.counters.generated_tokens += row.max_tokens
            return Sample("", (), (), "length", (problem, number, returned_tokens + row.max_tokens), row.max_tokens)
        self.counters.generated_tokens += remaining
        text = f"{number}" if drawn.answer_class is None else f"{number} {drawn.answer_class}"
        finish = "length" if drawn.status == "truncated" else "eos"
        return Sample(text, (), (), finish, (problem, number, drawn.tokens), remaining)


def auto_means(pools: Sequence[ProblemPool], plan: Plan, reading: ReplaySettings) -> NDArray[np.float64]:
    """Return the means of `auto` on each pool at each size, as `means_of` does.

    The result is [pools, sizes, fields of `RunMeans`].

    Args:
        pools: The recorded samples of each problem.
        plan: The plan of `auto`.
        reading: The settings of the replay. If `shared`, problems share one total, and sizes are means over problems.

    Cost: a search for each order and size; at most 16 random orders are drawn.
    """
    runs = 1 if reading.first else min(reading.draws, _MOST_ORDERS)
    orders = [[np.arange(len(pool.drawn))] if reading.first else reading.orders(pool)[:runs] for pool in pools]
    means = np.full((len(pools), len(reading.sizes), len(RunMeans._fields)), math.nan)
    for column, size in enumerate(reading.sizes):
        reaching = [i for i, pool in enumerate(pools) if reading.shared or _reaches(pool, size, reading)]
        if not reaching or (reading.shared and size > payable(pools, reading)):
            continue
        by_run = [
            _outcomes([pools[i] for i in reaching], [orders[i][run] for i in reaching], plan, size, reading)
            for run in range(runs)
        ]
        for place, i in enumerate(reaching):
            means[i, column] = mean_of([run_outcomes[place] for run_outcomes in by_run], exact=False)
    return means


def payable(pools: Sequence[ProblemPool], reading: ReplaySettings) -> float:
    """Return the largest mean size of a total that recorded samples can fill.

    No problem gets more samples than the smallest pool.
    """
    smallest = min(len(pool.drawn) for pool in pools)
    if reading.unit == "samples":
        return smallest
    return float(np.mean([smallest * np.mean([sample.tokens for sample in pool.drawn]) for pool in pools]))


def _reaches(pool: ProblemPool, size: int, reading: ReplaySettings) -> bool:
    """Return whether a pool has as many samples or tokens as a size."""
    return size <= (len(pool.drawn) if reading.unit == "samples" else sum(one.tokens for one in pool.drawn))


def _outcomes(
    pools: Sequence[ProblemPool], orders: Sequence[NDArray[np.int64]], plan: Plan, size: int, reading: ReplaySettings
) -> list[ReplayOutcome]:
    """Return the outcome of one search of all problems."""
    by_name = {f"problem {i}": pool for i, pool in enumerate(pools)}
    backend = RecordedBackend(by_name, {name: order.tolist() for name, order in zip(by_name, orders, strict=True)})
    auto: Any = plan.strategy
    smallest = min(len(pool.drawn) for pool in pools)
    capped_plan = dataclasses.replace(plan, strategy=dataclasses.replace(auto, n=min(smallest, auto.n or smallest)))
    problems = [Problem(name, id=name) for name in by_name]
    mean_tokens = max(1, round(float(np.mean([solution.tokens for pool in pools for solution in pool.drawn]))))
    with Solver(
        backend, _verifiers(by_name, plan), task=RecordedTask(), strategy=capped_plan, expected_tokens=mean_tokens
    ) as solver:
        budget = Budget(**{reading.unit: size * len(pools) if reading.shared else size})
        solutions = solver.solve_many(
            problems, budget if reading.shared else None, each=None if reading.shared else budget, seed=reading.seed
        )
    return [_outcome(pool, solution) for pool, solution in zip(pools, solutions, strict=True)]


def _verifiers(pools: Mapping[str, ProblemPool], plan: Plan) -> dict[str, FunctionVerifier]:
    """Return the recorded verifiers of all roles; {}: the selection uses none, and votes decide."""
    auto: Any = plan.strategy
    if plan.selection is not None and not needs_of(plan.selection).verifiers and auto.verifier is None:
        return {}
    first = next(iter(pools.values()))

    def verifier_of(role: str) -> FunctionVerifier:
        scores = {name: RecordedScores(pool) for name, pool in pools.items()}

        def score(problem: Problem, text: str) -> float:
            return (
                float(scores[problem.text].aggregates_of([int(text.split(maxsplit=1)[0])], role, "last")[0])
                if text
                else math.nan
            )

        stated = next(iter(scores.values())).get(role)
        return FunctionVerifier(score, range=stated.range)

    return {role: verifier_of(role) for role in first.cell.verifiers if all(pool.has(role) for pool in pools.values())}


def _outcome(pool: ProblemPool, solution: Solution) -> ReplayOutcome:
    if solution.error is not None:
        raise solution.error
    drawn = [
        int(item.trajectory.full_text.split(maxsplit=1)[0]) for item in solution.candidates if item.trajectory.full_text
    ]
    sample = (
        None
        if solution.answer is None
        else next(item for item in pool.drawn if item.answer_class == int(solution.answer))
    )
    scored = drawn if solution.usage.verifier_calls else []
    return ReplayOutcome(
        answer=None if sample is None else sample.answer,
        right=sample is not None and sample.right,
        samples=solution.usage.samples,
        generated_tokens=solution.usage.generated_tokens,
        path_tokens=max((c.trajectory.num_tokens for c in solution.candidates), default=0),
        verifier_tokens=cost_of(pool.drawn, scored) if scored else 0,
        stopped_by=solution.stopped_by,
    )


def is_auto(plan: Plan | str) -> TypeGuard[Plan]:
    """Return whether a plan has the strategy `auto`. The name of a measure is no such plan."""
    return isinstance(plan, Plan) and isinstance(plan.strategy, Auto)
