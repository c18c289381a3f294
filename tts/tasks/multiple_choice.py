"""Multiple choice: the answer is a stated letter from A to J.

A letter that is only mentioned is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tts.tasks.base import Task, fold_text
from tts.tasks.extraction import last_box, last_marker, last_tag, own_turn
from tts.tasks.framing import CHECK_STEPS, CRITIQUE_END, Framing
from tts.tasks.marks import ANSWER_MARKS, check_marks

_FORMAT = (
    'Reason step by step and separate the steps by a blank line. End with a line "Answer: " and the letter of '
    "your choice."
)
_FRAMING = Framing(
    requests={
        "solve": _FORMAT,
        "revise": "Check the earlier solution of this question, correct what is wrong in it, and answer anew. "
        f"{_FORMAT}",
        "fuse": f"Compare these solutions of the question, keep what is right in them, and give one answer. {_FORMAT}",
        "critique": f"{CHECK_STEPS} {CRITIQUE_END}",
    },
    tokens={"solve": 256, "step": 48, "revise": 256, "fuse": 256, "critique": 128},
)
# Texts that announce a letter, besides the marks of an answer.
_CHOICE_WORDS = """
correct: | answer - | i would go with | correct option: | correct option is | correct choice: |
correct choice is | correct letter is | correct statement is | right option is | best option is | best choice is |
option: | choice: | my choice is | i choose | i would choose | i pick | i select | i'd go with | i would pick |
i'd pick | i'd choose | i would select | i'll go with | i'll pick | i'll choose | my pick is | correct one: |
correct one is | right one is | best one is | i will go with | i go with | i think it's | i think it is |
i believe it's | i believe it is | it must be | final choice: | selected option: | bonne réponse: | richtig ist |
opción correcta: | opción correcta es | 正确选项: | 正确选项是 | 正确选项为 | 正确的是 | 选择 | 选项是 |
i would answer | i would say | i'd say | i'd go for | i'll go for | let's go with | going with | we pick | we choose |
one would be | my final choice is | correct letter: | answer — | correct options are | correct answers are |
correct choices are | correct statements are | answers are | answers:
"""
CHOICE_MARKS: tuple[str, ...] = tuple(mark.strip() for mark in _CHOICE_WORDS.split("|"))

_WRAPPER = r"[\s*_`\"'$「【<]*"
_FILLER = (
    r"(?:(?:for sure|definitely|clearly|certainly|probably|likely|most likely|indeed|simply|therefore|thus"
    r"|obviously|option|choice|letter|answer"
    r"|selection|选项|选择|choix|opción)\s?[:：]?\s*)*"
)
# A letter alone: "B", "(b)", "B)", "**B**", "\text{B}", "option B". The group `rest` is the text after the letter.
_CHOICE = re.compile(
    rf"{_WRAPPER}(?:\\(?:text|textbf|mathrm|mathbf)\s*\{{)?{_WRAPPER}{_FILLER}{_WRAPPER}(?:\\(?:text|textbf|mathrm|mathbf)\s*\{{)?"
    rf"(?:[(（[]\s*(?P<enclosed>[A-Ja-j])\s*[)）\]]|(?P<bare>[A-J])(?![A-Za-z0-9_'’]))\}}?(?P<rest>.*)",
    re.DOTALL | re.IGNORECASE,
)
_ALTERNATIVE = re.compile(
    r"[\s*.,)\]]*(?:or|and|/|,|&|\+|-|=|<|>|或|和|、)\s*(?:\(?(?-i:[A-J0-9])|\([A-J])(?!\w)", re.IGNORECASE
)
# Several letters, separated by commas or "and".
_LETTER_LIST = re.compile(
    r"[\s({\[$*]*(?:(?:\\text\{|(?:[Oo]ptions|[Cc]hoices|[Ll]etters|[Ss]tatements)\s)\s*)?"
    r"(?P<letters>[(*]*[A-J][)*]*(?:\s*(?:[,;、和]\s*(?:and|&)?|and|&)\s*[(*]*[A-J][)*]*)+)[\s)}\]$.*]*"
)
_LETTER_RUN = re.compile(r"(?=[A-H]{2})A?B?C?D?E?F?G?H?")
_BOLD = re.compile(r"\*\*\s*\(?([A-J])\)?[.:)]?\s*\*\*")
_LOWER_LETTER = re.compile(r"[\s*_`\"'$:]*(?:(?i:option|choice|letter)\s+)?\(?([a-j])[\s*_`\"'$.)]*")
_PARENTHESISED = re.compile(r"\(([A-J])\)")
# "A" and "I" are words too: before a small letter they are a choice only where the sentence goes on with a reason.
_REASON = re.compile(r"\s*(?:because|since|as|for|due|which|non|not)\b")
_VERDICT = re.compile(
    r"(?:(?:option|choice|answer|statement)\s+\(?(?P<named>[A-J])\)?|\((?P<enclosed>[A-J])\)|(?<![\w'’])(?P<bare>(?-i:[A-J])))[*_]*"
    r"\s+(?:is|must be|seems)\s+(?:(?:the|definitely|clearly|therefore)\s+)*(?:correct|right|best|true|answer)\b",
    re.IGNORECASE,
)
_WITH_TEXT = re.compile(
    r"(?:\(([A-Ja-j])\)|([A-J])(?:[).:。、：]|\s[—–-](?=\s)|(?=[\u4e00-\u9fff]))|([a-j])[).:](?=\s))\s*\S.*"
)
_OTHER_LETTER = re.compile(r"(?:\(([A-J])\)|(?<!\w)([A-J])[).:])\s")


class MultipleChoiceTask(Task):
    r"""Questions with choices A to J.

    The answer is the first of these choices: in `<answer>`; in the last box (`\boxed{B}`); after the last marker
    ("Answer: (B)", "the answer is B.", a letter on the next line); a choice that is called right ("Option B is
    correct"); the last bold letter (`**C**`); a letter alone on the last line; a letter with its text as the whole
    reply ("B) Paris", "b. Paris"). A small letter is a choice where it stands alone. Several
    letters that all are meant ("B and C") are "B, C". Letters of which one is meant ("B or C"), or that stand side by
    side ("BC"), are no choice.

    Args:
        marks: Texts that announce an answer in further languages, besides `tts.tasks.marks`, such as ("resultat:",
            "svaret blir").

    Raises:
        ConfigError: `marks` is no sequence of texts.
    """

    answer_cue: str = "\n\nAnswer: "
    framing = _FRAMING

    def __init__(self, *, marks: Sequence[str] = ()) -> None:
        self.marks = check_marks(marks)
        self._marks = (*ANSWER_MARKS, *CHOICE_MARKS, *self.marks)

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The task's text form, by which results are distinguished."""
        return f"multiple_choice(marks={self.marks!r})" if self.marks else "multiple_choice"

    def is_finished(self, text: str) -> bool:
        """Return whether a choice is boxed, or stated after a marker in the last line that is not empty.

        That line must end with its newline.
        """
        if _boxed_choice(text) is not None:
            return True
        return text.endswith("\n") and self._marked_choice(_last_line(text)) is not None

    def extract(self, text: str) -> str | None:
        """Return the letter of the stated choice, or None."""
        text = own_turn(text)
        if (tagged := last_tag(text)) is not None:
            return _boxed_choice(tagged) or _stated_choice(tagged) or self._marked_choice(tagged)
        for find_choice in (_boxed_choice, self._marked_choice, _right_choice, _bold_choice):
            choice = find_choice(text)
            if choice is not None:
                return choice
        return _lone_choice(_last_line(text)) or _whole_choice(text)

    def canonical(self, answer: str) -> str:
        """Return the letter of a choice in any form, such as "(b)", "b", "B." and "B) Paris".

        Several letters, and those of a reference side by side ("BC"), are "B, C". Any other text is folded.
        """
        choice = _stated_choice(answer) or (_whole_choice(answer) if _LOWER_LETTER.match(answer) else None)
        if choice is None and _LETTER_RUN.fullmatch(answer.strip()):
            return ", ".join(answer.strip())
        return fold_text(answer) if choice is None else choice

    def _marked_choice(self, text: str) -> str | None:
        """Return the choice after the last marker, on its line or the next line that is not blank; or None."""
        marker_end = last_marker(text, self._marks)
        if marker_end is None:
            return None
        statement, _, later_lines = text[marker_end:].partition("\n")
        if not statement.strip(" \t\r*_:$`"):
            statement = later_lines.lstrip(" \t\r\n*_").partition("\n")[0]
        choice = _stated_choice(statement)
        if choice is not None:
            return choice
        letters = set(_PARENTHESISED.findall(statement))
        return letters.pop() if len(letters) == 1 else None


def _boxed_choice(text: str) -> str | None:
    boxed = last_box(text)
    return None if boxed is None else _stated_choice(boxed)


def _right_choice(text: str) -> str | None:
    """Return the choice that is called right; None where no choice or several are called right."""
    matches = _VERDICT.finditer(text)
    letters = {str(match["named"] or match["enclosed"] or match["bare"]).upper() for match in matches}
    return letters.pop() if len(letters) == 1 else None


def _bold_choice(text: str) -> str | None:
    letters = _BOLD.findall(text)
    return letters[-1] if letters else None


def _lone_choice(line: str) -> str | None:
    """Return the choice that is alone on a line, or None."""
    match = _CHOICE.fullmatch(line)
    if _LETTER_LIST.fullmatch(line) is not None and line.count(" ") + line.count(","):
        return _stated_choice(line)
    if match is None or match["rest"].strip(" \t\r.)*_`$\"'}。」】>"):
        return None
    return _letter(match)


def _whole_choice(text: str) -> str | None:
    """Return the choice of a reply that is one line: a letter and its text, without another letter."""
    line = text.strip().strip("*_")
    match = _WITH_TEXT.fullmatch(line)
    if _LOWER_LETTER.fullmatch(line) is not None:
        return _stated_choice(line)
    if match is None or len(line) > 500:
        return None
    letter = (match[1] or match[2] or match[3]).upper()
    letters = {in_parentheses or bare for in_parentheses, bare in _OTHER_LETTER.findall(line)}
    return letter if letters <= {letter} else None


def _stated_choice(text: str) -> str | None:
    """Return the choice that a text begins with, or the choices that it consists of.

    Returns:
        None if the text has alternatives, or the letter is a word.
    """
    if (small := _LOWER_LETTER.fullmatch(text)) is not None:
        return small[1].upper()
    if (several := _LETTER_LIST.fullmatch(text)) is not None:
        letters = re.findall(r"[A-J]", several["letters"])
        return ", ".join(sorted(letters)) if len(set(letters)) == len(letters) else None
    match = _CHOICE.fullmatch(text)
    if match is None:
        return None
    following = match["rest"]
    if _ALTERNATIVE.match(following):
        return None
    may_be_word = match["bare"] in ("A", "I") and re.match(r"\s+[a-z]", following) is not None
    if may_be_word and not _REASON.match(following):
        return None
    return _letter(match)


def _letter(match: re.Match[str]) -> str | None:
    """Return the letter of a choice as a capital; None for a small letter without parentheses."""
    if match["enclosed"] is not None:
        return match["enclosed"].upper()
    return match["bare"] if match["bare"].isupper() else None


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]
