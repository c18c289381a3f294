"""Calibrated risks on recorded pools: the command at a small size, and the page's own figures."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

from research.recorded import risk

PAGE = Path(__file__).parents[2] / "docs/results/risk.md"
has_pools = pytest.mark.skipif(
    not (Path(os.environ.get("TTS_DATA_DIR", "none")) / "pools").is_dir(), reason="TTS_DATA_DIR has no recorded pools"
)


@has_pools
def test_the_command_writes_a_row_for_each_level_and_kind() -> None:
    lines = list(risk.page_lines(["qwen25math"], times=5, problems=150))
    rows = [line for line in lines if " | 0." in line]
    assert len(rows) == 3 * len(risk.LEVELS)
    assert all(line.count("|") == 7 for line in rows)


def test_plain_thresholds_and_outcomes_are_counted_exactly() -> None:
    confidence, right = np.array([0.9, 0.8, 0.8, 0.5, math.nan]), np.array([True, True, False, False, False])
    assert risk.plain_threshold(confidence, right, 0.4) == 0.8
    assert risk.plain_threshold(confidence, right, 0.1) == 0.9
    assert risk.plain_threshold(confidence, ~right, 0.1) == math.inf
    assert risk.outcome(confidence, right, 0.8) == pytest.approx((0.6, 1 / 3))
    assert risk.outcome(confidence, right, math.inf) == (0.0, 0.0)


def test_calibrated_thresholds_of_the_page_exceed_their_level_no_more_often_than_allowed() -> None:
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if "`tts calibrate` |" in line]
    assert len(rows) == len(risk.PLANS) * len(risk.LEVELS)
    assert all(float(row[6].split()[0]) <= risk.DELTA for row in rows)
