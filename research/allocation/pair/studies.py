"""What is run: pools of plain samples, and the strategies that could be chosen in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
TREE = "rebase | weighted"  # the best of those that docs/results/methods.md compares
TREE_SIZES = (2, 4, 8)  # its budgets, in plain samples' worth of generated tokens


def problems(split: str, limit: int) -> dict[str, Any]:
    """Return the problems of a split: plain expressions of 1 to 10 operations, as many of each."""
    return {"split": split, "seed": TEST_SEED if split == TEST else 0, "limit": limit, "group_by": "operations"}


def pools(split: str, limit: int, seeds: int, verifier: str = VERIFIER) -> StudyConfig:
    """Return the study that draws the pools of a split."""
    study = running.asked(
        f"allocator-pools-{split}", problems(split, limit), [BASELINE], {"samples": POOL[split]}, seeds=seeds, verifier=verifier
    )
    return pool_study(study, POOL[split])


def others(split: str, limit: int) -> Iterator[StudyConfig]:
    """Yield the studies of what could be done in place of plain samples: answer greedily, or search a tree."""
    plans = GREEDY if split == VALIDATION else GREEDY[:1]
    greedy = running.asked(f"allocator-greedy-{split}", problems(split, limit), plans, {"samples": 1}, seeds=1, verifier=VERIFIER)
    yield greedy.model_copy(update={"record": greedy.record.model_copy(update={"candidates": True})})
    budget = {"generated_tokens": [SAMPLE * size for size in TREE_SIZES]}
    yield running.asked(f"allocator-tree-{split}", problems(split, limit), [TREE], budget, seeds=1, verifier=VERIFIER)


def results(store: Path, studies: Iterable[StudyConfig], jobs: int) -> list[Result]:
    """Run what studies lack, and return all their results."""
    numbers = [running.run(study, store, jobs) for study in studies]
    with Store(store) as opened:
        return [result for number in numbers for result in opened.results(number)]
