"""What the gateway costs beside `asolve`, in processor time and in latency, on the toy, in one run.

    python -m benchmarks.serve [--requests 400] [--rounds 7] [--connections 1 8 32] [--store FILE] [--before FOLDER]
    [--smoke]

Two processes solve the same problems with the same seeds, in turn. One calls `tts.asolve`, with as many calls at once
as there are connections. The other is `tts serve`, started as users start it; it keeps traces in memory as it does by
default, and its clients are in a third process. Milliseconds of processor time are those of the whole process, a
request. Latency is from the call, or the first byte that is sent, to the last byte of the reply; connections that are
not kept alive are opened within it. Each cell is the median of the rounds, with the least and the greatest. What a
request costs beyond `asolve` is the median of the rounds' differences. The row "model list" is a request without a
search: the latency of HTTP alone. `--store` keeps searches and accounts in a file, as several workers need it.
`--before` names a checkout of another version, whose `asolve` and chat are measured in turn with the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.smoke import Smoke

PLAN, BUDGET = "best_of_n(n=8) | majority", 2000
CONFIG = {"models": {"toy": {"strategy": PLAN, "budget": BUDGET}}}  # as YAML, of which JSON is a part


@dataclass(frozen=True)
class Kind:
    """A way to ask.

    Args:
        name: The name of the row.
        path: The path of the endpoint; "": `asolve`.
        body: The body of the request with a number; None: a GET.
        is_before: Whether the other version is asked.
    """

    name: str
    path: str = ""
    body: Callable[[int], dict[str, Any]] | None = None
    is_before: bool = False


def question(number: int) -> str:
    return f"{number % 9 + 1} + {number % 7} - {number % 5}"


def chat(number: int, *, stream: bool) -> dict[str, Any]:
    return {
        "model": "toy",
        "messages": [{"role": "user", "content": question(number)}],
        "seed": number,
        "stream": stream,
    }


def responses(number: int, *, stream: bool) -> dict[str, Any]:
    return {"model": "toy", "input": question(number), "tts": {"seed": number}, "stream": stream, "store": False}


def message(number: int, *, stream: bool) -> dict[str, Any]:
    asked = [{"role": "user", "content": question(number)}]
    return {"model": "toy", "messages": asked, "max_tokens": BUDGET, "tts": {"seed": number}, "stream": stream}


KINDS = (
    Kind("asolve"),
    Kind("model list", "/v1/models"),
    Kind("chat", "/v1/chat/completions", lambda number: chat(number, stream=False)),
    Kind("chat, streamed", "/v1/chat/completions", lambda number: chat(number, stream=True)),
    Kind("Responses", "/v1/responses", lambda number: responses(number, stream=False)),
    Kind("Responses, streamed", "/v1/responses", lambda number: responses(number, stream=True)),
    Kind("Messages", "/v1/messages", lambda number: message(number, stream=False)),
    Kind("Messages, streamed", "/v1/messages", lambda number: message(number, stream=True)),
)
BEFORE = (
    Kind("asolve, before", is_before=True),
    Kind("chat, before", "/v1/chat/completions", lambda number: chat(number, stream=False), is_before=True),
    Kind("chat, streamed, before", "/v1/chat/completions", lambda number: chat(number, stream=True), is_before=True),
)


@dataclass(frozen=True)
class Measured:
    """One round.

    Args:
        processor_ms: The processor time of the measured process, a request.
        latencies_ms: The latency of each request.
    """

    processor_ms: float
    latencies_ms: list[float]

    def latency_ms(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# In the process that calls `asolve` -----------------------------------------------------------------------------------


def child() -> None:
    """Answer each line on standard input with the latencies of its calls in seconds, as one line of JSON."""
    for line in sys.stdin:
        first, count, at_once = map(int, line.split())
        print(json.dumps(asyncio.run(_solve(first, count, at_once))), flush=True)


async def _solve(first: int, count: int, at_once: int) -> list[float]:
    import tts

    async def one(number: int) -> None:
        await tts.asolve(question(number), BUDGET, model="toy", strategy=PLAN, seed=number)

    return await time_workers(first, count, [one] * at_once)


async def time_workers(first: int, count: int, workers: list[Callable[[int], Awaitable[None]]]) -> list[float]:
    """Give the numbers to the workers, each one at a time, and return how long each took, in seconds."""
    numbers, seconds = iter(range(first, first + count)), list[float]()

    async def work(one: Callable[[int], Awaitable[None]]) -> None:
        for number in numbers:
            begun = time.perf_counter()
            await one(number)
            seconds.append(time.perf_counter() - begun)

    await asyncio.gather(*map(work, workers))
    return seconds


# In the process that asks ---------------------------------------------------------------------------------------------


@contextmanager
def start_module(*command: str, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a module of Python.

    Args:
        command: The module and its arguments.
        folder: The checkout of the module; None: this one.
    """
    environment = {**os.environ, **({} if folder is None else {"PYTHONPATH": str(folder)})}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def processor_s(process: subprocess.Popen[str]) -> float:
    """Return the processor time of a process so far, all threads included, from the system's books."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Connection:
    """A connection to the gateway.

    Args:
        port: The port of the gateway.
        kind: The kind of requests.
        kept: Whether the connection serves more than one request.
    """

    def __init__(self, port: int, kind: Kind, *, kept: bool) -> None:
        self._port, self._kind, self._kept = port, kind, kept
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, number: int) -> None:
        """Send a request, and read its whole reply."""
        reader, writer = self._open or await asyncio.open_connection("127.0.0.1", self._port)
        kind = self._kind
        body = b"" if kind.body is None else json.dumps(kind.body(number)).encode()
        head = f"{'GET' if kind.body is None else 'POST'} {kind.path} HTTP/1.1\r\nhost: localhost\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        head += "" if self._kept else "connection: close\r\n"
        writer.write(f"{head}\r\n".encode() + body)
        await _read_reply(reader)
        self._open = (reader, writer) if self._kept else None
        if not self._kept:
            writer.close()

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()


async def _read_reply(reader: asyncio.StreamReader) -> None:
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert " 200 " in headers.partition("\r\n")[0], headers
    if "content-length: " in headers:
        await reader.readexactly(int(headers.partition("content-length: ")[2].partition("\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


async def ask(port: int, kind: Kind, first: int, count: int, at_once: int, *, kept: bool) -> list[float]:
    connections = [Connection(port, kind, kept=kept) for _ in range(at_once)]
    seconds = await time_workers(first, count, [one.ask for one in connections])
    for one in connections:
        one.close()
    return seconds


@contextmanager
def version(config: Path, folder: Path | None) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str], int]]:
    """Start the two processes of a version; gives that which solves, the gateway and its port."""
    with (
        start_module("benchmarks.serve", "--child", folder=folder) as solver,
        start_module("tts", "serve", "--port", "0", "--config", str(config), folder=folder) as gateway,
    ):
        port = int(next_line(gateway).rpartition(":")[2].partition("/")[0])
        next_line(gateway)
        yield solver, gateway, port


def measure(
    requests: int, rounds: int, at_once: int, *, kept: bool, store: Path | None = None, before: Path | None = None
) -> dict[Kind, list[Measured]]:
    """Return the rounds of each kind; a first round is not counted."""
    kinds = (*KINDS, *(BEFORE if before is not None else ()))
    rows: dict[Kind, list[Measured]] = {kind: [] for kind in kinds}
    with ExitStack() as held:
        file = Path(held.enter_context(TemporaryDirectory())) / "gateway.yaml"
        file.write_text(json.dumps(CONFIG | ({} if store is None else {"store": str(store.absolute())})))
        versions = {False: held.enter_context(version(file, None))}
        if before is not None:
            old = file.with_name("before.yaml")
            old.write_text(json.dumps(CONFIG))
            versions[True] = held.enter_context(version(old, before.absolute()))
        for number in range(rounds + 1):
            first = number * requests
            for kind in kinds:
                solver, gateway, port = versions[kind.is_before]
                process = gateway if kind.path else solver
                spent_before = processor_s(process)
                if kind.path:
                    seconds = asyncio.run(ask(port, kind, first, requests, at_once, kept=kept))
                else:
                    assert solver.stdin is not None
                    solver.stdin.write(f"{first} {requests} {at_once}\n")
                    solver.stdin.flush()
                    seconds = json.loads(next_line(solver))
                spent = processor_s(process) - spent_before
                rows[kind].append(Measured(1000 * spent / requests, [1000 * one for one in seconds]))
    return {kind: values[1:] for kind, values in rows.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument(
        "--store", type=Path, help="the file in which the gateway keeps searches and accounts; else in memory"
    )
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="a checkout of another version")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action=Smoke, sizes={"requests": 8, "rounds": 2, "connections": [1, 4]})
    options = parser.parse_args()
    if options.child:
        child()
        return
    print(
        "| connections | | processor ms a request | beyond `asolve`, ms | latency p50, ms | p95, ms | p50 beyond "
        "`asolve`, ms |"
    )
    print("|---|---|---|---|---|---|---|")
    for at_once in options.connections:
        for kept in (True, False):
            rows = measure(
                options.requests, options.rounds, at_once, kept=kept, store=options.store, before=options.before
            )
            for kind, values in rows.items():
                base = rows[BEFORE[0] if kind.is_before else KINDS[0]]
                print(
                    f"| {at_once}, {'kept' if kept else 'new'} | {kind.name} | {' | '.join(cells(values, base))} |",
                    flush=True,
                )


def cells(values: list[Measured], base: list[Measured]) -> list[str]:
    """Return the cells of a row.

    Args:
        values: The rounds of the row.
        base: The rounds of its version's `asolve`.
    """
    pairs = list(zip(values, base, strict=True))
    return [
        spread([one.processor_ms for one in values]),
        spread([one.processor_ms - other.processor_ms for one, other in pairs]),
        spread([one.latency_ms(0.5) for one in values]),
        spread([one.latency_ms(0.95) for one in values]),
        spread([one.latency_ms(0.5) - other.latency_ms(0.5) for one, other in pairs]),
    ]


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


if __name__ == "__main__":
    main()
