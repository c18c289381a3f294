"""Characters outside ASCII that stand for mathematics, and their LaTeX."""

from __future__ import annotations

import re
import unicodedata

_MINUS_SIGNS = "‐‑−–—―﹣－"
_SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\ufeff"
_SUPERSCRIPTS, _SUBSCRIPTS = (
    str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n"),
    str.maketrans("₀₁₂₃₄₅₆₇₈₉ₙₓ", "0123456789nx"),
)
_RAISED, _LOWERED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+"), re.compile("[₀₁₂₃₄₅₆₇₈₉ₙₓ]+")
_FRACTIONS = dict(
    zip(
        "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞",
        ("12", "13", "23", "14", "34", "15", "25", "35", "45", "16", "56", "18", "38", "58", "78"),
        strict=True,
    )
)
_OPERATORS = {
    "×": "times", "✕": "times", "·": "cdot", "⋅": "cdot", "•": "cdot", "∙": "cdot", "÷": "div", "±": "pm", "∓": "mp",
    "√": "sqrt", "∞": "infty", "∅": "emptyset", "∖": "setminus", "∠": "angle", "△": "triangle", "∑": "sum", "∏": "prod",
    "∫": "int", "∂": "partial",
}  # fmt: skip
_SETS = "ℝℤℕℚℂ"
_RELATIONS = {
    "≤": "leq", "⩽": "leq", "≦": "leq", "≥": "geq", "⩾": "geq", "≧": "geq", "≠": "neq", "≈": "approx", "≃": "approx",
    "≅": "approx", "∪": "cup", "∩": "cap", "∈": "in", "→": "to", "≡": "equiv", "∨": "lor", "∧": "land",
}  # fmt: skip
_SMALL_NAMES = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega
"""
_LARGE_NAMES = """
Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega
"""
_GREEK = {
    unicodedata.lookup(f"GREEK SMALL LETTER {'LAMDA' if name == 'lambda' else name.upper()}"): name
    for name in _SMALL_NAMES.split()
} | {
    unicodedata.lookup(f"GREEK CAPITAL LETTER {name.upper().replace('LAMBDA', 'LAMDA')}"): name
    for name in _LARGE_NAMES.split()
}
_CIRCLED = {chr(0x2460 + index): str(index + 1) for index in range(20)}
_CIRCLED_RUN = re.compile("[①-⑳](?:[ ,、，和]*[①-⑳])*")
_OTHER = {
    "。": ".", "、": ",", "【": "[", "】": "]", "「": '"', "」": '"', "∶": ":", "‰": r"\permil ", "℃": "°C", "℉": "°F",
    "㎝": "cm", "㎜": "mm",
    "㎞": "km", "㎏": "kg", "㎎": "mg", "㎡": "m²", "㎥": "m³", "㎠": "cm²", "′": "'", "″": "''", "’": "'", "‘": "'",
    "“": '"', "”": '"', "⟨": "(", "⟩": ")", "〈": "(", "〉": ")", "∣": "|", "｜": "|",
}  # fmt: skip
_SQUARED_UNIT = re.compile(r"(?<=[0-9)}\s])((?:[kcdm]?m|ft|in|yd|mi)(?:/s)?)([²³])")
_SCALED_UNIT = re.compile(r"[µμ](?=(?:m|g|s|l|L|F)(?![A-Za-z]))")
# The block of full-width forms repeats printable ASCII, "!" to "~", at this distance.
_FULL_WIDTH = 0xFF01 - 0x21


def _table() -> dict[int, str]:
    """Return the LaTeX or ASCII of each character, by its code point."""
    table = {code + _FULL_WIDTH: chr(code) for code in range(0x21, 0x7F)}
    for characters, text in ((_MINUS_SIGNS, "-"), (_SPACES, " "), (_INVISIBLE, "")):
        table |= {ord(character): text for character in characters}
    for sign, (numerator, denominator) in _FRACTIONS.items():
        table[ord(sign)] = rf" \frac{{{numerator}}}{{{denominator}}}"
    table |= {ord(sign): rf" \{name} " for sign, name in (_OPERATORS | _RELATIONS | _GREEK).items()}
    table[ord("°")] = r"^\circ "
    table[ord("…")] = table[ord("⋯")] = "..."
    table |= dict.fromkeys(map(ord, "⁄∕"), "/")
    table |= {ord(letter): rf"\mathbb{{{name}}}" for letter, name in zip(_SETS, "RZNQC", strict=True)}
    return table


_AS_PLAIN = {ord(character): text for character, text in _OTHER.items()}
_AS_LATEX = _table()


def _circled_list(run: re.Match[str]) -> str:
    """Return circled numbers in a row as a list."""
    return ",".join(_CIRCLED[character] for character in run[0] if character in _CIRCLED)


def as_latex(text: str) -> str:
    """Return a text with its mathematical characters outside ASCII in LaTeX.

    Raised digits in a row are one exponent, and lowered digits in a row one index.
    """
    if text.isascii():
        return text
    text = _CIRCLED_RUN.sub(_circled_list, text.translate(_AS_PLAIN))
    text = _SCALED_UNIT.sub("u", _SQUARED_UNIT.sub(r"\\text{ \1}^\2", text))
    text = text.replace("^²", "^2").replace("^³", "^3")
    text = _RAISED.sub(lambda run: f"^{{{run[0].translate(_SUPERSCRIPTS)}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{run[0].translate(_SUBSCRIPTS)}}}", text).translate(_AS_LATEX)
    return "".join(str(unicodedata.digit(character)) if character.isdecimal() else character for character in text)
