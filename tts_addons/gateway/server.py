"""The gateway as a process, or several: uvicorn, and what ends with it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import multiprocessing
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.synchronize import Event
from typing import Any

import uvicorn
from starlette.applications import Starlette

from tts._core.logs import RepeatLimit, get_logger
from tts.errors import ConfigError
from tts_addons.gateway.access import ACCESS_LOG
from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import GatewayConfig
from tts_addons.gateway.connections import Connections, raise_open_files
from tts_addons.gateway.gateway import LOG, Gateway
from tts_addons.gateway.process.hangup import keys_read_at_hangup
from tts_addons.gateway.process.supervisor import supervise
from tts_addons.gateway.process.watchdog import EXIT_S, ORDERLY_S, watch_process
from tts_addons.gateway.protocol import BoundedHttp

_GRACE_S = 10  # for replies to be read by their clients
_DRAIN_S = 4  # for searches to end


class GatewayServer(uvicorn.Server):
    """Accepts connections within bounds, and at the end first ends the searches.

    So each client gets a clear error.

    Attributes:
        expect_end: A function that gets the seconds in which the process will have ended, when the end begins.
        when_ready: A function that is called as soon as connections are accepted.
    """

    expect_end: Callable[[int], None] = staticmethod(lambda _: None)
    when_ready: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: Any = None) -> None:
        """See `uvicorn.Server.startup`; connections are accepted by `Connections` in place of asyncio.

        Asyncio spins without a free file.
        """
        await super().startup(sockets=[])
        gateway: Gateway = self.config.app.state.gateway  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
        listening = sockets or [bound_socket("127.0.0.1", self.config.port)]

        def make() -> BoundedHttp:
            return BoundedHttp(self.config, self.server_state, self.lifespan.state)

        self.servers = [Connections(listening, make, gateway.config.limits, raise_open_files())]  # pyright: ignore[reportAttributeAccessIssue]
        self.when_ready()

    async def shutdown(self, sockets: Any = None) -> None:
        """See `uvicorn.Server.shutdown`."""
        self.expect_end(ORDERLY_S)
        gateway: Gateway = self.config.app.state.gateway  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
        try:
            await asyncio.wait_for(gateway.drain(), _DRAIN_S)
        except TimeoutError:
            LOG.error(
                "searches did not end within %g seconds of the signal: a model or another part blocks them", _DRAIN_S
            )
            self.force_exit = True
            self.expect_end(EXIT_S)
        await asyncio.sleep(0)  # replies are written by tasks that wait for the searches
        await super().shutdown(sockets)


def serve(config: GatewayConfig, host: str, port: int, workers: int = 1) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        config: The configuration of the gateway.
        host: The host at which it listens.
        port: The port at which it listens.
        workers: The number of processes that share the address. Each has its own models, queue, limits and searches. A
            process that ends by itself is replaced; its searches are lost.

    Raises:
        ConfigError: other machines can reach the address, and there are no keys; several workers have no store to
            share; a model cannot be loaded, or the address cannot be used.
        TTSError: a worker ended before it was ready.
    """
    if config.keys is None and not _is_local(host):
        raise ConfigError(
            f"host is {host!r}, which other machines can reach, but there are no keys",
            hint="name a file of keys in the configuration",
        )
    if workers < 1 or (workers > 1 and config.store is None):
        cause = "1 at least" if workers < 1 else "1 where there is no store: a trace is asked of any of them"
        raise ConfigError(
            f"workers is {workers}, but must be {cause}", hint="name a file as the store in the configuration"
        )
    listening = bound_socket(host, port)
    address, number, *_ = listening.getsockname()
    shown_host = f"[{address}]" if ":" in address else address
    shown = f"http://{shown_host}:{number}/v1"
    with listening:
        if workers == 1:
            _work(config, host, listening, shown)
        else:
            _write_log(config)
            supervise(config, host, listening, shown, workers, _work)


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Its protocol is named, since asyncio sets TCP_NODELAY on connections of such sockets alone.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # clients that come before the first worker is ready wait
    except (OSError, OverflowError) as failure:
        listening.close()
        raise ConfigError(
            f"the gateway cannot listen at {host}, port {port}: {failure}", hint="choose another with --port"
        ) from None
    return listening


def _work(
    config: GatewayConfig, host: str, listening: socket.socket, shown: str, worker: str = "", ready: Event | None = None
) -> None:
    """Load the models, then serve in this process.

    Args:
        config: The configuration.
        host: The address.
        listening: The socket that listens there.
        shown: The url that is printed as soon as the models are loaded; "": none.
        worker: The name of this process among the workers; "": it is the only one.
        ready: The event that is set as soon as the models are loaded.
    """
    _write_log(config)
    gateway = Gateway(config, worker=worker or None)
    with keys_read_at_hangup(gateway) if config.keys is not None else nullcontext():
        app = create_app(config, hosts=[host], gateway=gateway)
        gateway.offers.load()
        settings = uvicorn_config(app)
        if shown:
            sys.stdout.write(f"ready: {shown}\npage: {shown.removesuffix('v1')}\n")
            sys.stdout.flush()
        if ready is not None:
            ready.set()
        server = GatewayServer(settings)
        supervisor = multiprocessing.parent_process() if worker else None
        with watch_process(None if supervisor is None else supervisor.sentinel) as server.expect_end:
            server.run([listening])


def uvicorn_config(app: Starlette, port: int = 0) -> uvicorn.Config:
    """Return how uvicorn serves a gateway's application."""
    return uvicorn.Config(
        app,
        port=port,
        http=BoundedHttp,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        lifespan="on",
    )


def _write_log(config: GatewayConfig) -> None:
    """Write errors to standard error where logging is not configured.

    Replies to clients refer to the log.

    Write the access log too, if the configuration says so.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    handler.addFilter(RepeatLimit())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("tts", "uvicorn", "asyncio"):
        logger = get_logger(name)
        if all(
            isinstance(present, logging.NullHandler) for present in (*logger.handlers, *logging.getLogger().handlers)
        ):
            logger.addHandler(handler)
    get_logger("uvicorn.error")  # the one that uvicorn writes to
    if config.access_log:
        lines = logging.StreamHandler()
        lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        ACCESS_LOG.handlers, ACCESS_LOG.propagate = [lines], False  # not a second time by the handler of `--log info`
        ACCESS_LOG.setLevel(logging.INFO)


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
