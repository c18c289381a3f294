"""What drafts propose: the tokens that followed the last ones where these stood before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("torch", reason="the engine runs on torch")

from tts.backends.engine import drafts
from tts.backends.engine.drafts import Line, SuffixIndex


def index_of(prompt: Sequence[int], *texts: Sequence[int]) -> SuffixIndex:
    index = SuffixIndex(list(prompt))
    for text in texts:
        index.add(Line((), list(text), is_open=False))
    index.catch_up()
    return index


def following(index: SuffixIndex, text: Sequence[int], most: int = 8) -> tuple[list[int], int]:
    line = Line((), list(text))
    line.seen, line.read = list(text), len(text)
    return index.following(line, most)


def test_a_draft_is_what_followed_the_last_tokens() -> None:
    index = index_of(range(10, 40))
    assert following(index, [20, 21, 22], 4) == ([23, 24, 25, 26], 3)
    assert following(index, [1, 2, *range(15, 25)], 2) == ([25, 26], 10)
    assert following(index, [21, 20, 22], 2) == ([23, 24], 1)
    assert following(index, [21, 22, 20, 9]) == ([], 0)
    assert following(index, [37, 38, 39]) == ([], 0)  # nothing stands behind the end
    assert following(index, [36, 37, 38]) == ([39], 3)


def test_more_tokens_in_common_go_before_fewer_and_later_places_before_earlier() -> None:
    index = index_of([1, 2, 3, 4, 5, 6, 70], [9, 9, 4, 5, 6, 71], [8, 8, 4, 5, 6, 72])
    assert following(index, [0, 0, 4, 5, 6]) == ([72], 3)
    assert following(index, [1, 2, 3, 4, 5, 6]) == ([70], 6)


def test_texts_are_indexed_as_they_grow_and_behind_the_path_before_them() -> None:
    index, tokens = SuffixIndex([1, 2, 3]), [4]
    line = Line((1, 2, 3), tokens)
    index.add(line)
    index.catch_up()
    assert following(index, [1, 2, 3]) == ([4], 3)
    tokens += [5, 6]
    assert following(index, [2, 3, 4]) == ([], 0)
    index.catch_up()
    assert following(index, [2, 3, 4]) == ([5, 6], 3)
    line.open = False
    index.catch_up()
    tokens.append(7)
    index.catch_up()
    assert following(index, [3, 4, 5]) == ([6], 3), "a row that has ended is followed no more"


def test_a_row_whose_text_is_not_indexed_to_its_end_gets_no_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "_AT_ONCE", 6)
    index, line = SuffixIndex([1, 2, 3, 4, 5]), Line((), [1, 2, 3])
    index.add(line)
    index.catch_up()
    assert index.following(line, 2) == ([], 0), "one of its three tokens was read"
    index.catch_up()
    assert index.following(line, 2) == ([4, 5], 3)


def test_the_index_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "_ENTRIES", 50)
    index = index_of(range(1000))
    assert len(index) <= 50
    many = SuffixIndex([])
    written = Line((), [1, 2])
    many.add(written)
    for number in range(5 * drafts._LINES):
        many.add(Line((), [number], is_open=False))
    assert len(many._lines) <= 2 * drafts._LINES
    assert many._lines[1] is written, "what may still grow is kept, and the prompt"


def test_what_waits_to_be_indexed_is_indexed_in_parts_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "_AT_ONCE", 100)
    monkeypatch.setattr(drafts, "_ENTRIES", 400)
    index = SuffixIndex(list(range(1000)))
    for _ in range(11):
        index.catch_up()
        assert len(index) <= 400
    assert following(index, [996, 997, 998]) == ([999], 3)
