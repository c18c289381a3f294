"""Laws of chance: how often they are drawn, and whether what was drawn fits.

They are drawn a few times in `make test`, and many times in `make test-slow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from scipy import stats


def repeats(few: int, many: int, name: str = "runs") -> pytest.MarkDecorator:
    """Run a test that takes the number ``name`` with ``few``, and with ``many`` where slow tests run.

    The test derives its bound from that number, so that the chance of a false alarm is the same with both.
    """
    return pytest.mark.parametrize(name, [few, pytest.param(many, marks=pytest.mark.slow)])


def check_law(
    seen: Counter[Any], law: Mapping[Any, float], other: Mapping[Any, float] | None = None, apart: float = 0.1
) -> None:
    """Assert that counts follow a law, by the test of Pearson.

    Args:
        seen: How often each value was drawn.
        law: The chance of each value; values that are expected less than five times are counted together.
        other: A law that the test must be able to tell from it; None: of none.
        apart: The least total variation between the two.
    """
    total = sum(seen.values())
    common = [value for value, p in law.items() if p * total >= 5]
    counts, expected = [seen[value] for value in common], [law[value] * total for value in common]
    if (rest := total - sum(expected)) > 1e-6:
        counts, expected = [*counts, total - sum(counts)], [*expected, rest]
    assert set(seen) <= {value for value, p in law.items() if p > 0}
    # one seed in a thousand would fail by chance; the seed is fixed
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    if other is not None:
        distance = sum(abs(law.get(value, 0) - other.get(value, 0)) for value in {*law, *other}) / 2
        assert distance > apart, "the test could not tell the laws apart"
