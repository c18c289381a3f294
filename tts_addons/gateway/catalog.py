"""`GET /v1/models`, `GET /health` and `GET /ready`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts.models.record import ModelRecord
from tts.models.settings import PRICES
from tts.search.plan import parse
from tts_addons.gateway.failures import JsonReply
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.offers import Offer
from tts_addons.gateway.spending.defaults import default_budget


async def models(request: Request) -> Response:
    """List every model and each of its presets."""
    gateway: Gateway = request.app.state.gateway
    return JsonReply({"object": "list", "data": [_entry(gateway, offer) for offer in gateway.offers.by_name.values()]})


async def model(request: Request) -> Response:
    """Describe one model or preset."""
    gateway: Gateway = request.app.state.gateway
    return JsonReply(_entry(gateway, gateway.offers.get(request.path_params["name"])))


def _entry(gateway: Gateway, offer: Offer) -> dict[str, Any]:
    """Return the entry of a model or preset in the list of models."""
    preset, settings = offer.preset, offer.settings
    strategy = preset.strategy if preset.strategy is not None else settings.strategy
    record, limits = gateway.offers.policy(offer), gateway.config.limits
    budget: Any = offer.limits
    if not budget:
        plan = None if strategy is None else parse(strategy)
        budget = default_budget(settings, record, plan, None, limits).limits
    return {
        "id": offer.name,
        "object": "model",
        "created": 0,
        "owned_by": "tts",
        "description": preset.description,
        "tts": {"strategy": strategy or "auto", "budget": budget.get("tokens") if len(budget) == 1 else budget},
        "most_tokens": limits.tokens,
        "price": _price(record),
    }


def _price(record: ModelRecord) -> dict[str, float | None] | None:
    """Return the prices of a model in dollars per million tokens; None: it has no price above 0."""
    prices = {name: getattr(record, name) for name in PRICES}
    if not any(prices.values()):
        return None
    return {name: None if price is None else float(price) for name, price in prices.items()}


async def health(request: Request) -> Response:
    """Report that requests are accepted; 503 while the server shuts down."""
    gateway: Gateway = request.app.state.gateway
    gateway.refuse_if_closing()
    return JsonReply({"status": "ok"})


async def ready(request: Request) -> Response:
    """Report the number of models with a server that works.

    The status is 503 where no model has such a server, or while this server shuts down.
    """
    gateway: Gateway = request.app.state.gateway
    gateway.refuse_if_closing()
    servers = gateway.offers.servers.values()
    num_working = sum(model_servers.awake > 0 for model_servers in servers)
    report = {"status": "ready" if num_working else "unready", "models": len(servers), "working": num_working}
    return JsonReply(report, 200 if num_working else 503)


ROUTES = (
    Route("/v1/models", models),
    Route("/v1/models/{name:path}", model),
    Route("/health", health),
    Route("/ready", ready),
)
