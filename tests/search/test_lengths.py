"""Expected lengths: the quantile of Kaplan and Meier, against a count by hand and against lengths that nothing cuts."""

from __future__ import annotations

import sys

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
    assert Lengths(300).expected_length() == 300
    assert Lengths(300).expected_length(500) == 1000  # a path that is longer already


def test_the_textbook_example() -> None:
    # Kaplan-Meier by hand: S falls at 10 to 4/5, at 30 to 4/5 * 2/3, at 50 to 0; 20 and 40 are censored
    lengths = of((10, True), (20, False), (30, True), (40, False), (50, True))
    assert lengths.expected_length() == 50
    assert lengths.expected_length(written=10) == 50
    assert lengths.expected_length(written=50) == 100  # nothing is known beyond


def test_where_the_quantile_is_not_identified_it_is_twice_the_longest() -> None:
    assert of((10, True), (12, True), (90, False)).expected_length() == 180
    assert of((90, False), prior=64).expected_length() == 180
    assert of((90, False), prior=500).expected_length() == 500  # nothing has ended: what the caller says is not refuted


def test_a_path_that_went_on_is_forgotten() -> None:
    lengths = of((10, False))
    lengths.note(1, 25, ended=True, above=0)
    assert (len(lengths), lengths.ended, lengths.expected_length()) == (1, 1, 25)


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
    expected = of(*paths, prior=1).expected_length(written)
    assert expected == found if found is not None else expected == 2 * max(written, *(tokens for tokens, _ in paths))


Note = tuple[int, int, bool, bool]


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 30), st.booleans(), st.booleans()), max_size=60),
    st.integers(0, 30),
)
def test_notes_in_any_order_come_to_what_a_fresh_count_does(notes: list[Note], written: int) -> None:
    """Nodes are noted again, as longer or shorter paths, open ones end, and some are continued as another."""
    lengths, kept = Lengths(7), dict[int, tuple[int, bool]]()
    for node, tokens, ended, forgotten in notes:
        lengths.note(node, tokens, ended=ended)
        kept[node] = (tokens, ended)
        if forgotten:
            lengths.note(node + 100, tokens, ended=ended, above=node)
            del kept[node]
            kept[node + 100] = (tokens, ended)
        fresh = of(*kept.values(), prior=7)
        assert (
            lengths.expected_length(written)
            == fresh.expected_length(written)
            == counted(list(kept.values()), written, 7)
        )
        assert (len(lengths), lengths.ended, lengths.longest) == (len(fresh), fresh.ended, fresh.longest)
        assert lengths.longest == max((tokens for tokens, _ in kept.values()), default=0)


def counted(paths: list[tuple[int, bool]], written: int, prior: int) -> int:
    """Return the estimate by one pass over all paths."""
    ordered = sorted((tokens, not ended) for tokens, ended in paths if tokens > written or not written)
    share = 1.0
    for left, (tokens, is_open) in zip(range(len(ordered), 0, -1), ordered, strict=True):
        share *= 1.0 if is_open else (left - 1) / left
        if not is_open and share <= 1 - QUANTILE + 1e-9:
            return tokens
    doubled = 2 * max([written, *(tokens for tokens, _ in paths)])
    return doubled if any(ended for _, ended in paths) else max(doubled, prior)


def test_a_search_of_single_rows_takes_time_in_proportion_to_them() -> None:
    def count_lines(rows: int) -> int:
        """Return the lines of Python that notes and estimates of so many rows run."""
        lengths, rng, num_lines = Lengths(64), np.random.default_rng(1), 0

        def trace(frame: object, event: str, value: object) -> object:
            nonlocal num_lines
            num_lines += event == "line"
            return trace

        for node, (tokens, ended) in enumerate(
            zip(rng.integers(1, 2000, rows).tolist(), (rng.random(rows) < 0.7).tolist(), strict=True)
        ):
            before = sys.gettrace()
            sys.settrace(trace)
            lengths.note(node, tokens, ended=ended)
            lengths.expected_length()
            lengths.expected_length(tokens)
            sys.settrace(before)
        return num_lines

    # 64 times the lines, if each looked at all
    assert count_lines(4000) < 16 * count_lines(500)


@pytest.mark.parametrize("cut", [200, 600, 1500])
def test_censored_lengths_are_not_taken_for_ends(cut: int) -> None:
    """Of lengths that are cut, the mean of those that ended is short; the estimate is not, where it is identified."""
    rng = np.random.default_rng(5)
    lengths = np.exp(np.log(200) + 0.5 * rng.standard_normal(4000)).astype(int) + 1
    cuts = rng.integers(cut // 2, 2 * cut, len(lengths))
    noted = of(*((int(min(length, at)), bool(length <= at)) for length, at in zip(lengths, cuts, strict=True)))
    truth = float(np.quantile(lengths, QUANTILE))
    assert noted.expected_length() == pytest.approx(truth, rel=0.1)


def test_paths_without_a_token_teach_nothing_and_no_length_is_below_one() -> None:
    assert of((0, True), prior=300).expected_length() == 300
    assert of((0, True), (0, True), (0, False), prior=300).expected_length() == 300
    assert of(*[(0, True)] * 19, (9, True)).expected_length() == 1  # all but a few are empty
    assert of((0, True), (9, True)).expected_length() == 9
