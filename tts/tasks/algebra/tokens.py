"""The tokens of an expression, and the names that have a meaning."""

from __future__ import annotations

import re

MAX_TOKENS = 600

_TOKEN = re.compile(r"\\[A-Za-z]+|\\[{}|%]|[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[A-Za-z]+|\S")
_SKIPPED = frozenset({r"\left", r"\right", r"\limits", r"\displaystyle"})
_BARS = dict.fromkeys((r"\lvert", r"\rvert", r"\|", r"\vert"), "|")
_SYNONYMS = _BARS | {r"\cdot": "*", r"\times": "*", r"\ast": "*", "∗": "*", r"\div": "/", r"\%": "%"}
ANGLES = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
INVERSES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_OF_ANGLES = {f"arc{name}" for name in ANGLES} | {"sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"}
FUNCTIONS = frozenset(
    {*ANGLES, *_OF_ANGLES, *INVERSES, "log", "ln", "lg", "exp", "gcd", "lcm", "max", "min", "sqrt", "cis"}
)
_LONGEST_FIRST = re.compile("|".join(sorted(FUNCTIONS, key=lambda name: (-len(name), name))))
_FIRST = "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho"
_REST = "sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell"
GREEK = frozenset(f"{_FIRST} {_REST}".split())
_ACCENTS = "vec hat bar overline tilde widehat overrightarrow mathbf mathcal mathbb"
ACCENTS = frozenset(f"\\{name}" for name in _ACCENTS.split())
_SPOKEN = frozenset({"am", "pm", "mod", "or", "and", "if", "is", "not", "to", "than", "no"})


class UndecidedError(Exception):
    """An answer is not understood, or would take more work than is allowed."""


class WordsError(UndecidedError):
    """An answer has words, whose case has no meaning."""


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text; runs of letters become functions and single letters.

    Raises:
        UndecidedError: there are too many tokens, or a run of letters is a word.
    """
    tokens: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _SKIPPED:
            continue
        tokens.extend(_letters(token) if token.isalpha() else [_SYNONYMS.get(token, token)])
        if len(tokens) > MAX_TOKENS:
            raise UndecidedError("too long")
    return tokens


def _letters(run: str) -> list[str]:
    """Return the tokens of a run of letters: a function with the letters after it, or single letters."""
    function = _LONGEST_FIRST.match(run)
    if function is not None and len(run) > 1:
        remaining_letters = run[function.end() :]
        remaining_tokens = _letters(remaining_letters) if remaining_letters else []
        return ["\\" + function[0], *remaining_tokens]
    if run[1:] in FUNCTIONS:
        return [run[0], "\\" + run[1:]]
    if run.casefold() in _SPOKEN or run in ("AD", "BC") or (len(run) >= 4 and "".join(sorted(run)) != run):
        raise WordsError("words")
    return list(run)
