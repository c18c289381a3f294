"""How rare an answer best-of-majority keeps by default, and the table of real samples that chooses it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from research.methods import thresholds
from tts.search.selections.best_of_majority import least_share

TABLE = Path(__file__).parents[2] / "docs/results/selections_2.csv"


@pytest.mark.parametrize("size", [4, 16, 64, 256])
def test_the_default_of_the_page_is_that_of_the_selection(size: int) -> None:
    assert thresholds.alpha_of(thresholds.DEFAULT, size) == least_share(size)


def test_the_default_loses_least_over_the_rows_of_the_page() -> None:
    table = csv.reader(TABLE.read_text(encoding="utf-8").splitlines())
    rows = [row[1:] for row in table if re.search(r"N = \d+$", row[0])]
    values = np.array(rows, np.float64)
    assert values.shape == (14, len(thresholds.THRESHOLDS))
    losses = (values.max(1, keepdims=True) - values).mean(0)
    assert list(thresholds.THRESHOLDS)[int(losses.argmin())] == thresholds.DEFAULT


def test_a_row_has_the_loss_to_its_best_threshold() -> None:
    values = [0.5] * (len(thresholds.THRESHOLDS) - 1)
    lines = list(thresholds.table([("one", [0.9, *values]), ("two", [0.1, *values])]))
    assert lines[2].startswith("| one | 90.0 | 50.0 |")
    assert lines[-2].startswith("| **mean loss** | **20.0** | **20.0** |")
    assert lines[-1].startswith("| **largest loss** | **40.0** | **40.0** |")
