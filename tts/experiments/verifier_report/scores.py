"""Collects the scores of recorded candidates, as columns for each verifier and way of drawing.

Pools (`tts.experiments.analysis.pools`) are used where a study has any: their candidates are independent draws, which
have a best-of-N curve. Otherwise candidates of searches are used, each strategy and budget separately. Such candidates
are weaker evidence, since a search keeps candidates by the scores that are to be judged. The report names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts._common.scopes import check_calls, file_scope
from tts.budget.budget import Budget
from tts.errors import ConfigError, TTSError
from tts.experiments.analysis.curves import Floats, Whole
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.recorded_search import score_of
from tts.experiments.study.record import Cell, RecordedSample, Result
from tts.solver.model_cache import make_verifiers
from tts.verifiers import VERIFIERS
from tts.verifiers.ranges import range_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerifierScores:
    """One verifier's scores of candidates that one strategy drew, for problems with reference answers.

    Shapes: N candidates with a score, P problems.

    Args:
        dataset: The data set of the candidates' cells.
        model: The model of the candidates' cells.
        setting: The setting of the candidates' cells.
        role: The role of the verifier.
        verifier: The verifier as text.
        strategy: The strategy that drew the candidates.
        range: The verifier's least and greatest score; None: unknown, because the verifier cannot be loaded here.
        oracle: Whether the verifier saw the reference answer.
        scores: [N], the score of each candidate.
        steps: [N], the scores of its steps; (): only the whole was scored.
        right: [N], whether the candidate is right.
        answered: [N], whether the candidate has an answer.
        tokens: [N], the tokens of the candidate.
        at: [N], the index of the candidate's problem.
        problems: [P], the ids of the problems.
        seeds: The seeds of the runs.
        pools: The pools with a score for every candidate; none where a search drew the candidates.
        unasked: The number of candidates that were not scored, which are left out.
        unknown: The number of candidates whose score is NaN, which are left out.
        unchecked: The number of candidates without a reference answer, which are left out.
    """

    dataset: str
    model: str
    setting: str
    role: str
    verifier: str
    strategy: str
    range: tuple[float, float] | None
    oracle: bool
    scores: Floats
    steps: Sequence[tuple[float, ...]]
    right: Floats
    answered: NDArray[np.bool_]
    tokens: Floats
    at: Whole
    problems: Sequence[str]
    seeds: Sequence[int]
    pools: Sequence[ProblemPool]
    unasked: int
    unknown: int
    unchecked: int

    @property
    def probabilities(self) -> bool:
        """Whether scores lie in [0, 1], so that they can be compared with frequencies."""
        return self.range is not None and self.range[0] >= 0 and self.range[1] <= 1


class CollectedScores(NamedTuple):
    """The scores of all verifiers of a study, and the number of results that are left out, by reason."""

    scored: list[VerifierScores]
    passed_over: dict[str, int]


class _ScoreSource(NamedTuple):
    """Candidates that were drawn together, with their pool; None: a search drew the candidates."""

    cell: Cell
    strategy: str
    drawn: Sequence[RecordedSample]
    pool: ProblemPool | None


class _ScoreRow(NamedTuple):
    """A candidate with a score; fields as in `VerifierScores`, where `problem` is `at`."""

    score: float
    steps: tuple[float, ...]
    right: bool
    answered: bool
    tokens: int
    problem: int


@dataclass
class _ScoreColumns:
    """The scores of one verifier, with a row for each candidate that has a score."""

    sources: list[_ScoreSource] = field(default_factory=list[_ScoreSource])
    rows: list[_ScoreRow] = field(default_factory=list[_ScoreRow])
    problems: dict[str, int] = field(default_factory=dict[str, int])
    unasked: int = 0
    unknown: int = 0
    unchecked: int = 0


def collect_scores(results: Iterable[Result], *, aggregate: str = "last", role: str | None = None) -> CollectedScores:
    """Return the scores of each verifier, in order of first appearance.

    Args:
        results: The results of a study.
        aggregate: The aggregation of step scores.
        role: The role of a single verifier; None: all.

    Raises:
        ConfigError: no result recorded its candidates, no candidate was scored (by the role), or no scored candidate
            has a reference answer.
    """
    result_list = list(results)
    sources, passed_over = _sources(result_list)
    roles = {name for source in sources for name in _roles(source)}
    if not roles or (role is not None and role not in roles):
        remark = f"; there are scores by {', '.join(sorted(roles))}" if roles else ""
        role_words = "" if role is None else f" of the role {role!r}"
        raise ConfigError(
            f"no verifier{role_words} scored any of the recorded candidates{remark}",
            hint="draw samples with tts sample, of a study that names its verifiers",
        )
    columns: dict[_VerifierKey, _ScoreColumns] = {}
    for source in sources:
        source_roles = _roles(source) if role is None else {role}
        for name in sorted(source_roles, key=lambda name: (name != "main", name)):  # "main" first
            key = _VerifierKey(
                dataset=source.cell.dataset,
                model=source.cell.model,
                setting=source.cell.setting,
                strategy=source.strategy,
                role=name,
            )
            _add(columns.setdefault(key, _ScoreColumns()), source, name, aggregate)
    scored = [_score(key, verifier_columns) for key, verifier_columns in columns.items() if verifier_columns.rows]
    if not scored:
        raise _nothing(list(columns.values()))
    return CollectedScores(scored, passed_over)


class _VerifierKey(NamedTuple):
    """The fields that all scores of one verifier have in common."""

    dataset: str
    model: str
    setting: str
    strategy: str
    role: str


def _roles(source: _ScoreSource) -> set[str]:
    """Return the roles that scored a candidate of a source."""
    return {role for sample in source.drawn for role in sample.scores}


def _sources(results: Sequence[Result]) -> tuple[list[_ScoreSource], dict[str, int]]:
    """Return the pools, if there are any, else the candidates of searches, and counts of other results."""
    recorded = [result for result in results if result.drawn is not None and result.error is None]
    if not recorded:
        raise ConfigError(
            f"none of the study's {len(results):,} results recorded its candidates",
            hint="draw samples with tts sample, or set record: {candidates: true} in the study",
        )
    try:
        pools = pools_of(results)
    except ConfigError:  # the study has no pools
        sources: list[_ScoreSource] = []
        for result in recorded:
            limits = Budget(**dict(result.cell.budget))  # pyright: ignore[reportArgumentType]
            strategy = f"{result.cell.strategy} within {limits}"
            sources.append(_ScoreSource(cell=result.cell, strategy=strategy, drawn=result.drawn or (), pool=None))
        num_others = len(results) - len(recorded)
        return sources, {"failed or did not record their candidates": num_others} if num_others else {}
    sources = [
        _ScoreSource(cell=pool.cell, strategy=str(pool.law), drawn=pool.drawn, pool=pool) for pool in pools.pools
    ]
    return sources, dict(pools.passed_over)


def _add(columns: _ScoreColumns, source: _ScoreSource, role: str, aggregate: str) -> None:
    """Add a row for each candidate with a known score and verdict, and count the other candidates."""
    columns.sources.append(source)
    for sample in source.drawn:
        if sample.right is None:
            columns.unchecked += 1
            continue
        if role not in sample.scores:
            columns.unasked += 1
            continue
        score = score_of(sample, role, aggregate)
        if math.isnan(score):
            columns.unknown += 1
            continue
        columns.rows.append(
            _ScoreRow(
                score=score,
                steps=sample.steps.get(role, ()),
                right=sample.right,
                answered=sample.answer is not None,
                tokens=sample.tokens,
                problem=columns.problems.setdefault(source.cell.problem, len(columns.problems)),
            )
        )


def _score(key: _VerifierKey, columns: _ScoreColumns) -> VerifierScores:
    """Return the scores of one verifier."""
    role, rows = key.role, columns.rows
    scored_pools: list[ProblemPool] = []
    for source in columns.sources:
        is_judged = all(sample.right is not None for sample in source.drawn)
        if source.pool is not None and source.pool.has(role) and is_judged:
            scored_pools.append(source.pool)
    scores = np.array([row.score for row in rows])
    verifier = columns.sources[0].cell.verifiers.get(role, "")
    bounds, oracle = _range_and_oracle(verifier, scores)
    return VerifierScores(
        **key._asdict(),
        verifier=verifier or "not named",
        range=bounds,
        oracle=oracle,
        scores=scores,
        steps=tuple(row.steps for row in rows),
        right=np.array([row.right for row in rows], np.float64),
        answered=np.array([row.answered for row in rows]),
        tokens=np.array([row.tokens for row in rows], np.float64),
        at=np.array([row.problem for row in rows]),
        problems=list(columns.problems),
        seeds=sorted({source.cell.seed for source in columns.sources}),
        pools=scored_pools,
        unasked=columns.unasked,
        unknown=columns.unknown,
        unchecked=columns.unchecked,
    )


def _range_and_oracle(verifier: str, scores: Floats) -> tuple[tuple[float, float] | None, bool]:
    """Return the range of a verifier, and whether it is an oracle; (None, False): it cannot be loaded here.

    Raises:
        ConfigError: a store may not name the verifier.
    """
    if verifier:
        check_calls(VERIFIERS, verifier, file_scope())
    try:
        loaded_verifier = (make_verifiers(verifier) or {})["main"]
        return range_of(loaded_verifier, scores), loaded_verifier.oracle
    except TTSError:
        return None, False


def _nothing(columns: Sequence[_ScoreColumns]) -> ConfigError:
    """Return the error where all candidates are left out."""
    unchecked = sum(verifier_columns.unchecked for verifier_columns in columns)
    unknown = sum(verifier_columns.unknown for verifier_columns in columns)
    if unknown:
        return ConfigError(
            f"none of the {unknown:,} scores of candidates with a reference answer is known",
            hint="tts show has its notes",
        )
    return ConfigError(
        f"none of the {unchecked:,} recorded candidates is of a problem with a reference answer, so none is known to "
        "be right or wrong",
        hint="give the problems answers",
    )
