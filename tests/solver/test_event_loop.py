"""The loop's thread: it answers every caller, whatever is called in it, wherever it is called from."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from tests.support.guard import LIMIT_S, program, run_at_once
from tts.errors import ConfigError, EngineError
from tts.solver.event_loop import Interrupted, LoopThread


@pytest.fixture(scope="module")
def loop() -> LoopThread:
    return LoopThread()


async def three() -> int:
    await asyncio.sleep(0)
    return 3


async def leave() -> None:
    sys.exit("left")


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def test_what_a_coroutine_returns_or_raises_reaches_the_caller(loop):
    async def fail():
        raise ValueError("no")

    assert run_at_once(lambda: loop.run(three())) == [3]
    (failure,) = run_at_once(lambda: loop.run(fail()))
    assert isinstance(failure, ValueError)


def test_all_callers_share_one_thread_that_is_none_of_theirs(loop):
    async def here():
        return threading.get_ident()

    threads = run_at_once(*[lambda: loop.run(here())] * 4)
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_it_works_inside_a_running_loop(loop):
    async def main():
        return loop.run(three()), await loop.wait(three())

    assert run_at_once(lambda: asyncio.run(main())) == [(3, 3)]


def test_waiting_for_the_loop_in_its_own_thread_is_refused_with_the_cure(loop):
    async def nested():
        with pytest.raises(ConfigError, match=r"own thread.*await tts\.asolve"):
            loop.run(three())
        return await loop.wait(three())

    assert run_at_once(lambda: loop.run(nested())) == [3]


def test_who_is_cancelled_cancels_what_it_waits_for(loop):
    ended = threading.Event()
    begun = threading.Event()

    async def held():
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    async def main():
        waiting = asyncio.create_task(loop.wait(held()))
        await asyncio.to_thread(begun.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert run_at_once(lambda: asyncio.run(main())) == [None]
    assert ended.wait(LIMIT_S)


def test_who_is_cancelled_before_anything_began_leaves_nothing_behind(loop):
    async def main():
        waiting = asyncio.create_task(loop.wait(forever()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert run_at_once(lambda: asyncio.run(main()), lambda: loop.run(three())) == [None, 3]


def test_an_exit_in_a_call_is_its_caller_s(loop):
    (failure,) = run_at_once(lambda: loop.run(leave()))
    assert isinstance(failure, SystemExit)
    assert run_at_once(lambda: loop.run(three())) == [3]


async def exit_in_a_task() -> None:
    task = asyncio.create_task(leave())
    task.add_done_callback(lambda done: done.exception())
    await forever()


async def exit_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit)
    await forever()


@pytest.mark.parametrize("call", [exit_in_a_task, exit_in_a_callback])
def test_an_exit_that_belongs_to_no_call_ends_all_of_them_and_later_ones_are_served(loop, call):
    begun = threading.Event()

    async def other():
        begun.set()
        await forever()

    def leaving():
        begun.wait()
        loop.run(call())

    ends = run_at_once(lambda: loop.run(other()), leaving)
    for end in ends:
        assert isinstance(end, EngineError)
        assert isinstance(end.__cause__, SystemExit)
        assert "never call sys.exit" in end.hint
    assert run_at_once(lambda: loop.run(three())) == [3]


def test_a_thread_that_has_ended_is_replaced():
    loop = LoopThread()
    assert run_at_once(lambda: loop.run(three())) == [3]
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    loop._thread = ended
    assert run_at_once(lambda: loop.run(three())) == [3]


@pytest.mark.slow
def test_functions_in_threads_may_wait_for_functions_in_threads_however_deep(loop):
    def deep(left: int) -> int:
        return 0 if left == 0 else 1 + loop.run(asyncio.to_thread(deep, left - 1))

    assert run_at_once(*[lambda: deep(50)] * 3) == [50, 50, 50]


def test_few_functions_work_at_once(loop):
    lock, working, most = threading.Lock(), [0], [0]
    turn = threading.Barrier(2)

    def work() -> None:
        with lock:
            working[0] += 1
            most[0] = max(most[0], working[0])
        turn.wait()  # two at a time, or nobody would go on
        with lock:
            working[0] -= 1

    async def many():
        await asyncio.gather(*(asyncio.to_thread(work) for _ in range(200)))

    assert run_at_once(lambda: loop.run(many())) == [None]
    assert 2 <= most[0] <= 32


INTERRUPT = """
import asyncio, os, signal, sys
from tts.solver.event_loop import Interrupted, LoopThread

async def search(raises):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        if raises:
            raise ValueError("no result")
        return "so far"

loop = LoopThread()
for raises in (False, True):
    try:
        loop.run(search(raises))
    except Interrupted as end:
        print(end.partial)
print(loop.run(asyncio.sleep(0, "and on")))
"""


def test_ctrl_c_brings_what_the_cancelled_coroutine_returned():
    end = program(INTERRUPT)
    assert (end.stdout.split("\n"), end.stderr, end.returncode) == (["so far", "None", "and on", ""], "", 0)


def test_ctrl_c_before_a_coroutine_began_waits_for_nothing(monkeypatch):
    loop = LoopThread()
    with monkeypatch.context() as patch:

        def interrupted(*_):
            raise KeyboardInterrupt

        patch.setattr(loop, "_submit", interrupted)
        (end,) = run_at_once(lambda: loop.run(three()))
    assert isinstance(end, Interrupted)
    assert end.partial is None
    assert run_at_once(lambda: loop.run(three())) == [3]


FORK = """
import asyncio, os, signal, threading
from tts.solver.event_loop import LoopThread

loop, begun = LoopThread(), threading.Event()

async def held():
    begun.set()
    await asyncio.get_running_loop().create_future()

threading.Thread(target=lambda: loop.run(held()), daemon=True).start()
begun.wait()
child = os.fork()
signal.alarm(60)  # nobody else would end a child that hangs
said = loop.run(asyncio.sleep(0, 3))
if child:
    print("child's exit code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("child" if child == 0 else "parent", said)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_has_a_loop_of_its_own():
    end = program(FORK)
    assert end.stdout.splitlines() == ["child 3", "child's exit code 0", "parent 3"]
    assert (end.stderr, end.returncode) == ("", 0)
