"""A guess at the kind of a problem whose task was not chosen."""

from __future__ import annotations

import re

_LATEX = re.compile(
    r"\\(?:frac|sqrt|boxed|sum|int|cdot|times|le|ge|pi|theta|angle|begin\{(?:cases|[bp]?matrix)\})|\$[^$\n]*[=+^\\][^$\n]*\$"
)
_SUM = re.compile(r"\d\s*[+*^=×÷]\s*\(?\s*-?\d|\d\s+[-/]\s+\(?\d")
_ASKED = re.compile(
    r"\b(?:how (?:many|much|far|old|tall|fast)|what is the "
    r"(?:value|sum|product|remainder|probability|area|volume|number|smallest|largest)"
    r"|(?:solve|evaluate|compute|calculate|simplify|factor)\b|find the "
    r"(?:value|number|sum|area|smallest|largest|remainder)"
    r"|wie viele?|berechne|combien|calcul(?:e|er|ez))",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"\d+")
_SEEN = 10_000  # the characters at each end of a prompt that are looked at


def looks_like_math(text: str) -> bool:
    """Return whether a prompt looks like a problem of mathematics.

    Such a prompt has LaTeX, a sum, or a question for a quantity together with two numbers.
    """
    text = text if len(text) <= 2 * _SEEN else f"{text[:_SEEN]}\n{text[-_SEEN:]}"
    if _LATEX.search(text) or _SUM.search(text):
        return True
    return bool(_ASKED.search(text)) and len(_NUMBERS.findall(text)) >= 2
