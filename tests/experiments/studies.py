"""Small studies on the toy, for tests of what runs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tts.experiments.analysis.table import NOT_REPEATED, table
from tts.experiments.study.config import StudyConfig, study_config
from tts.experiments.study.record import Result

PLAIN: dict[str, Any] = {
    "name": "toy",
    "models": "toy",
    "verifiers": "toy(error=0.2)",
    "strategies": ["best_of_n | majority", "best_of_n | best"],
    "budgets": {"samples": [1, 4]},
}
SUMS = {"dataset": "arithmetic", "operators": "+-", "parentheses": False, "operations": [2, 4]}


def toy(*, limit: int = 6, **changes: Any) -> StudyConfig:
    """Return a study of two strategies and two budgets on sums."""
    return study_config({**PLAIN, "problems": {**SUMS, "limit": limit}, **changes})


def final(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the table of results, less the columns that a restart may change."""
    rows = table(results, rng=np.random.default_rng(0))
    names = [name for name in rows[0].__dataclass_fields__ if name not in NOT_REPEATED]
    return [{name: getattr(row, name) for name in names} for row in rows]
