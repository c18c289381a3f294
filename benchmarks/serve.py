"""What the gateway costs: processor time a request beside `asolve`, on the toy, in one run.

    python -m benchmarks.serve [--requests 400] [--rounds 7] [--connections 64] [--smoke]

Two processes solve the same problems with the same seeds, in turn. One calls `tts.asolve`, with as many calls at once as there are
connections. The other is the gateway, which keeps traces in memory as it does by default; its clients are in a third process.
Milliseconds are processor time of the whole process, a request; each row is the median of the rounds, with the least and the greatest.
What a request costs beyond `asolve` is the median of the rounds' differences.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.smoke import Smoke

PLAN, BUDGET = "best_of_n(n=8) | majority", 2000
KINDS = ("asolve", "gateway", "gateway, streamed")


def question(number: int) -> str:
    return f"{number % 9 + 1} + {number % 7} - {number % 5}"


# In the process that is measured --------------------------------------------------------------------------------------------------


def child(kind: str) -> None:
    """Answer each line on standard input with one on standard output: of "time" the processor seconds so far."""
    if kind == "gateway":
        _serve()
    for line in sys.stdin:
        if line.strip() != "time":
            first, count, at_once = map(int, line.split())
            asyncio.run(_solve(first, count, at_once))
        print(time.process_time(), flush=True)


async def _solve(first: int, count: int, at_once: int) -> None:
    import tts

    numbers = iter(range(first, first + count))

    async def worker() -> None:
        for number in numbers:
            await tts.asolve(question(number), BUDGET, model="toy", strategy=PLAN, seed=number)

    await asyncio.gather(*(worker() for _ in range(at_once)))


def _serve() -> None:
    from tts.serve.app import create_app
    from tts.serve.config import gateway_config
    from tts.serve.server import GatewayServer, uvicorn_config

    app = create_app(gateway_config({"models": {"toy": {"strategy": PLAN, "budget": BUDGET}}}))
    server = GatewayServer(uvicorn_config(app))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)


# In the process that asks ---------------------------------------------------------------------------------------------------------


@contextmanager
def started(kind: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.serve", "--child", kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def told(process: subprocess.Popen[str], line: str) -> float:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return float(_line(process))


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


async def ask(port: int, first: int, count: int, at_once: int, *, stream: bool) -> None:
    numbers = iter(range(first, first + count))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            await _one(reader, writer, number, stream=stream)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(at_once)))


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, *, stream: bool) -> None:
    fields: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": question(number)}], "seed": number, "stream": stream}
    body = json.dumps(fields).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert " 200 " in headers.partition("\r\n")[0], headers
    if "content-length: " in headers:
        await reader.readexactly(int(headers.partition("content-length: ")[2].partition("\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


def measure(requests: int, rounds: int, connections: int) -> dict[str, list[float]]:
    """Return the processor milliseconds a request of each round, by kind; a first round is not counted."""
    rows: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with started("asolve") as solver, started("gateway") as gateway:
        port = int(_line(gateway))
        for number in range(rounds + 1):
            first = number * requests
            before = told(solver, "time")
            rows["asolve"].append(told(solver, f"{first} {requests} {connections}") - before)
            for kind in KINDS[1:]:
                before = told(gateway, "time")
                asyncio.run(ask(port, first, requests, connections, stream=kind != "gateway"))
                rows[kind].append(told(gateway, "time") - before)
    return {kind: [1000 * seconds / requests for seconds in values[1:]] for kind, values in rows.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--child", choices=("asolve", "gateway"), help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action=Smoke, sizes={"requests": 8, "rounds": 2, "connections": 4})
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    rows = measure(options.requests, options.rounds, options.connections)
    print("| | processor ms a request | beyond `asolve`, ms | ratio |")
    print("|---|---|---|---|")
    for kind, values in rows.items():
        beyond = [value - base for value, base in zip(values, rows["asolve"], strict=True)]
        ratio = [value / base for value, base in zip(values, rows["asolve"], strict=True)]
        print(f"| {kind} | {spread(values)} | {spread(beyond)} | {spread(ratio)} |")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


if __name__ == "__main__":
    main()
