"""What all requests of a gateway share: models, limits, searches under way, and the books."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, TypeVar

from tts._core.logs import get_logger
from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.budget.units import format_plain
from tts.errors import ConfigError, EngineError, TTSError, quote
from tts.models.record import ModelRecord
from tts.search.strategies.samples.single import Single
from tts.solver import telemetry
from tts.solver.model_cache import LOOP, ModelCache
from tts.solver.run import solve_problem
from tts.trace.trace import Trace
from tts.types import Solution
from tts_addons.gateway.access import Client, read_keys
from tts_addons.gateway.admission import Admission
from tts_addons.gateway.archive import Archive
from tts_addons.gateway.bodies import LARGE, ByteShares
from tts_addons.gateway.config import GatewayConfig, merge_limits
from tts_addons.gateway.failures import ApiError, server_refusal
from tts_addons.gateway.metrics import Metrics
from tts_addons.gateway.offers import Offers
from tts_addons.gateway.risk.chains import CalibratedChains, prepare_run, with_earlier
from tts_addons.gateway.searches import Job, Order, RunningSearch
from tts_addons.gateway.spending.accounts import Accounts, SharedAccount, amounts_of, part_spending
from tts_addons.gateway.spending.books import DEAD_S, LOOK_S, Part, RequestEntry, SharedBooks

LOG = get_logger("tts.serve")
T = TypeVar("T")
_BYTES_A_TOKEN = 64  # of a large body, for the limits of its key
_THREADS = 2  # threads for tokenizers
_QUESTION = 2000  # characters of a question that other workers show
_WRITTEN_S = 0.02  # between two looks at what another worker writes
_SHOW_S = 1.0  # between two signs of life


class Gateway:
    """The state behind the endpoints, in one event loop.

    Args:
        config: The configuration of the gateway.
        clock: The clock, in seconds, never backwards.
        now: The clock, in seconds since the epoch.
        seeds: A function that draws the seed of a request without one.
        names: A function that draws the number of a search.
        calibrates: Whether presets are to be calibrated, so that their risks are left aside.
        worker: The name of this process among those that share the store; None: it is drawn.
        offers: The models; None: the models of the configuration.

    Raises:
        ConfigError: a model is unknown, the keys cannot be read, or an account is for no key.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        seeds: Callable[[], int] = lambda: secrets.randbelow(2**31),
        names: Callable[[], str] = lambda: secrets.token_urlsafe(18),
        worker: str | None = None,
        calibrates: bool = False,
        offers: Offers | None = None,
    ) -> None:
        self.config, self.now, self.seeds = config, now, seeds
        self._names = names
        self.offers = Offers(config, ModelCache(), {}) if offers is None else offers
        self.cache = self.offers.cache
        self.chains = None if calibrates else CalibratedChains(self.offers, self.cache)
        self.keys = read_keys(config.keys, config.operators)
        self.accounts = Accounts(config, self.keys.names)
        self.admission = Admission(config.limits, clock)
        # whose body is read next: of small ones in the loop, and of large ones in a thread
        one_at_once = config.limits.model_copy(update={"searches": 1})
        self.lanes = Admission(one_at_once, clock), Admission(one_at_once, clock)
        self.shares = ByteShares()
        self.running: dict[str, RunningSearch] = {}
        self.metrics = Metrics()
        self.archive = Archive(config.store, config.kept, config.kept_bytes)
        try:
            self.books = SharedBooks(now, config.store, worker)
        except BaseException:
            self.archive.close()
            raise
        self._loop: asyncio.AbstractEventLoop | None = None  # as soon as it serves
        self._life: asyncio.Task[None] | None = None
        self._shown_at = now()  # the time of the last sign of life
        self._writing: set[asyncio.Future[None]] = set()  # finished searches on their way to the archive
        # searches under way with an idempotency key, and the hash of the body, by the owner and key
        self._by_key: dict[tuple[str, str], tuple[bytes, RunningSearch]] = {}
        self._closing = False
        self._calls: set[asyncio.Task[Any]] = set()  # calls of a model without a search
        self.aside = Admission(config.limits.model_copy(update={"searches": _THREADS}), clock)

    async def open(self) -> None:
        """Load all models.

        Raises:
            ConfigError: a model cannot be loaded. MissingDependency: telemetry is configured, but OpenTelemetry is not
                installed.
        """
        if self.config.telemetry:
            telemetry.enable()
        await asyncio.to_thread(self.offers.load)
        self._loop, self._life = asyncio.get_running_loop(), asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        """Show other workers, until cancelled, that this one lives, and end the searches that they ask to end."""
        while True:
            await asyncio.sleep(LOOK_S if self.running and self.books.is_shared else _SHOW_S)
            try:
                numbers = self.books.to_end() if self.running else ()
                for number in numbers:
                    search = self.running.get(number)
                    if search is not None:
                        search.cancel(cancellation_error())
                silence_s = self.now() - self._shown_at
                has_news = silence_s >= _SHOW_S and self.metrics.has_changed
                if silence_s < 0 or has_news or silence_s >= DEAD_S / 6:
                    self.show_life()
            except sqlite3.Error as failure:
                LOG.error("the store cannot be used: %s", failure)

    def show_life(self) -> None:
        """Write for the other workers that this one lives, and its counts."""
        gauges = {
            "searches_running": self.admission.running.total(),
            "searches_waiting": self.admission.waiting,
            "tokens_held": self.books.held.total(),
        }
        self._shown_at = self.now()
        self.books.show_life(self.metrics.counts(), gauges)

    def read_keys_again(self) -> None:
        """Read the file of keys again soon.

        If the file is not valid, the keys stay as they are, and the log has the reason. The reading waits for the event
        loop, because the caller may be a signal handler that has interrupted code with the lock of the log.
        """
        if self._loop is None:
            self._replace_keys()
        else:
            self._loop.call_soon_threadsafe(self._replace_keys)

    def _replace_keys(self) -> None:
        try:
            keys = read_keys(self.config.keys, self.config.operators, again=True)
            self.accounts, self.keys = Accounts(self.config, keys.names, again=True), keys
        except ConfigError as failure:
            LOG.error("the keys were not read again, and stay as they are: %s", failure)
        else:
            LOG.info("the keys were read again: %d", len(keys.names))

    def refuse_if_closing(self) -> None:
        """Raise ApiError 503 while the server shuts down."""
        if self._closing:
            raise _closing()

    def refuse_if_full(self, client: Client) -> None:
        """Raise ApiError 429 where a client's request would have to wait behind a full queue.

        Both searches and calls of a model count.
        """
        own = sum(search.client.owner == client.owner for search in self.running.values())
        entered = self.admission.count_by_client()
        self.admission.refuse_if_full(max(len(self.running), entered.total()), max(own, entered[client.owner]))

    def charge_bytes(self, client: Client, size: int) -> None:
        """Book the bytes of a body that is accepted, beyond those that are free, as tokens of its key.

        Raises:
            ApiError: 429, the key has fewer tokens left, or the queue is full.
        """
        payer, amounts = self.accounts.paying_account(client.name), {"tokens": (size - LARGE) // _BYTES_A_TOKEN}
        if amounts["tokens"] <= 0:
            return
        self.refuse_if_full(client)
        part = self.books.reserve(self.entry(self._names(), client, payer, {}), amounts)
        is_held = part.is_held
        self.close_part(part, amounts if is_held else {})
        self.books.forget(part.entry.name)
        if not is_held:
            raise self.books.busy(payer)

    def begin(
        self,
        client: Client,
        order: Order,
        *,
        key: str | None = None,
        digest: bytes = b"",
        show: Callable[[RunningSearch], Mapping[str, Any]] | None = None,
    ) -> RunningSearch:
        """Return the search of an order: a new one, or the running one of the same client and idempotency key.

        Args:
            client: The client.
            order: The order.
            key: The request's `Idempotency-Key`; None: none is given.
            digest: The hash of the body, where a key is given.
            show: A function that returns the response that other workers show while the search runs; None: the request
                is not for a response.

        Raises:
            ApiError: the server shuts down, the account is not the client's or does not suffice, or the idempotency key
                belongs to another body.
        """
        self.refuse_if_closing()
        join_name = None if key is None else (client.owner, key)
        if join_name in self._by_key:
            known_digest, same_search = self._by_key[join_name]
            if same_search.cancelled is None and known_digest != digest:
                cause = "the idempotency key belongs to a request with another body that is under way; use a new key"
                raise ApiError(409, cause, code="idempotency_key_reused")
            if same_search.cancelled is None:
                return same_search
        self.refuse_if_full(client)
        options = order.request.options
        payer = self.accounts.paying_account(client.name, options.account)
        order = dataclasses.replace(order, budget=payer.complete(order.budget, merge_limits(options.budget).keys()))
        order, account = self.pay(client, order)
        search = RunningSearch(self._names(), client, order, self.now())
        about: dict[str, Any] = {}
        if self.books.is_shared:
            response = {} if show is None else {"response": show(search)}
            question = search.question[:_QUESTION]
            about = {"model": order.offer.name, "question": question, "begun_at": search.begun_at, **response}
        try:
            part = self.books.reserve(self.entry(search.number, client, payer, about), amounts_of(order.budget))
        except ApiError as refusal:
            refusal.limit_headers = self.limit_headers(client, options.account)
            raise
        self.running[search.number] = search
        if join_name is not None:
            self._by_key[join_name] = digest, search
        search.task = asyncio.create_task(self._run(search, part, account))
        search.task.add_done_callback(lambda _: self._end(search, part, account))
        return search

    def pay(self, client: Client, order: Order) -> tuple[Order, Account]:
        """Return a client's order, and the account that pays for its calls.

        Raises:
            ApiError: the client may spend nothing more.
        """
        del client
        return order, Account(order.budget)

    def failure_of(self, search: RunningSearch, solution: Solution) -> Exception | None:
        """Return the failure of a search for the requests that wait for it; None: the search did not fail."""
        del search
        return None if solution.candidates else solution.error

    def limit_headers(self, client: Client, account: str | None) -> dict[str, str]:
        """Return the headers with the token limit of the paying account; empty: the account has none.

        Args:
            client: The client.
            account: The name of the account in its request; None: the client's own.
        """
        payer = self.accounts.paying_account(client.name, account)
        if "tokens" not in payer.limits:
            return {}
        headers = {
            "x-ratelimit-limit-tokens": str(payer.limits["tokens"]),
            "x-ratelimit-remaining-tokens": str(self.books.remainder(payer)["tokens"]),
        }
        end = payer.end_of_period(self.now())
        if end is not None:
            headers["x-ratelimit-reset-tokens"] = f"{end - self.now():.3f}s"
        return headers

    @staticmethod
    def entry(name: str, client: Client, payer: SharedAccount, about: Mapping[str, Any]) -> RequestEntry:
        """Return a request under way as the books have it."""
        return RequestEntry(name=name, owner=client.owner, client=client.name, account=payer, about=about)

    async def _run(self, search: RunningSearch, part: Part, account: Account) -> None:
        """Run a search when its amounts and a place are free, and note its solution or failure."""
        try:
            await part.wait()
            async with self.admission.place(search.client.owner):
                solution = await self._solve(search, account)
            if solution is not None:
                search.solution = solution
                search.failure = search.failure or self.failure_of(search, solution)
        except asyncio.CancelledError:
            search.failure = search.failure or _closing()
        except Exception as failure:  # noqa: BLE001 - raised where requests wait
            search.failure = search.failure or failure

    async def _solve(self, search: RunningSearch, account: Account) -> Solution | None:
        """Run a search, and return its solution; None: it was cancelled.

        A chain runs link after link until a link does not abstain.
        """
        order = search.order
        abstained: list[tuple[str, Solution]] = []  # the earlier links and their solutions
        if not order.links:
            return await self._solve_link(search, order, account)
        for place, link in enumerate(order.links):
            limits: dict[str, Any] = link.budget.limits
            with account.part(**limits) as part:
                solution = await self._solve_link(search, link, part, place)
            if solution is None:
                return None
            if not solution.abstained or search.failure is not None or place + 1 == len(order.links):
                chain_solution = with_earlier(abstained, link.offer.name, solution)
                return dataclasses.replace(chain_solution, remaining=account.remainder())
            abstained.append((link.offer.name, solution))
        raise AssertionError("a chain has links")

    async def _solve_link(
        self, search: RunningSearch, order: Order, account: Account, place: int = 0
    ) -> Solution | None:
        """Run an order on a server of its model.

        If a server fails before anything was spent, the order runs again on another server.

        Args:
            search: The search.
            order: The order of the search, or of a link of its chain.
            account: The account that pays.
            place: The place of the link in its chain.
        """
        servers, chats = self.offers.servers[order.offer.model], order.chats
        solution: Solution | None = None
        for servers_left in reversed(range(len(servers.records))):
            with servers.borrow(chats=chats) as loan:
                search.state = "running"
                if chats:  # the first such request asks the server for its capabilities in chats
                    await asyncio.to_thread(self.cache.backend, loan.records["policy"])
                solution = await LOOP.wait(self._job(search, order, account, loan.records, place).run())
            if solution is None:
                break
            refusal = server_refusal(solution.error)
            server_failed = isinstance(solution.error, EngineError) and not solution.candidates and refusal is None
            if search.failure is None:
                servers.report(loan.place, failed=server_failed)
            if refusal is not None:
                LOG.warning("a server of the model %s refused a request: %s", order.offer.model, solution.error)
            if not server_failed or solution.usage.tokens or search.failure is not None:
                break
            LOG.error("a server of the model %s failed, and rests: %s", order.offer.model, solution.error)
            if not servers_left or not servers.awake:
                break
        return solution

    def _job(
        self, search: RunningSearch, order: Order, account: Account, records: Mapping[str, ModelRecord], place: int
    ) -> Job[Solution]:
        """Return the job that solves an order, and note it in its search."""
        run = prepare_run(order, account, records, self.cache)
        num_links = len(search.order.links)
        if self.chains is not None and num_links:
            run = dataclasses.replace(
                run, refuses=self.chains.limit(search.order.offer, place, run, of=num_links).refusal
            )
        search.streams_text = order.is_one_text and isinstance(run.setup.plan.strategy, Single)
        run = dataclasses.replace(run, on_event=search.tell, live=search.streams_text)
        search.job = Job(lambda: solve_problem(run))
        return search.job

    def _end(self, search: RunningSearch, part: Part, account: Account) -> None:
        """Book a search that is over, whichever way it ended; called once.

        Args:
            search: The search.
            part: The amounts that are held for it.
            account: The account that has paid for it.
        """
        self._by_key = {name: entry for name, entry in self._by_key.items() if entry[1] is not search}
        del self.running[search.number]
        earlier_writes = set(self._writing)
        solution, seconds = search.solution, self.now() - search.begun_at
        account.close()
        self.close_part(part, part_spending(account))
        end = "done" if search.failure is None else "failed" if search.cancelled is None else "cancelled"
        self.metrics.search(search, end, seconds)
        if solution is not None and solution.trace is not None:
            search.tree = tuple(solution.trace.nodes) if search.watchers else ()
            if search.order.keep_trace:
                self._keep(search, solution, seconds)
        search.state = "failed" if search.failure is not None else "done"
        if search.order.on_end is not None:
            search.order.on_end(search)
        search.wake()
        writes = self._writing - earlier_writes  # other workers find the search in the books until these are done
        if not writes:
            self.books.forget(search.number)

        def forget_search(write: asyncio.Future[None]) -> None:
            writes.discard(write)
            if not writes:
                self.books.forget(search.number)

        for write in [*writes]:
            write.add_done_callback(forget_search)

    @staticmethod
    def close_part(part: Part, spent: Mapping[str, int]) -> None:
        """Book what a request has spent; where the store fails, what it held stays held, and the log says so."""
        try:
            part.close(spent)
        except sqlite3.Error as failure:
            LOG.error("a request was not booked, so that what it held stays held: %s", failure)

    def _keep(self, search: RunningSearch, solution: Solution, seconds: float) -> None:
        """Write a finished search into the archive, in a thread.

        A long prompt is kept once: in the response, else as the problem of the trace.
        """
        about = {
            "seconds": seconds,
            "model": search.order.offer.name,
            "question": search.question[:_QUESTION],
            "answer": solution.answer,
            "tokens": solution.usage.tokens,
            "stopped_by": solution.stopped_by,
        }
        owner, has_response = search.client.owner, search.order.on_end is not None

        def add() -> None:
            trace = _json_of(solution.trace, has_response=has_response)
            self.archive.add_search(owner, search.number, search.begun_at, about, trace)

        self.write(add)

    def write(self, add: Callable[[], None]) -> None:
        """Write into the archive, in a thread; `add`: the function that writes."""

        def work() -> None:
            try:
                add()
            except TTSError as failure:
                LOG.error("a search was not kept: %s", failure)

        writing = asyncio.ensure_future(asyncio.to_thread(work))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def end_elsewhere(self, owner: str, number: str) -> RequestEntry | None:
        """End a client's search that another worker runs, and return its entry when it is over.

        None: no other worker runs the search.

        Raises:
            ApiError: 503, this worker ends meanwhile.
        """
        entry = self.books.find(owner, number)
        if entry is None:
            return None
        self.books.ask_end(owner, number)
        await self.wait_elsewhere(owner, number)
        return entry

    async def wait_elsewhere(self, owner: str, number: str) -> None:
        """Wait until no other worker runs a client's search.

        Raises:
            ApiError: 503, this worker ends meanwhile.
        """
        while self.books.find(owner, number) is not None:
            self.refuse_if_closing()
            await asyncio.sleep(LOOK_S)

    @asynccontextmanager
    async def cancel_on_shutdown(self) -> AsyncGenerator[None]:
        """Cancel and await the task of the block when the server shuts down.

        This serves models that work without a search.
        """
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        finally:
            self._calls.discard(task)

    async def run_in_thread(self, client: Client, function: Callable[..., T], *given: Any) -> T:
        """Run a function that takes processor time, such as a tokenizer, in a thread, and return its result.

        Few such threads run at once; clients take turns.

        Raises:
            ApiError: 429, too many such calls wait. Exception: what the function raises.
        """
        entered = self.aside.count_by_client()
        self.aside.refuse_if_full(entered.total(), entered[client.owner])
        async with self.aside.place(client.owner):
            return await asyncio.to_thread(function, *given)

    async def read_archive(self, read: Callable[[str, str], T | None], owner: str, number: str) -> T | None:
        """Return an entry of the archive; None: there is no such entry.

        None stands also for an entry that is damaged or too large; then the log has the reason.

        Args:
            read: A method of the archive.
            owner: The owner of the client that asks.
            number: The number of the search.
        """
        await self.wait_for_archive()
        while self.books.is_being_written(owner, number):
            await asyncio.sleep(_WRITTEN_S)
        try:
            return await asyncio.to_thread(read, owner, number)
        except TTSError as failure:  # the fault of the operator's file, whose details a client need not know
            LOG.error("the store cannot be read: %s", failure)
            return None

    async def wait_for_archive(self) -> None:
        """Wait until the archive has all searches that are over."""
        if self._writing:
            await asyncio.wait(set(self._writing))

    @contextmanager
    def attach(self, search: RunningSearch, *, linger: bool = False) -> Generator[None]:
        """Count a request that waits for a search, for the block.

        When the last such request leaves, the search is cancelled.

        Args:
            search: The search for which the request waits.
            linger: Whether the search goes on for `config.linger_s` after the last request has left.
        """
        search.listeners += 1
        try:
            yield
        finally:
            search.listeners -= 1
            if search.listeners == 0 and not search.over:
                asyncio.get_running_loop().call_later(self.config.linger_s if linger else 0.0, _abandon, search)

    async def close(self) -> None:
        """End every search with a clear error, and free the models."""
        await self.drain()
        await asyncio.to_thread(self.cache.close)
        if self._life is not None:
            self._life.cancel()
        with closing(self.archive):
            self.books.close()

    async def drain(self) -> None:
        """Take no more requests, end every search and every call of a model, and return when all are booked."""
        self._closing = True
        tasks = [*self._calls, *(search.task for search in self.running.values() if search.task is not None)]
        for search in list(self.running.values()):
            search.cancel(_closing())
        for call in self._calls:
            call.cancel()
        if tasks:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # lets their callbacks run, which begin to write into the archive
        await self.wait_for_archive()


def _json_of(trace: Trace, *, has_response: bool) -> str:
    """Return a trace that has a long prompt once, or only its beginning where a response has it whole."""
    nodes = [dataclasses.replace(node, text=_begin(node.text)) if node.parent is None else node for node in trace.nodes]
    problem = _begin(trace.problem) if has_response else trace.problem
    return dataclasses.replace(trace, nodes=nodes, problem=problem).to_json()


def _begin(text: str) -> str:
    """Return the beginning of a long text, and a short text whole."""
    return text if len(text) <= _QUESTION else f"{text[:_QUESTION]} … ({len(text) - _QUESTION:,} characters more)"


def _abandon(search: RunningSearch) -> None:
    """Cancel a search that no request waits for."""
    if search.listeners == 0 and not search.over:
        search.cancel(ApiError(499, "the client has left", code="client_closed_request"))


def limit_budget(budget: Budget, most: Mapping[str, float]) -> Budget:
    """Return a budget with the operator's limits in the units where it has no limit of its own.

    Raises:
        ConfigError: the budget is above the operator's limits.
    """
    limits = budget.limits
    for unit, operator_limit in most.items():
        limit = limits.setdefault(unit, operator_limit)
        if limit > operator_limit:
            raise ConfigError(
                f"budget {unit} is {quote(limit)}, but this server allows {format_plain(operator_limit)}",
                hint=f"ask for at most {format_plain(operator_limit)}",
            )
    return Budget(**limits)  # pyright: ignore[reportArgumentType]


def cancellation_error() -> ApiError:
    """Return the error for requests that wait for a search that its client ends."""
    return ApiError(409, "the search was ended by its client", code="cancelled")


def _closing() -> ApiError:
    return ApiError(
        503,
        "the server shuts down, and ends what it does; try again in a few seconds",
        kind="server_error",
        code="shutting_down",
        retry_s=5.0,
    )
