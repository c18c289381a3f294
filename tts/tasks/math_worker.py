"""The process that `tts.tasks.symbolic` asks: {"form": …} is answered with {"key": …}.

Run it with `python -m tts.tasks.math_worker`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tts.tasks.algebra.keys import key_of
from tts.tasks.worker import serve


def prepare() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that answers requests, after computing constants before the first time limit."""
    key_of(r"\sin(\pi+\ln(2)+x)")
    return lambda request: {"key": key_of(request["form"])}


if __name__ == "__main__":
    serve(prepare)
