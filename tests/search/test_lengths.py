"""Expected lengths: the quantile of Kaplan and Meier, against a count by hand and against lengths that nothing cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.search.lengths import QUANTILE, Lengths


def of(*paths: tuple[int, bool], prior: int = 64) -> Lengths:
    lengths = Lengths(prior)
    for node, (tokens, ended) in enumerate(paths):
        lengths.note(node, tokens, ended=ended)
    return lengths


def test_before_anything_was_written_it_is_what_the_caller_says() -> None:
    assert Lengths(300).expected() == 300
    assert Lengths(300).expected(500) == 1000  # a path that is longer already


def test_the_textbook_example() -> None:
    # Kaplan-Meier by hand: S falls at 10 to 4/5, at 30 to 4/5 * 2/3, at 50 to 0; 20 and 40 are censored
    lengths = of((10, True), (20, False), (30, True), (40, False), (50, True))
    assert lengths.expected() == 50
    assert lengths.expected(written=10) == 50
    assert lengths.expected(written=50) == 100  # nothing is known beyond


def test_where_the_quantile_is_not_identified_it_is_twice_the_longest() -> None:
    assert of((10, True), (12, True), (90, False)).expected() == 180
    assert of((90, False), prior=64).expected() == 180
    assert of((90, False), prior=500).expected() == 500  # nothing has ended: what the caller says is not refuted


def test_a_path_that_went_on_is_forgotten() -> None:
    lengths = of((10, False))
    lengths.forget(0)
    lengths.note(1, 25, ended=True)
    assert (len(lengths), lengths.ended, lengths.expected()) == (1, 1, 25)


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=30), st.integers(0, 40))
def test_it_is_the_product_limit_estimate(paths: list[tuple[int, bool]], written: int) -> None:
    """Against the definition: the product over times of one minus deaths by those at risk."""
    beyond = [(tokens, ended) for tokens, ended in paths if tokens > written]
    survival, found = 1.0, None
    for time in sorted({tokens for tokens, ended in beyond if ended}):
        at_risk = sum(tokens >= time for tokens, _ in beyond)
        survival *= 1 - sum(tokens == time and ended for tokens, ended in beyond) / at_risk
        if survival <= 1 - QUANTILE + 1e-9:
            found = time
            break
    expected = of(*paths, prior=1).expected(written)
    assert expected == found if found is not None else expected == 2 * max(written, *(tokens for tokens, _ in paths))


@pytest.mark.parametrize("cut", [200, 600, 1500])
def test_censored_lengths_are_not_taken_for_ends(cut: int) -> None:
    """Of lengths that are cut, the mean of those that ended is short; the estimate is not, where it is identified."""
    rng = np.random.default_rng(5)
    lengths = np.exp(np.log(200) + 0.5 * rng.standard_normal(4000)).astype(int) + 1
    cuts = rng.integers(cut // 2, 2 * cut, len(lengths))
    noted = of(*((int(min(length, at)), bool(length <= at)) for length, at in zip(lengths, cuts, strict=True)))
    truth = float(np.quantile(lengths, QUANTILE))
    assert noted.expected() == pytest.approx(truth, rel=0.1)
