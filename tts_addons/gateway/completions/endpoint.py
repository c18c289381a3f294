"""`POST /v1/completions`: what a model writes after texts or tokens.

The reply may have log-probabilities. A model's name stands for the model alone, without task, chat template or
strategy. Presets, and an object `tts` in the body, are refused, since they are searches.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tts._core.logs import get_logger
from tts.backends.base import Backend, Sampling
from tts.backends.metadata import metadata_of
from tts.budget.units import PRICED_UNITS
from tts.solver.model_cache import LOOP
from tts.verifiers.compatibility import check_rates
from tts_addons.gateway.access import Client
from tts_addons.gateway.bodies import read_body, read_in_turn
from tts_addons.gateway.completions.body import CompletionBody, prompts_of
from tts_addons.gateway.completions.replies import choice_of, report_of, usage_of
from tts_addons.gateway.completions.work import PIECE, CompletionCost, CompletionOrder, Told, Written, complete
from tts_addons.gateway.failures import ApiError, JsonReply, api_error, refuse_field
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.offers import Offer
from tts_addons.gateway.orders import check_choices, check_draws, read_field
from tts_addons.gateway.searches import Job
from tts_addons.gateway.server_events import PING, EventsReply, chunk, ending, event, wait_for_work
from tts_addons.gateway.spending.accounts import SECONDS_UNIT, SharedAccount, format_amount, to_budget_unit
from tts_addons.gateway.wire.fields import COMPLETIONS
from tts_addons.gateway.wire.request import MOST_VALUES, parse_json, validate_body

LOG = get_logger("tts.serve")
T = TypeVar("T")
_MOST_STOPS = 16
_TOKENS = 16  # the tokens of a choice, where the request names no number


async def completions(request: Request) -> Response:
    """Reply to a completion request."""
    gateway: Gateway = request.app.state.gateway
    raw, limits = await read_body(request), gateway.config.limits
    value = await read_in_turn(request, lambda: parse_json(raw, MOST_VALUES + limits.characters))
    body = await read_in_turn(request, lambda: validate_body(CompletionBody, value))
    check_choices(body.choices, limits, "n")
    offer, notes = _offer(gateway, body), COMPLETIONS.check(value)
    prompts = await read_in_turn(request, lambda: prompts_of(body.prompt, limits))
    gateway.charge_bytes(request.state.client, len(raw))
    if body.reasoning_effort is not None:
        notes = (*notes, "reasoning_effort had no effect: it is the budget of a search, and this model writes alone")
    call = ModelCall(gateway, request.state.client, offer, _order(body, gateway, offer, prompts), notes)
    if body.stream:
        return CompletionStream(call, usage=body.streams_usage)
    written = await wait_for_work(request.receive, call.run(None))
    return JsonReply(call.reply(written), headers={"x-request-id": call.number})


def _offer(gateway: Gateway, body: CompletionBody) -> Offer:
    """Return the model that a request names.

    Raises:
        ApiError: 404, the model is unknown. 400: the request asks for a search.
    """
    offer = gateway.offers.get(body.model)
    if offer.name != offer.model or body.tts is not None:
        field = "tts" if offer.name == offer.model else "model"
        cure = f"name {offer.model!r} without tts, or ask /v1/chat/completions"
        raise refuse_field(field, f"asks for a search, but a completion is by a model alone; {cure}", "unsupported")
    return offer


def _order(body: CompletionBody, gateway: Gateway, offer: Offer, prompts: tuple[str, ...]) -> CompletionOrder:
    """Return the order of a request to a model alone.

    Raises:
        ApiError: 400, a field is not valid, or the model does not take it.
    """
    parameters: dict[str, Any] = {"temperature": 1.0, **offer.settings.sampling}
    max_tokens = _TOKENS if body.max_tokens is None else body.max_tokens
    parameters["max_tokens"] = max(1, max_tokens)
    check_draws(body.draws, gateway, offer)
    parameters |= body.draws
    if body.temperature is not None:
        parameters["temperature"] = body.temperature
    return CompletionOrder(
        prompts=prompts,
        choices=body.choices,
        max_tokens=max_tokens,
        sampling=read_field("max_tokens", lambda: Sampling(**parameters)),
        seed=gateway.seeds() if body.seed is None else body.seed,
        stops=body.stops(_MOST_STOPS),
        echo=bool(body.echo),
        top=body.logprobs,
    )


class ModelCall:
    """One request to a model, with its books.

    The books count input tokens whose log-probabilities are read like tokens that are written.

    Args:
        notes: The notes of the reply on fields without effect.

    Attributes:
        number: The name of the request.
        cost: The cost of the request so far.
    """

    def __init__(
        self, gateway: Gateway, client: Client, offer: Offer, order: CompletionOrder, notes: tuple[str, ...]
    ) -> None:
        self.number, self.begun_at = secrets.token_urlsafe(18), gateway.now()
        self.order, self.cost = order, CompletionCost()
        self.config = gateway.config
        self._gateway, self._client, self._offer, self._notes = gateway, client, offer, notes
        self._backend: Backend | None = None

    async def run(self, told: Told | None) -> list[Written]:
        """Wait for a place among the requests under way, let the model write, and book the cost.

        The result has the choices of all prompts.

        Args:
            told: A function that is called with the index of a choice and its new text; None: no function is called.

        Raises:
            ApiError: the request is not valid, or the model failed.
        """
        gateway = self._gateway
        gateway.refuse_if_closing()
        gateway.refuse_if_full(self._client)
        try:
            async with gateway.cancel_on_shutdown(), gateway.admission.place(self._client.owner):
                with gateway.offers.servers[self._offer.model].borrow() as loan:
                    self._backend = await asyncio.to_thread(gateway.cache.backend, loan.records["policy"])
                    payer = gateway.accounts.paying_account(self._client.name)
                    bounds = await asyncio.to_thread(self._booking_bounds, self._backend, payer)
                    limit_s = bounds["seconds"] / SECONDS_UNIT if "seconds" in bounds else None
                    part = gateway.books.reserve(gateway.entry(self.number, self._client, payer, {}), bounds)
                    begun_s = time.monotonic()
                    try:
                        if not part.is_held:  # a wait here would keep the place from requests that hold the amounts
                            raise gateway.books.busy(payer)
                        async with asyncio.timeout(limit_s):
                            return await _finish_work(partial(complete, self._backend, self.order, self.cost, told))
                    except TimeoutError:
                        if limit_s is None:
                            raise
                        raise self._late(limit_s) from None
                    finally:
                        spent = self._booking_costs(self._backend, time.monotonic() - begun_s) if part.is_held else {}
                        gateway.close_part(part, spent)
                        gateway.books.forget(self.number)
                        if spent:
                            gateway.metrics.completion(self._offer.name, self._client.name, self.cost, spent["tokens"])
        except asyncio.CancelledError:
            gateway.refuse_if_closing()  # a shutdown ends the call too
            raise
        except Exception as failure:
            gateway.refuse_if_closing()  # a model may fail because of the shutdown
            refusal = api_error(failure, "prompt")
            if refusal.code == "model_failed":
                LOG.error("a completion failed: %s", failure)
            raise refusal from failure

    def _late(self, seconds: float) -> ApiError:
        """Return the refusal of a request whose model has not finished in time."""
        return ApiError(
            400,
            f"the model had not finished after {seconds:g} seconds, by limits.seconds or the account; send fewer "
            "prompts at once, or "
            "ask for fewer tokens",
            param="max_tokens",
            code="too_long",
        )

    def _booking_bounds(self, backend: Backend, payer: SharedAccount) -> dict[str, int]:
        """Return the most that the request can cost, in whole units, by unit.

        Raises:
            ApiError: 400, an amount is above what the operator or the account allows a request. ConfigError: the
                account limits a unit for which the model has no rate.
        """
        order = self.order
        operator_limits = self.config.limits.request
        caps = {unit: (limit, f"limits.{unit}") for unit, limit in operator_limits.items()}
        for unit, limit in payer.request.items():
            caps[unit] = min(caps.get(unit, (math.inf, "")), (limit, f"what {payer.label} allows a request"))
        rows = order.choices * len(order.prompts)
        written_tokens = rows * order.max_tokens
        rated_limits = {unit: 1 for unit in PRICED_UNITS if unit in payer.limits or unit in caps}
        check_rates(rated_limits, {"policy": (backend.name, backend.rates)}, {})
        prompt_tokens = sum(map(backend.count, order.prompts)) if order.top is not None or rated_limits else 0
        read_tokens = 0
        if order.top is not None:
            read_tokens = prompt_tokens if order.only_reads else order.choices * prompt_tokens + written_tokens
        bounds = {"tokens": written_tokens + read_tokens, "generated_tokens": written_tokens, "samples": rows}
        bounds["requests"] = rows * -(-order.max_tokens // PIECE)  # a stream may be written in pieces
        computed_tokens = (1 + order.choices) * prompt_tokens + read_tokens
        for unit in rated_limits:
            bounds[unit] = backend.rates.cost(unit, computed=computed_tokens, generated=written_tokens)
        for unit, (limit, name) in caps.items():
            if to_budget_unit(unit, bounds.get(unit, 0)) > limit:
                raise ApiError(
                    400,
                    f"the request may take {format_amount(unit, bounds[unit])}, of {len(order.prompts)} prompts "
                    f"({read_tokens} tokens read, {written_tokens} written), but {name} is {limit:g}; send fewer "
                    "prompts at once, or ask for fewer tokens",
                    param="prompt",
                    code="too_long",
                )
        if "seconds" in caps:
            bounds["seconds"] = int(caps["seconds"][0] * SECONDS_UNIT)
        return bounds

    def _booking_costs(self, backend: Backend, seconds: float) -> dict[str, int]:
        """Return the amounts that the request has cost, in whole units, by unit."""
        cost = self.cost
        return {
            "tokens": cost.read + cost.generated,
            "generated_tokens": cost.generated,
            "samples": self.order.choices * len(self.order.prompts),
            "requests": cost.requests,
            **backend.rates.costs(computed=cost.computed, reused=cost.reused, generated=cost.generated),
            "seconds": int(seconds * SECONDS_UNIT),
        }

    def heading(self) -> dict[str, Any]:
        """Return the members with which every reply begins."""
        return {
            "id": f"cmpl-{self.number}",
            "object": "text_completion",
            "created": int(self.begun_at),
            "model": self._offer.name,
        }

    def choices(self, written: list[Written]) -> list[dict[str, Any]]:
        """Return the choices of a reply."""
        tokenizer = None if self._backend is None else metadata_of(self._backend).tokenizer
        return [choice_of(place, self.order, choice, tokenizer) for place, choice in enumerate(written)]

    def report(self) -> Mapping[str, Any]:
        """Return the field `tts`."""
        writes_nothing = not self.order.max_tokens
        is_reproducible = self._backend is not None and (self._backend.caps.streams or writes_nothing)
        return report_of(self.order, self.cost, self._notes, reproducible=is_reproducible)

    def reply(self, written: list[Written]) -> dict[str, Any]:
        """Return the whole reply."""
        return {**self.heading(), "choices": self.choices(written), "usage": usage_of(self.cost), "tts": self.report()}


async def _finish_work(work: Callable[[], Awaitable[T]]) -> T:
    """Do work in the library's loop, and return its result.

    If the caller is cancelled, the work is cancelled in that loop, and awaited until its whole cost is counted.
    """
    job = Job(work)
    work_task = asyncio.ensure_future(LOOP.wait(job.run()))
    try:
        result = await asyncio.shield(work_task)
    except asyncio.CancelledError:
        job.cancel()
        await asyncio.gather(work_task, return_exceptions=True)
        raise
    assert result is not None, "it was not cancelled"
    return result


class CompletionStream(EventsReply):
    """The response to a streamed completion; the model stops when its client leaves.

    A reply with log-probabilities or an echo is sent in whole choices at the end.

    Args:
        usage: Whether the last chunk has the usage.
    """

    def __init__(self, call: ModelCall, *, usage: bool) -> None:
        super().__init__(self._chunks(), call.number)
        self._call, self._usage = call, usage
        self._sends_at_end = call.order.echo or call.order.top is not None
        # the places of choices and their new texts; None: the end
        self._pieces = asyncio.Queue[tuple[int, str] | None]()
        self._first: tuple[int, str] | None = None
        self._work: asyncio.Future[list[Written]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the stream.

        The stream begins with the first text, so an earlier refusal still has its own HTTP status.
        """
        pieces, loop = self._pieces, asyncio.get_running_loop()

        def send_text(place: int, text: str) -> None:  # in the library's thread
            with suppress(RuntimeError):  # the server's loop has ended
                loop.call_soon_threadsafe(pieces.put_nowait, (place, text))

        self._work = work = asyncio.ensure_future(self._call.run(None if self._sends_at_end else send_text))
        work.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            self._first = await wait_for_work(receive, pieces.get())
            if self._first is None:
                work.result()  # raises, if the work has failed
            await super().__call__(scope, receive, send)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        """Yield a chunk for each piece of text, pings while nothing comes, and the end."""
        piece: Any = self._first
        while piece is not None:
            if piece is PING:
                yield PING
            else:
                place, text = piece
                choice = {"index": place, "text": text, "logprobs": None, "finish_reason": None}
                yield chunk(self._call.heading(), choice, usage=self._usage)
            try:
                piece = await asyncio.wait_for(self._pieces.get(), self._call.config.ping_s)
            except TimeoutError:
                piece = PING
        yield self._last()

    def _last(self) -> bytes:
        """Return the last chunks of the stream: the ends of the choices and the usage, or an error."""
        call, heading = self._call, self._call.heading()
        assert self._work is not None, "the stream has begun"
        try:
            choices = call.choices(self._work.result())
        except Exception as failure:  # noqa: BLE001 - sent in the stream
            return event(api_error(failure).body())
        if not self._sends_at_end:  # all text was sent before
            choices = [{**choice, "text": ""} for choice in choices]
        *earlier_choices, last_choice = choices
        chunks = [chunk(heading, choice, usage=self._usage) for choice in earlier_choices]
        last_chunk = chunk(heading, last_choice, usage=self._usage, tts=call.report())
        return b"".join([*chunks, last_chunk, ending(heading, usage_of(call.cost) if self._usage else None)])


ROUTES = (Route("/v1/completions", completions, methods=["POST"]),)
