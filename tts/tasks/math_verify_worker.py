r"""The process that `tts.tasks.math_verify` asks, by lines of JSON.

{"texts": [answer, reference]} is answered with {"verdict": …}, and {"texts": [text]} with {"found": …}, the expression
that Math-Verify finds in a text.

Run it with `python -m tts.tasks.math_verify_worker`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tts.tasks.worker import serve


def prepare() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that answers requests, after a first call, which builds the parser's tables."""
    library: Any = importlib.import_module("math_verify")

    def read(text: str) -> list[Any]:
        return library.parse(text, parsing_timeout=None)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        texts = request["texts"]
        try:
            if len(texts) == 1:
                expressions = read(texts[0])
                return {"found": str(expressions[-1]) if expressions else None}
            answer_values, reference_values = (read(rf"\boxed{{{text}}}") for text in texts)
            return {"verdict": bool(library.verify(reference_values, answer_values, timeout_seconds=None))}
        except Exception:  # noqa: BLE001 - an answer that it cannot read is wrong, as in its own function for metrics
            return {"verdict": False, "found": None}

    answer({"texts": [r"\frac{1}{2}", "0.5"]})
    return answer


if __name__ == "__main__":
    serve(prepare)
