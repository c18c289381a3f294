r"""A cheap normal form of mathematical answers, in microseconds and without a parser.

Equal forms mean equivalent answers; unequal ones decide nothing, save where `are_different` says so. A form is LaTeX
that a parser reads.

By convention, as graders have it: a unit, a currency, a degree sign and a percent sign after a quantity are no part of
an answer (`50\%` is `50`, `90^\circ` is `90`, `5\text{ cm}` is `5`). Neither is the variable that a value is given to
(`x = 5` is `5`). A list without brackets and a set have no order. Numbers are exact: `0.50` is `1/2`, and `0.333` is
not `1/3`. A whole number before a fraction is a mixed number. Thousands are separated by a comma without a plain space:
`1, 234` are two numbers, `1,\! 234`, `1{,}234`, `1'234` and `1_234` are one. Times, dates, ranges and telephone numbers
are no arithmetic (`tts.tasks.forms.kinds`). An approximation after an exact value is dropped (`1/3\approx0.33`), and so
is the word for one before a value.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tts.tasks.forms.characters import as_latex
from tts.tasks.forms.kinds import kind_form
from tts.tasks.forms.rational import rational
from tts.tasks.forms.spoken import read_quantity, spoken_words
from tts.tasks.forms.structure import Parts, top_level_parts, unwrap
from tts.tasks.forms.units import is_unit_text, strip_unit

# Longer answers are left as they are, and only their spaces are folded.
MAX_CHARACTERS = 1000

_SIGN_ROOT = re.compile(r"\\sqrt +(?:([0-9]+)|\(([^()]*)\))")
_CUBE_ROOT = re.compile(r"(?<![\\A-Za-z])(?:cbrt ?|∛ ?)(?:([0-9A-Za-z])|\(([^()]*)\)|\{([^{}]*)\})")
_PLAIN_ROOT = re.compile(r"(?<![\\A-Za-z])sqrt ?(?:([0-9]+)|\(([^()]*)\)|\{([^{}]*)\})")

_FONTS = "textnormal|textrm|textbf|textit|textsf|texttt|textsl|textsc|textup|textmd|emph|mbox|hbox|bold|mathop|mathbin|ensuremath"  # noqa: E501
_SPACE = r"(?:\\[!,;:> ]|~|\\(?:thin|med|thick|negthin)space(?![A-Za-z]))"
_GROUP = rf"(?:\\text ?\{{,\}}| ?\{{ ?, ?\}} ?|,{_SPACE}+ ?|{_SPACE}+(?=[0-9]{{3}}(?![0-9]))|'|_)"
_COMMANDS = {
    "lbrace": r"\\{", "rbrace": r"\\}", "le": r"\\leq", "ge": r"\\geq", "ne": r"\\neq", "langle": "(", "rangle": ")",
    "leqslant": r"\\leq", "geqslant": r"\\geq", "leqq": r"\\leq", "geqq": r"\\geq", "nless": r"\\geq",
    "ngtr": r"\\leq", "nleq": ">", "ngeq": "<",
    "lbrack": "[", "rbrack": "]", "bigcup": r"\\cup", "union": r"\\cup", "bigcap": r"\\cap", "simeq": r"\\approx",
    "colon": ":", "lor": " or ", "vee": " or ", "land": " and ", "wedge": " and ", "arcsec": "arcsec",
    "degree": r"^\\circ ", "percent": "%",
}  # fmt: skip
# Rewrites that hold anywhere in an answer, in this order. A `\\` before a bracket or comma is a line break of a matrix,
# not a delimiter.
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=[0-9]) and (?:a|one)[ -]half", r" \\frac{1}{2}"),
        (r"^\s*\{ ?([a-z] ?(?:\\in ?\\mathbb ?\{?R\}? ?)?(?:\||:|\\mid)[^{}]+)\}\s*$", r"\\{\1\\}"),
        (r"&lt;", "<"),
        (r"&gt;", ">"),
        (r"\\(?:" + _FONTS + r")(?= ?\{)", r"\\text"),
        (r"\\(?:mathsf|mathtt|mathnormal|mathit)(?= ?\{)", r"\\mathrm"),
        (r"\{ ?\\(?:bf|it|sf|tt|sl|sc|em|rm|bfseries|itshape)(?![A-Za-z]) ?([^{}]*)\}", r"\\text{\1}"),
        (
            r"\\(?:bf|it|sf|tt|sl|sc|em|rm|tiny|small|normalsize|[lL]arge|LARGE|huge|Huge|scriptstyle|textstyle)(?![A-Za-z]) ?",  # noqa: E501
            "",
        ),
        (r"\\(?:v|h)?phantom ?\{[^{}]*\}|\\(?:tag|label)\*? ?\{[^{}]*\}|\\nonumber(?![A-Za-z])", ""),
        (r"(?<!\\)\\\$", ""),
        (r"(?<!\\)\\[()\[\]]|\$", " "),
        (r"(?<=[0-9]) ?~ ?(?=[0-9])(?![0-9]{3}(?![0-9]))", " to "),
        (r"(?<!\\)\\[,;:> ](?= ?\\text)", " "),
        (
            rf"(?<![0-9._A-Za-z}}'])(?<![^\\],)[1-9][0-9]{{0,2}}(?:{_GROUP}[0-9]{{3}})+(?![0-9_'])",
            lambda match: re.sub("[^0-9]", "", match[0]),
        ),
        (r"(?<!\\)\\!|\\negthinspace(?![A-Za-z])", ""),
        (
            r"(?<!\\)\\[,;:> ]|~|\\q?quad(?![A-Za-z])|\\(?:displaystyle|enspace|(?:thin|med|thick)space)(?![A-Za-z])",
            " ",
        ),
        (r"\\(?:left|right)(?![A-Za-z])\s*\.?|\\[bB]igg?[lr]?(?![A-Za-z])", ""),
        (r"\\(?:[dtcsx]|nice)frac(?![A-Za-z])", r"\\frac"),
        (r"\\mathbb ?([A-Z])", r"\\mathbb{\1}"),
        (r"\.([0-9]*)\\dot ?\{?([0-9])\}?(?:([0-9]*)\\dot ?\{?([0-9])\}?)?", r".\1\\overline{\2\3\4}"),
        (
            r"\\(?:text)?color ?\{[A-Za-z]+\}|\\h(?:space|skip)\*? "
            r"?\{[^{}]*\}|\\(?:boldsymbol|bm|pmb|underline|mathstrut)(?![A-Za-z])",
            "",
        ),
        *((rf"\\{name}(?![A-Za-z])", replacement) for name, replacement in _COMMANDS.items()),
        (
            r"\\\{ ?\\begin ?\{(array|aligned|matrix|gathered|align\*?|split)\} ?(?:\{[lcr"
            r"| ]*\})?((?:(?!\\begin)[\s\S])*?)\\end ?\{\1\}(?! ?\\\})",
            r"\\begin{cases}\2\\end{cases}",
        ),
        (
            r"\\begin ?\{(?:aligned|align\*?|gathered|split)\}([\s\S]*?)\\end ?\{(?:aligned|align\*?|gathered|split)\}",
            r"\\begin{cases}\1\\end{cases}",
        ),
        (r"(?<!\\)& ?(?=[=<>]|\\[lg]eq)", ""),
        (r"\\not ?=|(?<![0-9)])!=|(?<=[0-9)]) !=|=/=|<>", r"\\neq "),
        (r"<=|=<", r"\\leq "),
        (r">=", r"\\geq "),
        (r"(?<![\\A-Za-z])(?:oo|inf|infty|infinity|Infinity)(?![A-Za-z])", r"\\infty"),
        (r"(?<=[])}]) ?U ?(?=[\[({\\])", r"\\cup "),
        (r"(?<=[0-9]) ?[xX] ?(?=10 ?(?:\^|\*\*))", r"\\times "),
        (r"\{? ?([0-9A-Za-z]+) ?\\choose ?([0-9A-Za-z]+) ?\}?|\b([0-9]+) choose ([0-9]+)\b", r"\\binom{\1\3}{\2\4}"),
        (r"\.{3}", r"\\ldots "),
        (r"\\varnothing(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset"),
        (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi"),
        (r"\*\*", "^"),
        (r"\\frac ?([0-9])(?= ?[0-9{\\])", r"\\frac{\1}"),
        (r"(\\frac\{[^{}]*\}) ?([0-9])", r"\1{\2}"),
        (r"\\sqrt ?([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r"([\^_])\{([0-9A-Za-z])\}", r"\1\2"),
        (r"(?:或者|或)", " or "),
        (r"(?<=[])}0-9A-Za-z ])(?:以及|[和与及])(?=[- +0-9A-Za-z\\(])", " and "),
        (r"\s+", " "),
    )
)

_ELLIPSIS = re.compile(r"(\.[0-9]{0,9}?)([0-9]{1,9}?)\2{2,} ?(?:\.{3}|\\l?dots(?![A-Za-z]))")
_OVER = r"\over"
_FLAT = r"((?:[^{}<>=]|\{[^{}]*\})+?)"
_OVER_IN_BRACES = re.compile(rf"\{{{_FLAT}\\over(?![A-Za-z]){_FLAT}\}}")
_OVER_ALL = re.compile(rf"\A{_FLAT}\\over(?![A-Za-z]){_FLAT}\Z")
_END = " .,;:"
_TEXT = re.compile(r"\\(?:text|mathrm|mathbf) ?\{([^{}]*)\}")
_WHOLE = re.compile(r"(?:\\(?:text|boxed|fbox) ?\{(?P<braced>.*)\})", re.DOTALL)
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore),? )?(?:the )?(?:(?:final|correct) )?answer(?: is ?:?| ?:) ?"
    r"|=(?!=) ?|(?:approximately|approx\.?|about|roughly|around|exactly|nearly|circa|ca\.|\\approx|\\sim|大?约"
    r"|大约) ?(?=[-+$£€¥0-9.(]|\\(?:frac|sqrt|text))",
    re.IGNORECASE,
)
_LISTED = re.compile(r"(?<=[A-Za-z%]) ?,? (?:and|or) (?=[-+0-9])")
_MARKDOWN = re.compile(r"\s*(\*\*|__|`|\*|\")((?:(?!\1).)+)\1\s*\.?\s*", re.DOTALL)
_TEXT_BEFORE = re.compile(r"\\text ?\{([^{}]*)\}")
_AND = re.compile(r"(?<=[0-9})\]]) ?,? ?(?:and|or|&|und|oder|et|ou|и|или) ?(?=[-+0-9\\(\[]|[A-Za-z](?![A-Za-z]))")
_APPROXIMATE = re.compile(r"\\approx(?![A-Za-z])")
_NAME = re.compile(
    r"(?:[fghA-Z]\([0-9A-Za-z, ]*\)|[A-Z]{2,3}|(?:m ?)?\\angle ?[A-Z]{1,3}|\|[A-Z]{2}\||\\overline\{[A-Z]{2}\}"
    r"|(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:[0-9A-Za-z]|\{[0-9A-Za-z]+\}))?'{0,3}(?:\([a-z]\))?"
    r"|\\frac\{[A-Z]{2}\}\{[A-Z]{2}\})"
)
_DERIVATIVE = re.compile(
    r"\\frac ?\{ ?(?:d|\\partial)(?:\^[2-9])? ?[A-Za-z]? ?\} ?\{ ?(?:d|\\partial) ?[a-z](?:\^[2-9])? ?\}"
    r"|d[a-z] ?/ ?d[a-z]|[a-zA-Z]'{1,3}(?:\([a-z]\))?"
)
_SOLVED = re.compile(r"([^=<>]+?) ?(?:=|\\in(?![A-Za-z])|(?<=[A-Za-z]) is (?=[-+$0-9\\(])) ?(.+)", re.DOTALL)
_RELATION = re.compile(r"[=<>]|\\(?:leq|geq|neq|in)(?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LETTER = re.compile(r"[A-Za-z]")
_KEPT_SPACE = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])|(?<=[0-9]) (?=[0-9])")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([, ])[0-9]{3}(?:\1[0-9]{3})*(?:\.[0-9]*)?")
_GROUPS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9,])")
_GROUPED_MIXED = re.compile(r"([+-]?[1-9][0-9]{0,2}(?:[ ,][0-9]{3})+)(?= (?:[0-9]+/[0-9]|\\frac))")
_INEQUALITY = re.compile(
    r"[<>]|\\(?:leq|geq|neq)(?![A-Za-z])|\\cup(?![A-Za-z])|[(\[][^()\[\]]*,[^()\[\]]*\\infty[^()\[\]]*[)\]]"
)
_OR, _BOTH = re.compile(r" ?,? or (?=.*?[<>=\\(\[])"), re.compile(r" ?,? and (?=.*?[<>=\\(\[])")
_FRENCH = re.compile(r"([\[\]])([^\[\](){},;]+[,;][^\[\](){},;]+)([\[\]])")
_MINUTES = re.compile(
    r"([+-]?)([0-9]+)(?: ?\^ ?\\circ ?)([0-9]+(?:\.[0-9]+)?) ?'(?: ?([0-9]+(?:\.[0-9]+)?) ?(?:''|\"))?"
)
# LaTeX that was escaped twice, as in files of JSON: a line break is followed by none of these names.
_ESCAPED_TWICE = re.compile(
    r"\\(?=\\(?:[dt]?frac|sqrt|left|right|[lg]eq?|neq?|pi|text|cdot|times|infty|cup|cap|pm|boxed|mathbb|in|circ|q?quad|approx|theta)(?![A-Za-z]))"
)
_DASH = re.compile(r"[0-9][^0-9–—]{0,8}(?:[–—]|--)[^0-9–—]{0,8}[0-9]")
_WITH_WORDS = re.compile(r"(.*[0-9]) ?([^0-9]+)", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z][A-Za-z .,'-]*")
_LONG_WORD = re.compile(r"[A-Za-z]{4}")
_SHORT_WORDS = frozenset({"no", "yes", "odd", "all", "one", "two", "six", "ten", "red", "dne"})


def normal_form(answer: str) -> str:
    """Return the normal form of an answer.

    It is "p/q" or "p" for a rational, folded lower case for words, else tidied LaTeX.
    """
    if len(answer) > MAX_CHARACTERS:
        return " ".join(answer.split())
    text = answer if (markdown := _MARKDOWN.fullmatch(answer)) is None else markdown[2]
    if r"\\" in text:
        text = _ESCAPED_TWICE.sub("", text)
    text = as_latex(_CUBE_ROOT.sub(r"\\sqrt[3]{\1\2\3}", text))
    text = _PLAIN_ROOT.sub(_root, _SIGN_ROOT.sub(_root, text))
    if "..." in text or "dots" in text:
        text = _ELLIPSIS.sub(r"\1\\overline{\2}", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if _OVER in text:
        text = _OVER_ALL.sub(_fraction, _OVER_IN_BRACES.sub(_fraction, text))
    text = unwrap(_exact_side(_without_lead(text.strip().rstrip(_END))), "{")
    if (kind := _kind_of(text, dash=_DASH.search(answer) is not None)) is not None:
        return kind
    text = strip_unit(_without_variable(text))
    text = " ".join(_TEXT.sub(r" \1 ", text).split())
    if _INEQUALITY.search(text) is not None:
        text = _BOTH.sub(r"\\cap ", _OR.sub(r"\\cup ", text))
    text = read_quantity((text if r"\begin" in text else _LISTED.sub(",", _AND.sub(",", text))).rstrip(_END))
    if is_words(text):
        return spoken_words(text)
    text = _GROUPED_MIXED.sub(lambda match: match[0].replace(" ", "").replace(",", ""), text)
    text = _without_groups(_usual_brackets(unwrap(text, "({")))
    text = _KEPT_SPACE.sub("\0", text).replace(" ", "").replace("\0", " ")
    return _exact(_without_units(text))


def _without_lead(text: str) -> str:
    r"""Return a text without `\text{}` or `\boxed{}` around all of it, and without words such as "The answer is" and
    "about".
    """
    for _ in range(4):
        match = _WHOLE.fullmatch(text)
        inner = text if match is None else match["braced"].strip()
        if match is not None and not _is_balanced(inner):
            inner = text
        beginning = " ".join(_TEXT_BEFORE.sub(r"\1 ", inner, count=1).split()) if inner.startswith(r"\text") else inner
        if (lead := _LEAD.match(beginning)) is not None:
            inner = beginning[lead.end() :]
        if inner == text:
            return text
        text = inner.strip().rstrip(_END)
    return text


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def _exact_side(text: str) -> str:
    r"""Return what stands before `\approx`, or after it where only a name stands before it."""
    pieces = _APPROXIMATE.split(text)
    if len(pieces) == 1:
        return text
    first, second = pieces[0].strip(), pieces[1].strip()
    if not _is_balanced(first):
        return text
    return f"{first} = {second}" if is_name(first) else first


def _kind_of(text: str, *, dash: bool) -> str | None:
    """Return the form of a time, date, range or the like, with or without a unit after it; None where it is none."""
    plain = " ".join(_TEXT.sub(r" \1 ", text).split())
    if (kind := kind_form(plain, dash=dash)) is not None:
        return kind
    match = _WITH_WORDS.fullmatch(plain)
    return (
        None
        if match is None or not is_unit_text(match[2].replace("\\%", "%"))
        else kind_form(match[1].rstrip(), dash=dash)
    )


def is_name(text: str) -> bool:
    r"""Return whether a text names a quantity that gets a value.

    Such names are `x_1`, `f(x)`, `AB`, `\frac{dy}{dx}` and "Total cost".
    """
    text = text.strip()
    if text in ("e", "i", r"\pi"):
        return False
    return (
        _NAME.fullmatch(text) is not None or is_derivative(text) or is_words(" ".join(_TEXT.sub(r" \1 ", text).split()))
    )


def is_derivative(text: str) -> bool:
    r"""Whether a text names a derivative: `\frac{dy}{dx}`, `f'(x)`."""
    return _DERIVATIVE.fullmatch(text.strip()) is not None


def _usual_brackets(text: str) -> str:
    """Return an interval in the brackets that are usual in English: `]2,5[` is `(2,5)`. Minutes of a degree become
    degrees.
    """
    if (match := _MINUTES.fullmatch(text)) is not None:
        sign, *parts = match.groups()
        degrees, minutes, seconds = (Fraction(part or 0) for part in parts)
        return f"{sign}{degrees + minutes / 60 + seconds / 3600}"
    match = _FRENCH.fullmatch(text)
    if match is None or (match[1], match[3]) == ("[", "]"):
        return text
    return f"{'[' if match[1] == '[' else '('}{match[2]}{']' if match[3] == ']' else ')'}"


def _without_units(text: str) -> str:
    """Return a list, in brackets or bare, with each item without its unit."""
    parts = top_level_parts(text)
    if len(parts.items) == 1:
        return text
    items = [strip_unit(item) for item in parts.items]
    return text if list(parts.items) == items else parts.brackets[0] + ",".join(items) + parts.brackets[1]


def _without_groups(text: str) -> str:
    """Return a text without the separators of thousands; a list of numbers that looks like one number keeps a
    semicolon.
    """
    if _GROUPED.fullmatch(text):
        return text.replace(",", "").replace(" ", "")
    if not any(bracket in text for bracket in ("(", "[", r"\{")):
        joined = _GROUPS.sub(lambda match: match[0].replace(",", ""), text)
        if "," not in joined:
            return joined
    return text


def are_different(a: str, b: str) -> bool:
    """Whether two unequal normal forms are certainly different answers.

    So are two rationals, and lists of them in brackets of one kind or of other lengths; intervals, tuples and sets
    whose brackets differ; words; single letters.
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
    """Return whether a text is words rather than a product of variables.

    Words have only letters, and one of them is long, or short and known.
    """
    if _WORDS.fullmatch(text) is None:
        return False
    return _LONG_WORD.search(text) is not None or not _SHORT_WORDS.isdisjoint(text.casefold().split())


def _without_variable(text: str) -> str:
    """Return the value after "x =" or "x in", where it is one: without another relation and without letters."""
    match = _SOLVED.fullmatch(text)
    if match is None or not is_name(match[1]):
        return text
    value = strip_unit(match[2])
    is_value = _RELATION.search(value) is None and _LETTER.search(_COMMAND.sub("", value)) is None
    return value if is_value or is_words(_TEXT.sub(r"\1", value)) else text


def _exact(text: str) -> str:
    """Return a text with each rational in it, itself or an item of a list, in lowest terms; unordered ones sorted."""
    parts = top_level_parts(text)
    if parts.brackets == ("{", "}") and len(parts.items) > 1:  # as plain text writes a set
        parts = Parts((r"\{", r"\}"), parts.items)
    values = [rational(item) for item in parts.items]
    items = [item if value is None else str(value) for item, value in zip(parts.items, values, strict=True)]
    rationals = [value for value in values if value is not None]
    if len(rationals) == len(values) and parts.unordered:
        items = [str(value) for value in (sorted(set(rationals)) if parts.bracketed else sorted(rationals))]
    joined = ",".join(items)
    if not parts.bracketed and _GROUPS.fullmatch(joined.lstrip("+-")) is not None:
        joined = ";".join(items)
    return parts.brackets[0] + joined + parts.brackets[1]
