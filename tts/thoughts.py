"""The thought that a path may begin with, and the marks that separate it from the response.

One table has all known marks. They divide every text, whatever marks the model of the text states.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tts.errors import ConfigError

HOW_MARKS = 'such as ("<think>", "</think>"), or ("", "</think>") where the prompt of a server has opened the thought'
_TAG = r"(?:[a-z]+[:_])?(?:think(?:ing)?|thoughts?|reasoning|scratchpad|cot)\s*>"
_ASSISTANT = r"(?:<\|start\|>\s*assistant\s*)?"
_MESSAGE = r"[^<|]*(?:<\|constrain\|>[^<|]*)?<\|message\|>"
# By name: the texts of the marks, and the patterns of what models write; "": the text itself.
_TABLE: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "<think>": ("<think>\n", "\n</think>\n\n", f"<{_TAG}", f"</{_TAG}"),
    "<thinking>": ("<thinking>", "</thinking>", "", ""),
    "<thought>": ("<thought>", "</thought>", "", ""),
    "[THINK]": ("[THINK]", "[/THINK]", "", ""),
    "<seed:think>": ("<seed:think>\n", "\n</seed:think>\n", "", ""),
    "harmony": (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        rf"{_ASSISTANT}<\|channel\|>(?!\s*final\b){_MESSAGE}",
        rf"(?:<\|end\|>\s*)?{_ASSISTANT}<\|channel\|>\s*final\b{_MESSAGE}",
    ),
    "analysis": (
        "analysis",
        "assistantfinal",
        r"(?-i:(?:\A\s*|assistant)analysis(?=[^\W_]|[\\$\"“]))",
        "(?-i:assistantfinal)",
    ),
    "<|channel>": ("<|channel>thought\n", "\n<channel|>", r"<\|channel>(?:thought\b)?", ""),
    "◁think▷": ("◁think▷", "◁/think▷", "", ""),
    "<unused94>": ("<unused94>thought\n", "<unused95>", r"<unused94>(?:thought\b)?", ""),
    "<|begin_of_thought|>": ("<|begin_of_thought|>", "<|end_of_thought|>", "", ""),
    "<|START_THINKING|>": ("<|START_THINKING|>", "<|END_THINKING|>", "", ""),
    "granite": (
        "Here is my thought process:",
        "Here is my response:",
        r"\A\s*here(?: is|['’]s) my thought process:",
        r"here(?: is|['’]s) my response:",
    ),
    "details": (
        '<details type="reasoning">',
        "</details>",
        r'\A\s*<details type="reasoning"[^>]*>',
        r"</details\s*>",
    ),
}
# By name, the words in small letters of which every mark has one: a text without them is not searched. The other names
# of the table are forms of the first.
_STEMS: Final[Mapping[str, tuple[str, ...]]] = {
    "<think>": ("think", "thought", "reasoning", "scratchpad", "cot"),
    "[THINK]": ("think",),
    "harmony": ("channel",),
    "analysis": ("analysis", "assistantfinal"),
    "<|channel>": ("channel",),
    "◁think▷": ("think",),
    "<unused94>": ("<unused9",),
    "<|begin_of_thought|>": ("thought",),
    "<|START_THINKING|>": ("think",),
    "granite": ("my thought process:", "my response:"),
    "details": ("details",),
}
_WORDS: Final = tuple(dict.fromkeys(stem for stems in _STEMS.values() for stem in stems))
# whose ends stand in other texts too, and end only what they have opened
_COMMON: Final = ("granite", "details")
_Form = tuple[re.Pattern[str], re.Pattern[str], bool, tuple[str, ...]]
_KNOWN_MARKS: Final = tuple(dict.fromkeys(mark.strip().lower() for form in _TABLE.values() for mark in form[:2]))
_LONGEST_MARK: Final = 200  # characters, of a mark of a model of the user's too
_WINDOW: Final = 500  # characters of a line, on each side of a mark, in which quotation marks are looked for


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """The texts between which a model thinks before it responds.

    A path begins with a thought where its prompt ends with `open`, where a line of its text begins with `open`, or
    where `close` stands in its text. The thought ends at the last `close`, unless a further `open` follows. All marks
    of `KNOWN` count as well, in capital and small letters. A mark within quotation marks does not count.

    Args:
        open: Begins a thought; "": what opens it is in no text, and every path begins inside of its thought.
        close: Ends it.
        opened: Whether the prompt ends with `open`, as some chat templates have it; then a path begins inside of its
            thought.

    Raises:
        ConfigError: `open` and `close` are not two different texts with more than blanks.
    """

    open: str = "<think>"
    close: str = "</think>"
    opened: bool = False

    def __post_init__(self) -> None:
        marks: tuple[Any, ...] = (self.open, self.close)
        if problem := refusal_of(marks):
            raise ConfigError(f"the marks of a thought are {marks!r}, but {problem}", hint=HOW_MARKS)
        if not self.open:
            object.__setattr__(self, "opened", True)

    def split(self, text: str) -> tuple[int, int]:
        """Return where the thought of a path's text ends, and where its response begins.

        Both are 0 where the text has no thought. While the thought goes on, both are the length of the text.
        """
        lowered, words = text.lower(), _words(self.open, self.close)
        if words.search(lowered) is None:
            return (len(text), len(text)) if self.opened else (0, 0)
        present = {
            word for word in (*_WORDS, *(mark.strip().lower() for mark in (self.open, self.close))) if word in lowered
        }
        forms = [
            form
            for form in _forms(self.open.strip(), self.close.strip())
            if not present.isdisjoint(form[3]) and (form[2] or form[0].match(text))
        ]
        if not forms:
            return (len(text), len(text)) if self.opened else (0, 0)
        start, end = max((mark.span() for form in forms for mark in _marks(form[1], text, 0)), default=(0, 0))
        is_open = self.opened and end == 0
        openings = (mark for form in forms for mark in _marks(form[0], text, end))
        if is_open or any(end > 0 or _begins_line(text, mark) for mark in openings):
            return len(text), len(text)
        return start, end

    def thought(self, text: str) -> str:
        """Return the thought of a path's text as far as it is written, without its marks; "" if there is none."""
        return self._parts(text)[0]

    def split_settled_text(self, text: str) -> tuple[str, str]:
        """Return thought and response of an unfinished text.

        A last piece of the text that may yet become a mark is left out.
        """
        end = text[-_LONGEST_MARK:].lower()
        is_whole = len(text) <= _LONGEST_MARK
        num_unsettled = 0
        for mark in (self.open.strip().lower(), self.close.strip().lower(), *_KNOWN_MARKS):
            longest_first = range(len(mark) - (not is_whole or end.lstrip() != mark), num_unsettled, -1)
            num_unsettled = next((size for size in longest_first if end.endswith(mark[:size])), num_unsettled)
        return self._parts(text[: len(text) - num_unsettled])

    def response(self, text: str) -> str:
        """Return what stands after the thought of a path's text; "" while the thought goes on."""
        _end, begin = self.split(text)
        return text[begin:].lstrip() if begin else text

    def _parts(self, text: str) -> tuple[str, str]:
        """Return thought and response of a text."""
        end, begin = self.split(text)
        if not begin:
            return "", text
        thought = text[:end].strip()
        openings = (form[0].match(thought) for form in _forms(self.open.strip(), self.close.strip()))
        opening_end = max((mark.end() for mark in openings if mark is not None), default=0)
        return thought[opening_end:].strip(), text[begin:].lstrip()

    def continue_prompt(self, prompt: object) -> ThoughtMarks:
        """Return these marks for the paths after a prompt.

        A text prompt is not rendered, so its end decides whether a thought is open.
        """
        opened = prompt.rstrip().endswith(self.open.strip()) if isinstance(prompt, str) else self.opened
        return self if opened == self.opened else dataclasses.replace(self, opened=opened)


def refusal_of(marks: Sequence[Any]) -> str:
    """Return why marks cannot divide a text; "": they can."""
    texts = len(marks) == 2 and all(
        isinstance(mark, str) and (mark.strip() or (mark == "" and not at)) for at, mark in enumerate(marks)
    )
    return "" if texts and marks[0].strip() != marks[1].strip() else "must be two different texts"


THINK = ThoughtMarks()  # where a model's own are not known
KNOWN: Final[Mapping[str, ThoughtMarks]] = {name: ThoughtMarks(*form[:2]) for name, form in _TABLE.items()}


def without_marks(text: str) -> str:
    """Return a text without known marks of thoughts, so that no part of it is a thought."""
    for opening, end, *_ in _forms(THINK.open, THINK.close):
        text = end.sub("", opening.sub("", text))
    return text


@functools.lru_cache(maxsize=64)
def _words(opening: str, end: str) -> re.Pattern[str]:
    """Return the pattern of words in small letters, of which every text with a mark has one."""
    return re.compile(
        "|".join(re.escape(word) for word in (*_WORDS, *(mark.strip().lower() for mark in (opening, end))))
    )


@functools.lru_cache(maxsize=64)
def _forms(opening: str, end: str) -> tuple[_Form, ...]:
    """Return the patterns of openings and ends, own and known ones.

    With each are whether an end counts without its opening, and the stems, of which every text with a mark has one.
    """
    forms = {"": (opening, end, "" if opening else "(?!)", ""), **{name: _TABLE[name] for name in _STEMS}}
    return tuple(
        (
            re.compile(open_pattern or re.escape(open_text.strip()), re.IGNORECASE),
            re.compile(end_pattern or re.escape(end_text.strip()), re.IGNORECASE),
            name not in _COMMON,
            _STEMS.get(name, (open_text.strip().lower(), end_text.strip().lower())),
        )
        for name, (open_text, end_text, open_pattern, end_pattern) in forms.items()
    )


def _marks(pattern: re.Pattern[str], text: str, start: int) -> Iterator[re.Match[str]]:
    """Yield the marks of a pattern from index `start` on that do not stand within quotation marks of their line."""
    for mark in pattern.finditer(text, start):
        before = text[max(0, mark.start() - _WINDOW) : mark.start()].rpartition("\n")[2]
        after = text[mark.end() : mark.end() + _WINDOW].partition("\n")[0]
        touches = before.endswith("'") or after.startswith("'")
        quotes = '"`' + "'" * touches
        is_quoted = any(before.count(quote) % 2 and quote in after for quote in quotes)
        if not is_quoted and not (before.rfind("“") > before.rfind("”") and "”" in after):
            yield mark


def _begins_line(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark begins a line of a text, or is of a form that no prose has."""
    before = text[max(0, mark.start() - _WINDOW) : mark.start()].rpartition("\n")[2]
    return not before.strip() or mark[0].startswith(("<|", "assistant"))
