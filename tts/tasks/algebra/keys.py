r"""Keys of answers: two answers are equivalent exactly if their keys are equal.

All answers that are equal have one text as their key.

So equality is reflexive, symmetric and transitive, whatever is compared. An answer that is not understood, or whose
work exceeds the bounds, is equal only to answers of the same normal form.

Collections are equal by type. `(1,2)`, `[1,2)` and matrices are ordered, and an open interval is written as a pair is.
A set `\{1,2\}` and a list without brackets are not ordered; the two are equal if the list repeats nothing. A set of one
item equals that item, unless the set is within a collection, or the item is itself a set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tts.tasks.algebra import relations
from tts.tasks.algebra.matrices import LINE_BREAK, MATRIX, cells_of, evaluate
from tts.tasks.algebra.quick import BARE, LIST, collection, quick_key, unread_key
from tts.tasks.algebra.relations import Interval
from tts.tasks.algebra.syntax import Node, has, parse, symbols_of
from tts.tasks.algebra.tokens import UndecidedError, WordsError
from tts.tasks.algebra.values import Evaluator, bounded_work
from tts.tasks.forms.normal_form import is_derivative, is_name
from tts.tasks.forms.structure import Parts, split_outside, top_level_parts, unwrap

_CASES = re.compile(r"(?:[^=\\{}]+=)?\\begin\{cases\}(.*)\\end\{cases\}", re.DOTALL)
_NESTED = re.compile(r"(?:Matrix\(|)\[(\[[^\[\]]*\](?:,\[[^\[\]]*\])*)\]\)?")
_CONDITION = re.compile(r"^(?:if|for|when|where)(?![A-Za-z])|[,.;]$")
_BRACES = (r"\{", r"\}")
_SET_SIGN = re.compile(r"\\(?:cup|cap|setminus|backslash)(?![A-Za-z])")
_REALS = frozenset({r"\mathbb{R}", r"\mathbbR", r"\R", r"\Reals", r"\mathbf{R}"})
_SET_BUILDER = re.compile(r"[A-Za-z](?:\\in\\mathbb\{?R\}?)?(?:\\mid|\\vert|\||:)(.+)", re.DOTALL)
_LETTER, _COMMAND = re.compile(r"[A-Za-z]"), re.compile(r"\\[A-Za-z]+")
_MOST_DEPTH = 8
_MOST_ITEMS = 200


def key_of(form: str) -> str:
    """Return the key of an answer in normal form. Any text has a key."""
    if (quick := quick_key(form)) is not None:
        return quick
    try:
        with bounded_work():
            return _key(form, 0)
    except WordsError:
        return unread_key(form.casefold())
    except UndecidedError:
        return unread_key(form)


def _key(text: str, depth: int, *, inner: bool = False) -> str:
    """Return the key of a text.

    Args:
        text: An answer or a part of it, in normal form.
        depth: The number of collections and relations around the text.
        inner: Whether the text is an item of a collection, where a set of one item does not equal that item.
    """
    if depth > _MOST_DEPTH:
        raise UndecidedError("too deep")
    text = unwrap(text, "({")
    if text.lstrip("+-") == r"\infty":
        return text.lstrip("+")
    if text == r"\emptyset":
        return relations.EMPTY
    parts = top_level_parts(text)
    if (quick := quick_key(text)) is not None:
        is_inner_set = inner and parts.brackets == _BRACES
        return f"set {{{quick}}}" if is_inner_set and not quick.startswith("set ") else quick
    if r"\begin" in text or text.startswith(("[[", "Matrix([[")):
        return _with_matrices(text, depth)
    if len(parts.items) > _MOST_ITEMS:
        raise UndecidedError("too many items")
    if not parts.bracketed and len(parts.items) > 1:
        return _items(parts, depth)
    return _single_key(text, parts, depth, inner=inner)


def _single_key(text: str, parts: Parts, depth: int, *, inner: bool) -> str:
    """Return the key of a text that is no list without brackets.

    Such a text is a set of intervals, a relation, a collection in brackets, a ratio or an expression.
    """
    if (intervals := _intervals(text)) is not None:
        return intervals if isinstance(intervals, str) else relations.key_of(intervals)
    sides, signs = relations.split_relation(text)
    if signs:
        return _relate(sides, signs, depth)
    if parts.bracketed and (len(parts.items) > 1 or parts.brackets in (_BRACES, LIST)):
        return _items(parts, depth, inner=inner)
    return _ratio(text) if ":" in text else _scalar(text)


def _items(parts: Parts, depth: int, *, inner: bool = False) -> str:
    """Return the key of a collection; equations that give values to different variables are a system."""
    items = [item for item in parts.items if item]
    if len(items) != len(parts.items):
        raise UndecidedError("an empty item")
    if parts.unordered and len(items) > 1 and all("=" in item for item in items):
        variables = [relations.assigned_name(item) for item in items]
        if len(set(variables)) == len(variables) and None not in variables:
            value_keys = [_key(item, depth + 1) for item in items]
            ordered_keys = [key for _variable, key in sorted(zip(variables, value_keys, strict=True))]
            return f"({', '.join(ordered_keys)})"  # x=1, y=2 is the point (1,2)
    keys: list[str] = []
    for item in items:
        try:
            keys += _item_keys(item, depth) if parts.unordered else [_key(item, depth + 1, inner=True)]
        except WordsError:
            keys.append(unread_key(item.casefold()))
    return collection(parts, keys, inner=inner)


def _item_keys(item: str, depth: int) -> list[str]:
    r"""Return the keys of an item of a set: one key, or two for an item with \pm."""
    if r"\pm" not in item or top_level_parts(item).bracketed:
        return [_key(item, depth + 1, inner=True)]
    sides, signs = relations.split_relation(item)
    if signs and signs != ["="]:
        raise UndecidedError("a relation with two signs")
    node = parse(sides[-1])
    return [relations.fingerprint(node, sign) for sign in (1, -1)]


def _relate(sides: Sequence[str], signs: Sequence[str], depth: int) -> str:
    """Return the key of a relation; a relation that gives a value to a name has the key of the value."""
    may_be_given = is_name(sides[0]) or all(":" in side for side in sides)
    if signs == ["in"] or (signs == ["="] and (is_derivative(sides[0]) or (may_be_given and _is_value(sides[1])))):
        return _key(sides[1], depth + 1)
    if all(sign == "=" for sign in signs):
        collections = [side for side in sides if len(top_level_parts(side).items) > 1 or _is_set(side)]
        if collections:
            if len(sides) != 2 or collections[-1] != sides[1]:
                raise UndecidedError("an equation of collections")
            names, values = map(top_level_parts, sides)
            if len(names.items) == len(values.items) > 1 and names.brackets == values.brackets == ("(", ")"):
                equations = (f"{name}={value}" for name, value in zip(names.items, values.items, strict=True))
                return _items(Parts(("", ""), tuple(equations)), depth)
            return _key(sides[1], depth + 1)
        if any(r"\pm" in side for side in sides):
            if len(sides) != 2:
                raise UndecidedError("a chain with two signs")
            return collection(BARE, _item_keys(sides[1], depth))
        return relations.equation(sides)
    raise UndecidedError("a relation")


def _is_value(text: str) -> bool:
    """Whether a side of an equation has no variable of its own."""
    return _LETTER.search(_COMMAND.sub("", text)) is None


def _is_set(text: str) -> bool:
    """Whether a text is a set or a matrix in LaTeX, or an operation on sets."""
    return (
        text.startswith((r"\{", r"\begin"))
        or text in _REALS
        or text == r"\emptyset"
        or _SET_SIGN.search(text) is not None
    )


def _scalar(text: str) -> str:
    node = parse(text)
    if has(node, "pm", "mp"):
        fingerprints = [relations.fingerprint(node, sign) for sign in (1, -1)]
        return collection(BARE, list(dict.fromkeys(fingerprints)))
    return relations.fingerprint(node)


def _ratio(text: str) -> str:
    """Return the key of a ratio such as 2:3, whose parts are divided by the first part.

    A constant part must differ from zero.
    """
    items = text.split(":")
    trees = [parse(item) for item in items]
    if any(not symbols_of(tree) and Evaluator().value(tree) == 0 for tree in trees):
        raise UndecidedError("a ratio with zero")
    quotients = [parse(rf"({item})/({items[0]})") for item in items]
    return "ratio " + ":".join(map(relations.fingerprint, quotients))


def _with_matrices(text: str, depth: int) -> str:
    r"""Return the key of an answer with matrices, nested lists or cases.

    An equation has the key of its right side.
    """
    if (cases := _CASES.fullmatch(text)) is not None:
        return _cases(cases[1], depth)
    if (nested := _NESTED.fullmatch(text)) is not None:
        row_texts = nested[1].removeprefix("[").removesuffix("]").split("],[")
        rows = [row.split(",") for row in row_texts]
        if len({len(row) for row in rows}) != 1:
            raise UndecidedError("lists of different lengths")
        return _matrix("", rows, depth)
    unbracketed = text.removeprefix("[").removesuffix("]") if text.startswith(r"[\begin") else text
    matrix = MATRIX.fullmatch(unbracketed)
    if matrix is not None and matrix[1] != "v":
        return _matrix(matrix[1], cells_of(matrix[2]), depth)
    sides, signs = relations.split_relation(text)
    if signs == ["="]:
        return _key(sides[1], depth + 1)
    parts = top_level_parts(text)
    if len(parts.items) > 1:
        return _items(parts, depth)
    value = evaluate(text)
    if not isinstance(value, Node) and len(value) == len(value[0]) == 1:
        value = value[0][0]  # a matrix of one entry is that entry
    if isinstance(value, Node):
        return relations.fingerprint(value)
    return _rows("", [[relations.fingerprint(cell) for cell in row] for row in value])


def _matrix(kind: str, rows: Sequence[Sequence[str]], depth: int) -> str:
    return _rows(kind, [[_key(cell, depth + 1) for cell in row] for row in rows])


def _rows(kind: str, rows: Sequence[Sequence[str]]) -> str:
    if kind != "V" and len(rows) > 1 and all(len(row) == 1 for row in rows):
        return f"({', '.join(row[0] for row in rows)})"  # a column is a point
    return f"matrix {kind if kind == 'V' else ''} " + "; ".join(", ".join(row) for row in rows)


def _cases(body: str, depth: int) -> str:
    """Return the key of a system of equations, or of a function by cases, in any order."""
    lines = [line for line in LINE_BREAK.split(body) if line.strip()]
    rows = [[cell.strip() for cell in line.split("&") if cell.strip()] for line in lines]
    if all(len(row) == 1 for row in rows):
        return _key(",".join(row[0].rstrip(",;.") for row in rows), depth + 1)
    if any(len(row) != 2 for row in rows):
        raise UndecidedError("cases without a condition")
    clauses: list[str] = []
    for value, condition in rows:
        condition_text = _CONDITION.sub("", _CONDITION.sub("", condition).strip())
        if condition_text.casefold() in ("otherwise", "else"):
            condition_key = "otherwise"
        else:
            condition_key = _key(condition_text, depth + 1)
        clauses.append(f"{_key(value.rstrip(',;'), depth + 1)} if {condition_key}")
    return f"cases {{{'; '.join(sorted(clauses))}}}"


# Sets of real numbers -------------------------------------------------------------------------------------------------


def _intervals(text: str) -> list[Interval] | str | None:
    """Return the set of real numbers that an answer describes: a union, an inequality, all reals.

    Returns:
        Disjoint intervals, the key of an inequality that is not linear in one variable, or None for any other answer.
    """
    if text in _REALS:
        return [(relations.infinite(-1), relations.infinite(1))]
    operands, set_signs = split_outside(text, _SET_SIGN)
    if set_signs:
        return _combine(operands, set_signs)
    parts = top_level_parts(text)
    if parts.brackets == _BRACES and len(parts.items) == 1:
        set_builder = _SET_BUILDER.fullmatch(parts.items[0])
        if set_builder is not None:
            text = set_builder[1]
    sides, relation_signs = relations.split_relation(text)
    if not relation_signs or "in" in relation_signs or all(sign == "=" for sign in relation_signs):
        return None
    return relations.inequality(sides, relation_signs)


def _combine(operands: Sequence[str], signs: Sequence[str]) -> list[Interval]:
    """Return the union, intersection or difference of sets, computed from left to right."""
    intervals = _set_of(operands[0])
    for operand, sign in zip(operands[1:], signs, strict=True):
        operand_intervals = _set_of(operand)
        if sign == r"\cup":
            intervals = relations.unite([*intervals, *operand_intervals])
        elif sign == r"\cap":
            intervals = relations.common(intervals, operand_intervals)
        else:
            intervals = relations.remove_points(intervals, operand_intervals)
    return intervals


def _set_of(text: str) -> list[Interval]:
    """Return the intervals of one set as it is written: points, an interval, an equation or an inequality."""
    text = text.strip()
    if text == r"\emptyset":
        return []
    parts = top_level_parts(text)
    if parts.brackets == _BRACES:
        points = [relations.end_of(item, closed=True) for item in parts.items]
        return relations.unite((point, point) for point in points)
    if parts.bracketed and len(parts.items) == 2 and parts.brackets[0] in "([" and parts.brackets[1] in ")]":
        low = relations.end_of(parts.items[0], closed=parts.brackets[0] == "[")
        high = relations.end_of(parts.items[1], closed=parts.brackets[1] == "]")
        return relations.unite([(low, high)])
    if parts.bracketed and parts.brackets == ("(", ")") and len(parts.items) == 1:
        text = parts.items[0]
    sides, signs = relations.split_relation(text)
    if signs == ["="] and (is_name(sides[0]) or is_name(sides[1])):
        value_side = sides[1] if is_name(sides[0]) else sides[0]
        point = relations.end_of(value_side, closed=True)
        return [(point, point)]
    intervals = _intervals(text)
    if intervals is None or isinstance(intervals, str):
        raise UndecidedError("no set")
    return intervals
