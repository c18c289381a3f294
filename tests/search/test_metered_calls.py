"""The models that a verifier calls: nothing is asked beyond the time or the bound, and what a part computes counts for
the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tts.backends.base import Reply, Sampling
from tts.backends.function import FunctionBackend
from tts.budget.account import Exhausted
from tts.errors import BudgetExceeded
from tts.search.calls import MeteredCalls
from tts.tasks import get
from tts.verifiers.toy import ToyVerifier


def made(
    granted: int = 10**6, seconds_left: Callable[[], float | None] = lambda: None
) -> tuple[MeteredCalls, FunctionBackend]:
    backend = FunctionBackend(lambda ask: "Yes")
    return MeteredCalls(backend, get("arithmetic"), granted, None, 7, seconds_left=seconds_left), backend  # type: ignore[arg-type]


def test_nothing_is_asked_when_the_time_is_over() -> None:
    calls, backend = made(seconds_left=lambda: 0.0)
    with pytest.raises(Exhausted, match="seconds"):
        asyncio.run(calls.generate(["Is 3 + 4 = 7?"], max_tokens=5, sampling=Sampling()))
    with pytest.raises(Exhausted, match="seconds"):
        asyncio.run(calls.choices(["Is 3 + 4 = 7?"], ("Yes", "No")))
    assert backend.counters.prompt_tokens == 0


def test_a_reply_beyond_the_bound_is_not_begun() -> None:
    calls, backend = made(granted=20)
    with pytest.raises(BudgetExceeded, match=r"asks.*20"):
        asyncio.run(calls.generate(["Is 3 + 4 = 7?"], max_tokens=20, sampling=Sampling()))
    assert (calls.computed, backend.counters.prompt_tokens) == (0, 0)


def test_what_a_part_cannot_read_fails_in_and_estimates_is_the_whole_s_too() -> None:
    whole, _ = made()
    part = whole.part(ToyVerifier()).part(ToyVerifier())
    part.note_unread("steps", 1, 3)
    part.note_failures("Timeout: no reply", 2)
    part.charge([Reply(None, 5)], estimated=True)
    for calls in (part, whole):
        assert calls.notes.unknown == {("steps", "of"): 3, ("steps", "number"): 1}
        assert (calls.notes.failures, calls.notes.causes) == ({"Timeout": 2}, {"Timeout": "no reply"})
        assert (calls.computed, calls.estimated) == (5, True)
