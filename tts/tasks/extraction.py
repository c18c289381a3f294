r"""The final answer in a text: the last complete `\boxed{}`, else what stands after the last marker. Never a guess."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A set of first characters, which is looked for ten times faster than alternatives.
_BOX_TOKENS = re.compile(r"[\\{}](?:(?<=\\)(?:(?P<box>(?:boxed|fbox)\s*\{)|.))?", re.DOTALL)

# "A:" and "Answer:" count only at the start of a word; stars and underscores around a marker are Markdown's.
_MARKER = re.compile(
    r"""(?<!\#)\#{4}(?!\#)
    | (?<!\w) (?: (?: the | final ) \s+ )? answer \s+ is \b (?: [*_]* : )? [*_]*
    | (?<!\w) (?: a | answer[ ]? ) [*_]* : [*_]*
    """,
    re.IGNORECASE | re.VERBOSE,
)
# What the four-shot prompt in wide use for mathematics ends its answers with.
_HOPE = "I hope it is correct"
_MATH_DELIMITERS = re.compile(r"(?<!\\)\$|(?<!\\)\\[()\[\]]")
# How deep an answer may be wrapped in bold, quotes and full stops; a bound, as a model may write nothing but stars.
_MAX_LAYERS = 4
# Long texts are read in pieces, since one search holds the interpreter's lock. A marker is found whole if it is no longer than _LONGEST.
# The first piece, at the end, is short: most texts have their marker there.
_PIECE = 65_536
_LAST = 1024
_LONGEST = 4096
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
        elif token[0] == "{":
            opened.append(None)
        elif token[0] == "}" and opened:
            begin = opened.pop()
            if begin is not None and begin > best_start and (content := text[begin : token.start()].strip()):
                best_start, best = begin, content
    return best


def last_marker(text: str) -> int | None:
    """Return the index after the last answer marker ("####", "A:", "Answer:", "the answer is", …), or None."""
    stop, size = len(text), _LAST
    while stop > 0:
        start = max(0, stop - size)
        found = None
        for match in _MARKER.finditer(text, start, stop + _LONGEST):
            if match.start() < stop:
                found = match.start()
        if found is not None and (whole := _MARKER.match(text, found)) is not None:
            return whole.end()
        stop, size = start, min(4 * size, _PIECE)
    return None


def after_last_marker(text: str) -> str | None:
    """Return the rest of the line after the last answer marker, cleaned; None without a marker or with nothing after it.

    Where the marker ends its line, the next line that is not blank is the answer.
    """
    end = last_marker(text)
    if end is None:
        return None
    here, _, below = text[end:].partition("\n")
    rest = here if clean(here) else below.lstrip().partition("\n")[0]
    hoping = rest.rstrip().removesuffix(".")
    return clean(hoping.removesuffix(_HOPE) if hoping.endswith(_HOPE) else rest) or None


def final_answer(text: str) -> str | None:
    r"""Return the last boxed answer, else the one after the last marker, else None."""
    boxed = last_boxed(text)
    return after_last_marker(text) if boxed is None else boxed


def clean(answer: str) -> str:
    r"""Return an answer without what belongs to the sentence around it: math delimiters, bold, quotes, the full stop."""
    answer = "".join(_MATH_DELIMITERS.sub("", piece) for piece in _pieces(answer))
    for _ in range(_MAX_LAYERS):
        answer = _without_full_stop(answer.strip())
        for left, right in _PAIRS:
            inner = answer.removeprefix(left).removesuffix(right)
            if len(inner) == len(answer) - len(left) - len(right):
                answer = inner
        answer = _half_bold(answer)
    return answer


def _pieces(text: str) -> Iterator[str]:
    """Cut a text where no delimiter is cut and none begins: in front of what follows no backslash, or within many of them."""
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        while end < len(text) and text[end - 1] == "\\" and not text.startswith("\\\\", end):
            end += 1
        yield text[start:end]
        start = end
    yield text[start:]


def _without_full_stop(answer: str) -> str:
    """Drop a full stop at the end, and the spaces before it; of several dots none."""
    rest = answer.removesuffix(".").rstrip()
    return answer if rest.endswith(".") or len(rest) == len(answer) else rest


def _half_bold(answer: str) -> str:
    """Drop the closing half of bold text whose opening half stands before the marker ("**Answer: 5**")."""
    for stars in ("**", "__"):
        if answer.endswith(stars) and stars not in answer.removesuffix(stars):
            return answer.removesuffix(stars)
    return answer
