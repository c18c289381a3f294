"""Replies of judges as models write them: what is read although it is no JSON, and what is never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.verifiers.judge import read_verdict

BENT = {
    "valid": [
        '{"reason": "fine", "score": 8}',
        '[{"reason": "fine", "score": 8}]',
        '{"score": "8"}',
        '{"score": "8/10"}',
    ],
    "latex": [
        r'{"reason": "\frac{1}{2} and \(x\)", "score": 8}',
        r'{"reason": "so $\{1,2\}$ and \boxed{4}", "score": 8}',
    ],
    "line ends": ['{"reason": "a\nb", "score": 8}', '{\n\t"reason": "tab\there",\n\t"score": 8\n}'],
    "commas": [
        '{"score": 8,}',
        '{"reason": "x" "score": 8}',
        '{"reason": "x"\n"score": 8}',
        '{"score": 8 "reason": "x"}',
        '{"a": 1; "score": 8}',
    ],
    "numbers": ['{"score": 8/10}', '{"score": "8 out of 10",}', '{"score": 8.}', '{"score": +8}', '{"score": 08}'],
    "keys": ['{"Score": 8}', '{"SCORE": "8"}', "{score: 8}", '{"score" = 8}', '{"score"：8}'],
    "quotes": [
        "{'reason': 'it\\'s', 'score': 8}",
        "{“reason”: “ok”, “score”: “8”}",
        '{"reason": "he says "x" is 3", "score": 8}',
        '{"reason": "unclosed, "score": 8}',
        '"{\\"reason\\": \\"x\\", \\"score\\": 8}"',
        '{\\"score\\": 8}',
    ],
    "cut": ['{"score": 8, "reason": "cut he', '{"reason": "x", "score": 8', '{"reason": "...", "score": 8, "conf'],
    "around": [
        '{{"score": 8}}',
        '{"score": 8} // fine',
        '{"score": 8 /* x */}',
        '{"result": {"reason": "x", "score": 8}}',
        '```json\n{"score": 8,\n}\n```',
        "Verdict: {reason: fine, score: 8}",
        '{"reason": None, "score": 8}',
    ],
    "later": ['{"score": 2} No: {"reason": "", "score": 8,}', '{"score": 2,} No: {"reason": "", "score": 8}'],
}
UNKNOWN = {
    "cut": ['{"score": 1', '{"score": 7.', '{"reason": "x", "score":', '{"reason": "x", "sc', '{"score": -1'],
    "another scale": [
        '{"score": 8%}',
        '{"score": 8 out of 100}',
        '{"score": "80/100"}',
        '{"score": 11,}',
        '{"score": 1,5}',
    ],
    "no number": [
        '{"score": True}',
        '{"score": NaN,}',
        '{"score": high}',
        '{"score": "",}',
        '{"score": null,}',
        '{"score": [8],}',
    ],
    "two": [
        '{"score": 9 or 10,}',
        '{"score": 5-7}',
        '{"score": 1 0}',
        '{"reason": "it says "score": 10, but", "score": 2}',
    ],
    "elsewhere": ["The score is 8", "score: 8", '{"better": "A",}', '{"steps": [{"score": 10}, {"score": 2}, {"sc'],
}


@pytest.mark.parametrize("kind", BENT)
def test_bent_replies_are_read(kind: str) -> None:
    assert {reply: read_verdict(reply, "score") for reply in BENT[kind]} == dict.fromkeys(BENT[kind], 0.8)


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_is_not_certain_is_unknown(kind: str) -> None:
    assert {reply: read_verdict(reply, "score") for reply in UNKNOWN[kind]} == dict.fromkeys(UNKNOWN[kind], None)


@pytest.mark.parametrize(
    ("reply", "place"),
    [('{"better": "a"}', 1), ("{'better': 'B'}", 0), ('{"better": "Tie",}', 0.5), ('{"better": "Solution A"', 1),
     ('{"better": "both"}', None),     ('{"better": "A or B",}', None), ('{"better": "', None)],
)  # fmt: skip
def test_places_are_read_in_any_case(reply: str, place: float | None) -> None:
    assert read_verdict(reply, "better") == place


@given(
    score=st.integers(0, 10), reason=st.text(alphabet="ab{}\"\\\n',:$0123456789 ", max_size=40), cut=st.integers(0, 80)
)
def test_whatever_a_reason_holds_a_verdict_is_the_score_or_unknown(score: int, reason: str, cut: int) -> None:
    """The reason is not escaped, and the end may be missing."""
    reply = f'{{"reason": "{reason}", "score": {score}}}'
    assert read_verdict(reply[: len(reply) - cut], "score") in (score / 10, None)


@pytest.mark.parametrize(
    "part", ["{", '{"', '{"a":', '{"score" ', "{score", 'score":', '{"a": "\\"', "{`", '{"score": 1']
)
def test_long_nonsense_ends_without_aread_verdict(part: str) -> None:
    # work that grows with the square of the length would take hours
    assert read_verdict(part * 50_000, "score") is None
