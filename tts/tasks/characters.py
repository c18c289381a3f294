"""Characters outside ASCII that stand for mathematics, and the LaTeX that says the same."""

from __future__ import annotations

_MINUS_SIGNS = "−–﹣－"
_SPACES = "\u00a0\u2002\u2003\u2009\u202f"
_INVISIBLE = "\u200b\u2060\ufeff"
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"
_FRACTIONS = dict(
    zip("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", ("12", "13", "23", "14", "34", "15", "25", "35", "45", "16", "56", "18", "38", "58", "78"), strict=True)
)
_OPERATORS = {"×": "times", "·": "cdot", "⋅": "cdot", "÷": "div", "±": "pm", "√": "sqrt", "∞": "infty", "∅": "emptyset"}
_RELATIONS = {"≤": "leq", "≥": "geq", "≠": "neq", "∪": "cup", "∩": "cap", "∈": "in"}
_GREEK = {"π": "pi", "θ": "theta", "α": "alpha", "β": "beta", "γ": "gamma", "φ": "phi", "ω": "omega"}
# The block of full-width forms repeats printable ASCII, "!" to "~", at this distance.
_FULL_WIDTH = 0xFF01 - 0x21


def _table() -> dict[int, str]:
    table = {code + _FULL_WIDTH: chr(code) for code in range(0x21, 0x7F)}
    for characters, text in ((_MINUS_SIGNS, "-"), (_SPACES, " "), (_INVISIBLE, "")):
        table |= {ord(character): text for character in characters}
    for digits, mark in ((_SUPERSCRIPTS, "^"), (_SUBSCRIPTS, "_")):
        table |= {ord(digit): f"{mark}{{{value}}}" for value, digit in enumerate(digits)}
    table |= {ord(sign): rf" \frac{{{above}}}{{{below}}}" for sign, (above, below) in _FRACTIONS.items()}
    table |= {ord(sign): rf" \{name} " for sign, name in (_OPERATORS | _RELATIONS | _GREEK).items()}
    table[ord("°")] = r"^\circ"
    table[ord("…")] = "..."
    return table


# For str.translate.
AS_LATEX = _table()
