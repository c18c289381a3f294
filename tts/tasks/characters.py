"""Characters outside ASCII that stand for mathematics, and their LaTeX."""

from __future__ import annotations

import re

_MINUS_SIGNS = "−–﹣－"
_SPACES = "\u00a0\u2002\u2003\u2009\u202f"
_INVISIBLE = "\u200b\u2060\ufeff"
_SUPERSCRIPTS, _SUBSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-"), str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED, _LOWERED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_FRACTIONS = dict(
    zip("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", ("12", "13", "23", "14", "34", "15", "25", "35", "45", "16", "56", "18", "38", "58", "78"), strict=True)
)
_OPERATORS = {"×": "times", "·": "cdot", "⋅": "cdot", "÷": "div", "±": "pm", "√": "sqrt", "∞": "infty", "∅": "emptyset"}
_SETS = "ℝℤℕℚℂ"
_RELATIONS = {"≤": "leq", "≥": "geq", "≠": "neq", "∪": "cup", "∩": "cap", "∈": "in"}
_GREEK = {"π": "pi", "θ": "theta", "α": "alpha", "β": "beta", "γ": "gamma", "φ": "phi", "ω": "omega"}
# The block of full-width forms repeats printable ASCII, "!" to "~", at this distance.
_FULL_WIDTH = 0xFF01 - 0x21


def _table() -> dict[int, str]:
    table = {code + _FULL_WIDTH: chr(code) for code in range(0x21, 0x7F)}
    for characters, text in ((_MINUS_SIGNS, "-"), (_SPACES, " "), (_INVISIBLE, "")):
        table |= {ord(character): text for character in characters}
    table |= {ord(sign): rf" \frac{{{above}}}{{{below}}}" for sign, (above, below) in _FRACTIONS.items()}
    table |= {ord(sign): rf" \{name} " for sign, name in (_OPERATORS | _RELATIONS | _GREEK).items()}
    table[ord("°")] = r"^\circ"
    table[ord("…")] = "..."
    table |= dict.fromkeys(map(ord, "⁄∕"), "/")
    table |= {ord(letter): rf"\mathbb{{{name}}}" for letter, name in zip(_SETS, "RZNQC", strict=True)}
    return table


_AS_LATEX = _table()


def as_latex(text: str) -> str:
    """Return a text with these characters in LaTeX. Raised and lowered digits in a row are one exponent, or one index."""
    if not text.isascii():
        text = _RAISED.sub(lambda run: f"^{{{run[0].translate(_SUPERSCRIPTS)}}}", text)
        text = _LOWERED.sub(lambda run: f"_{{{run[0].translate(_SUBSCRIPTS)}}}", text).translate(_AS_LATEX)
    return text
