"""What a test reads of a pool."""

from __future__ import annotations

from typing import Any

import tts


def answers(pool: tts.Pool, problem: int = 0) -> list[str | None]:
    return [one.answer for one in pool.problems[problem].drawn]


def right(pool: tts.Pool, problem: int = 0) -> list[bool | None]:
    return [one.right for one in pool.problems[problem].drawn]


def judged(pool: tts.Pool, problem: int = 0) -> list[tuple[str | None, bool | None, bool | None]]:
    """Return the answer of each sample, with the verdict that counts and that of the source."""
    return [(one.answer, one.right, one.given) for one in pool.problems[problem].drawn]


def accuracy(pool: tts.Pool | tts.Study, strategy: str = "random choice", size: int = 1, **options: Any) -> float:
    ((curve,)) = pool.replay([strategy], [size], **options)
    return curve.curve.accuracy[0].value
