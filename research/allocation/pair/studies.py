"""The studies that are run: pools of plain samples, and the strategies that could replace them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from research.methods import running
from tts.experiments.analysis.pools import pool_study
from tts.experiments.store.store import Store
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.record import Result

VERIFIER = "process"  # the pair's own: it weighs votes, and is charged
BASELINE = "best_of_n | weighted"
VALIDATION, TEST = "validation", "test"
POOL = {VALIDATION: 32, TEST: 16}  # samples of a problem with each seed
TEST_SEED = 8  # of the problems: others than those that methods were compared on
SAMPLE = 60  # tokens of one plain sample, about
GREEDY = ("single(temperature=0.0) | majority", "single(temperature=0.0) | weighted")  # the second for its score
TREES = ("rebase | weighted",)  # the best of those that docs/results/methods.md compares
COUNTDOWN_TREES = (
    "a_star(branching=4, goals=1, edge_cost='drop') | best",
    "rebase(balance_temperature=0.2) | weighted",
)  # of docs/results/claims_choices.json, with REBASE as wide as the budget pays
COUNTDOWN_TOKENS = (124, 248, 500, 1000)  # of a problem, those of the verifier included
TREE_SIZES = (2, 4, 8)  # their budgets, in plain samples' worth of generated tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Problems of the pair, and the verifier that scores their solutions.

    Args:
        name: The part of the names of studies that is its own; "": none.
        verifier: The verifier of all results.
        trees: The searches that could replace plain samples.
        unit: The unit of the searches' budgets.
        budgets: The budgets of the searches.
        seeds: The number of seeds of the searches.
        dataset: The data set of the problems; None: plain expressions of 1 to 10 operations, as many of each.
    """

    name: str = ""
    verifier: str = VERIFIER
    trees: tuple[str, ...] = TREES
    unit: str = "generated_tokens"
    budgets: tuple[int, ...] = tuple(SAMPLE * size for size in TREE_SIZES)
    seeds: int = 1
    dataset: Mapping[str, Any] | None = None

    def study(self, what: str, split: str) -> str:
        """Return the name of a study."""
        return "-".join(("allocator", what, split, *filter(None, [self.name])))

    def problems(self, split: str, limit: int) -> dict[str, Any]:
        """Return the problems of a split."""
        return problems(split, limit) if self.dataset is None else {**self.dataset, "split": split, "limit": limit}


EXPRESSIONS = Kind()


def problems(split: str, limit: int) -> dict[str, Any]:
    """Return plain expressions of 1 to 10 operations of a split, as many of each."""
    return {"split": split, "seed": TEST_SEED if split == TEST else 0, "limit": limit, "group_by": "operations"}


def pools(split: str, limit: int, seeds: int, kind: Kind = EXPRESSIONS) -> StudyConfig:
    """Return the study that draws the pools of a split."""
    name, asked = kind.study("pools", split), kind.problems(split, limit)
    return pool_study(
        running.make_study(name, asked, [BASELINE], {"samples": POOL[split]}, seeds=seeds, verifier=kind.verifier),
        POOL[split],
    )


def alternatives(split: str, limit: int, kind: Kind = EXPRESSIONS) -> Iterator[StudyConfig]:
    """Yield the studies of what could replace plain samples: a greedy answer, or a tree search."""
    plans, chosen = GREEDY if split == VALIDATION else GREEDY[:1], kind.problems(split, limit)
    greedy = running.make_study(
        kind.study("greedy", split), chosen, plans, {"samples": 1}, seeds=1, verifier=kind.verifier
    )
    yield greedy.model_copy(update={"record": greedy.record.model_copy(update={"candidates": True})})
    budget = {kind.unit: list(kind.budgets)}
    yield running.make_study(
        kind.study("tree", split), chosen, list(kind.trees), budget, seeds=kind.seeds, verifier=kind.verifier
    )


def results(store: Path, studies: Iterable[StudyConfig], jobs: int) -> list[Result]:
    """Run what studies lack, and return all their results."""
    numbers = [running.run(study, store, jobs) for study in studies]
    with Store(store) as opened:
        return [result for number in numbers for result in opened.results(number)]
