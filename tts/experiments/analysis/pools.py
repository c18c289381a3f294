"""Pools: recorded candidates of one problem, drawn independently from one distribution, for replay.

A result of `best_of_n` is a pool where only a limit on samples ended the search. A stop rule would depend on the
answers, and a limit on tokens or time may truncate samples. Other results are passed over, and counted.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from tts._common.scopes import file_scope
from tts.checks import check_int
from tts.errors import ConfigError
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.record import Cell, RecordedSample, Result
from tts.registry import Scope
from tts.search.plan import parse
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.types import DIVIDED_SUM


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemPool:
    """The recorded candidates of one problem with one seed.

    Args:
        cell: The cell that drew the candidates.
        law: The strategy without its size and its selection. Pools of different laws are not compared.
        drawn: The recorded samples in order of drawing.
        oracle: Whether a verifier that scored the samples saw the reference answer.
        prompt_tokens: The mean number of prompt tokens that are read for a sample.
        estimated: Whether the tokens of some samples are estimated.
    """

    cell: Cell
    law: BestOfN
    drawn: tuple[RecordedSample, ...]
    oracle: bool = False
    prompt_tokens: float = 0.0
    estimated: bool = False

    def has(self, role: str) -> bool:
        """Return whether every candidate was scored by a role."""
        return all(role in drawn.scores for drawn in self.drawn)


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a study, and the number of results that are not pools, by reason."""

    pools: tuple[ProblemPool, ...]
    passed_over: Mapping[str, int]


def pools_of(results: Iterable[Result]) -> Pools:
    """Return the largest pool for each data set, model, setting, law, problem and seed among results.

    A law is a strategy without its size and selection. Of equally large pools, the pool with most scores is taken.

    Raises:
        ConfigError: there is no pool; the error has every reason.
    """
    pools: dict[tuple[object, ...], ProblemPool] = {}
    passed_over: Counter[str] = Counter()
    for result in results:
        pool = _pool(result)
        if isinstance(pool, str):
            passed_over[pool] += 1
            continue
        cell = pool.cell
        key = (cell.dataset, cell.model, cell.setting, str(pool.law), cell.problem, cell.seed)
        if key not in pools or _size(pool) > _size(pools[key]):
            pools[key] = pool
    if not pools:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in sorted(passed_over.items()))
        reasons = reasons or "there are no results"
        raise ConfigError(
            f"the study has no pool of samples: {reasons}",
            hint="name one (tts sample keeps it as STUDY-pool), draw one, or record the candidates of best_of_n",
        )
    return Pools(tuple(pools.values()), dict(passed_over))


def _size(pool: ProblemPool) -> tuple[int, int]:
    """Return the number of a pool's samples, and the number of their scores."""
    return len(pool.drawn), sum(len(sample.scores) for sample in pool.drawn)


def pool_study(config: StudyConfig, size: int) -> StudyConfig:
    """Return a study that draws pools of samples for a given study.

    A pool is drawn by each best_of_n of the given study, without its number of samples and its selection. If the study
    has no best_of_n, the pools are drawn by plain best_of_n. Every verifier of the study scores the samples.

    Args:
        config: The given study.
        size: The number of samples of a pool.
    """
    check_int("n", size, 1, optional=False)
    laws: list[str] = []
    for text in config.strategies:
        strategy = parse(text).strategy
        if isinstance(strategy, BestOfN):
            laws.append(str(dataclasses.replace(strategy, n=None)))
    strategies = list(dict.fromkeys(laws)) or [str(BestOfN())]
    record = config.record.model_copy(update={"candidates": True, "scores": True})
    return config.model_copy(update={"strategies": strategies, "budgets": [{"samples": size}], "record": record})


def _pool(result: Result) -> ProblemPool | str:
    """Return the pool of a result, or the reason why the result is no pool.

    A reason follows a number of results in a message: "3 failed".
    """
    if result.error is not None:
        return "failed"
    if result.drawn is None:
        return "did not record their candidates"
    law = _law(result.cell.strategy, file_scope())
    if isinstance(law, str):
        return law
    if set(result.cell.budget) != {"samples"}:
        return "had another limit than one on samples"
    return ProblemPool(
        cell=result.cell,
        law=law,
        drawn=result.drawn,
        oracle=result.oracle,
        prompt_tokens=result.usage.prompt_tokens / max(1, len(result.drawn)),
        estimated=result.usage.estimated or any(DIVIDED_SUM in warning for warning in result.warnings),
    )


@cache
def _law(strategy: str, scope: Scope) -> BestOfN | str:
    """Return the law (the strategy without its size) that samples are drawn by, or the reason why they are no pool."""
    plan = parse(strategy, scope)
    if not isinstance(plan.strategy, BestOfN):
        return "are of another strategy than best_of_n"
    if plan.stopping is not None and plan.stopping.registered_as != "never":
        return "were ended by a stop rule"
    return dataclasses.replace(plan.strategy, n=None)
