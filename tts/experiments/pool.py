"""Pools: the candidates of one problem as they were recorded, drawn independently of one law, for replay to choose among.

A result of `best_of_n` under a limit on samples alone is a pool: a stop rule would have ended it at a place that depends on the answers,
and a limit on tokens or time may have cut samples short. Everything else that was recorded is passed over, and counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tts.errors import ConfigError
from tts.experiments.config import StudyConfig
from tts.experiments.record import Cell, Drawn, Result
from tts.experiments.sharing import beginnings
from tts.search.base import whole
from tts.search.best_of_n import BestOfN
from tts.search.registry import parse
from tts.tasks.base import Task
from tts.types import Candidate, Problem, Solution

_Scores = Mapping[str, tuple[float, ...]]  # by role: one a step, or one of the whole


def right_of(answer: str | None, task: Task, problem: Problem) -> bool | None:
    """Return whether the checker accepts an answer; False without one; None: the problem has no reference answer.

    It may take as long as `Task.equivalent` does, so callers in an event loop call it in a thread.
    """
    if problem.answer is None:
        return None
    if answer is None:
        return False
    decided = task.decide(answer, problem.answer)
    return task.equivalent(answer, problem.answer) if decided is None else decided


def drawn_of(solution: Solution, task: Task, problem: Problem) -> tuple[Drawn, ...]:
    """Return the candidates of a solution in the order in which they were drawn, judged and with every score that they were given.

    Each class of equivalent answers is judged once, by its first writing. What a verifier computed for several candidates at once is
    shared out among them by what it had to read of each: all of it, or, where it scored steps and read fewer tokens than they have,
    the steps that no candidate before has. As `right_of`, it may take seconds.
    """
    drawn = sorted(solution.candidates, key=lambda candidate: candidate.index)
    known = _scores_of(solution)
    texts = [candidate.trajectory.full_text for candidate in drawn]
    steps = [task.split(text) for text in texts]
    stepwise = _stepwise(drawn, steps, known)
    costs = _scoring(solution, drawn, steps, known, stepwise)
    verdicts: dict[int | None, bool | None] = {}
    first: dict[str, int] = {}
    made: list[Drawn] = []
    for place, (candidate, (cost, like, shared)) in enumerate(zip(drawn, costs, strict=True)):
        kind, trajectory = candidate.answer_class, candidate.trajectory
        if kind not in verdicts:
            verdicts[kind] = right_of(candidate.answer, task, problem)
        scores = known.get(trajectory.node, {})
        made.append(
            Drawn(
                answer=candidate.answer,
                answer_class=kind,
                right=verdicts[kind],
                status=trajectory.status,
                tokens=trajectory.num_tokens,
                verifier_tokens=cost,
                like=like,
                shared=shared,
                same=None if first.setdefault(texts[place], place) == place else first[texts[place]],
                scores={role: candidate.scores.get(role, said[-1] if said else math.nan) for role, said in scores.items()},
                steps={role: said for role, said in scores.items() if role in stepwise},
            )
        )
    return tuple(made)


def _scores_of(solution: Solution) -> dict[int, _Scores]:
    """Return what verifiers said of each node."""
    return {} if solution.trace is None else {node.node: node.scores for node in solution.trace.nodes if node.scores}


def _stepwise(candidates: Sequence[Candidate], steps: Sequence[Sequence[str]], known: Mapping[int, _Scores]) -> set[str]:
    """Return the roles that scored steps: as many scores as steps for every candidate, and not one for each of several steps' whole."""
    counts: dict[str, set[tuple[int, int]]] = {}
    for candidate, pieces in zip(candidates, steps, strict=True):
        for role, scores in known.get(candidate.trajectory.node, {}).items():
            counts.setdefault(role, set()).add((len(scores), len(pieces)))
    return {role for role, found in counts.items() if all(given == pieces for given, pieces in found) and found != {(1, 1)}}


def _scoring(
    solution: Solution, candidates: Sequence[Candidate], steps: Sequence[Sequence[str]], known: Mapping[int, _Scores], stepwise: set[str]
) -> list[tuple[int, int | None, int]]:
    """Return what scoring each candidate computed behind those before it, which of those it is like, and in how many tokens."""
    computed: Counter[str] = Counter()
    for call in () if solution.trace is None else solution.trace.calls:
        if call.kind == "score":
            computed[call.model] += call.usage.verifier_tokens
    scored = [i for i, one in enumerate(candidates) if one.trajectory.node in known]
    tokens = [candidates[i].trajectory.num_tokens for i in scored]
    likes: list[tuple[int | None, int]] = [(None, 0)] * len(scored)
    if all(role in stepwise and total < sum(tokens) for role, total in computed.items()):
        likes = beginnings([steps[i] for i in scored], tokens)
    new = np.cumsum([0, *(each - shared for each, (_, shared) in zip(tokens, likes, strict=True))])
    found: list[tuple[int, int | None, int]] = [(0, None, 0)] * len(candidates)
    total, size = sum(computed.values()), max(1, int(new[-1]))
    for place, (i, (like, shared)) in enumerate(zip(scored, likes, strict=True)):
        cost = total * int(new[place + 1]) // size - total * int(new[place]) // size  # so that they sum to the total
        found[i] = (cost, None if like is None else scored[like], shared)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The recorded candidates of one problem with one seed.

    Args:
        cell: that drew them. law: the strategy without its size and its selection: pools of different laws are not compared.
        drawn: in order of drawing. oracle: whether a verifier that scored them saw the reference answer.
    """

    cell: Cell
    law: BestOfN
    drawn: tuple[Drawn, ...]
    oracle: bool = False

    def has(self, role: str) -> bool:
        """Whether every candidate was scored by a role."""
        return all(role in drawn.scores for drawn in self.drawn)


@dataclass(frozen=True, slots=True)
class Pools:
    """What can be replayed of a study. passed_over: how many results cannot, by the reason."""

    pools: tuple[Pool, ...]
    passed_over: Mapping[str, int]


def pools_of(results: Iterable[Result]) -> Pools:
    """Return the pools among results: of each problem, seed, setting and law the largest, and among those the one with most scores.

    Raises:
        ConfigError: there is none; every reason is named.
    """
    found: dict[tuple[object, ...], Pool] = {}
    passed_over: Counter[str] = Counter()
    for result in results:
        pool = _pool(result)
        if isinstance(pool, str):
            passed_over[pool] += 1
            continue
        cell = pool.cell
        key = (cell.dataset, cell.model, cell.setting, str(pool.law), cell.problem, cell.seed)
        other = found.setdefault(key, pool)
        found[key] = max(other, pool, key=lambda one: (len(one.drawn), sum(len(drawn.scores) for drawn in one.drawn)))
    if not found:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in sorted(passed_over.items())) or "there are no results"
        raise ConfigError(
            f"the study has no pool of samples: {reasons}",
            hint="name one (tts sample keeps it as STUDY-pool), draw one, or record the candidates of best_of_n",
        )
    return Pools(tuple(found.values()), dict(passed_over))


def pool_study(config: StudyConfig, size: int) -> StudyConfig:
    """Return the study that draws pools of a size for another: of each law by which its strategies sample, else of plain best_of_n."""
    whole("n", size, 1, optional=False)
    strategies = (parse(text).strategy for text in config.strategies)
    laws = dict.fromkeys(str(dataclasses.replace(one, n=None)) for one in strategies if isinstance(one, BestOfN))
    record = config.record.model_copy(update={"candidates": True})
    return config.model_copy(update={"strategies": list(laws) or [str(BestOfN())], "budgets": [{"samples": size}], "record": record})


def _pool(result: Result) -> Pool | str:
    """Return the pool that a result is, or why it is none."""
    if result.error is not None:
        return "failed"
    if result.drawn is None:
        return "did not record their candidates"
    law = _law(result.cell.strategy)
    if isinstance(law, str):
        return law
    if set(result.cell.budget) != {"samples"}:
        return "had another limit than one on samples"
    return Pool(cell=result.cell, law=law, drawn=result.drawn, oracle=result.oracle)


@cache
def _law(strategy: str) -> BestOfN | str:
    """Return by what law a strategy draws its samples, or why these are no pool."""
    plan = parse(strategy)
    if not isinstance(plan.strategy, BestOfN):
        return "are of another strategy than best_of_n"
    if plan.stopping is not None and plan.stopping.registered_as != "never":
        return "were ended by a stop rule"
    return dataclasses.replace(plan.strategy, n=None)
