"""`GET /v1/accounts`: what the accounts of a key may spend, and what was spent of them.

What was spent is listed by key and period.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts.serve.access import Client
from tts.serve.failures import ApiError, JsonReply
from tts.serve.gateway import Gateway
from tts.serve.spending.accounts import SharedAccount, to_budget_unit


async def accounts(request: Request) -> Response:
    """List the accounts that a key may name; those of all keys for an operator."""
    gateway, client = _gateway(request), request.state.client
    entries = gateway.accounts.visible_accounts(client.name, operator=client.operator)
    return JsonReply({"object": "list", "data": [_statement(gateway, client, account) for account in entries]})


async def account(request: Request) -> Response:
    """Describe one account."""
    gateway, client, name = _gateway(request), request.state.client, request.path_params["name"]
    for entry in gateway.accounts.visible_accounts(client.name, operator=client.operator):
        if entry.name == name:
            return JsonReply(_statement(gateway, client, entry))
    raise ApiError(404, f"there is no account {name[:80]!r} for this key", code="account_not_found")


def _statement(gateway: Gateway, client: Client, account: SharedAccount) -> dict[str, Any]:
    books, now = gateway.books, gateway.now()
    rows = books.history(account, None if client.operator or client.name == account.name else client.name)
    return {
        "id": account.name,
        "object": "account",
        "limits": _to_budget_units(account.limits),
        "hours": account.hours,
        "begins": account.begin_of_period(now),
        "ends": account.end_of_period(now),
        "spent": _to_budget_units(books.spending(account)),
        "held": _to_budget_units(books.held_of(account)),
        "left": _to_budget_units(books.remainder(account)),
        "spends": [{"key": key, "begins": begins, "spent": _to_budget_units(spent)} for key, begins, spent in rows],
    }


def _to_budget_units(amounts: Mapping[str, int]) -> dict[str, float]:
    return {unit: to_budget_unit(unit, amount) for unit, amount in amounts.items()}


def _gateway(request: Request) -> Gateway:
    return request.app.state.gateway


ROUTES = (Route("/v1/accounts", accounts), Route("/v1/accounts/{name:path}", account))
