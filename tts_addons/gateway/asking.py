"""The endpoints that begin a search, and what belongs to them.

A search begins at `POST /v1/chat/completions`, `/v1/responses` or `/v1/messages`. Further endpoints:

    GET  /v1/responses/ID           a response that is kept, or runs
    POST /v1/responses/ID/cancel    ends one that runs
    DELETE /v1/responses/ID         drops it
    POST /v1/messages/count_tokens  the tokens of a prompt

A response is kept for its key in the gateway's store, unless its request has `store: false`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts.backends.metadata import metadata_of
from tts.errors import quote
from tts.solver import telemetry
from tts.types import prompt_text
from tts_addons.gateway.bodies import hold_record, read_body, read_in_turn
from tts_addons.gateway.failures import ApiError, JsonReply, api_error
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.orders import order_of
from tts_addons.gateway.replies import head_of, outcome_of
from tts_addons.gateway.searches import Order, RunningSearch
from tts_addons.gateway.streams import SearchStream, whole_reply
from tts_addons.gateway.wire import chat, messages, responses
from tts_addons.gateway.wire.request import SearchRequest, Wire, parse_json

_BYTES_A_TOKEN = 4  # of a prompt whose tokenizer is not known


async def chat_completions(request: Request) -> Response:
    """Reply to a request for a chat completion."""
    return await _search(request, chat)


async def create_message(request: Request) -> Response:
    """Reply to a request for a message."""
    return await _search(request, messages)


async def _search(request: Request, wire: Wire) -> Response:
    raw, limits = await read_body(request), _gateway(request).config.limits
    search_request = await read_in_turn(request, lambda: wire.read(parse_json(raw), limits))
    beta = request.headers.get("anthropic-beta")
    if beta:
        note = f"the header anthropic-beta {quote(beta)} had no effect"
        search_request = dataclasses.replace(search_request, notes=(*search_request.notes, note))
    return await _reply(request, wire, search_request, raw)


async def count_tokens(request: Request) -> Response:
    """Count the tokens of a prompt.

    Without a known tokenizer the number is estimated, and the reply says so.
    """
    gateway, raw = _gateway(request), await read_body(request)
    search_request = await read_in_turn(request, lambda: messages.read_count(parse_json(raw), gateway.config.limits))
    order = await read_in_turn(request, lambda: order_of(search_request, gateway), slow=True)
    task = gateway.offers.task(order.offer) if order.task is None else order.task
    backend, prompt = gateway.offers.backends(order.offer)["policy"], task.prompt(order.problem)
    tokenizer = metadata_of(backend).tokenizer
    if tokenizer is None:
        count = math.ceil(len(prompt_text(prompt).encode()) / _BYTES_A_TOKEN)
        return JsonReply({"input_tokens": count, "tts": {"estimated": True}})
    count = await gateway.run_in_thread(request.state.client, lambda: len(tokenizer.prompt(prompt)))
    return JsonReply({"input_tokens": count, "tts": {"estimated": False}})


async def create_response(request: Request) -> Response:
    """Reply to a request for a response; the request may continue an earlier response that is kept."""
    gateway, raw = _gateway(request), await read_body(request)
    value = await read_in_turn(request, lambda: parse_json(raw))
    earlier_items = await _items_before(request, value.get("previous_response_id"))
    if earlier_items:
        value = {**value, "input": [*earlier_items, *responses.items_of(value.get("input"))]}
    search_request = await read_in_turn(request, lambda: responses.read(value, gateway.config.limits))
    kept_items = responses.items_of(value["input"]) if search_request.echo["store"] else None
    return await _reply(request, responses, search_request, raw, kept_items)


async def _items_before(request: Request, name: Any) -> list[Any]:
    """Return the items of the response that a request continues; empty: the request continues none.

    Raises:
        ApiError: 404, the client has no such response. 409: the response still runs.
    """
    if not isinstance(name, str):  # the check of the fields refuses another type
        return []
    if _running(request, name) is not None or _foreign_response(request, name) is not None:
        raise ApiError(
            409,
            f"previous_response_id is {name[:80]!r}, which still runs",
            param="previous_response_id",
            code="in_progress",
        )
    record = await _find_response(request, name)
    if record is None:
        cause = f"previous_response_id is {name[:80]!r}, but no response of this key that is kept has that name"
        raise ApiError(404, cause, param="previous_response_id", code="previous_response_not_found")
    return [*record["items"], *record["reply"]["output"]]


async def _reply(
    request: Request, wire: Wire, search_request: SearchRequest, raw: bytes, items: list[Any] | None = None
) -> Response:
    """Reply to a request for a search.

    The head of a stream is sent only when its search has begun, so an early refusal still has its own HTTP status.

    Args:
        request: The HTTP request.
        wire: The API of the request.
        search_request: The request in the body.
        raw: The body.
        items: The input items that are kept with the response; None: the response is not kept.
    """
    gateway, key = _gateway(request), request.headers.get("idempotency-key")

    def read() -> tuple[Order, bytes]:
        body = b"" if key is None else request.url.path.encode() + b"\0" + raw
        return order_of(search_request, gateway), hashlib.sha256(body).digest()

    # the check of schemas may take a second
    order, digest = await read_in_turn(request, read, slow=bool(search_request.tools or search_request.form))
    if items is not None:
        order = dataclasses.replace(order, on_end=lambda search: _keep(gateway, search, items))
    gateway.charge_bytes(request.state.client, len(raw))
    show = _show_response if wire is responses else None
    with telemetry.continue_trace(request.headers):
        search = gateway.begin(request.state.client, order, key=key, digest=digest, show=show)
    if search_request.stream:
        return SearchStream(gateway, search, wire.frames(head_of(search)))
    return await whole_reply(gateway, search, wire, request.receive, linger=key is not None)


def _show_response(search: RunningSearch) -> Mapping[str, Any]:
    """Return the response that other workers show while its search runs."""
    return responses.opening(head_of(search), "in_progress")


def _keep(gateway: Gateway, search: RunningSearch, items: list[Any]) -> None:
    """Keep the response of a search that is over."""
    head = head_of(search)
    try:
        reply = responses.reply(head, outcome_of(search, search.result()))
    except Exception as failure:  # noqa: BLE001 - the response is kept with the error
        reply = responses.failure(head, api_error(failure))
    content = {"items": items, "reply": reply}
    owner, number, begun_at = search.client.owner, search.number, search.begun_at
    gateway.write(lambda: gateway.archive.add_response(owner, number, begun_at, content))


async def get_response(request: Request) -> Response:
    """Return a response that is kept, or runs."""
    if (search := _running(request, request.path_params["name"])) is not None:
        return JsonReply(responses.opening(head_of(search), "in_progress"))
    if (opening := _foreign_response(request, request.path_params["name"])) is not None:
        return JsonReply(opening)
    return JsonReply((await _find(request))["reply"])


async def input_items(request: Request) -> Response:
    """List the input items of a response, the newest first, as the API has it."""
    listed = [_list(place, item) for place, item in enumerate((await _find(request))["items"])]
    listed.reverse()
    ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {"first_id": None, "last_id": None}
    return JsonReply({"object": "list", "data": listed, **ends, "has_more": False})


def _list(place: int, item: dict[str, Any]) -> dict[str, Any]:
    """Return an input item in the form of lists: with an id, and with its text as parts."""
    content = item.get("content")
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    parts = {"content": [{"type": kind, "text": content}]} if isinstance(content, str) else {}
    return {"type": "message", "id": f"item_{place}", **item, **parts}


async def cancel_response(request: Request) -> Response:
    """End a response that runs, and return it. A response that is over is returned unchanged."""
    name = request.path_params["name"]
    search = _running(request, name)
    if search is not None:
        search.cancel(ApiError(409, "the response was cancelled by its client", code="cancelled"))
        await search.wait()
        error = api_error(search.failure or ApiError(409, "", code="cancelled"))
        return JsonReply(responses.failure(head_of(search), error))
    opening = _foreign_response(request, name)
    if opening is not None:  # another worker runs the search
        await _gateway(request).end_elsewhere(request.state.client.owner, _number_of(name))
        record = await _find_response(request, name)
        return JsonReply({**opening, "status": "cancelled"} if record is None else record["reply"])
    return JsonReply((await _find(request))["reply"])


async def delete_response(request: Request) -> Response:
    """Drop a response that is kept."""
    name, gateway = request.path_params["name"], _gateway(request)
    await _find(request)
    number = _number_of(name)
    await asyncio.to_thread(gateway.archive.drop_response, request.state.client.owner, number)
    return JsonReply({"id": name, "object": "response", "deleted": True})


def _running(request: Request, name: str) -> RunningSearch | None:
    """Return the client's running search of a response; None: there is none."""
    search = _gateway(request).running.get(_number_of(name))
    return search if search is not None and search.client.owner == request.state.client.owner else None


def _foreign_response(request: Request, name: str) -> dict[str, Any] | None:
    """Return the client's response that another worker works on, without output; None: there is none."""
    entry = _gateway(request).books.find(request.state.client.owner, _number_of(name))
    return None if entry is None else entry.about.get("response")


async def _find_response(request: Request, name: str) -> dict[str, Any] | None:
    gateway = _gateway(request)
    number = _number_of(name)
    await hold_record(request, number)
    return await gateway.read_archive(gateway.archive.response, request.state.client.owner, number)


async def _find(request: Request) -> dict[str, Any]:
    name = request.path_params["name"]
    if (record := await _find_response(request, name)) is None:
        raise ApiError(
            404, f"there is no response {name[:80]!r} of this key, or it was not kept", code="response_not_found"
        )
    return record


def _number_of(name: str) -> str:
    """Return the number of a response's search; "": it is no name of a response."""
    return name.removeprefix(responses.PREFIX) if name.startswith(responses.PREFIX) else ""


def _gateway(request: Request) -> Gateway:
    return request.app.state.gateway


ROUTES = (
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/responses", create_response, methods=["POST"]),
    Route("/v1/responses/{name}", get_response, methods=["GET"]),
    Route("/v1/responses/{name}", delete_response, methods=["DELETE"]),
    Route("/v1/responses/{name}/input_items", input_items, methods=["GET"]),
    Route("/v1/responses/{name}/cancel", cancel_response, methods=["POST"]),
    Route("/v1/messages", create_message, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
)
