"""Serves on this machine alone, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.support.guard import LIMIT_S


@contextmanager
def serving(server: Any, *, certificate: tuple[str, str] | None = None) -> Iterator[str]:
    """Serve on this machine alone, in a thread with a loop of its own; gives the url."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # handshakes that clients break off

    async def start() -> asyncio.Server:
        return await asyncio.start_server(server.connected, "127.0.0.1", 0, ssl=context, backlog=2048)

    async def stop(listening: asyncio.Server) -> None:
        listening.close()
        idle, tasks = 0, set[asyncio.Task[Any]]()
        for _ in range(200):  # connections that were just taken end by themselves, for their clients have gone
            tasks = asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
            idle = 0 if tasks else idle + 1
            if idle == 4:  # between being taken and being served one has no task for a turn
                break
            await asyncio.sleep(0.002)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    listening = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        port = listening.sockets[0].getsockname()[1]
        yield f"{'https' if context else 'http'}://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(stop(listening), loop).result(LIMIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        # of a connection that was taken in the last turn, whose end Python 3.13.0 does not expect behind its server's
        with warnings.catch_warnings(), mock.patch.object(sys, "unraisablehook", return_value=None):
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
