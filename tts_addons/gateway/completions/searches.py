"""Completions that are searches: of a preset, or with an object `tts`.

Each prompt is a problem, as one question of a user is in a chat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tts.backends.text.tokenized_text import TokenizedText
from tts_addons.gateway.access import Client
from tts_addons.gateway.completions.body import CompletionBody
from tts_addons.gateway.failures import JsonReply, api_error, refuse_field
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.orders import order_of
from tts_addons.gateway.replies import choices_of, counts_of, report_of
from tts_addons.gateway.searches import Order, RunningSearch
from tts_addons.gateway.server_events import PING, EventsReply, event, leaving
from tts_addons.gateway.wire.chat import ChatBody, request_of, usage_of
from tts_addons.gateway.wire.request import validate_body

T = TypeVar("T")
# fields of completions that chat completions lack, or that this module handles
_FIELDS = {"prompt", "best_of", "logprobs", "echo", "suffix", "stream", "stream_options", "tts"}


def search_response(
    request: Request, gateway: Gateway, body: CompletionBody, prompts: Sequence[str], notes: tuple[str, ...]
) -> Response:
    """Return the response to a request for searches.

    Args:
        request: The HTTP request.
        gateway: The gateway.
        body: The body.
        prompts: The prompts in the body.
        notes: The notes of the replies on fields without effect.

    Raises:
        ApiError: 400, a field is not valid, or only a model alone can honour it.
    """
    _refuse_fields_of_models(body, prompts)
    limits = gateway.config.limits
    orders = [order_of(request_of(_chat(body, prompt), limits, notes), gateway) for prompt in prompts]
    tokens = sum(int(order.budget.limits["tokens"]) for order in orders)
    if tokens > limits.tokens:
        cause = (
            f"the budgets of {len(orders)} prompts are {tokens} tokens, but limits.tokens is {limits.tokens}; send "
            "fewer prompts at once"
        )
        raise refuse_field("prompt", cause, "too_long")
    return SearchCompletion(gateway, request.state.client, orders, stream=bool(body.stream), usage=body.streams_usage)


def _refuse_fields_of_models(body: CompletionBody, prompts: Sequence[str]) -> None:
    """Refuse fields that only a model alone can honour.

    Raises:
        ApiError: 400, with the first such field.
    """
    needs_model_alone = {
        "echo": body.echo,
        "logprobs": body.logprobs is not None,
        "max_tokens": body.max_tokens == 0,
        "prompt": any(isinstance(prompt, TokenizedText) for prompt in prompts),
    }
    refused_fields = [field for field, is_refused in needs_model_alone.items() if is_refused]
    if refused_fields:
        field = refused_fields[0]
        demand = "token ids" if field == "prompt" else f"{field} {getattr(body, field)}"
        model, _colon, _preset = body.model.partition(":")
        cause = (
            f"{demand} can be had of a model alone, but this request is a search; "
            f"name {model!r}, without preset and tts"
        )
        raise refuse_field(field, cause, "unsupported")


def _chat(body: CompletionBody, prompt: str) -> ChatBody:
    """Return the body of a chat whose only turn is a prompt, with the other fields of the completion."""
    fields = body.model_dump(exclude_none=True, exclude=_FIELDS, by_alias=True)
    options = {} if body.tts is None else {"tts": body.tts.model_dump(exclude_unset=True)}
    return validate_body(ChatBody, {**fields, **options, "messages": [{"role": "user", "content": prompt}]})


class SearchCompletion(EventsReply):
    """The response to a request for searches, whole or as a stream.

    The searches are cancelled when the client leaves.

    Args:
        orders: The orders of the searches, one for each prompt.
        usage: Whether the last chunk of a stream has the usage.
    """

    def __init__(self, gateway: Gateway, client: Client, orders: Sequence[Order], *, stream: bool, usage: bool) -> None:
        super().__init__(usage=usage)
        self._gateway, self._client, self._orders, self._is_stream = gateway, client, orders, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Search and write the reply.

        Raises:
            ApiError: the client's tokens do not suffice. Exception: a search failed before a stream had begun.
        """
        with ExitStack() as attachments:
            searches: list[RunningSearch] = []
            for order in self._orders:
                search = self._gateway.begin(self._client, order)
                searches.append(search)
                attachments.enter_context(self._gateway.attach(search))
            async with leaving(receive) as gone:
                if not self._is_stream:
                    for search in searches:
                        while not search.over:
                            await wait_for_disconnect(gone, search.signal.wait())
                    reply = JsonReply(_reply(searches), headers={"x-request-id": searches[0].number})
                    await reply(scope, receive, send)
                    return
                await self.write(send, self._chunks(searches, gone), gone)

    async def _chunks(self, searches: Sequence[RunningSearch], gone: asyncio.Event) -> AsyncGenerator[bytes]:
        """Yield pings until all searches have ended, then the choices.

        Completions of the API have no field for progress.
        """
        yield PING
        for search in searches:
            while not search.over:
                try:
                    await asyncio.wait_for(wait_for_disconnect(gone, search.signal.wait()), self._gateway.config.ping_s)
                except TimeoutError:
                    yield PING
        try:
            reply = _reply(searches)
        except Exception as failure:  # noqa: BLE001 - sent in the stream
            yield event(api_error(failure).body())
            return
        choices, usage, report = reply.pop("choices"), reply.pop("usage"), reply.pop("tts")
        *earlier_choices, last_choice = choices
        for choice in earlier_choices:
            yield self.chunk(reply, choice)
        yield self.chunk(reply, last_choice, tts=report)
        yield self.ending(reply, usage)


def _reply(searches: Sequence[RunningSearch]) -> dict[str, Any]:
    """Return the whole reply.

    The reply has the choices of all searches in order, the sum of their usage, and a report of each search.
    """
    solutions = [(search, search.result()) for search in searches]
    answers = [(search, solution, choices_of(search, solution)) for search, solution in solutions]
    shown_choices: list[dict[str, Any]] = []
    for place, (search, _solution, choices) in enumerate(answers):
        first_index = place * search.order.choices
        for index, choice in enumerate(choices, start=first_index):
            finish = "length" if choice.finish == "length" else "stop"
            shown_choices.append({"index": index, "text": choice.text or "", "logprobs": None, "finish_reason": finish})
    reports = [report_of(search, solution, choices) for search, solution, choices in answers]
    return {
        **heading(searches[0].number, searches[0].begun_at, searches[0].order.offer.name),
        "choices": shown_choices,
        "usage": _sum([usage_of(counts_of(solution, choices)) for _, solution, choices in answers]),
        "tts": reports[0] if len(reports) == 1 else {"searches": reports},
    }


def _sum(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of numbers by name, also in nested mappings; all usages have the same names."""
    total: dict[str, Any] = {}
    for name in usages[0]:
        values = [usage[name] for usage in usages]
        total[name] = _sum(values) if isinstance(values[0], Mapping) else sum(values)
    return total


def heading(number: str, begun_at: float, model: str) -> dict[str, Any]:
    """Return the members with which every reply of this endpoint begins."""
    return {"id": f"cmpl-{number}", "object": "text_completion", "created": int(begun_at), "model": model}


async def wait_for_disconnect(gone: asyncio.Event, work: Awaitable[T]) -> T:
    """Await `work` and return its result.

    If the client leaves first, `work` is cancelled and awaited to its end.

    Args:
        gone: An event that is set when the client leaves.
        work: The work.

    Raises:
        ClientDisconnect: the client has left.
    """
    work_task, gone_task = asyncio.ensure_future(work), asyncio.ensure_future(gone.wait())
    try:
        await asyncio.wait((work_task, gone_task), return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise ClientDisconnect
        return work_task.result()
    finally:
        gone_task.cancel()
        if not work_task.done():
            work_task.cancel()
            await asyncio.gather(work_task, return_exceptions=True)
