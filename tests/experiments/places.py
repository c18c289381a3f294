"""Data sets that are named by their place, as an author's own module would have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tts
from tts.experiments.datasets import DataSet


def sums(limit: int = 4, first: int = 1) -> list[tts.Problem]:
    """Return sums of two numbers."""
    return [
        tts.Problem(
            f"{i} + {i}",
            answer=str(2 * i),
            id=f"sums/{i}",
            task="arithmetic",
            metadata={"size": "small" if i < 3 else "large"},
        )
        for i in range(first, first + limit)
    ]


def endless() -> Iterator[tts.Problem]:
    """Yield the same, one by one, whatever the limit."""
    yield from sums(9)


def needs_a_path(*, path: str) -> list[tts.Problem]:
    return [tts.Problem(path, id="one")]


def whatever(**options: Any) -> list[tts.Problem]:
    return sums(**options)


def raises() -> list[tts.Problem]:
    raise ValueError("no such file")


def raises_later() -> Iterator[tts.Problem]:
    yield from sums(1)
    raise ValueError("no such file")


def texts() -> list[str]:
    return ["1 + 1"]


def nothing() -> None:
    return None


def open_questions() -> list[tts.Problem]:
    """Return a problem that names no task."""
    return [tts.Problem("1 + 1", answer="2", id="one")]


def nameless() -> list[tts.Problem]:
    return [tts.Problem("1 + 1")]


SUMS = DataSet(load=sums, source="made here", licence="CC0", note="small ones")
NUMBER = 3


def plain() -> list[tts.Problem]:
    """Return problems without a task or an answer."""
    return [tts.Problem(f"Which is it, the {i}th?", id=f"plain/{i}") for i in range(3)]


def none() -> list[tts.Problem]:
    return []
