"""Endpoints for a client's own searches: recent ones, their traces, and the events of one that runs.

    GET /v1/searches                    those that run, then those that ended, the newest first
    GET /v1/searches/NUMBER/trace       the trace as JSON with the winning node; ?format=html: as a page
    GET /v1/searches/NUMBER/events      server-sent events: `nodes` (new and changed ones), `spend`, and at last `end`
    DELETE /v1/searches/NUMBER          ends it; those who wait get an error

NUMBER stands in the header `x-request-id` of a chat completion, and in its field `tts.search`. Another client's search
is not found.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts.solver.live import Event
from tts.trace.html import embed_record
from tts.trace.trace import Trace, TraceNode, plain_values, winning_node
from tts_addons.gateway.bodies import hold_record
from tts_addons.gateway.failures import ApiError, JsonReply
from tts_addons.gateway.gateway import Gateway, cancellation_error
from tts_addons.gateway.searches import RunningSearch
from tts_addons.gateway.server_events import PING, EventsReply


async def searches(request: Request) -> Response:
    """List a client's searches."""
    gateway, owner = _gateway_and_owner(request)
    own = [search for search in reversed(gateway.running.values()) if search.client.owner == owner]
    running = [_running(search) for search in own]
    running += [_search_object(one.name, "running", **one.about) for one in gateway.books.under_way(owner)]
    await gateway.wait_for_archive()
    ended = await asyncio.to_thread(gateway.archive.recent, owner)
    kept = [_search_object(number, "done", begun_at, **about) for number, begun_at, about in ended]
    return JsonReply({"object": "list", "data": [*running, *kept]})


def _running(search: RunningSearch) -> dict[str, Any]:
    tokens = 0 if search.event is None else search.event.tokens
    model, question = search.order.offer.name, search.question
    return _search_object(search.number, search.state, search.begun_at, model=model, question=question, tokens=tokens)


def _search_object(number: str, state: str, begun_at: float, **about: Any) -> dict[str, Any]:
    """Return a search as lists have it; of one that another worker runs, the tokens are not known, and 0."""
    about.pop("response", None)
    unknown = {"answer": None, "tokens": 0, "stopped_by": None, "seconds": None}
    return {"id": number, "object": "search", "state": state, "created": begun_at, **unknown, **about}


async def trace(request: Request) -> Response:
    """Return the trace of a finished search."""
    stored_trace = await _keep(request)
    if request.query_params.get("format") == "html":
        page = await asyncio.to_thread(stored_trace.to_html)
        # the page may run its own script, but the sandbox keeps that script from this server
        sandbox = {"content-security-policy": "sandbox allow-scripts"}
        return Response(page, media_type="text/html; charset=utf-8", headers=sandbox)
    text = await asyncio.to_thread(lambda: embed_record(stored_trace.to_dict(), winning_node(stored_trace)))
    return Response(text, media_type="application/json")


async def _keep(request: Request) -> Trace:
    gateway, owner = _gateway_and_owner(request)
    await hold_record(request, request.path_params["number"])
    if (
        stored_trace := await gateway.read_archive(gateway.archive.trace, owner, request.path_params["number"])
    ) is None:
        raise _unknown_request(request)
    return stored_trace


async def events(request: Request) -> Response:
    """Stream the events of a search; a finished search has its nodes and its end."""
    gateway, owner = _gateway_and_owner(request)
    search = gateway.running.get(request.path_params["number"])
    if search is not None and search.client.owner == owner:
        return EventsReply(search_events(gateway, search))
    if gateway.books.find(owner, request.path_params["number"]) is not None:
        return EventsReply(_events_elsewhere(request))
    stored_trace = await _keep(request)
    return Response(await asyncio.to_thread(_whole, stored_trace), media_type="text/event-stream")


def _whole(trace: Trace) -> bytes:
    """Return the events of a search that is over."""
    return _event("nodes", plain_values(trace.nodes)) + _event("end", {"state": "done", "answer": trace.answer})


async def end(request: Request) -> Response:
    """End a search that runs."""
    gateway, owner = _gateway_and_owner(request)
    number = request.path_params["number"]
    search = gateway.running.get(number)
    if search is not None and search.client.owner == owner:
        search.cancel(cancellation_error())
    elif await gateway.end_elsewhere(owner, number) is None:
        raise _unknown_request(request)
    return JsonReply({"id": number, "object": "search", "state": "cancelled"})


async def search_events(gateway: Gateway, search: RunningSearch) -> AsyncGenerator[bytes]:
    """Yield changed nodes and spends of a running search as they come, and its end.

    Pings are sent where nothing happens. Listening does not keep a search running.
    """
    sent_nodes: dict[int, TraceNode] = {}
    sent_event: Event | None = None
    with search.follow(tree=True):
        while True:
            signal = search.signal
            changed_nodes = [node for node in search.tree if sent_nodes.get(node.node) != node]
            if changed_nodes:
                sent_nodes.update((node.node, node) for node in changed_nodes)
                yield _event("nodes", plain_values(changed_nodes))
            event = search.event
            if event is not None and event is not sent_event:
                sent_event = event
                spend = {name: getattr(event, name) for name in ("calls", "tokens", "candidates", "answer")}
                yield _event("spend", {**spend, "budget": search.order.budget.limits})
            if search.over:
                answer = None if search.solution is None else search.solution.answer
                yield _event("end", {"state": search.state, "answer": answer})
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(signal.wait(), gateway.config.ping_s)
                continue
            yield PING


async def _events_elsewhere(request: Request) -> AsyncGenerator[bytes]:
    """Yield the events of a search that another worker runs: its nodes and its end, when it is over."""
    gateway, owner = _gateway_and_owner(request)
    waiting = asyncio.create_task(gateway.wait_elsewhere(owner, request.path_params["number"]))
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=gateway.config.ping_s)
            if not waiting.done():
                yield PING
        stored_trace = await _keep(request)
    except ApiError:  # the search failed, or its trace is not kept
        yield _event("end", {"state": "failed", "answer": None})
        return
    finally:
        waiting.cancel()
    yield await asyncio.to_thread(_whole, stored_trace)


def _event(kind: str, value: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()


def _gateway_and_owner(request: Request) -> tuple[Gateway, str]:
    return request.app.state.gateway, request.state.client.owner


def _unknown_request(request: Request) -> ApiError:
    number = request.path_params["number"][:80]
    return ApiError(
        404, f"there is no search {number!r} of this key, or its trace was not kept", code="search_not_found"
    )


ROUTES = (
    Route("/v1/searches", searches),
    Route("/v1/searches/{number}/trace", trace),
    Route("/v1/searches/{number}/events", events),
    Route("/v1/searches/{number}", end, methods=["DELETE"]),
)
