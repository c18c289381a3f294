r"""The final answer in a text: the last complete `\boxed{}`, else what stands behind the last marker. Never a guess."""

from __future__ import annotations

import re

_BOX_TOKENS = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)

# "A:" and "Answer:" count only at the start of a word; stars and underscores around a marker are Markdown's.
_MARKER = re.compile(
    r"""(?<!\#)\#{4}(?!\#)
    | (?<!\w) (?: (?: the | final ) \s+ )? answer \s+ is \b (?: [*_]* : )? [*_]*
    | (?<!\w) (?: a | answer[ ]? ) [*_]* : [*_]*
    """,
    re.IGNORECASE | re.VERBOSE,
)
# What the four-shot prompt in wide use for mathematics ends its answers with.
_HOPE = re.compile(r"(?<!\s)\s*I hope it is correct\.?\s*$")
_MATH_DELIMITERS = re.compile(r"(?<!\\)\$|(?<!\\)\\[()\[\]]")
# How deep an answer may be wrapped in bold, quotes and full stops; a bound, as a model may write nothing but stars.
_MAX_LAYERS = 4
_FULL_STOP = re.compile(r"(?<![.\s])\s*\.$")
_PAIRS = (("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"))


def last_boxed(text: str) -> str | None:
    r"""Return the content of the `\boxed{…}` or `\fbox{…}` that opens last among those complete and not empty, or None."""
    start = min((at for word in ("\\boxed", "\\fbox") if (at := text.find(word)) >= 0), default=None)
    if start is None:
        return None
    opened: list[int | None] = []  # where the content of each open brace begins; None for a brace that is no box's
    best_start, best = -1, None
    for token in _BOX_TOKENS.finditer(text, start):
        if token["box"] is not None:
            opened.append(token.end())
        elif token["open"] is not None:
            opened.append(None)
        elif token["close"] is not None and opened:
            begin = opened.pop()
            if begin is not None and begin > best_start and (content := text[begin : token.start()].strip()):
                best_start, best = begin, content
    return best


def last_marker(text: str) -> int | None:
    """Return the index behind the last answer marker ("####", "A:", "Answer:", "the answer is", …), or None."""
    end = None
    for match in _MARKER.finditer(text):
        end = match.end()
    return end


def after_last_marker(text: str) -> str | None:
    """Return the rest of the line behind the last answer marker, cleaned; None without a marker or with nothing behind it.

    Where the marker ends its line, the next line that is not blank is the answer.
    """
    end = last_marker(text)
    if end is None:
        return None
    here, _, below = text[end:].partition("\n")
    rest = here if clean(here) else below.lstrip().partition("\n")[0]
    return clean(_HOPE.sub("", rest)) or None


def final_answer(text: str) -> str | None:
    r"""Return the last boxed answer, else the one behind the last marker, else None."""
    boxed = last_boxed(text)
    return after_last_marker(text) if boxed is None else boxed


def clean(answer: str) -> str:
    r"""Return an answer without what belongs to the sentence around it: math delimiters, bold, quotes, the full stop."""
    answer = _MATH_DELIMITERS.sub("", answer)
    for _ in range(_MAX_LAYERS):
        answer = _FULL_STOP.sub("", answer.strip())
        for left, right in _PAIRS:
            inner = answer.removeprefix(left).removesuffix(right)
            if len(inner) == len(answer) - len(left) - len(right):
                answer = inner
        answer = _half_bold(answer)
    return answer


def _half_bold(answer: str) -> str:
    """Drop the closing half of bold text whose opening half stands before the marker ("**Answer: 5**")."""
    for stars in ("**", "__"):
        if answer.endswith(stars) and stars not in answer.removesuffix(stars):
            return answer.removesuffix(stars)
    return answer
