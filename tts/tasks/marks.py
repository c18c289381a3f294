"""The words that announce an answer, such as "Answer:" and "la réponse est", in many languages.

A user can add marks of other words.

Marks are compared without regard to case. Stars and spaces may come before the last colon of a mark. After a mark
without a colon, stars, spaces and a colon may follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tts.errors import ConfigError, quote

# By language, in the order of their codes.
FOREIGN: dict[str, tuple[str, ...]] = {
    "ar": ("الجواب:", "الإجابة:", "الجواب هو", "الإجابة هي"),
    "bn": ("উত্তর:", "উত্তর হল", "উত্তর হলো"),
    "cs": ("odpověď:", "odpověď je", "výsledek je"),
    "da": ("svar:", "svaret er"),
    "de": (
        "antwort:",
        "antwort ist",
        "antwort lautet",
        "lösung:",
        "lösung ist",
        "lösung lautet",
        "ergebnis:",
        "ergebnis ist",
        "ergebnis lautet",
    ),
    "el": ("απάντηση:", "απάντηση είναι"),
    "es": ("respuesta:", "respuesta es", "respuesta final es", "respuesta final:", "respuesta correcta es"),
    "fa": ("پاسخ:", "جواب:"),
    "fi": ("vastaus:", "vastaus on"),
    "fr": (
        "réponse:",
        "réponse est",
        "réponse finale est",
        "réponse finale:",
        "réponse correcte est",
        "reponse:",
        "reponse est",
    ),
    "he": ("תשובה:", "התשובה היא"),
    "hi": ("उत्तर:", "उत्तर है"),
    "hu": ("válasz:", "a válasz"),
    "id": ("jawaban:", "jawabannya adalah", "jawaban adalah", "jawaban akhir:"),
    "it": ("risposta:", "risposta è", "risposta corretta è", "risposta finale è", "risposta finale:"),
    "ja": ("答え:", "答えは", "解答:", "解答は", "正解:", "正解は", "回答:"),
    "ko": ("정답:", "정답은", "답:", "답은", "답변:"),
    "nl": ("antwoord:", "antwoord is"),
    "no": ("svaret er",),
    "pl": ("odpowiedź:", "odpowiedź to", "odpowiedzią jest"),
    "pt": ("resposta:", "resposta é", "resposta final é", "resposta final:", "resposta correta é"),
    "ro": ("răspuns:", "răspunsul este"),
    "ru": ("ответ:", "ответ —", "ответ -", "ответом является"),
    "sv": ("svaret är",),
    "sw": ("jibu:", "jibu ni"),
    "te": ("సమాధానం:",),
    "th": ("คำตอบ:", "คำตอบคือ"),
    "tr": ("cevap:", "yanıt:", "doğru cevap:"),
    "uk": ("відповідь:",),
    "vi": ("đáp án:", "đáp án là", "đáp số:", "câu trả lời:", "câu trả lời là"),
    "zh": (
        "答案:",
        "答案是",
        "答案为",
        "答案為",
        "答案应为",
        "答案就是",
        "答:",
        "最终结果是",
        "最终结果为",
        "故选",
        "应选",
        "应该选",
        "因此选",
        "所以选",
        "選",
    ),
}
ANSWER_MARKS: tuple[str, ...] = tuple(mark for marks in FOREIGN.values() for mark in marks)

_HEADING = (
    r"(?<![^\n])[#>*_ \t]*(?:the[ ])?(?:final[ ]answer|最终答案|réponse[ ]finale|respuesta[ ]final)[*_ \t]*(?=\n|\Z)"
)
# The mark of GSM8K, which has a value behind it, and is no heading of Markdown.
_GSM8K = (
    r"(?<!\#)\#{4}(?!\#)(?=\s*\**\s*(?![0-9]{1,2}[.):] +[A-Z*]|[^\n]{0,200}:\**[ \t]*(?:\n|\Z))"
    r"(?:[-+$€£¥~≈(\[{|.]*[0-9\\∞√π]|[-+(\[{$]*[A-Za-z](?![A-Za-z]|[.)] +\w)|(?:it|the answer) is "
    r"|(?:yes|no|true|false|none|undefined|infinite|infinity|impossible|(?-i:[a-z]+))\b(?![.)]?[ \t]+\w)))"
)
_LINE = r"(?<![^\n])[#>*_ \t-]*"


def _heading(words: str) -> str:
    """Return the pattern of words as a heading or in bold, without a colon."""
    return rf"{_LINE}(?:\#[ \t]*[*_]*{words}[*_ \t]*(?=\n|\Z)|(?:\*\*|__){words}(?:\*\*|__)[ \t]*[:：]?[ \t]*)"


_TO = r"(?:[ ]to[ ](?:the|this|your)[ ](?:question|problem))?"


@lru_cache(maxsize=256)
def pattern_of(marks: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of the English marks and of `marks`; a match of it ends where the answer begins."""
    english = [
        _GSM8K,
        rf"(?<![^\W_])(?:(?:the|final)\s+)?answers?{_TO}\s+(?:is|are|equals|(?:would|should|must|will)\s+be)(?![^\W_])(?:[*_]*\s?[:：])?[*_]*",
        r"(?:(?<!\w)a|(?<![^\W_])(?:ans|answers?[ ]?))[*_]*[ ]?[:：][*_]*",
        r"(?<!\w)answer(?:[ ]?=(?!=)|[*_]*\s*(?=\\[\[(]|\$))|[\[【]"
        r"(?:(?:final|correct)[ ]|正确|最终|参考)?(?:answer|答案)[\]】][ ]?[:：]?",
        rf"{_LINE}(?:final )?result[*_]*[ ]?[:：][*_]*",
        _HEADING,
        _heading("(?:the )?(?:(?:correct|final) )?(?:answer|result)"),
    ]
    return re.compile("|".join([*english, *map(_mark_pattern, marks)]), re.IGNORECASE)


def check_marks(marks: Any) -> tuple[str, ...]:
    """Return a user's marks as a tuple.

    Raises:
        ConfigError: `marks` is no sequence of texts with a letter or digit.
    """
    if isinstance(marks, tuple | list) and all(isinstance(mark, str) and any(map(str.isalnum, mark)) for mark in marks):
        return tuple(mark.strip() for mark in marks)
    raise ConfigError(
        f"marks is {quote(marks)}, but must be texts that announce an answer",
        hint="for example marks=('resultat:', 'svaret blir')",
    )


def marks_within(text: str, marks: Iterable[str]) -> tuple[str, ...]:
    """Return the marks whose words occur in a text."""
    lowered = text.lower()
    return tuple(mark for mark in marks if mark.rstrip(":").lower() in lowered)


def _mark_pattern(mark: str) -> str:
    words = r"\s+".join(map(re.escape, mark.removesuffix(":").split()))
    left_bound = r"(?<!\w)" if mark[0].isascii() or _has_case(mark[0]) else ""
    ending = r"[*_]*[ ]?[:：][*_]*" if mark.endswith(":") else r"(?:[*_]*\s?[:：])?[*_]*"
    right_bound = r"\b" if _has_case(mark[-1]) else ""
    heading = f"|{_heading(words)}" if mark.endswith(":") else ""
    return left_bound + words + right_bound + ending + heading


def _has_case(character: str) -> bool:
    """Whether a character is a letter of a script with capitals, where spaces separate words."""
    return character.isalpha() and character.lower() != character.upper()
