"""A gateway in a thread of this process, whose keys are leases.

It listens on a free port that only this machine reaches.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from tts.backends.base import Backend
from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.budget.ledger import sum_usage
from tts.errors import EngineError
from tts.models.record import ModelRecord
from tts.randomness import child_stream
from tts.solver.model_cache import Model, ModelCache, resolve
from tts.types import Solution, Usage
from tts_addons.gateway import asking, catalog
from tts_addons.gateway.access import Client, Keys
from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import GatewayConfig, GatewayLimits, GatewayModel
from tts_addons.gateway.failures import ApiError
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.offers import Offers
from tts_addons.gateway.searches import Order, RunningSearch
from tts_addons.gateway.server import GatewayServer, bound_socket, uvicorn_config

_HOST: Final = "127.0.0.1"
_MOST_TOKENS: Final = 1 << 20  # of a call that names fewer, or none
_BEGIN_S: Final = 60.0  # until the server listens
_END_S: Final = 30.0  # until calls under way have ended
_NO_NAME = re.compile(r"[^\w./-]+")


class RowKey:
    """A key for one row, as `tts_addons.agents.leases.Loan` has it.

    Args:
        door: The gateway.
        name: The client's name.
        limits: What its calls may spend, in whole units.
        seed: What the draws of its calls follow from.
    """

    def __init__(self, door: ModelDoor, name: str, limits: Mapping[str, int], seed: int) -> None:
        self.url, self.model, self.key = door.url, door.model, secrets.token_urlsafe(24)
        self.calls = self._refused = 0
        self.is_cut = False
        self.stop: Callable[[], None] = lambda: None
        self._door, self._name, self._seed = door, name, seed
        self._account = Account(Budget(samples=_MOST_TOKENS)).reserve_part(limits, name=name)

    @property
    def is_used_up(self) -> bool:
        """Whether no token can be paid, or a call was refused or cut."""
        left = self._account.remainder()
        return self.is_cut or self._refused > 0 or any(left[unit] <= 0 for unit in left if unit != "requests")

    def pay(self, order: Order) -> tuple[Order, Account]:
        """Return the order of a call with its own seed, and the part of the lease that pays for the call.

        Raises:
            ApiError: 429, the lease is used up.
        """
        if self.is_used_up:
            raise self.refusal()
        request = order.request
        self.calls += 1
        if request.seed is None and request.options.seed is None:
            order = dataclasses.replace(order, seed=child_stream(self._seed, 0, self.calls))
        limits: dict[str, Any] = order.budget.limits
        return order, self._account.part(**limits)

    def refusal(self) -> ApiError:
        """Return the refusal of a call that the lease does not pay, and count it.

        A second refusal stops the agent.
        """
        self._refused += 1
        if self._refused > 1:
            self.stop()
        cause = (
            "the budget of this run is used up: what is left does not pay for this call of the model; end the run "
            "with what there is"
        )
        return ApiError(429, cause, kind="insufficient_quota", code="insufficient_quota")

    def end(self) -> Usage:
        """Revoke the key, end its calls, and return what they have spent."""
        self._door.take_back(self._name)
        held = self._account.reservation("generated_tokens")  # by calls that a model does not let go
        return sum_usage([self._account.ledger.total(), Usage(generated_tokens=held, estimated=held > 0)])


class LeaseGateway(Gateway):
    """A gateway whose clients are leases."""

    def __init__(self, config: GatewayConfig, offers: Offers) -> None:
        super().__init__(config, offers=offers)
        self.leases: dict[str, RowKey] = {}
        self._nobody = secrets.token_urlsafe(24)  # without any key, anyone would be served
        self.renew_keys()

    def renew_keys(self) -> None:
        """Make the keys of all leases valid, and no other key."""
        self.keys = Keys({"nobody": self._nobody, **{name: lease.key for name, lease in self.leases.items()}})

    def pay(self, client: Client, order: Order) -> tuple[Order, Account]:
        """Return the order of a call, and its part of the client's lease."""
        if (lease := self.leases.get(client.name)) is None:
            raise ApiError(
                401, "the key is of a run that has ended", kind="authentication_error", code="invalid_api_key"
            )
        return lease.pay(order)

    def failure_of(self, search: RunningSearch, solution: Solution) -> Exception | None:
        """Return the failure of a call; None: the call did not fail.

        A call also fails if what is left of the lease does not pay for the prompt and one token.
        """
        failure = super().failure_of(search, solution)
        lease = self.leases.get(search.client.name)
        if failure is not None or lease is None:
            return failure
        if not solution.candidates and solution.stopped_by.startswith("budget"):
            return lease.refusal()
        lease.is_cut = lease.is_cut or self._is_cut(search, solution)
        return None

    def _is_cut(self, search: RunningSearch, solution: Solution) -> bool:
        """Return whether the lease cut a text short, rather than `max_tokens` or the context of the model."""
        context = self.offers.backends(search.order.offer)["policy"].context
        max_tokens = search.order.sampling.max_tokens
        caps = [_MOST_TOKENS]
        if max_tokens is not None:
            caps.append(max_tokens)
        if context is not None:
            caps.append(context - solution.usage.prompt_tokens)
        return any(c.truncated and c.trajectory.num_tokens < min(caps) for c in solution.candidates)

    async def end_calls(self, client: str) -> None:
        """End the calls of a client, and return when they are booked."""
        under_way = [search for search in self.running.values() if search.client.name == client]
        for search in under_way:
            search.cancel(ApiError(499, "the run has ended", code="client_closed_request"))
        tasks = [search.task for search in under_way if search.task is not None]
        if tasks:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # lets their callbacks run, which book the calls


class ModelDoor:
    """Where the agents of a workspace call a model, each row by a key of its own.

    See `tts_addons.agents.leases.Door`. The server starts with the first lease.

    Args:
        model: A name, a record, a backend or a function.
        url: The server that runs the model; None: its own.

    Attributes:
        backend: The model.
        model: The name by which agents ask for it.
        url: The gateway.

    Raises:
        ConfigError: The model is unknown, or cannot be loaded.
    """

    def __init__(self, model: Model, url: str | None = None) -> None:
        cache, resolved = ModelCache(), resolve(model, None, url)
        record = resolved if isinstance(resolved, ModelRecord) else cache.give(resolved)
        self.backend: Backend = cache.backend(record)
        self.model = _NO_NAME.sub("-", record.name) or "model"
        limits = GatewayLimits(
            tokens=_MOST_TOKENS, body_bytes=1 << 30, messages=1 << 20, characters=1 << 30, image_bytes=1 << 26
        )
        settings = GatewayModel(model={"policy": record.name}, verifiers={}, strategy="single", budget=_MOST_TOKENS)
        self._config = GatewayConfig(
            models={self.model: settings}, verifiers=[], efforts={}, limits=limits, linger_s=0.0
        )
        self._offers = Offers(self._config, cache, {self.model: record})
        self._lock = threading.Lock()
        self._number = 0
        self._gateway: LeaseGateway | None = None
        self._server: GatewayServer | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.url = ""

    def lend(self, limits: Mapping[str, int], seed: int) -> RowKey:
        """Return a new key.

        Args:
            limits: The limits of all calls with the key, in whole units.
            seed: The seed from which the seeds of the calls follow.

        Raises:
            EngineError: The gateway cannot be started.
        """
        with self._lock:
            gateway = self._open()
            self._number += 1
            name = f"row-{self._number}"
            key = RowKey(self, name, limits, seed)
            gateway.leases[name] = key
            gateway.renew_keys()
        return key

    def take_back(self, name: str) -> None:
        """Revoke a key, and return when its calls have ended and are booked."""
        with self._lock:
            gateway = self._gateway
            if gateway is None or gateway.leases.pop(name, None) is None:
                return
            gateway.renew_keys()
        if self._loop is not None and self._loop.is_running():
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(gateway.end_calls(name), self._loop).result(_END_S)

    def close(self, *, waits: bool = True) -> None:
        """End all calls and the server, if it runs.

        Args:
            waits: Whether to wait for their end; it must be False in the thread of the library's event loop.
        """
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            if waits:
                self._thread.join(_END_S)

    def _open(self) -> LeaseGateway:
        """Return the gateway, as soon as it serves."""
        if self._gateway is not None:
            return self._gateway
        gateway = LeaseGateway(self._config, self._offers)
        listening = bound_socket(_HOST, 0)
        self.url = f"http://{_HOST}:{listening.getsockname()[1]}"
        app = create_app(self._config, gateway=gateway, routes=(*catalog.ROUTES, *asking.ROUTES))
        ready = threading.Event()
        self._server = GatewayServer(uvicorn_config(app))
        self._thread = threading.Thread(
            target=self._serve, args=(self._server, listening, ready), name="tts-leases", daemon=True
        )
        self._thread.start()
        ready.wait(_BEGIN_S)
        if not self._server.started:
            raise EngineError("the gateway of the agents' calls did not start")
        self._gateway = gateway
        return gateway

    def _serve(self, server: GatewayServer, listening: socket.socket, ready: threading.Event) -> None:
        """Serve in this thread until the server is told to end."""

        async def run() -> None:
            self._loop = asyncio.get_running_loop()
            server.when_ready = ready.set
            await server.serve([listening])

        try:
            with listening:
                asyncio.run(run())
        finally:
            ready.set()
