"""Thoughts in the texts of models: every known mark divides a text, wherever the text is cut."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tts
from tts.tasks.math import MathTask
from tts.thoughts import KNOWN, THINK, ThoughtMarks, without_marks

DRAFT, RESPONSE = r"First I thought \boxed{5}, but no.", r"The answer is \boxed{4}."
OF_ORDINARY_TEXTS = ("granite", "details")  # whose ends count only where they were opened
TASK = MathTask()


def written(name: str, case: str = "as it is") -> tuple[str, str]:
    marks = KNOWN[name]
    change = {"as it is": str, "small": str.lower, "capital": str.upper}["as it is" if name == "analysis" else case]
    return change(marks.open), change(marks.close)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    name=st.sampled_from(sorted(KNOWN)),
    case=st.sampled_from(["as it is", "small", "capital"]),
    marks=st.sampled_from([THINK, ThoughtMarks("[r]", "[/r]")]),
    share=st.floats(0, 1),
)
@example(name="harmony", case="as it is", marks=THINK, share=0.5)
def test_no_answer_is_read_in_a_thought_wherever_the_text_is_cut(
    name: str, case: str, marks: ThoughtMarks, share: float
) -> None:
    opening, end = written(name, case)
    text = opening + DRAFT + end + RESPONSE
    cut = text[: round(share * len(text))]
    response = marks.response(cut)
    assert "thought" not in response or cut == opening[: len(cut)]
    assert TASK.extract(response) in (None, "4")
    assert (TASK.extract(response) == "4") is (len(cut) >= len(text) - 1)
    assert (marks.thought(text), marks.response(text)) == (DRAFT, RESPONSE)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_cut_of_every_mark_leaves_the_draft_out(name: str) -> None:
    opening, end = written(name)
    text = opening + DRAFT + end + RESPONSE
    for length in range(len(text)):
        assert TASK.extract(THINK.response(text[:length])) != "5", text[:length]
        assert TASK.extract(text[:length]) != "5", text[:length]


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_what_was_sent_of_a_stream_is_never_taken_back(name: str) -> None:
    opening, end = written(name)
    text = opening + DRAFT + end + RESPONSE
    sent = ("", "")
    for length in range(len(text) + 1):
        settled = THINK.split_settled_text(text[:length])
        assert all(new.startswith(old) for new, old in zip(settled, sent, strict=True)), (settled, sent)
        sent = settled
    assert sent[0] == DRAFT
    assert RESPONSE.startswith(sent[1])


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - set(OF_ORDINARY_TEXTS)))
def test_a_text_may_begin_inside_of_its_thought_or_think_twice(name: str) -> None:
    opening, end = written(name)
    assert THINK.response(DRAFT + end + RESPONSE) == RESPONSE
    assert THINK.response(f"{opening}a{end}Let me check. {opening}{DRAFT}{end}{RESPONSE}") == RESPONSE
    again = f"assistant{opening}" if name == "analysis" else opening
    assert THINK.response(f"{opening}a{end}Let me check. {again}{DRAFT}") == ""


@pytest.mark.parametrize(
    "text",
    [
        "analysis of the sum: the answer is 4",
        "Analysis: 4",
        "The tag <think> opens a thought.",
        'Write "</think>" at the end.',
        "Use `re.sub('<think>.*?</think>', '', text)`.",
        'print(re.compile(r"<think>(.*?)</think>"))',
        "x = text.split('</think>')[-1]",
        "Here is my response: 4",
        "<details><summary>More</summary>4</details>",
        "the final answer, assistant: 4",
        "<refusal><reason>out of range</reason></refusal>",
    ],
)
def test_ordinary_texts_and_quoted_marks_are_no_thoughts(text: str) -> None:
    assert (THINK.thought(text), THINK.response(text)) == ("", text)


def test_a_quoted_end_does_not_end_a_thought() -> None:
    text = '<think>He wrote "</think>" so \\boxed{3}?'
    assert THINK.response(text) == ""
    assert THINK.response(f"{text}</think>4") == "4"


def test_a_text_without_its_marks_is_no_thought() -> None:
    for name in KNOWN:
        opening, end = written(name)
        assert "5" in THINK.response(without_marks(f"{opening}{DRAFT}{end}"))


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_search_votes_for_the_response_of_any_model(name: str) -> None:
    opening, end = written(name)
    texts = iter([opening + DRAFT + end + RESPONSE, opening + DRAFT, opening + DRAFT])
    solution = tts.solve(
        "2 + 2?", tts.Budget(samples=3), backend=lambda ask: next(texts), task="math", strategy="best_of_n(n=3)"
    )
    assert solution.answer == "4"
    assert [candidate.answer for candidate in solution.candidates].count(None) == 2


@pytest.mark.parametrize("rest", ["", "I cannot say."])
@pytest.mark.parametrize(
    ("verifier", "verdict"), [("judge(votes=1)", '{"score": 2}'), ("genrm(votes=1, verdict='words')", "Verdict: Yes")]
)
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_verdict_is_never_read_in_a_thought(name: str, verifier: str, verdict: str, rest: str) -> None:
    opening, end = written(name)
    reply = f"{opening}Maybe {verdict}" + (f"{end}{rest}" if rest else "")
    solution = tts.solve(
        "3 + 4?",
        tts.Budget(samples=20),
        backend=lambda ask: reply if "solution of it" in str(ask.prompt) else "The answer is 7.",
        task="math",
        verifier=verifier,
        strategy="best_of_n(n=2) | best",
    )
    assert all(math.isnan(candidate.scores.get("main", math.nan)) for candidate in solution.candidates)
    assert any("2 of 2 replies" in warning for warning in solution.warnings)
