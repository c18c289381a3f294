"""Estimates, shares and facts in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tts.statistics import Estimate


def with_interval(each: Estimate, form: str = ".3f") -> str:
    """Return an estimate with its interval, as far as both are known.

    Args:
        each: The estimate.
        form: The format of each number.
    """
    if math.isnan(each.value):
        return "unknown"
    if math.isnan(each.low):
        return f"{each.value:{form}}"
    return f"{each.value:{form}} [{each.low:{form}}, {each.high:{form}}]"


def format_percent(share: float) -> str:
    """Return a share as a percentage; NaN is "unknown"."""
    return "unknown" if math.isnan(share) else f"{100 * share:.1f} %"


def percent_with_interval(share: Estimate) -> str:
    """Return a share as a percentage with its interval, as far as both are known."""
    percent = format_percent(share.value)
    if math.isnan(share.low):
        return percent
    return f"{percent} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def list_facts(facts: Mapping[str, str]) -> str:
    """Return facts below each other, after their titles."""
    margin = max(map(len, facts), default=0)
    return "\n".join(f"{title:<{margin}}  {fact}" for title, fact in facts.items())
