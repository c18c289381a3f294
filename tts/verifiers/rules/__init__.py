"""Rules that check an answer from the problem alone.

verifier.py     the verifier, and the order in which rules are looked for
arithmetic.py   countdowns, expressions and stories
equations.py    an equation in one unknown, by substitution
examples.py     programs, by the examples in their prompt
schema.py       JSON, by the schema in its prompt
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.verifiers.rules.verifier import Rules as Rules

__getattr__, __dir__, __all__ = lazy_exports(__name__)
