"""Reads rows of LiveCodeBench and APPS as problems.

The answer of such a problem is tests of programs in JSON (`tts_addons.code.json_tests`).

LiveCodeBench's rows have `public_test_cases` and `private_test_cases`: JSON, or base64 of zlib of a pickle of JSON.
Nothing is unpickled: only the single text that a pickle may hold is read (`text_of_pickle`). Rows of APPS and TACO have
`input_output`.

Source: LiveCodeBench (lcb_runner/benchmarks/code_generation.py) and the card of APPS, for the names and forms of
fields.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tts.errors import quote
from tts.experiments.datasets.rows import BadRow, Fields
from tts.experiments.datasets.unpacking import largest_row
from tts.types import Problem

_CASES: Final = ("public_test_cases", "private_test_cases")
_IN_AND_OUT: Final = "input_output"
_TEXTS: Final = ("question_content", "question", "problem", "prompt", "description")
_IDS: Final = ("question_id", "problem_id", "task_id", "id")
# fields that become metadata
_KEPT: Final = ("question_title", "platform", "contest_id", "contest_date", "difficulty", "url", "source")
_PICKLED_TEXTS: Final = frozenset({"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"})
_PICKLE_FRAME: Final = frozenset({"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"})
_BLOCK: Final = "Put it into one block that begins with ```python."
_BY_INPUT: Final = f"Write a program in Python that reads from standard input and writes to standard output. {_BLOCK}"
_BY_CALL: Final = f"Write {{what}} in Python. {_BLOCK}"


def read_tested_row(row: Mapping[str, Any], fields: Fields) -> Problem:
    """Return the problem of a row with tests of programs, which are the answer, including private tests.

    Args:
        row: The row, by field.
        fields: The meaning of fields, which may name the fields of the problem and its id.

    Raises:
        BadRow: a field is missing or has another form.
    """
    names_by_meaning = fields.named
    fields.meet(row)
    text_names = (names_by_meaning["problem"],) if "problem" in names_by_meaning else _TEXTS
    texts = [row[name] for name in text_names if isinstance(row.get(name), str) and row[name].strip()]
    if not texts:
        raise BadRow(f"it has tests, but none of the fields {', '.join(text_names)} with a text")
    tests = list(_tests(row))
    if not tests:
        raise BadRow("its tests are empty")
    starter = row.get("starter_code") or ""
    prompt_parts = [texts[0].strip()]
    if isinstance(starter, str) and starter.strip():
        prompt_parts.append(f"```python\n{starter.rstrip()}\n```")
    function = tests[0].get("function")
    if function is None:
        prompt_parts.append(_BY_INPUT)
    elif starter:
        prompt_parts.append(_BY_CALL.format(what="the code that begins as shown"))
    else:
        prompt_parts.append(_BY_CALL.format(what=f"the function {function}"))
    id_names = (names_by_meaning["id"],) if "id" in names_by_meaning else _IDS
    ids = [str(row[name]).strip() for name in id_names if isinstance(row.get(name), str | int)]
    ids = [problem_id for problem_id in ids if problem_id]
    return Problem(
        prompt="\n\n".join(prompt_parts),
        answer=json.dumps(tests, ensure_ascii=False),
        id=ids[0] if ids else None,
        task=fields.task,
        metadata={name: row[name] for name in _KEPT if row.get(name) is not None},
    )


def _tests(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tests of a row, in the form of `tts_addons.code.json_tests`."""
    if row.get(_IN_AND_OUT):
        yield from _pair(_IN_AND_OUT, _json(row, _IN_AND_OUT))
        return
    metadata = _json(row, "metadata") if row.get("metadata") else {}
    function = metadata.get("func_name") if isinstance(metadata, dict) else None
    for field in _CASES:
        cases: Any = _json(row, field) if row.get(field) else []
        if not isinstance(cases, list):
            raise BadRow(f"its {field} is {quote(cases)}, but must be a list of tests")
        for case in cases:
            has_texts = isinstance(case, dict) and all(isinstance(case.get(name), str) for name in ("input", "output"))
            if not has_texts:
                raise BadRow(f"its {field} has {quote(case)}, but a test must have the texts input and output")
            is_call = case["testtype"] == "functional" if "testtype" in case else function is not None
            yield _call(field, function, case) if is_call else _pipe(case["input"], case["output"])


def _pipe(stdin: str, stdout: str) -> dict[str, Any]:
    """Return a test of standard input, compared as in the benchmark: by lines, with exact numbers."""
    return {"stdin": stdin, "stdout": stdout, "compare": "lines", "tolerance": 0}


def _call(field: str, name: Any, case: Mapping[str, str]) -> dict[str, Any]:
    """Return a test of a call, whose arguments are lines of JSON."""
    if not (isinstance(name, str) and name.isidentifier()):
        raise BadRow(f"its {field} call a function, but its metadata has func_name {quote(name)}")
    try:
        arguments = [json.loads(line) for line in case["input"].split("\n")]
        returns = json.loads(case["output"])
    except (ValueError, RecursionError) as failure:
        raise BadRow(f"its {field} has {quote(case)}, but arguments and result must be JSON: {failure}") from None
    return {"function": name, "arguments": arguments, "returns": returns}


def _pair(field: str, value: Any) -> Iterator[dict[str, Any]]:
    """Yield the tests of lists of inputs and outputs. With `fn_name`, the tests are calls.

    Args:
        field: The field of the lists, for messages.
        value: The value of the field, which must have the keys `inputs` and `outputs`.
    """
    pair = value if isinstance(value, dict) else {}
    inputs, outputs = pair.get("inputs"), pair.get("outputs")
    if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)):
        raise BadRow(f"its {field} is {quote(value)}, but must have as many inputs as outputs")
    function = pair.get("fn_name")
    for input_, output in zip(inputs, outputs, strict=True):
        if function is None:
            yield _pipe(_lines(field, input_), _lines(field, output))
            continue
        if not (isinstance(function, str) and function.isidentifier() and isinstance(input_, list)):
            raise BadRow(
                f"its {field} calls {quote(function)} with {quote(input_)}, but must name a function and list its "
                "arguments"
            )
        is_wrapped = isinstance(output, list) and len(output) == 1  # most results are wrapped in a list
        yield {"function": function, "arguments": input_, "returns": output[0] if is_wrapped else output}


def _lines(field: str, value: Any) -> str:
    """Return a text unchanged, or the joined lines of a list."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise BadRow(
            f"its {field} has {quote(value)} for standard input or output, but must have a text or a list of lines"
        )
    return value


def _json(row: Mapping[str, Any], field: str) -> Any:
    """Return the value of the JSON in a field, which may be packed.

    Raises:
        BadRow: the field has no JSON.
    """
    value = row[field]
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text_of_pickle(_unpack(field, base64.b64decode(value, validate=True))))
    except (ValueError, RecursionError, zlib.error, binascii.Error) as failure:
        raise BadRow(
            f"its {field} is {quote(value)}, but must be JSON, or base64 of zlib of a pickle of JSON: {failure}"
        ) from None


def _unpack(field: str, packed: bytes) -> bytes:
    """Return the content of bytes packed by zlib, of one row at most.

    Raises:
        BadRow: the content is larger than one row.
        ValueError: the bytes are cut.
    """
    reader = zlib.decompressobj()
    content = reader.decompress(packed, largest_row())
    if reader.unconsumed_tail:
        raise BadRow(f"its {field} has more than {largest_row() >> 20:,} MiB, the most that one row may have")
    if not reader.eof or reader.unused_data:
        raise ValueError("it ends in the middle")
    return content


def text_of_pickle(data: bytes) -> str:
    """Return the text of a pickle that holds a single text.

    Nothing is unpickled: the codes of the pickle are read, but not carried out.

    Args:
        data: The pickle.

    Raises:
        ValueError: the pickle holds anything else.
    """
    texts: list[str] = []
    end = 0
    for code, argument, position in pickletools.genops(data):
        if code.name in _PICKLED_TEXTS:
            texts.append(str(argument))
        elif code.name not in _PICKLE_FRAME:
            raise ValueError(f"its pickle has the code {code.name}, but may hold one text alone")
        end = (position or 0) + 1
    if len(texts) != 1 or end != len(data):
        raise ValueError(
            f"its pickle holds {len(texts)} texts in {end} of {len(data)} bytes, but may hold one text alone"
        )
    return texts[0]
