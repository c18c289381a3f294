"""The process that `tts.tasks.symbolic` asks: JSON lines in, JSON lines out, and an end when its input ends.

It may hang or be killed at any time; nothing here tries to survive. Run it with `python -m tts.tasks.math_worker`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from typing import Any, cast

from math_verify import LatexExtractionConfig, parse, verify

if sys.platform != "win32":
    import resource

MEMORY_BYTES = 2 * 1024**3


def main() -> None:
    """Answer {"a": …, "b": …, "limit_s": …} with {"equal": …}, a line each, behind a first line {"ready": true}."""
    _limit_memory()
    # What a parser prints must not reach the pipe.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    equal_or_not("x+1", "1+x")  # builds the parser's tables, outside the limit of the first pair
    reply({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _alarm(math.ceil(request["limit_s"]) + 5)
        reply({"equal": equal_or_not(request["a"], request["b"])})
        _alarm(0)


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


def _limit_memory() -> None:
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _alarm(seconds: int) -> None:
    """Let the kernel end this process some seconds from now, should nobody be left to kill it; 0: no longer."""
    if sys.platform != "win32":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)


if __name__ == "__main__":
    main()
