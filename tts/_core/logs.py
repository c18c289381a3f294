"""Loggers of the package.

Texts of others cannot forge a line of the loggers. Lines that repeat are counted instead of written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any

from tts._core.display import one_visible_line, visible

_INDENT = "\n    "  # of further lines, so that none begins like a record


class VisibleRecords(logging.Filter):
    """Escapes control characters in the arguments, the text and the traceback of each record of a logger."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite a record in place, and keep it."""
        record.msg = _lines(_text(record.msg))
        if isinstance(record.args, Mapping):
            record.args = {name: _argument(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(_argument(value) for value in record.args)
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = _lines(logging.Formatter().formatException(record.exc_info))
        return True


class RepeatLimit(logging.Filter):
    """Keeps the first records of equal text in each period.

    The first record of a later period states how many were dropped.

    Args:
        most: The number of equal records that a period may have.
        seconds: The length of a period.
        clock: The time in seconds.
    """

    def __init__(self, most: int = 10, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most, self._seconds, self._clock = most, seconds, clock
        self._counts: dict[str, int] = {}  # records of each text in this period
        self._dropped: dict[str, int] = {}  # records of each text that the last period dropped
        self._begun_at = clock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if self._clock() - self._begun_at >= self._seconds:
            self._dropped = {text: count - self._most for text, count in self._counts.items() if count > self._most}
            self._counts, self._begun_at = {}, self._clock()
        text = f"{record.name} {record.levelno} {record.getMessage()} {record.exc_text or ''}"
        self._counts[text] = self._counts.get(text, 0) + 1
        dropped = self._dropped.pop(text, 0)
        if dropped:
            record.msg, record.args = f"{record.getMessage()} (and {dropped:,} times more before)", ()
        return self._counts[text] <= self._most


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a name, whose records are made visible first (`VisibleRecords`)."""
    logger = logging.getLogger(name)
    if not any(isinstance(one, VisibleRecords) for one in logger.filters):
        logger.addFilter(VisibleRecords())
    return logger


def _argument(value: Any) -> Any:
    return value if value is None or isinstance(value, Number) else one_visible_line(_text(value))


def _lines(text: str) -> str:
    return _INDENT.join(visible(text).rstrip("\n").split("\n"))


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a record of a failure must not fail
        return f"a {type(value).__name__} without a text"
