"""`GET /v1/accounts`: the limits of a key's accounts, and their spends by key and period."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts_addons.gateway.access import Client
from tts_addons.gateway.failures import ApiError, JsonReply
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.spending.accounts import SharedAccount, to_budget_unit


async def accounts(request: Request) -> Response:
    """List the accounts that a key may name; an operator gets the accounts of all keys."""
    gateway, client = _gateway(request), request.state.client
    visible = gateway.accounts.visible_accounts(client.name, operator=client.operator)
    return JsonReply({"object": "list", "data": [_statement(gateway, client, account) for account in visible]})


async def account(request: Request) -> Response:
    """Describe the account that the path names.

    Raises:
        ApiError: 404, the key may name no such account.
    """
    gateway, client, name = _gateway(request), request.state.client, request.path_params["name"]
    for visible_account in gateway.accounts.visible_accounts(client.name, operator=client.operator):
        if visible_account.name == name:
            return JsonReply(_statement(gateway, client, visible_account))
    raise ApiError(404, f"there is no account {name[:80]!r} for this key", code="account_not_found")


def _statement(gateway: Gateway, client: Client, account: SharedAccount) -> dict[str, Any]:
    """Return the description of an account; other keys' spends only for its own key and for operators."""
    books, now = gateway.books, gateway.now()
    sees_all_spends = client.operator or client.name == account.name
    spends = books.history(account, None if sees_all_spends else client.name)
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
        "spends": [{"key": key, "begins": begins, "spent": _to_budget_units(spent)} for key, begins, spent in spends],
    }


def _to_budget_units(amounts: Mapping[str, int]) -> dict[str, float]:
    return {unit: to_budget_unit(unit, amount) for unit, amount in amounts.items()}


def _gateway(request: Request) -> Gateway:
    return request.app.state.gateway


ROUTES = (Route("/v1/accounts", accounts), Route("/v1/accounts/{name:path}", account))
