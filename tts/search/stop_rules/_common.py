"""What stop rules share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tts.types import Candidate


def votes_of(candidates: Sequence[Candidate]) -> Counter[int]:
    return Counter(c.answer_class for c in candidates if c.answer_class is not None)
