"""Turns failures whose reason is that a package is not installed into skips."""

from __future__ import annotations

import re
from typing import Any

import pytest


def skip_if_match(report: Any, node: pytest.Collector | pytest.Item, named: re.Pattern[str], reason: str) -> Any:
    """Turn a failure whose text matches the pattern into a skip with the reason."""
    if report.failed and named.search(report.longreprtext):
        report.outcome = "skipped"
        report.longrepr = (str(node.path), 0, f"Skipped: {reason}")
    return report
