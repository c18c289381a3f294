"""What all backends share: rows that are resolved once, refusals of what is missing, metadata, and a process that was
forked.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tts.backends import batching
from tts.backends.base import (
    Backend,
    Caps,
    Counters,
    Row,
    RowSet,
    Sample,
    SampleRequest,
    Sampling,
    StopCondition,
    TaskRows,
)
from tts.backends.batching import LoopQueue
from tts.backends.capabilities import require, value_head_metadata
from tts.backends.function import FunctionBackend
from tts.backends.metadata import BackendMetadata, capability_hint, metadata_of
from tts.backends.reads import wait_for_change
from tts.errors import CapabilityError, ConfigError, EngineError

REQUEST = SampleRequest(None, (Row(1, 0, 9), Row(2, 0, 9)), Sampling(), StopCondition())


def sample(text: str = "a", tokens: int = 3) -> Sample:
    return Sample(text, (), (), "eos", None, tokens)


def test_a_row_is_resolved_once() -> None:
    rows = RowSet(REQUEST)
    rows.resolve(1, sample())
    with pytest.raises(AssertionError, match="row 1 was resolved twice"):
        rows.resolve(1, sample())


def test_a_row_that_ends_before_the_wait_has_begun_is_noticed() -> None:
    async def main() -> None:
        rows, others = RowSet(REQUEST), RowSet(REQUEST)
        waiting = asyncio.create_task(wait_for_change([others, rows]))
        await asyncio.sleep(0)  # the wait is asked for, and nothing that it schedules has run
        rows.resolve(0, sample())
        for _ in range(10):
            await asyncio.sleep(0)
        assert waiting.done()

    asyncio.run(main())


def test_rows_of_tasks_end_with_them_and_count_what_was_settled_in_time() -> None:
    async def main() -> None:
        counters = Counters()
        rows = TaskRows(REQUEST, counters)
        task = asyncio.create_task(asyncio.Event().wait())
        rows.tasks.add(task)
        rows.settle(0, sample())
        rows.settle(0, sample(tokens=5))
        assert [rows.waits(0), rows.waits(1), counters.generated_tokens] == [False, True, 3]
        rows.fail(EngineError("the end"))
        rows.settle(1, sample())
        assert [rows.waits(1), counters.generated_tokens] == [False, 3]
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())


def test_a_task_that_cancels_its_own_rows_goes_on() -> None:
    async def main() -> None:
        rows = TaskRows(REQUEST, Counters())
        rows.tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        rows.cancel()
        await asyncio.sleep(0)
        assert rows.cancelled

    asyncio.run(main())


class Half(Backend):
    caps = Caps(score="native")


def test_what_a_backend_leaves_out_is_refused_with_what_to_define() -> None:
    backend = Half()
    with pytest.raises(CapabilityError, match=r"Half.*implement") as refused:
        backend.sample(REQUEST)
    assert refused.value.hint == "define Half.sample"
    for call, cause, hint in (
        (
            backend.score([], []),
            "Half does not implement score, but its caps say score='native'",
            "or leave score out of its caps",
        ),
        (backend.prompt_logprobs([]), "Half has no capability 'prompt_logprobs'", "backends that have it: "),
    ):
        with pytest.raises(CapabilityError, match=cause) as refused:
            asyncio.run(call)
        assert hint in refused.value.hint


def test_metadata_of_another_type_is_refused() -> None:
    backend: Any = Half()
    backend.metadata = {"thoughts": None}
    with pytest.raises(ConfigError, match=r"Half.*{'thoughts':.*BackendMetadata"):
        metadata_of(backend)
    assert metadata_of(object()) == BackendMetadata()


def test_a_model_without_marks_of_thoughts_is_told_how_a_record_states_them() -> None:
    with pytest.raises(CapabilityError) as refused:
        require(Half(), ("thoughts",), "a test")
    assert refused.value.hint == capability_hint("half", BackendMetadata(), "thoughts")
    assert "thought=('<think>', '</think>')" in refused.value.hint


def test_a_backend_that_lists_no_value_heads_may_have_any() -> None:
    assert value_head_metadata(FunctionBackend(lambda _: "7"), "any", "a test") is None


def test_a_queue_is_of_no_use_in_a_process_that_was_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        queue = LoopQueue(lambda *_: None, lambda *_: None)
        monkeypatch.setattr(batching.os, "getpid", lambda: -7)
        with pytest.raises(EngineError, match=r"-7,.*forked") as refused:
            queue.submit("a job")
        assert "name the model instead" in refused.value.hint

    asyncio.run(main())
