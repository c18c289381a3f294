"""The process that `tts.tasks.symbolic` asks: {"a": …, "b": …} is answered with {"equal": …}.

Run it with `python -m tts.tasks.math_worker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from math_verify import LatexExtractionConfig, parse, verify

from tts.tasks.worker import serve


def prepare() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what answers; the parser's tables are built before, outside the limit of the first pair."""
    equal_or_not("x+1", "1+x")
    return lambda request: {"equal": equal_or_not(request["a"], request["b"])}


def equal_or_not(a: str, b: str) -> bool:
    """Whether math-verify holds two LaTeX answers for equal in one order or the other.

    Only LaTeX is parsed: the plain-expression parser would evaluate a model's text as Python, and would settle for any number within it.
    """
    left, right = _parsed(a), _parsed(b)
    if not left or not right:
        return False
    # No time limits of its own, here and in parsing: they need SIGALRM, and whoever asks kills this process.
    return verify(left, right, timeout_seconds=None) or verify(right, left, timeout_seconds=None)


def _parsed(text: str) -> list[Any]:
    arguments: dict[str, Any] = {"fallback_mode": "no_fallback", "parsing_timeout": None}
    return cast("list[Any]", parse(f"${text}$", [LatexExtractionConfig()], **arguments))


if __name__ == "__main__":
    serve(prepare)
