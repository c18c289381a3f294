"""Models that are functions, for tests of what the toy cannot write."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import Any

from tts.backends.function import Answer, Ask, FunctionBackend

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>'
SAME = 'I look it up. <tool_call>{"arguments": {"days": 2.0, "city": "Oslo"}, "name": "weather"}</tool_call>'
OTHER = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
WRONG = '<tool_call>{"name": "weather", "arguments": {"town": "Oslo"}}</tool_call>'
ASKED: list[Ask] = []


def _nth(ask: Ask, *texts: str) -> Answer:
    """Give the texts in turn."""
    ASKED.append(ask)
    return Answer(texts[(len(ASKED) - 1) % len(texts)], tokens=10)


def calls(ask: Ask) -> Answer:
    """Two of four calls are equal as values, one is another, one is not valid."""
    return _nth(ask, WRONG, OTHER, CALL, SAME)


def mixed(ask: Ask) -> Answer:
    """Three different texts and two equal calls in five."""
    return _nth(ask, CALL, "It is sunny.", SAME, "It rains.", "It snows.")


def scattered(ask: Ask) -> Answer:
    """Two equal texts and three different calls in five."""
    return _nth(ask, "It rains.", CALL, OTHER, "It rains.", OTHER.replace("Rome", "Bern"))


def proposals(ask: Ask) -> Answer:
    """Give one of several answers by the row's seed: calls, texts, objects, a stop text, a thought."""
    ASKED.append(ask)
    found = (
        CALL,
        SAME,
        CALL,
        OTHER,
        WRONG,
        '{"city": "Oslo"}',
        '{"city": "Oslo"} ',
        "It is sunny.\nQuestion: where?",
        "It is sunny.",
        "Rain. A: 5",
    )
    text = found[ask.seed % len(found)]
    text = f"<think>\nhm\n</think>\n\n{text}" if ask.seed % 3 == 0 else text
    return Answer(text, tokens=10) if ask.max_tokens >= 10 else Answer(text[:12], tokens=ask.max_tokens, finished=False)


def texts(ask: Ask) -> Answer:
    """Write no call."""
    return _nth(ask, "It is sunny.")


def thoughts(ask: Ask) -> Answer:
    """Think before the answer."""
    return _nth(ask, "<think>\nhm\n</think>\n\nIt is sunny.")


def objects(ask: Ask) -> Answer:
    """Two of four are equal as values, one is no JSON, one does not fit."""
    return _nth(
        ask,
        "no idea",
        '{"city": 3}',
        'It is {"city": "Oslo", "size": 1}',
        '```json\n{"size": 1.0, "city": "Oslo"}\n```',
    )


def towns(ask: Ask) -> Answer:
    """Three of four have one city, and two have one size."""
    sizes = {"Oslo": (1, 2, 3), "Rome": (3,)}
    return _nth(ask, *(f'{{"city": "{city}", "size": {size}}}' for city in sizes for size in sizes[city]))


def lists(ask: Ask) -> Answer:
    """Three of four are JSON, but no object."""
    return _nth(ask, "[1, 2]", "3", "[1, 2]", '{"city": "Oslo"}')


def stopped(ask: Ask) -> Answer:
    """Go on behind a stop text."""
    return _nth(ask, "Paris\nQuestion: what else?")


async def forever(ask: Ask) -> Answer:
    """Never answer."""
    ASKED.append(ask)
    await asyncio.Event().wait()
    raise AssertionError


def process(ask: Ask) -> Answer:
    """Answer with the number of the process."""
    return Answer(f"A: {os.getpid()}", tokens=4)


def nodelay(ask: Ask) -> Answer:
    """Answer with the values of TCP_NODELAY of all connections that this process has accepted."""
    values: set[bool] = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a descriptor of the listing itself is gone at once
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    one.getpeername()
                    values.add(bool(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        except OSError:  # it listens, or is closed
            continue
    return Answer(f"A: {sorted(values)}", tokens=4)


async def endless(ask: Ask) -> Answer:
    """Never give the library's event loop back."""
    sys.stderr.write("endless\n")
    sys.stderr.flush()
    while True:
        pass


def held(ask: Ask) -> Answer:
    """Keep the interpreter from every thread, as C code may, for ever."""
    sys.stderr.write("held\n")
    sys.stderr.flush()
    re.match("^(a+)+$", "a" * 60 + "!")
    raise AssertionError


async def noted(ask: Ask) -> Answer:
    """Write the number of the process into the file that the prompt names, and never answer."""
    assert not isinstance(ask.prompt, str)
    Path(ask.prompt[-1].content).write_text(str(os.getpid()))
    return await forever(ask)


def fails(ask: Ask) -> Answer:
    """Fail, with a path in the message."""
    raise OSError("no such file: /secret/path")


GATE = threading.Event()


async def gated(ask: Ask) -> Answer:
    """Answer as soon as `GATE` is set."""
    await asyncio.to_thread(GATE.wait)
    return _nth(ask, "A: 5", "A: 6")


async def once(ask: Ask) -> Answer:
    """Answer the first call at once, and others as soon as `GATE` is set."""
    if ASKED:
        await asyncio.to_thread(GATE.wait)
    return _nth(ask, "A: 5", "A: 6")


CROWD = 256
TOGETHER = asyncio.Event()


async def crowd(ask: Ask) -> Answer:
    """Answer as soon as `CROWD` calls are under way."""
    ASKED.append(ask)
    if len(ASKED) >= CROWD:
        TOGETHER.set()
    await TOGETHER.wait()
    return Answer("A: 5", tokens=10)


class CrowdBackend(FunctionBackend):
    """`crowd` as a backend that takes so many calls at once."""

    @classmethod
    def from_record(cls, record: Any) -> CrowdBackend:
        return cls(crowd, concurrency=CROWD)


class EndsAtOnce(FunctionBackend):
    """Ends the process that loads it."""

    @classmethod
    def from_record(cls, record: Any) -> EndsAtOnce:
        os._exit(3)


MARKUP = (
    '</script><script>document.body.dataset.pwned = 1</script><img src=x onerror="document.body.dataset.pwned = '
    "2\"> & <b>'bold'</b>"
)


def markup(ask: Ask) -> Answer:
    """Answer with markup that would run."""
    return _nth(ask, f"A: {MARKUP}")
