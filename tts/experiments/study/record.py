"""Records of a study: cells, results and drawn samples, as the store keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tts.types import Usage

RESULT_VERSION: Final = 19  # part of every key; raised when the result of the same cell changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One unit of work: one problem by one strategy under one budget with one seed.

    Args:
        key: Hash of the resolved configuration and of `RESULT_VERSION` (`tts.experiments.study.grid.key`).
        dataset: The data set's name in the study.
        problem: The problem's id.
        group: The problem's panel in figures, such as "4 operations".
        model: The model's name in the study.
        setting: Hash of the settings of model and verifiers (sampling, checksums, backend, precision, device kind).
            Results of different settings are never averaged.
        verifiers: The verifiers by role, as text.
        strategy: The plan's canonical text.
        budget: Limits by unit, as `Budget.limits`.
        seed: The seed of the run.
    """

    key: str
    dataset: str
    problem: str
    group: str | None = None
    model: str
    setting: str
    verifiers: Mapping[str, str] = field(default_factory=dict[str, str])
    strategy: str
    budget: Mapping[str, float]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSample:
    """A candidate of a recorded pool.

    Args:
        answer: The answer as written; None: there is none.
        answer_class: The index of the answer's class of equivalent answers in the pool; None: there is no answer.
        right: Whether the checker accepts the answer; None: the problem has no reference answer.
        status: The status of the candidate's trajectory.
        tokens: The tokens that were generated for the candidate.
        verifier_tokens: The tokens computed to score the candidate, once all earlier candidates were scored.
        like: The index of the earlier candidate with the same first steps; None: the verifier read the whole text.
        shared: The tokens of the same first steps, which the verifier did not read again.
        same: The index of the first earlier candidate with the same text; None: there is none.
        given: The verdict of the source that the sample was imported from; None: the source has no verdict.
        usd: The cost of the candidate in dollars, as its source states; None: unknown.
        scores: The score of the whole candidate, by verifier role, aggregated as the verifier states.
        steps: The score of each step, by verifier role, where the verifier scored steps.
        outcomes: The outcome of each test that a verifier ran, by verifier role: 1: passed; 0: failed; NaN: unknown.
    """

    answer: str | None
    answer_class: int | None
    right: bool | None
    status: str
    tokens: int
    verifier_tokens: int = 0
    like: int | None = None
    shared: int = 0
    same: int | None = None
    given: bool | None = None
    usd: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    steps: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    outcomes: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a cell.

    Args:
        cell: The cell that was run.
        answer: As in `Solution`.
        confidence: As in `Solution`.
        stopped_by: As in `Solution`.
        failures: As in `Solution`.
        warnings: As in `Solution`.
        reproducible: As in `Solution`.
        oracle: As in `Solution`.
        right: Whether the answer is right; False without an answer; None: the problem has no reference answer, or the
            run failed.
        error: One line, where the run failed. A failed run also has a usage.
        usage: The usage of this run.
        lost_tokens: The tokens of earlier runs of this cell that were interrupted.
        seconds_at: The time at which the cell finished, in seconds since the epoch.
        drawn: The candidates of the cell, where the study records them.
    """

    cell: Cell
    answer: str | None
    right: bool | None
    confidence: float
    stopped_by: str
    usage: Usage
    error: str | None = None
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    warnings: tuple[str, ...] = ()
    reproducible: bool = True
    oracle: bool = False
    lost_tokens: int = 0
    seconds_at: float = 0.0
    drawn: tuple[RecordedSample, ...] | None = None

    @property
    def is_scored(self) -> bool:
        """Whether a verifier was called, or its scores were imported."""
        return self.usage.verifier_calls > 0 or any(
            text.startswith("recorded") for text in self.cell.verifiers.values()
        )


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One start of a study, with a snapshot: resolved configuration, versions, commit, machine, checksums."""

    begun_at: float
    snapshot: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """A study in a store.

    Args:
        name: The name from its configuration.
        runs: The runs in order; machine and release may differ between them.
        cells: The number of its cells.
        done: The number of its cells that are done.
        failed: The number of its cells that failed.
    """

    id: int
    name: str
    created_at: float
    runs: tuple[StoredRun, ...]
    cells: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class CellCounts:
    """The cells of a study by state. Each cell has one state, however many names it has.

    Args:
        done: The number of cells that have a result.
        failed: The number of cells whose result has an error.
        pending: The number of cells without a result that no process runs.
        leased: The number of cells that a process runs.
    """

    done: int
    failed: int
    pending: int
    leased: int
