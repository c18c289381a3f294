"""One node of a recorded search, and how records become plain values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Any

from tts.types import Prompt


def unstored_field(default: Any) -> Any:
    """Return a field of a record that files do not have, and that takes no part in equality."""
    return dataclasses.field(default=default, compare=False, repr=False, metadata={"stored": False})


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of the tree.

    Args:
        node: The number of the node.
        parent: The number of its parent; None for a root.
        kind: The kind of the root's prompt.
        model: The role of the model that wrote the node.
        text: Its own text (a root's: the prompt).
        tokens: The number of its own tokens.
        status: "active", "finished", "truncated", "failed".
        stream: Its stream, as 16 hexadecimal digits.
        pruned: Whether `keep` dropped it.
        scratch: Whether it was written for a lookahead only.
        scores: The scores by verifier role: one a step, or a single score of the whole.
        answer: The extracted answer of a candidate.
        candidate: Its place among the candidates; None for none.
        weight: Its weight in the selection; None for none.
        thought: The number of first characters of its text that are of a thought, marks included.
        outcomes: The outcome of each test that the verifier ran, by its role (`StepScores.tests`).
        notes: What a verifier said of the node in words, by role, such as which tests fail (`StepScores.note`).
        prompt: What the model read, of a root; None of other nodes, and where the trace was read from a file.
        token_ids: Its own tokens, of a root those of its prompt; empty where they are not known. Files do not have
            them, nor the log-probabilities.
        logprobs: One a token, natural, at temperature 1; empty where the model did not write the tokens, or does not
            say.
        sampling_logprobs: One a token, natural, under the law that drew it; empty where nobody asked for them.
        thought_tokens: The number of first tokens that `thought` spans, as far as tokens are known.
    """

    node: int
    parent: int | None
    kind: str
    model: str
    text: str
    tokens: int
    status: str
    stream: str
    pruned: bool = False
    scratch: bool = False
    scores: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict[str, tuple[float, ...]])
    answer: str | None = None
    candidate: int | None = None
    weight: float | None = None
    thought: int = 0
    outcomes: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict[str, tuple[float, ...]])
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    prompt: Prompt | None = unstored_field(None)  # noqa: RUF009 - a field
    token_ids: tuple[int, ...] = unstored_field(())
    logprobs: tuple[float, ...] = unstored_field(())
    sampling_logprobs: tuple[float, ...] = unstored_field(())
    thought_tokens: int = unstored_field(0)


def plain_values(value: Any) -> Any:
    """Return a value with its dataclasses, mappings and sequences as dicts and lists.

    Numbers that JSON lacks (NaN, infinities) become None.
    """
    kind = type(value)
    if kind in (str, int, bool, NoneType):  # first for speed, since most values are of these types
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if not dataclasses.is_dataclass(kind):
        return value
    return {name: plain_values(getattr(value, name)) for name in _stored_fields(kind)}


@cache
def _stored_fields(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind) if f.metadata.get("stored", True))
