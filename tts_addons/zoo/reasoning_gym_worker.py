"""The process that makes reasoning-gym's problems and runs its scorers.

So no code of that package runs in the process of a study.

Several scorers of the package evaluate the answer, which a model wrote, as Python. This process prevents that: in the
package's modules `eval` takes values and arithmetic only, and `parse_expr` of sympy takes mathematics only. Run it with
`python -m tts_addons.zoo.reasoning_gym_worker`.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import io
import itertools
import json
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import reasoning_gym
import sympy
from reasoning_gym.factory import DATASETS
from sympy.parsing import sympy_parser

from tts.tasks.worker import serve

_LEAST_ENTRIES = 1000  # the least entries to request from a generator, so that repeated problems can be left out
_VALUES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Load, ast.UnaryOp, ast.BinOp, ast.unaryop,
    ast.operator,
)  # fmt: skip
_FUNCTIONS: Final = frozenset(
    (
        *("exp", "ln", "log", "sqrt", "Abs", "sign", "factorial", "binomial", "erf", "pi"),
        *(
            before + name + after
            for name in ("sin", "cos", "tan", "sec", "csc", "cot")
            for before in ("", "a")
            for after in ("", "h")
        ),
    )
)
_MARKS: Final = frozenset(
    ("+", "-", "*", "/", "**", "(", ")", ",", "%", "^", "!", "=", "==", "<", ">", "<=", ">=", "[", "]")
)
_IGNORED: Final = (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER, tokenize.ENCODING)
_TUPLE, _PAIRS = "__tuple__", "__pairs__"


def prepare() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that answers requests.

    {"make": …} is answered with problems, and {"reference": …, "answer": …} with a score.
    """
    disarm()

    def reply(request: dict[str, Any]) -> dict[str, Any]:
        if "reference" in request:
            return {"score": score(request["reference"], request["answer"])}
        return make(request["make"], request["config"], seed=request["seed"], limit=request["limit"])

    return reply


def disarm() -> None:
    """Prevent reasoning-gym's scorers from evaluating an answer as a program."""
    original = sympy_parser.parse_expr
    guarded = functools.partial(mathematics, original)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "reasoning_gym":
            if vars(module).get("parse_expr") is original:
                module.__dict__["parse_expr"] = guarded
            module.__dict__["eval"] = value
    sympy_parser.parse_expr = sympy.parse_expr = guarded


def value(text: str) -> Any:
    """Return the value of a text of literals and arithmetic.

    Raises:
        ValueError: the text has other parts.
        SyntaxError: the text cannot be read.
    """
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, _VALUES):
            raise ValueError(f"{type(node).__name__} is no value")
    return eval(compile(tree, "<answer>", "eval"), {"__builtins__": {}})


def mathematics(parse_expr: Callable[..., Any], text: str, *arguments: Any, **options: Any) -> Any:
    """Return sympy's expression for a text of numbers, names of one letter, known functions and signs.

    Raises:
        ValueError: the text has other parts.
        tokenize.TokenError: the text cannot be split into tokens.
        SyntaxError: the text cannot be read.
    """
    for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
        if token.type == tokenize.NAME:
            is_known = len(token.string) == 1 or token.string in _FUNCTIONS
        else:
            is_number_or_end = token.type in (*_IGNORED, tokenize.NUMBER)
            is_known = is_number_or_end or token.string in _MARKS or token.string.isspace()
        if not is_known:
            raise ValueError(f"{token.string!r} is no mathematics")
    return parse_expr(text, *arguments, **options)


def _find_unknown(generator: str, config: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error for an unknown generator or an unknown parameter in its configuration, or None."""
    # "composite" mixes other generators, given as objects that no configuration can write.
    classes_by_generator = {name: classes for name, classes in DATASETS.items() if name != "composite"}
    if generator not in classes_by_generator:
        return {"unknown": "generator", "name": generator, "known": list(classes_by_generator)}
    _dataset_class, config_class = classes_by_generator[generator]
    parameters = {field.name for field in dataclasses.fields(cast("Any", config_class))} - {"seed", "size"}
    for name in config:
        if name not in parameters:
            return {"unknown": f"parameter of the generator {generator!r}", "name": name, "known": sorted(parameters)}
    return None


def make(generator: str, config: dict[str, Any], *, seed: int, limit: int) -> dict[str, Any]:
    """Return the first different problems of a generator as {"entries": …}.

    An error is returned as {"unknown": …} or {"wrong": …}.
    """
    unknown = _find_unknown(generator, config)
    if unknown is not None:
        return unknown
    size = max(_LEAST_ENTRIES, 2 * limit)
    try:
        dataset = reasoning_gym.create_dataset(generator, **config, seed=seed, size=size)
    except Exception as failure:  # noqa: BLE001 - the boundary: generators raise errors of their own
        return {"wrong": f"{type(failure).__name__}: {failure}"}
    entries: list[dict[str, Any]] = []
    for entry in itertools.islice(_different(dataset, size), limit):
        reference = json.dumps({"reasoning_gym": generator, "config": config, "entry": pack(entry)})
        entries.append({"question": entry["question"], "metadata": entry["metadata"], "reference": reference})
    return {"entries": entries}


def _different(dataset: Any, size: int) -> Iterator[dict[str, Any]]:
    """Yield the entries of a data set of `size` entries, without entries whose question came before."""
    questions: set[str] = set()
    for index in range(size):
        entry = None
        with contextlib.suppress(Exception):  # a generator may give up on one problem
            entry = dataset[index]
        if entry is not None and entry["question"] not in questions:
            questions.add(entry["question"])
            yield entry


def score(reference: str, answer: str) -> float:
    """Return the score that a generator's scorer gives an answer, from 0 to 1.

    An answer that the scorer cannot read has the score 0.

    Args:
        reference: The reference of the problem: its generator, configuration and entry as JSON; see `make`.
        answer: The answer.
    """
    record = json.loads(reference)
    configuration = json.dumps(record["config"])  # a text, since the arguments of `_scorer` are keys of its cache
    dataset = _scorer(record["reasoning_gym"], configuration)
    try:
        return float(dataset.score_answer(answer, unpack(record["entry"])))
    except Exception:  # noqa: BLE001 - the boundary: some scorers raise where an answer has not the form they expect
        return 0.0


@functools.lru_cache(maxsize=16)
def _scorer(generator: str, config: str) -> Any:
    """Return the data set of a generator, whose scorer judges answers."""
    parameters = json.loads(config)
    unknown = _find_unknown(generator, parameters)
    if unknown is not None:  # another person may have written the reference
        raise ValueError(f"{unknown['unknown']} {unknown['name']!r} is unknown")
    return reasoning_gym.create_dataset(generator, **parameters, seed=0, size=1)


def pack(item: Any) -> Any:
    """Return a value in a form that JSON can hold.

    The function `unpack` restores the value, with its tuples and the keys of its mappings.
    """
    if isinstance(item, tuple):
        return {_TUPLE: [pack(part) for part in cast("tuple[Any, ...]", item)]}
    if isinstance(item, list):
        return [pack(part) for part in cast("list[Any]", item)]
    if isinstance(item, Mapping):
        pairs = cast("Mapping[Any, Any]", item).items()
        if all(isinstance(key, str) for key, _part in pairs):
            return {key: pack(part) for key, part in pairs}
        return {_PAIRS: [[pack(key), pack(part)] for key, part in pairs]}
    return item


def unpack(item: Any) -> Any:
    """Return the value of a form that `pack` returned."""
    if isinstance(item, list):
        return [unpack(part) for part in cast("list[Any]", item)]
    if not isinstance(item, dict):
        return item
    parts = cast("dict[str, Any]", item)
    if parts.keys() == {_TUPLE}:
        return tuple(unpack(parts[_TUPLE]))
    if parts.keys() == {_PAIRS}:
        return {unpack(key): unpack(part) for key, part in parts[_PAIRS]}
    return {key: unpack(part) for key, part in parts.items()}


if __name__ == "__main__":
    serve(prepare)
