"""Plain functions in threads of their own: what they return and raise comes back, and a forked process has a new thread
for torch.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from tts._core import threads

SET: ContextVar[str] = ContextVar("SET", default="")


def here(text: str, *, twice: bool = False) -> tuple[str, str, threading.Thread]:
    return text * (1 + twice), SET.get(), threading.current_thread()


def leaves() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("forked", [False, True])
def test_what_uses_torch_runs_in_a_new_thread_of_a_forked_process_alone(
    forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = threading.Event()
    monkeypatch.setattr(threads, "_FORKED", event)
    if forked:
        event.set()
    token = SET.set("the caller's")
    try:
        text, seen, thread = threads.run_after_fork(here, "a", twice=True)
    finally:
        SET.reset(token)
    assert (text, seen) == ("aa", "the caller's")
    assert (thread is threading.current_thread()) is not forked
    with pytest.raises(SystemExit):
        threads.run_after_fork(leaves)


def test_a_function_has_a_thread_that_the_interpreter_does_not_wait_for() -> None:
    async def main() -> None:
        SET.set("the caller's")
        text, seen, thread = await threads.run_in_thread(here, "a")
        assert (text, seen) == ("a", "the caller's")
        assert thread.daemon
        assert thread is not threading.current_thread()
        with pytest.raises(SystemExit):
            await threads.run_in_thread(leaves)

    asyncio.run(main())


def test_nobody_need_wait_for_a_function() -> None:
    let_go = threading.Event()

    async def main() -> None:
        task = asyncio.create_task(threads.run_in_thread(let_go.wait, 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        let_go.set()

    asyncio.run(main())
