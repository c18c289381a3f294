r"""A cheap normal form of mathematical answers, in microseconds and without a parser.

Equal forms mean equivalent answers. Answers with unequal forms may be equivalent too, unless `are_different` is True. A
form is LaTeX that a parser reads.

By convention, as graders have it: a unit, a currency, a degree sign and a percent sign after a quantity are no part of
an answer (`50\%` is `50`, `90^\circ` is `90`, `5\text{ cm}` is `5`). Neither is the variable that a value is given to
(`x = 5` is `5`). A list without brackets and a set have no order. Numbers are exact: `0.50` is `1/2`, and `0.333` is
not `1/3`. A whole number before a fraction is a mixed number. Thousands are separated by a comma without a plain space:
`1, 234` are two numbers, `1,\! 234`, `1{,}234`, `1'234` and `1_234` are one. Times, dates, ranges and telephone numbers
are no arithmetic (`tts.tasks.forms.kinds`). An approximation after an exact value is dropped (`1/3\approx0.33`), and so
is the word for one before a value. So is a remark behind a value: "(approximately 3.14)", "for all x",
"where k is an integer", or the number once more in words. What stands behind the second number of `1-2n` is a product,
and no unit of a range. A list of texts in JSON is a list.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tts.tasks.forms.characters import as_latex
from tts.tasks.forms.kinds import kind_form
from tts.tasks.forms.rational import rational
from tts.tasks.forms.spoken import chinese_number, read_quantity, spoken_words
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
_QUOTED = r"[\"']((?:[^\"'])*)[\"']"
_MOD = r"(?:\\[pb]?mod|\\(?:text|mathrm) ?\{ ?mod ?\}|(?<![A-Za-z\\])mod)(?![A-Za-z])"
_BASES = {"two": "2", "eight": "8", "ten": "10", "sixteen": "16"}


def _base(match: re.Match[str]) -> str:
    """Return the base of a number as an index."""
    return f"_{{{_BASES.get(match[1], match[1])}}}"


# Rewrites that hold anywhere in an answer, in this order. A `\\` before a bracket or comma is a line break of a matrix,
# not a delimiter.
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=[0-9]) and (?:a|one)[ -]half", r" \\frac{1}{2}"),
        (rf"^\s*\[\s*{_QUOTED}(?:\s*,\s*{_QUOTED})*\s*\]\s*$", lambda match: ", ".join(re.findall(_QUOTED, match[0]))),
        (r"(?<=[0-9A-Za-z)}$])[ \t]*\n\s*\n\s*(?=[-+0-9A-Za-z$\\(])", ", "),
        (r"_(?:\{ ?)?\\(?:text|mathrm) ?\{ ?(two|eight|ten|sixteen) ?\}(?: ?\})?", _base),
        (r"(?<=[0-9A-F]) (?:\(|in )?base[ -]([0-9]+|two|eight|ten|sixteen)\)?$", _base),
        (r"^\s*\{ ?([a-z] ?(?:\\in ?\\mathbb ?\{?R\}? ?)?(?:\||:|\\mid)[^{}]+)\}\s*$", r"\\{\1\\}"),
        (rf"(?:[a-z] ?\\equiv ?)?(-?[0-9a-z]+) ?[({{]?{_MOD} ?\{{?([0-9a-z]+)[)}}]?$", r"\1 (mod \2)"),
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
        (r"(\\frac\{[^{}]*\}) ?([0-9]+)", r"\1{\2}"),
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
_TEX_FRACTION = re.compile(rf"\A{_FLAT}\\over(?![A-Za-z]){_FLAT}\Z")
_END = " .,;:"
# Remarks behind a value: an approximation, for which values it holds, and the number once more in words.
_SPACING = r"(?: |\\(?:text|mathrm) ?\{|\})*+"
_ABOUT = r"(?:approximately|approx\.?|about|roughly|around|nearly|or so|exactly|\\approx|\\sim)"
_OPENS = r"(?<![ ,({])(?: |,|\(|\\(?:text|mathrm) ?\{)++(?:or |which is |that is |i\.e\.,? ?)?"
_MEMBERSHIP = r"\\in ?(?:\\mathbb ?)?\{?[ZN]\}?(?:\^[+*]|_[+0])?"
_INTEGER = r"(?:is |be )?(?:any |all |an |a )?(?:arbitrary )?(?:positive |non-?negative )?integers?"
_REMARK = re.compile(
    rf"{_OPENS}(?:{_ABOUT}(?:[^()]*\)|{_SPACING}$)|(?:for{_SPACING}(?:all|every|any|each)|\\forall)(?![A-Za-z]).*"
    rf"|(?:where |with |for )?{_SPACING}(?:[a-zA-Z](?: ?, ?[a-z])*{_SPACING}(?:{_MEMBERSHIP}|{_INTEGER})"
    rf"|{_INTEGER}{_SPACING}[a-z](?![a-z])){_SPACING}\)?){_SPACING}$|,{_SPACING}(?:or |which is )?{_ABOUT} [^()]*$",
    re.DOTALL,
)
_REPEATED_VALUE = re.compile(r"(.*[0-9].*?) ?\(([A-Za-z][A-Za-z -]*)\)|([A-Za-z][A-Za-z -]*) ?\((.*[0-9].*)\)")
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
_LINKED = re.compile(" ?,? (?:and|or) ")
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
_LAST_NUMBER = re.compile(r"[0-9.,]*[0-9][^0-9]*\Z")
_WITH_WORDS = re.compile(r"(.*[0-9]) ?([^0-9]+)", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z][A-Za-z .,'-]*")
_LONG_WORD = re.compile(r"[A-Za-z]{4}")
_SHORT_WORDS = frozenset({"no", "yes", "odd", "all", "one", "two", "six", "ten", "red", "dne"})


def normal_form(answer: str) -> str:
    """Return the normal form of an answer.

    The form is "p/q" or "p" for a rational, folded lower case for words, else tidied LaTeX.
    """
    if len(answer) > MAX_CHARACTERS:
        return " ".join(answer.split())
    markdown = _MARKDOWN.fullmatch(answer)
    text = answer if markdown is None else markdown[2]
    if r"\\" in text:
        text = _ESCAPED_TWICE.sub("", text)
    text = as_latex(_CUBE_ROOT.sub(r"\\sqrt[3]{\1\2\3}", text))
    text = _PLAIN_ROOT.sub(_root, _SIGN_ROOT.sub(_root, text))
    if "..." in text or "dots" in text:
        text = _ELLIPSIS.sub(r"\1\\overline{\2}", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if _OVER in text:
        text = _TEX_FRACTION.sub(_fraction, _OVER_IN_BRACES.sub(_fraction, text))
    text = _without_lead(text.strip().rstrip(_END))
    text = unwrap(_exact_side(_without_remark(text)), "{")
    if (kind := _kind_of(text, dash=_DASH.search(answer) is not None)) is not None:
        return kind
    text = strip_unit(_without_variable(text))
    text = " ".join(_TEXT.sub(r" \1 ", text).split())
    text = _with_commas(text)
    if r"\begin" not in text:
        text = _LISTED.sub(",", _AND.sub(",", text))
    text = read_quantity(chinese_number(text.rstrip(_END)))
    if is_words(text):
        return spoken_words(text)
    text = _GROUPED_MIXED.sub(lambda match: match[0].replace(" ", "").replace(",", ""), text)
    text = _without_groups(_usual_brackets(unwrap(text, "({")))
    text = _KEPT_SPACE.sub("\0", text).replace(" ", "").replace("\0", " ")
    return _exact(_without_units(text))


def _without_lead(text: str) -> str:
    r"""Return a text without words such as "The answer is", and without `\text{}` or `\boxed{}` around it."""
    for _ in range(4):
        shorter_text = text
        wrapped = _WHOLE.fullmatch(text)
        if wrapped is not None:
            content = wrapped["braced"].strip()
            shorter_text = content if _is_balanced(content) else text
        beginning = shorter_text
        if shorter_text.startswith(r"\text"):
            beginning = " ".join(_TEXT_BEFORE.sub(r"\1 ", shorter_text, count=1).split())
        lead = _LEAD.match(beginning)
        if lead is not None:
            shorter_text = beginning[lead.end() :]
        if shorter_text == text:
            return text
        text = shorter_text.strip().rstrip(_END)
    return text


def _with_commas(text: str) -> str:
    """Return a text whose equations are a list, and whose inequalities are sets, where words connect them."""
    if _INEQUALITY.search(text) is not None:
        return _BOTH.sub(r"\\cap ", _OR.sub(r"\\cup ", text))
    equations = _LINKED.split(text)
    return ",".join(equations) if all("=" in equation for equation in equations) else text


def _without_remark(text: str) -> str:
    """Return a value without a remark behind it; words and other texts as they are."""
    twice = _REPEATED_VALUE.fullmatch(text)
    if twice is not None:
        number, words = twice[1] or twice[4], twice[2] or twice[3]
        if spoken_words(words) == str(rational(number.strip())):
            return number
    value = _REMARK.sub("", text, count=1)
    return value if any(character.isdigit() or character in "=+^\\" for character in value) else text


def _is_balanced(text: str) -> bool:
    """Whether each brace of a text has its partner."""
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def _exact_side(text: str) -> str:
    r"""Return the exact value before `\approx`; of a name and its approximate value an equation."""
    pieces = _APPROXIMATE.split(text)
    if len(pieces) == 1:
        return text
    exact_value, approximation = pieces[0].strip(), pieces[1].strip()
    if not _is_balanced(exact_value):
        return text
    return f"{exact_value} = {approximation}" if is_name(exact_value) else exact_value


def _kind_of(text: str, *, dash: bool) -> str | None:
    """Return the form of a time, date, range or number of a thing, with or without a unit after it; None for others."""
    high = _LAST_NUMBER.search(text)  # behind which a product comes before a unit: 1-2n is no range
    bare = text if high is None else text[: high.start()] + strip_unit(high[0])
    for quantity in (text, bare):
        if (kind := kind_form(" ".join(_TEXT.sub(r" \1 ", quantity).split()), dash=dash)) is not None:
            return kind
    with_words = _WITH_WORDS.fullmatch(" ".join(_TEXT.sub(r" \1 ", text).split()))
    if with_words is None or not is_unit_text(with_words[2].replace("\\%", "%")):
        return None
    kind = kind_form(with_words[1].rstrip(), dash=dash)
    return None if kind is not None and " to " in kind and "-" in with_words[1] else kind


def is_name(text: str) -> bool:
    r"""Return whether a text names a quantity that gets a value.

    Such names are `x_1`, `f(x)`, `AB`, `\frac{dy}{dx}` and "Total cost".
    """
    text = text.strip()
    if text in ("e", "i", r"\pi"):
        return False
    if _NAME.fullmatch(text) is not None or is_derivative(text):
        return True
    return is_words(" ".join(_TEXT.sub(r" \1 ", text).split()))


def is_derivative(text: str) -> bool:
    r"""Whether a text names a derivative: `\frac{dy}{dx}`, `f'(x)`."""
    return _DERIVATIVE.fullmatch(text.strip()) is not None


def _usual_brackets(text: str) -> str:
    """Return an interval in the brackets that are usual in English: `]2,5[` is `(2,5)`.

    Degrees with minutes and seconds become degrees.
    """
    angle = _MINUTES.fullmatch(text)
    if angle is not None:
        sign, *parts = angle.groups()
        degrees, minutes, seconds = (Fraction(part or 0) for part in parts)
        return f"{sign}{degrees + minutes / 60 + seconds / 3600}"
    interval = _FRENCH.fullmatch(text)
    if interval is None:
        return text
    opening, bounds, closing = interval.groups()
    if (opening, closing) == ("[", "]"):
        return text
    return f"{'[' if opening == '[' else '('}{bounds}{']' if closing == ']' else ')'}"


def _without_units(text: str) -> str:
    """Return a list, with or without brackets, whose items have no units."""
    parts = top_level_parts(text)
    if len(parts.items) == 1:
        return text
    items = [strip_unit(item) for item in parts.items]
    if items == list(parts.items):
        return text
    opening, closing = parts.brackets
    return opening + ",".join(items) + closing


def _without_groups(text: str) -> str:
    """Return a text without the separators of thousands, where its commas separate nothing else."""
    if _GROUPED.fullmatch(text):
        return text.replace(",", "").replace(" ", "")
    has_brackets = any(bracket in text for bracket in ("(", "[", r"\{"))
    if not has_brackets:
        ungrouped = _GROUPS.sub(lambda match: match[0].replace(",", ""), text)
        if "," not in ungrouped:
            return ungrouped
    return text


def are_different(a: str, b: str) -> bool:
    """Whether two unequal normal forms are certainly different answers.

    True holds for words, for single letters, and for rationals. It holds for lists of rationals with the same brackets
    or different lengths, and for collections of several items in different brackets.
    """
    if max(len(a), len(b)) > MAX_CHARACTERS:
        return False
    if (is_words(a) and is_words(b)) or (len(a) == len(b) == 1 and a.isalpha() and b.isalpha()):
        return True
    a_parts, b_parts = top_level_parts(a), top_level_parts(b)
    if a_parts.bracketed and b_parts.bracketed and a_parts.brackets != b_parts.brackets:
        return min(len(a_parts.items), len(b_parts.items)) > 1
    are_comparable = a_parts.brackets == b_parts.brackets or len(a_parts.items) != len(b_parts.items)
    return are_comparable and _all_rational(a_parts) and _all_rational(b_parts)


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
    """Return the value after "x =" or "x in"; any other text as it is.

    A value is words, or has no letters and no further relation.
    """
    assignment = _SOLVED.fullmatch(text)
    if assignment is None:
        return text
    name, value = assignment.groups()
    if not is_name(name):
        return text
    value = strip_unit(value)
    is_closed = _RELATION.search(value) is None and _LETTER.search(_COMMAND.sub("", value)) is None
    return value if is_closed or is_words(_TEXT.sub(r"\1", value)) else text


def _exact(text: str) -> str:
    """Return a rational, or each rational item of a list, in lowest terms.

    The items of an unordered list of rationals are sorted.
    """
    parts = top_level_parts(text)
    if parts.brackets == ("{", "}") and len(parts.items) > 1:  # as plain text writes a set
        parts = Parts((r"\{", r"\}"), parts.items)
    values = [rational(item) for item in parts.items]
    items = [item if value is None else str(value) for item, value in zip(parts.items, values, strict=True)]
    rationals = [value for value in values if value is not None]
    if len(rationals) == len(values) and parts.unordered:
        is_set = parts.bracketed
        items = [str(value) for value in sorted(set(rationals) if is_set else rationals)]
    joined = ",".join(items)
    if not parts.bracketed and _GROUPS.fullmatch(joined.lstrip("+-")) is not None:
        joined = ";".join(items)  # with commas the list would be read as one number
    opening, closing = parts.brackets
    return opening + joined + closing
