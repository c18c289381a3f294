"""Estimates and facts in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tts.statistics import Estimate


def with_interval(each: Estimate, form: str = ".3f") -> str:
    """Return an estimate with its interval, where they are known."""
    if math.isnan(each.value):
        return "unknown"
    return f"{each.value:{form}}" + ("" if math.isnan(each.low) else f" [{each.low:{form}}, {each.high:{form}}]")


def in_points(each: Estimate) -> str:
    """Return a difference of shares in percentage points, with its interval."""
    value, low, high = (100 * part for part in (each.value, each.low, each.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] points"


def listed(facts: Mapping[str, str]) -> str:
    """Return facts below each other, behind their titles."""
    margin = max(map(len, facts), default=0)
    return "\n".join(f"{title:<{margin}}  {fact}" for title, fact in facts.items())
