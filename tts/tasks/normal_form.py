r"""A cheap normal form of mathematical answers, in microseconds and without a parser.

Equal forms mean equivalent answers; unequal ones decide nothing, save where `are_different` says so. A form is LaTeX that a parser reads.

By convention, as graders have it: a unit, a currency, a degree sign and a percent sign after a quantity are no part of an answer
(`50\%` is `50`, `90^\circ` is `90`, `5\text{ cm}` is `5`). Neither is the variable that a value is given to (`x = 5` is `5`).
A list without brackets and a set have no order. Numbers are exact: `0.50` is `1/2`, and `0.333` is not `1/3`.
A whole number before a fraction is a mixed number. Thousands are separated by a comma without a space: `1, 234` are two numbers.
"""

from __future__ import annotations

import re

from tts.tasks.characters import as_latex
from tts.tasks.rational import rational
from tts.tasks.spoken import counted, spoken
from tts.tasks.structure import Parts, top_level_parts, unwrapped
from tts.tasks.units import strip_unit

# Longer answers are left as they are, and only their spaces are folded.
MAX_CHARACTERS = 1000

_SIGN_ROOT = re.compile(r"\\sqrt +(?:([0-9]+)|\(([^()]*)\))")
_PLAIN_ROOT = re.compile(r"(?<![\\A-Za-z])sqrt ?(?:([0-9]+)|\(([^()]*)\)|\{([^{}]*)\})")

_COMMANDS = {
    "lbrace": r"\\{", "rbrace": r"\\}", "le": r"\\leq", "ge": r"\\geq", "ne": r"\\neq", "langle": "(", "rangle": ")",
}  # fmt: skip
# Rewrites that hold anywhere in an answer, in this order. A `\\` before a bracket or comma is a line break of a matrix, not a delimiter.
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)\\\$", ""),
        (r"(?<!\\)\\[()\[\]]|\$", " "),
        (r"(?<![0-9.])([1-9][0-9]{0,2})(?:\{,\}|\\,)([0-9]{3})(?:\{,\}|\\,)([0-9]{3})(?![0-9])", r"\1\2\3"),
        (r"(?<![0-9.])([1-9][0-9]{0,2})(?:\{,\}|\\,)([0-9]{3})(?![0-9])", r"\1\2"),
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\\[,;:> ]|~|\\q?quad(?![A-Za-z])|\\displaystyle(?![A-Za-z])", " "),
        (r"\\(?:left|right)(?![A-Za-z])\s*\.?|\\[bB]igg?[lr]?(?![A-Za-z])", ""),
        (r"\\(?:[dtcsx]|nice)frac(?![A-Za-z])", r"\\frac"),
        (r"\\mathbb ?([A-Z])", r"\\mathbb{\1}"),
        (r"\.([0-9]*)\\dot ?\{?([0-9])\}?(?:([0-9]*)\\dot ?\{?([0-9])\}?)?", r".\1\\overline{\2\3\4}"),
        (r"\\(?:text)?color ?\{[A-Za-z]+\}|\\hspace\*? ?\{[^{}]*\}|\\(?:boldsymbol|bm|pmb|underline|mathstrut)(?![A-Za-z])", ""),
        *((rf"\\{name}(?![A-Za-z])", replacement) for name, replacement in _COMMANDS.items()),
        (r"\{? ?([0-9A-Za-z]+) ?\\choose ?([0-9A-Za-z]+) ?\}?|\b([0-9]+) choose ([0-9]+)\b", r"\\binom{\1\3}{\2\4}"),
        (r"\.{3}", r"\\ldots "),
        (r"\\varnothing(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset"),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi"),
        (r"\*\*", "^"),
        (r"\\frac ?([0-9])(?= ?[0-9{\\])", r"\\frac{\1}"),
        (r"(\\frac\{[^{}]*\}) ?([0-9])", r"\1{\2}"),
        (r"\\sqrt ?([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r"([\^_])\{([0-9A-Za-z])\}", r"\1\2"),
        (r"\s+", " "),
    )
)

_ELLIPSIS = re.compile(r"(\.[0-9]{0,9}?)([0-9]{1,9}?)\2{2,} ?(?:\.{3}|\\l?dots(?![A-Za-z]))")
_OVER = r"\over"
_FLAT = r"((?:[^{}<>=]|\{[^{}]*\})+?)"
_OVER_IN_BRACES = re.compile(rf"\{{{_FLAT}\\over(?![A-Za-z]){_FLAT}\}}")
_OVER_ALL = re.compile(rf"\A{_FLAT}\\over(?![A-Za-z]){_FLAT}\Z")
_END = " .,;:"
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mathbf|mathit|mbox) ?\{([^{}]*)\}")
_AND = re.compile(r"(?<=[0-9})]) ?,? (?:and|or) (?=[-+0-9\\(]|[A-Za-z](?![A-Za-z]))")
_NAME = (
    r"(?:[fghA-Z]\([0-9A-Za-z, ]*\)|[A-Z]{2,3}|(?:m ?)?\\angle ?[A-Z]{1,3}|(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:[0-9A-Za-z]|\{[0-9A-Za-z]+\}))?)"
)
_ASSIGNMENT = re.compile(_NAME + r" ?(?:=|\\in(?![A-Za-z])) ?(.+)", re.DOTALL)
_RELATION = re.compile(r"[=<>]|\\(?:leq|geq|neq|in)(?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LETTER = re.compile(r"[A-Za-z]")
_KEPT_SPACE = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])|(?<=[0-9]) (?=[0-9])")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([, ])[0-9]{3}(?:\1[0-9]{3})*(?:\.[0-9]*)?")
_GROUPS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9,])")
_INEQUALITY = re.compile(r"[<>]|\\(?:leq|geq|neq)(?![A-Za-z])")
_OR, _BOTH = re.compile(r" ?,? or (?=.*?[<>=\\])"), re.compile(r" ?,? and (?=.*?[<>=\\])")
_WORDS = re.compile(r"[A-Za-z][A-Za-z .,'-]*")
_LONG_WORD = re.compile(r"[A-Za-z]{4}")
_SHORT_WORDS = frozenset({"no", "yes", "odd", "all", "one", "two", "six", "ten", "red", "dne"})


def normal_form(answer: str) -> str:
    """Return the normal form of an answer: "p/q" or "p" for a rational, folded lower case for words, else tidied LaTeX."""
    if len(answer) > MAX_CHARACTERS:
        return " ".join(answer.split())
    text = as_latex(answer)
    text = _PLAIN_ROOT.sub(_root, _SIGN_ROOT.sub(_root, text))
    if "..." in text or "dots" in text:
        text = _ELLIPSIS.sub(r"\1\\overline{\2}", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if _OVER in text:
        text = _OVER_ALL.sub(_fraction, _OVER_IN_BRACES.sub(_fraction, text))
    text = strip_unit(_without_variable(text.strip().rstrip(_END)))
    text = _TEXT.sub(r" \1 ", text)
    text = " ".join(text.split())
    if _INEQUALITY.search(text) is not None:
        text = _BOTH.sub(r"\\cap ", _OR.sub(r"\\cup ", text))
    text = counted(_AND.sub(",", text).rstrip(_END))
    if is_words(text):
        return spoken(text)
    text = _without_groups(unwrapped(text, "({"))
    text = _KEPT_SPACE.sub("\0", text).replace(" ", "").replace("\0", " ")
    return _exact(text)


def _without_groups(text: str) -> str:
    """Return a text without the separators of thousands; a list of numbers that looks like one number keeps a semicolon."""
    if _GROUPED.fullmatch(text):
        return text.replace(",", "").replace(" ", "")
    if not any(bracket in text for bracket in ("(", "[", r"\{")):
        joined = _GROUPS.sub(lambda match: match[0].replace(",", ""), text)
        if "," not in joined:
            return joined
    return text


def are_different(a: str, b: str) -> bool:
    """Whether two unequal normal forms are certainly different answers.

    So are two rationals, and lists of them in brackets of one kind or of other lengths; intervals, tuples and sets whose brackets differ;
    words; single letters.
    """
    if max(len(a), len(b)) > MAX_CHARACTERS:
        return False
    if is_words(a) and is_words(b):
        return True
    if len(a) == len(b) == 1 and a.isalpha() and b.isalpha():
        return True
    left, right = top_level_parts(a), top_level_parts(b)
    if left.bracketed and right.bracketed and left.brackets != right.brackets:
        return min(len(left.items), len(right.items)) > 1
    comparable = left.brackets == right.brackets or len(left.items) != len(right.items)
    return comparable and _all_rational(left) and _all_rational(right)


def _all_rational(parts: Parts) -> bool:
    return all(rational(item) is not None for item in parts.items)


def _fraction(match: re.Match[str]) -> str:
    return rf"\frac{{{match[1].strip()}}}{{{match[2].strip()}}}"


def _root(match: re.Match[str]) -> str:
    return "\\sqrt{" + next(group for group in match.groups() if group is not None) + "}"


def is_words(text: str) -> bool:
    """Whether a text is words rather than a product of variables: only letters, and a word that is long, or short and known."""
    if _WORDS.fullmatch(text) is None:
        return False
    return _LONG_WORD.search(text) is not None or not _SHORT_WORDS.isdisjoint(text.casefold().split())


def _without_variable(text: str) -> str:
    """Return the value after "x =" or "x in", where it is one: without another relation and without letters."""
    match = _ASSIGNMENT.fullmatch(text)
    if match is None:
        return text
    value = strip_unit(match[1])
    is_value = _RELATION.search(value) is None and _LETTER.search(_COMMAND.sub("", value)) is None
    return value if is_value else text


def _exact(text: str) -> str:
    """Return a text with each rational in it, itself or an item of a list, in lowest terms; unordered ones sorted."""
    parts = top_level_parts(text)
    values = [rational(item) for item in parts.items]
    items = [item if value is None else str(value) for item, value in zip(parts.items, values, strict=True)]
    known = [value for value in values if value is not None]
    if len(known) == len(values) and parts.unordered:
        items = [str(value) for value in (sorted(set(known)) if parts.bracketed else sorted(known))]
    joined = ",".join(items)
    if not parts.bracketed and _GROUPS.fullmatch(joined.lstrip("+-")) is not None:
        joined = ";".join(items)
    return parts.brackets[0] + joined + parts.brackets[1]
