"""What the command line's texts mean: a problem, a budget."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tts.budget.budget import Budget, amount_hint, check_units
from tts.errors import ConfigError
from tts.tasks.conversation import conversation, read_examples, read_messages
from tts.types import Prompt

_FILE_NAME = re.compile(r"\S+\.(?:txt|md|tex|json|jsonl)")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_FORM = "write a number of tokens, or limits by unit: tokens=2000,seconds=30"


def read_problem(given: str) -> str:
    """Return the problem's text: from standard input, from a file, or as given.

    "-" names standard input. "@FILE" and the path of an existing file name a file.

    Line ends at the end of a file are no part of the problem.

    Raises:
        ConfigError: the file cannot be read, or the text is not UTF-8.
    """
    if given == "-":
        return _decode(sys.stdin.buffer.read(), "the standard input")
    if given.startswith("@"):
        return _file(given[1:])
    try:
        is_file = Path(given).is_file()
    except (OSError, ValueError):  # too long for a path, or not a path at all
        is_file = False
    if not is_file and _FILE_NAME.fullmatch(given):
        raise ConfigError(
            f"the problem is {given!r}, which looks like a file's name, but there is no such file",
            hint="give the path of a file, or more of a problem",
        )
    if is_file:
        return _file(given)
    return _decode(given.encode("utf-8", "surrogateescape"), "the problem")


def read_prompt(
    problem: str | None,
    *,
    system: str | None = None,
    messages: str | None = None,
    few_shot: str | None = None,
    template: str | None = None,
) -> Prompt:
    """Return the prompt of `tts solve`; see `tts.tasks.conversation`.

    Args:
        problem: The problem, as `read_problem` takes it; None: the messages end with the problem.
        system: The system message, or "@FILE".
        messages: The file of earlier messages; None: there are none.
        few_shot: The file of examples; None: there are none.
        template: The text around the problem, or "@FILE".

    Raises:
        ConfigError: a file cannot be read, the parts do not fit, or there is no problem.
    """
    if problem is None and messages is None:
        raise ConfigError(
            "there is no problem", hint="give its text, a file of it, - for standard input, or --messages FILE"
        )
    return conversation(
        None if problem is None else read_problem(problem),
        system=_text(system),
        messages=() if messages is None else read_messages(messages),
        examples=() if few_shot is None else read_examples(few_shot),
        template=_text(template),
    )


def _text(given: str | None) -> str | None:
    if given is not None and given.startswith("@"):
        return _file(given[1:])
    return given


def _file(path: str) -> str:
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else str(failure)
        raise ConfigError(
            f"the problem file is {path!r}, but it cannot be read: {reason}",
            hint="give the path of a text file, or the problem itself without the @",
        ) from None
    return _decode(content, f"the problem file {path!r}")


def _decode(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as failure:
        raise ConfigError(
            f"{source} is not UTF-8 text: byte 0x{content[failure.start]:02x} at position {failure.start}",
            hint="convert it to UTF-8",
        ) from None


def parse_budget(*texts: str) -> Budget:
    """Return the budget of all limits in texts such as "2000" (tokens) or "tokens=2000,seconds=30".

    Raises:
        ConfigError: a text is malformed, a unit is unknown (the nearest are named) or given twice, or a limit is not
            valid.
    """
    limits: dict[str, float] = {}
    for text in texts:
        if _GROUPED.fullmatch(text.strip()):
            cure = f"write {text.replace(',', '')}"
            raise ConfigError(f"the budget is {text!r}, but a comma separates units", hint=cure)
    text = ",".join(texts)
    for part in text.split(","):
        unit, equals, value = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            unit = "tokens"
        check_units([unit])
        if unit in limits:
            raise ConfigError(f"the budget is {text!r}, but gives {unit} twice", hint="give each unit once")
        limits[unit] = _number(value, text)
    return Budget(**limits)  # pyright: ignore[reportArgumentType]


def _number(value: str, text: str) -> float:
    for number_type in (int, float):
        try:
            return number_type(value)
        except ValueError:
            continue
    raise ConfigError(f"the budget is {text!r}, but {value!r} is no number", hint=amount_hint(value) or _FORM)
