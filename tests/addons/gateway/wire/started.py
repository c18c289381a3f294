"""`tts serve` as users start it, with a configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.support.guard import LIMIT_S

ROOT = Path(__file__).parents[4]


class Server(NamedTuple):
    """A server that was started; `url` has no path, and `log` is the file of its standard error."""

    process: subprocess.Popen[str]
    url: str
    log: Path


@contextmanager
def server(folder: Path, config: dict[str, Any], *arguments: str) -> Iterator[Server]:
    """Start `tts serve`.

    Args:
        folder: Where its configuration and what it keeps of servers go.
        config: The configuration.
        arguments: Further arguments.
    """
    file, log = folder / "gateway.yaml", folder / "log"
    file.write_text(json.dumps(config))
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tts", "serve", "--port", "0", "--config", str(file), *arguments]
    with (
        log.open("a") as words,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True, env=environment) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready: "), log.read_text()
            yield Server(process, line.removeprefix("ready: ").strip().removesuffix("/v1"), log)
        finally:
            process.terminate()
            process.wait(LIMIT_S)


@contextmanager
def started(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """Start `tts serve` as `server` does; gives its url."""
    with server(folder, config) as found:
        yield found.url


@contextmanager
def clients(found: Server, count: int, headers: dict[str, str] | None = None) -> Iterator[dict[int, httpx.Client]]:
    """Connect a client to each worker of a server that has the model `process`; gives them by the number of the
    process.
    """
    body = {"model": "process", "messages": [{"role": "user", "content": "who?"}]}
    with ExitStack() as held:
        by_process: dict[int, httpx.Client] = {}
        while len(by_process) < count:
            client = held.enter_context(httpx.Client(base_url=f"{found.url}/v1/", headers=headers, timeout=LIMIT_S))
            by_process.setdefault(int(client.post("chat/completions", json=body).json()["tts"]["answer"]), client)
        yield by_process
