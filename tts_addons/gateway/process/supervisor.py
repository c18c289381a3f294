"""Several processes at one address.

The processes are started, replaced, told to read the keys again, and ended together.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Any

from tts.errors import TTSError
from tts_addons.gateway.config import GatewayConfig
from tts_addons.gateway.gateway import LOG
from tts_addons.gateway.process.hangup import call_at_hangup
from tts_addons.gateway.spending.books import SharedBooks

_ENDS_S = 30  # for a worker, after which it is killed


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker.

    Args:
        name: Its name in the store.
        process: The process.
        ready: The event that is set as soon as its models are loaded.
    """

    name: str
    process: BaseProcess
    ready: Event


def supervise(
    config: GatewayConfig, host: str, listening: socket.socket, shown: str, workers: int, work: Callable[..., None]
) -> None:
    """Serve in several processes, and end them all when this one is to end.

    A process that ends by itself after it was ready is replaced.

    Args:
        config: The configuration.
        host: The address.
        listening: The socket that listens there.
        shown: The url that the first worker prints.
        workers: The number of processes.
        work: The function of a worker. It is called with the configuration, address, socket, url, worker's name and
            `ready` event.

    Raises:
        TTSError: A worker ended before it was ready.
    """
    context = multiprocessing.get_context("spawn")
    signals: list[int] = []  # those that have come

    def note_signal(number: int, _frame: object) -> None:
        signals.append(number)

    previous_handlers = {number: signal.signal(number, note_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    running: list[WorkerProcess] = []
    has_hangup = config.keys is not None and sys.platform != "win32"

    def start(url: str) -> WorkerProcess:
        ready, name = context.Event(), secrets.token_hex(8)
        process = context.Process(target=work, args=(config, host, listening, url, name, ready))
        with _block_hangup() if has_hangup else nullcontext():
            process.start()
        return WorkerProcess(name, process, ready)

    def hang_up() -> None:
        for worker in running:
            if worker.process.is_alive() and worker.process.pid is not None:
                os.kill(worker.process.pid, signal.SIGHUP)

    try:
        with call_at_hangup(hang_up) if has_hangup else nullcontext():
            running.append(start(shown))
            for _ in range(workers - 1):
                running.append(start(""))
            while not signals:
                wait([worker.process.sentinel for worker in running], timeout=0.5)
                if not signals:
                    _replace_dead(config, running, start)
    finally:
        _end([worker.process for worker in running])
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _replace_dead(config: GatewayConfig, running: list[WorkerProcess], start: Callable[[str], WorkerProcess]) -> None:
    """Start another worker in place of each that has ended by itself.

    Raises:
        TTSError: A worker ended before it was ready.
    """
    for place, worker in enumerate(running):
        if worker.process.is_alive():
            continue
        if not worker.ready.is_set():
            raise TTSError(
                "a worker of the gateway ended before it was ready, so all were ended", hint="its last words are above"
            )
        code = worker.process.exitcode
        LOG.error("a worker ended by itself (exit code %s), and its searches with it; another takes its place", code)
        _bury(config, worker)
        running[place] = start("")


def _bury(config: GatewayConfig, worker: WorkerProcess) -> None:
    """Book the amounts that a dead worker held as spent; other workers would do so only after a while."""
    with closing(SharedBooks(time.time, config.store)) as books:
        books.bury(worker.name)


@contextmanager
def _block_hangup() -> Generator[None]:
    """Mask SIGHUP for the block.

    A process that is started in the block inherits the mask, and removes it when it can answer.
    """
    assert sys.platform != "win32"
    previous_mask: Any = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _end(processes: Sequence[BaseProcess]) -> None:
    """End processes, by force if they take too long."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        if process.pid is not None:
            process.join(_ENDS_S)
            if process.is_alive():
                process.kill()
