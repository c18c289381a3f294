r"""Harmless rewritings of an answer, by name: each returns the same answer in another spelling, or None where it does
not apply.

`DAMAGES` return another answer in a similar spelling.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

Rewriting = Callable[[str], str | None]

_WHOLE = re.compile(r"-?[0-9]+")
_LONG = re.compile(r"-?[1-9][0-9]{3,}")
_DECIMAL = re.compile(r"-?[0-9]*\.[0-9]+|-?[0-9]+")
_FRACTION = re.compile(r"(-?)\\d?frac\{([0-9]+)\}\{([0-9]+)\}")


def _on(pattern: re.Pattern[str] | str, write: Callable[[str], str]) -> Rewriting:
    compiled = re.compile(pattern)
    return lambda answer: write(answer) if compiled.fullmatch(answer) else None


def _where(pattern: str, write: Callable[[str], str]) -> Rewriting:
    compiled = re.compile(pattern)
    return lambda answer: write(answer) if compiled.search(answer) else None


def _grouped(separator: str) -> Callable[[str], str]:
    return lambda answer: f"{int(answer):,}".replace(",", separator)


def _scientific(form: str) -> Callable[[str], str]:
    def write(answer: str) -> str:
        digits = answer.lstrip("-")
        mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
        return ("-" if answer[0] == "-" else "") + form.format(mantissa, len(digits) - 1)

    return write


def _of_fraction(form: str) -> Rewriting:
    return lambda answer: form.format(*match.groups()) if (match := _FRACTION.fullmatch(answer)) else None


def _mixed(answer: str) -> str | None:
    match = _FRACTION.fullmatch(answer)
    if match is None or int(match[2]) <= int(match[3]) or int(match[2]) % int(match[3]) == 0:
        return None
    whole, rest = divmod(int(match[2]), int(match[3]))
    return rf"{match[1]}{whole}\frac{{{rest}}}{{{match[3]}}}"


def _doubled(answer: str) -> str | None:
    match = _FRACTION.fullmatch(answer)
    return None if match is None else rf"{match[1]}\frac{{{2 * int(match[2])}}}{{{2 * int(match[3])}}}"


def _full_width(answer: str) -> str:
    return "".join(chr(ord(each) + 0xFEE0) if each.isdigit() else each for each in answer)


def _turned_list(answer: str) -> str | None:
    items = [item.strip() for item in answer.split(",")]
    return (
        ", ".join(reversed(items)) if len(items) > 1 and re.fullmatch(r"[-0-9, ]+", answer) and ", " in answer else None
    )


_UNITS = (
    " apples", " dollars", " cm", "cm", r"\text{ cm}", r" \text{ square units}", r"\textnormal{ miles}",
    r"\hbox{ cm}", r"\mbox{ cm}^2", r"{\rm cm}",
    r"\mathrm{~kg}", r"\ \mathrm{kg}", r"~\text{cm}", r"\;\text{m}", "人", " 人", "元", "公斤", " км", " яблок",
    " Äpfel", "개", " miles per hour", " m²",
    "m²", " years old", r"\text{ apples}", r"\,\text{km/h}", " hours", " balls", " people in total", " seconds",
    "%", r"\%", " percent", " pct",
    " percentage points", " €", "€", r" \text{ dollars}", " units", r"^\circ", "°", " degrees", " cents",
    " square feet", " cubic meters", " students",
    " ft²", " trips", "분", "円", " सेब",
)  # fmt: skip

REWRITINGS: dict[str, Rewriting] = {
    # dress of the whole
    "dollar signs": lambda answer: f"${answer}$",
    "double dollars": lambda answer: f"$${answer}$$",
    "parentheses of LaTeX": lambda answer: rf"\({answer}\)",
    "display": lambda answer: f"\\[\n{answer}\n\\]",
    "boxed": lambda answer: rf"\boxed{{{answer}}}",
    "full stop": lambda answer: f"{answer}.",
    "comma after": lambda answer: f"{answer},",
    "spaces around": lambda answer: f"  {answer} \n",
    "displaystyle": lambda answer: rf"\displaystyle {answer}",
    "braces": lambda answer: f"{{{answer}}}",
    "bold of Markdown": lambda answer: f"**{answer}**",
    "bold group": lambda answer: rf"{{\bf {answer}}}" if "{" not in answer else None,
    "bold command": lambda answer: rf"\mathbf{{{answer}}}" if _WHOLE.fullmatch(answer) else None,
    "textbf": lambda answer: rf"\textbf{{{answer}}}" if "\\" not in answer else None,
    "text": lambda answer: rf"\text{{{answer}}}" if "\\" not in answer else None,
    "boldsymbol": lambda answer: rf"\boldsymbol{{{answer}}}",
    "colour": lambda answer: rf"\color{{red}}{{{answer}}}" if _WHOLE.fullmatch(answer) else None,
    "large": lambda answer: rf"\large {answer}",
    "phantom": lambda answer: rf"{answer}\phantom{{0}}",
    "thin spaces": lambda answer: rf"\,{answer}\;",
    "the answer is": lambda answer: f"The answer is {answer}",
    "the answer is, in text": lambda answer: rf"\text{{The answer is }} {answer}",
    "answer with a colon": lambda answer: f"Answer: {answer}",
    "leading equals sign": lambda answer: f"= {answer}" if "=" not in answer else None,
    # a name before a value
    **{
        f"after {name}": _on(
            r"-?(?:[0-9.,!{}/ ]|\\!|\\d?frac|\\sqrt)*[0-9}]|\\text\{[a-z]+\}",
            lambda answer, name=name: f"{name} {answer}",
        )
        for name in (
            "x =",
            "x=",
            r"x_1 =",
            r"\theta =",
            "AB =",
            "f(2) =",
            r"P(A)=",
            r"\text{Area} =",
            "Total =",
            r"\angle ABC =",
            "|AB| =",
            r"n \approx",
        )
    },
    # numbers
    "decimal zero": _on(_WHOLE, lambda answer: f"{answer}.0"),
    "decimal zeros": _on(_WHOLE, lambda answer: f"{answer}.00"),
    "zeros after decimals": _on(r"-?[0-9]*\.[0-9]+", lambda answer: f"{answer}0"),
    "decimal point alone": _on(_WHOLE, lambda answer: f"{answer}."),
    "plus sign": _on(r"[0-9]+", lambda answer: f"+{answer}"),
    "parentheses": _on(_DECIMAL, lambda answer: f"({answer})"),
    "over one": _on(_WHOLE, lambda answer: rf"\frac{{{answer}}}{{1}}"),
    "full width digits": _on(_DECIMAL, _full_width),
    "typographic minus": _where(r"-[0-9]", lambda answer: answer.replace("-", "−")),
    "en dash as minus": _on(r"-[0-9]+", lambda answer: answer.replace("-", "–")),
    "dollar": _on(r"[0-9.]+", lambda answer: rf"\${answer}"),
    "plain dollar": _on(r"[0-9.]+", lambda answer: f"${answer}"),
    "euro before": _on(r"[0-9.]+", lambda answer: f"€{answer}"),
    "USD before": _on(r"[0-9.]+", lambda answer: f"USD {answer}"),
    "about": _on(_DECIMAL, lambda answer: f"approximately {answer}"),
    "approx": _on(_DECIMAL, lambda answer: rf"\approx {answer}"),
    **{
        f"thousands by {separator!r}": _on(_LONG, _grouped(separator))
        for separator in (
            ",",
            "{,}",
            r",\!",
            r",\! ",
            "{,} ",
            r",\ ",
            r"\,",
            r"\ ",
            r"\;",
            "'",
            "’",
            "_",
            " ",
            "\u00a0",
            "\u202f",
            "~",
            r"\:",
            r",\,",
            r"\text{,}",
            "，",
        )
    },
    **{
        f"scientific {form}": _on(r"-?[1-9][0-9]*", _scientific(form))
        for form in (
            r"{0}\times10^{{{1}}}",
            "{0} x 10^{1}",
            "{0} × 10^{1}",
            "{0}e{1}",
            "{0}E+{1}",
            "{0}*10^{1}",
            "{0}*10**{1}",
            r"{0} \cdot 10^{{{1}}}",
            "{0} x 10^{{{1}}}",
            "{0} X 10^{1}",
            "{0}·10^{1}",
        )
    },
    **{f"unit {unit!r}": _on(r"[0-9]+(?:\.[0-9]+)?", lambda answer, unit=unit: answer + unit) for unit in _UNITS},
    **{
        f"unit after a fraction {unit!r}": _on(_FRACTION, lambda answer, unit=unit: answer + unit)
        for unit in (" cm", r"\text{ hours}", " apples", r"\%", " 元")
    },
    # fractions
    "dfrac": _where(r"\\frac", lambda answer: answer.replace(r"\frac", r"\dfrac")),
    "tfrac": _where(r"\\frac", lambda answer: answer.replace(r"\frac", r"\tfrac")),
    "cfrac": _where(r"\\frac", lambda answer: answer.replace(r"\frac", r"\cfrac")),
    "slash": _of_fraction("{}{}/{}"),
    "spaced slash": _of_fraction("{}{} / {}"),
    "over": _of_fraction(r"{}{{{}\over {}}}"),
    "minus above": lambda answer: (
        rf"\frac{{-{match[2]}}}{{{match[3]}}}" if (match := _FRACTION.fullmatch(answer)) and match[1] else None
    ),
    "mixed": _mixed,
    "not reduced": _doubled,
    "spaces in frac": _where(r"\\frac\{", lambda answer: answer.replace(r"\frac{", r"\frac { ").replace("}{", " } { ")),
    # roots, powers, products
    "sqrt without braces": _where(r"\\sqrt\{[0-9]\}", lambda answer: re.sub(r"\\sqrt\{([0-9])\}", r"\\sqrt\1", answer)),
    "root sign": _where(r"\\sqrt\{[0-9]+\}$", lambda answer: re.sub(r"\\sqrt\{([0-9]+)\}$", r"√\1", answer)),
    "sqrt of programs": _where(
        r"^[^{}]*\\sqrt\{[0-9]+\}[^{}]*$", lambda answer: re.sub(r"\\sqrt\{([0-9]+)\}", r"sqrt(\1)", answer)
    ),
    "product sign before a root": _where(r"^[0-9]+\\sqrt", lambda answer: answer.replace(r"\sqrt", r"\cdot\sqrt", 1)),
    "star before pi": _where(r"[0-9] ?\\pi", lambda answer: re.sub(r"([0-9]) ?\\pi", r"\1*pi", answer)),
    "pi as a character": _where(r"\\pi", lambda answer: answer.replace(r"\pi", "π")),
    "powers of programs": _where(
        r"\^", lambda answer: re.sub(r"\^([0-9])", r"**\1", answer) if r"\circ" not in answer else answer
    ),
    "powers in braces": _where(r"\^[0-9]", lambda answer: re.sub(r"\^([0-9])", r"^{\1}", answer)),
    "raised digits": _where(r"[a-z]\^2", lambda answer: answer.replace("^2", "²")),
    # angles
    "degree character": _where(r"\^\\circ", lambda answer: answer.replace(r"^\circ", "°")),
    "degree in braces": _where(r"\^\\circ", lambda answer: answer.replace(r"^\circ", r"^{\circ}")),
    "degree word": _where(r"\^\\circ", lambda answer: answer.replace(r"^\circ", " degrees")),
    "degree command": _where(r"\^\\circ", lambda answer: answer.replace(r"^\circ", r"\degree")),
    "no degree": _where(r"\^\\circ", lambda answer: answer.replace(r"^\circ", "")),
    # collections, relations, matrices
    "left and right": _where(
        r"[(\[]", lambda answer: re.sub(r"([(\[])", r"\\left\1", re.sub(r"([)\]])", r"\\right\1", answer))
    ),
    "spaces after commas": _where(r",[^ \\]", lambda answer: re.sub(r",(?=[^ 0-9\\!])", ", ", answer)),
    "semicolons": _on(r"\([^(),]+,[^(),]+\)", lambda answer: answer.replace(",", ";")),
    "turned list": _turned_list,
    "and": _on(r"-?[0-9]+, ?-?[0-9]+", lambda answer: re.sub(", ?", " and ", answer)),
    "and in text": _on(r"-?[0-9]+, ?-?[0-9]+", lambda answer: re.sub(", ?", r" \\text{ and } ", answer)),
    "or in Chinese": _on(r"-?[0-9]+, ?-?[0-9]+", lambda answer: re.sub(", ?", "或", answer)),
    "and in Chinese": _on(r"-?[0-9]+, ?-?[0-9]+", lambda answer: re.sub(", ?", "和", answer)),
    "comma of lists in Chinese": _on(r"-?[0-9]+, ?-?[0-9]+", lambda answer: re.sub(", ?", "、", answer)),
    "in braces": _on(r"-?[0-9]+, -?[0-9]+", lambda answer: rf"\{{{answer}\}}"),
    "U for union": _where(r"\\cup", lambda answer: answer.replace(r"\cup", "U")),
    "union character": _where(r"\\cup", lambda answer: answer.replace(r"\cup", "∪")),
    "x in": _on(r"[(\[].*\\infty.*|.*\\cup.*", lambda answer: rf"x \in {answer}"),
    "oo": _where(r"\\infty", lambda answer: answer.replace(r"\infty", "oo")),
    "inf": _where(r"\\infty", lambda answer: answer.replace(r"\infty", "inf")),
    "infinity character": _where(r"\\infty", lambda answer: answer.replace(r"\infty", "∞")),
    "leqslant": _where(r"\\leq?\b", lambda answer: re.sub(r"\\leq?\b", r"\\leqslant", answer)),
    "geqslant": _where(r"\\geq?\b", lambda answer: re.sub(r"\\geq?\b", r"\\geqslant", answer)),
    "relations of programs": _where(
        r"\\[lg]eq?\b|\\neq?\b",
        lambda answer: re.sub(r"\\leq?\b", "<=", re.sub(r"\\geq?\b", ">=", re.sub(r"\\neq?\b", "!=", answer))),
    ),
    "relations as characters": _where(
        r"\\[lg]eq?\b|\\neq?\b",
        lambda answer: re.sub(r"\\leq?\b", "≤", re.sub(r"\\geq?\b", "≥", re.sub(r"\\neq?\b", "≠", answer))),
    ),
    "bmatrix": _where("pmatrix", lambda answer: answer.replace("pmatrix", "bmatrix")),
    "array": _where(
        "pmatrix",
        lambda answer: answer.replace(r"\begin{pmatrix}", r"\left(\begin{array}{ccc}").replace(
            r"\end{pmatrix}", r"\end{array}\right)"
        ),
    ),
    "last row ended": _where("pmatrix", lambda answer: answer.replace(r"\end{pmatrix}", r"\\ \end{pmatrix}")),
    "nested lists": lambda answer: (
        "["
        + ", ".join("[" + ", ".join(cell.strip() for cell in row.split("&")) + "]" for row in match[1].split(r"\\"))
        + "]"
        if (match := re.fullmatch(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", answer))
        else None
    ),
    "matrix times one": _where(r"^\\begin\{pmatrix\}", lambda answer: rf"1\cdot {answer}"),
    "matrix plus zero": lambda answer: (
        answer + " + " + re.sub(r"[^&\\]+", "0", match[1]).join((r"\begin{pmatrix}", r"\end{pmatrix}"))
        if (match := re.fullmatch(r"\\begin\{pmatrix\}([-0-9/ &\\]*)\\end\{pmatrix\}", answer))
        else None
    ),
    # words
    "upper case": _where(r"^\\text\{[a-z]", lambda answer: answer[6:-1].upper()),
    "textit": _where(r"^\\text\{", lambda answer: answer.replace(r"\text", r"\textit")),
    "word with a full stop": _where(r"^\\text\{", lambda answer: f"**{answer[6:-1]}.**"),
}

DAMAGES: dict[str, Rewriting] = {
    "one more": _on(_WHOLE, lambda answer: str(int(answer) + 1)),
    "negative": _on(r"[1-9][0-9]*", lambda answer: f"-{answer}"),
    "ten times": _on(r"[1-9][0-9]*", lambda answer: f"{answer}0"),
    "tenth": _on(r"[1-9][0-9]*", lambda answer: str(Fraction(int(answer), 10))),
    "as a time": _on(r"[0-9]{1,2}", lambda answer: f"{answer}:00"),
    "in a list": _on(_WHOLE, lambda answer: f"[{answer}]"),
    "in another base": _on(r"[1-9][0-9]+", lambda answer: f"{answer}_{{11}}"),
    "or more": _on(_WHOLE, lambda answer: f"{answer} or more"),
    "million": _on(r"[1-9][0-9]*", lambda answer: f"{answer} million"),
    "as a range": _on(r"[0-9]+", lambda answer: f"{answer}-{int(answer) + 5}"),
    "with a variable": _on(_WHOLE, lambda answer: f"{answer}x"),
    "with another": _on(_WHOLE, lambda answer: f"{answer}, {int(answer) + 1}"),
    "squared": _on(r"[2-9][0-9]*", lambda answer: f"{answer} squared"),
    "upside down": lambda answer: (
        rf"{match[1]}\frac{{{match[3]}}}{{{match[2]}}}"
        if (match := _FRACTION.fullmatch(answer)) and match[2] != match[3]
        else None
    ),
    "other brackets": _on(r"\([^()]*,[^()]*[0-9}]\)", lambda answer: f"[{answer[1:-1]}]"),
    "turned pair": _on(
        r"\([^(),]*,[^(),]*\)",
        lambda answer: (
            "(" + ",".join(reversed(answer[1:-1].split(","))) + ")"
            if len(set(answer[1:-1].split(","))) > 1
            else answer + "0"
        ),
    ),
    "set of the pair": _on(r"\([^()]*,[^()]*\)", lambda answer: rf"\{{{answer[1:-1]}\}}"),
    "north": _on(r"[0-9]+", lambda answer: f"{answer} miles north"),
}
