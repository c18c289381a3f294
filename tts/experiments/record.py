"""What a study runs and what comes of it: cells, results and drawn samples, as the store keeps them and tables and plots read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tts.types import Usage

RESULT_VERSION: Final = 4  # raised when the same cell would come to another result; part of every key


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One thing to be run: one problem by one strategy under one budget with one seed.

    Args:
        key: hash of the fully resolved configuration and of `RESULT_VERSION` (`tts.experiments.grid.key`).
        dataset: the data set's name in the study. problem: its id. group: what small multiples are drawn by, such as "4 operations".
        model: the model's name in the study. setting: hash of how model and verifiers run (sampling, checksums, backend, precision,
            device kind): results of different settings are never averaged.
        verifiers: by role, as text. strategy: the plan's canonical text.
        budget: limits by unit, as `Budget.limits`. seed: of the run.
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
class Drawn:
    """A candidate of a recorded pool.

    Args:
        answer: as written; None: there is none. answer_class: index of its class of equivalent answers among the pool's; None without
            an answer. right: whether the checker accepts it; None: the problem has no reference answer.
        status: of its trajectory. tokens: generated for it. verifier_tokens: computed to score it, behind all candidates before it.
        like, shared: the candidate before it that begins as it does, and the tokens of the steps that they have in common, which a
            verifier that reads shared steps once did not read again; None: it read all of it.
        same: the first candidate before it with the very same text; None: there is none.
        scores: by verifier role, each step's score and the whole's, aggregated as the verifier states.
        steps: by verifier role, the scores of its steps, where the verifier gives them.
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
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    steps: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a cell.

    Args:
        cell: what was run. answer, confidence, stopped_by, failures, warnings, reproducible, oracle: as the `Solution` has them.
        right: whether the answer is right; False without an answer; None: the problem has no reference answer, or the run failed.
        error: one line, where the run failed; its usage is still what was spent.
        usage: of this run. lost_tokens: of runs of this cell that were cut off and done again.
        seconds_at: when it was finished, seconds since the epoch. drawn: its candidates, where the study records them.
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
    drawn: tuple[Drawn, ...] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One time that a study was begun or gone on with. snapshot: configuration as resolved, versions, commit, machine, checksums."""

    begun_at: float
    snapshot: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study in a store. name: given by the configuration. runs: the first one first; each may have had another machine or release."""

    id: int
    name: str
    created_at: float
    runs: tuple[Run, ...]
    cells: int
    done: int
    failed: int
