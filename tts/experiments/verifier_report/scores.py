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

from tts.budget.budget import Budget
from tts.errors import ConfigError, TTSError
from tts.experiments.analysis.curves import Floats, Whole
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.recorded_search import score_of
from tts.experiments.study.record import Cell, RecordedSample, Result
from tts.scopes import check_calls, file_scope
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
        places: [N], the key of the candidate's cell, and its place in the cell.
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
    places: Sequence[tuple[str, int]]
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


@dataclass
class _ScoreColumns:
    sources: list[_ScoreSource] = field(default_factory=list[_ScoreSource])
    rows: list[tuple[float, tuple[float, ...], bool, bool, int, int, tuple[str, int]]] = field(default_factory=list)
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
    columns: dict[tuple[str, ...], _ScoreColumns] = {}
    roles = {name for source in sources for drawn in source.drawn for name in drawn.scores}
    if not roles or (role is not None and role not in roles):
        remark = f"; there are scores by {', '.join(sorted(roles))}" if roles else ""
        raise ConfigError(
            f"no verifier{'' if role is None else f' of the role {role!r}'} scored any of the recorded "
            f"candidates{remark}",
            hint="draw samples with tts sample, of a study that names its verifiers",
        )
    for source in sources:
        names = {name for drawn in source.drawn for name in drawn.scores} if role is None else {role}
        for name in sorted(names, key=lambda name: (name != "main", name)):
            key = (source.cell.dataset, source.cell.model, source.cell.setting, source.strategy, name)
            _add(columns.setdefault(key, _ScoreColumns()), source, name, aggregate)
    scored = [_score(key, score_columns) for key, score_columns in columns.items() if score_columns.rows]
    if not scored:
        raise _nothing(list(columns.values()))
    return CollectedScores(scored, passed_over)


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
    except ConfigError:  # there is none
        searches = [(result.cell, result.drawn or ()) for result in recorded]
        sources = [
            _ScoreSource(cell, f"{cell.strategy} within {Budget(**dict(cell.budget))}", drawn, None)  # pyright: ignore[reportArgumentType]
            for cell, drawn in searches
        ]
        return sources, {"failed or did not record their candidates": missing} if (
            missing := len(results) - len(recorded)
        ) else {}
    return [_ScoreSource(pool.cell, str(pool.law), pool.drawn, pool) for pool in pools.pools], dict(pools.passed_over)


def _add(columns: _ScoreColumns, source: _ScoreSource, role: str, aggregate: str) -> None:
    columns.sources.append(source)
    for place, drawn in enumerate(source.drawn):
        if drawn.right is None:
            columns.unchecked += 1
        elif role not in drawn.scores:
            columns.unasked += 1
        elif math.isnan(score := score_of(drawn, role, aggregate)):
            columns.unknown += 1
        else:
            at = columns.problems.setdefault(source.cell.problem, len(columns.problems))
            row = (
                score,
                drawn.steps.get(role, ()),
                drawn.right,
                drawn.answer is not None,
                drawn.tokens,
                at,
                (source.cell.key, place),
            )
            columns.rows.append(row)


def _score(key: tuple[str, ...], columns: _ScoreColumns) -> VerifierScores:
    dataset, model, setting, strategy, role = key
    scores, steps, right, answered, tokens, at, places = zip(*columns.rows, strict=True)
    scored_pools = [
        s.pool
        for s in columns.sources
        if s.pool is not None and s.pool.has(role) and all(sample.right is not None for sample in s.drawn)
    ]
    verifier = columns.sources[0].cell.verifiers.get(role, "")
    bounds, oracle = _range_and_oracle(verifier, np.array(scores, np.float64))
    return VerifierScores(
        dataset=dataset,
        model=model,
        setting=setting,
        role=role,
        verifier=verifier or "not named",
        strategy=strategy,
        range=bounds,
        oracle=oracle,
        scores=np.array(scores),
        steps=steps,
        right=np.array(right, np.float64),
        answered=np.array(answered),
        tokens=np.array(tokens, np.float64),
        at=np.array(at),
        places=places,
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
        loaded = (make_verifiers(verifier) or {})["main"]  # its text is within the scope
        return range_of(loaded, scores), loaded.oracle
    except TTSError:
        return None, False


def _nothing(columns: Sequence[_ScoreColumns]) -> ConfigError:
    """Return the error where all candidates are left out."""
    unchecked, unknown = sum(each.unchecked for each in columns), sum(each.unknown for each in columns)
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
