"""The accounts that pay for requests, and the amounts that a request takes from its account."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.budget.ledger import Amounts
from tts.budget.units import UNITS, USD_UNIT, format_plain
from tts.errors import ConfigError, unknown_name
from tts_addons.gateway.config import GatewayConfig, budget_of
from tts_addons.gateway.failures import api_error

ANYONE: Final = "anyone"  # the client of a gateway without keys
SECONDS_UNIT: Final = 10**6  # the whole units in a second: microseconds


@dataclass(frozen=True, slots=True)
class SharedAccount:
    """An account: the limits that its requests share in each period.

    Args:
        name: The name.
        limits: The limits in whole units, by unit; `seconds` in millionths.
        hours: The length of a period in hours, counted from the epoch; None: one period without an end.
        request: The most of each unit that a request may take, in the units of `Budget`.
        label: The name of the limits in messages.
    """

    name: str
    limits: Amounts
    hours: float | None = None
    request: Mapping[str, float] = field(default_factory=dict[str, float])
    label: str = ""

    def begin_of_period(self, now: float) -> float:
        """Return when the current period began.

        Args:
            now: The seconds since the epoch.
        """
        if self.hours is None:
            return 0.0
        return now // (self.hours * 3600) * self.hours * 3600

    def end_of_period(self, now: float) -> float | None:
        """Return when the current period ends; None: it has no end."""
        return None if self.hours is None else self.begin_of_period(now) + self.hours * 3600

    def complete(self, budget: Budget, named: Collection[str]) -> Budget:
        """Return a request's budget, lowered to what the account allows a request, in every unit.

        Args:
            budget: The budget.
            named: The units that the request itself limits. They are not lowered.

        Raises:
            ApiError: 400, the request names more than the account allows it.
        """
        limits = budget.limits
        for unit, most in self.request.items():
            if unit in named and limits[unit] > most:
                cause = f"budget {unit} is {format_plain(limits[unit])}, but {self.label} allows a request "
                raise api_error(ConfigError(f"{cause}{format_plain(most)}; ask for less"), f"tts.budget.{unit}")
            limits[unit] = min(limits.get(unit, most), most)
        for unit in self.limits.keys() - named:
            limits[unit] = min(limits[unit], to_budget_unit(unit, self.limits[unit]))
        return Budget(**limits)  # pyright: ignore[reportArgumentType]


class Accounts:
    """The accounts of a gateway: one for each key, and the accounts of its configuration.

    Args:
        config: The configuration.
        clients: The names of the keys; empty: there are no keys, and anyone is served.
        again: Whether the keys are read once more. Then a key of an account may be missing, since it was taken away.

    Raises:
        ConfigError: An account is for an unknown key, or for no key.
    """

    def __init__(self, config: GatewayConfig, clients: Collection[str], *, again: bool = False) -> None:
        self.clients = tuple(clients) or (ANYONE,)
        limits = config.limits
        own_limits: Amounts = {} if limits.client_tokens is None else {"tokens": limits.client_tokens}
        label = "limits.client_tokens"
        self._by_name = {
            name: SharedAccount(name, own_limits, limits.client_hours, label=label) for name in self.clients
        }
        self._allowed: dict[str, set[str]] = {client: {client} for client in self.clients}
        for name, settings in config.accounts.items():
            request = budget_of(settings.request).limits if settings.request else {}
            amounts = amounts_of(budget_of(settings.budget))
            self._by_name[name] = SharedAccount(name, amounts, settings.hours, request, f"the account {name!r}")
            for client in settings.keys:
                if client in self._allowed:
                    self._allowed[client].add(name)
                elif not again:
                    raise unknown_name(f"name in accounts.{name}.keys", client, self.clients)
            if not settings.keys and name not in self._allowed and not again:
                raise ConfigError(
                    f"accounts.{name} is for no key: it has no keys, and no key has its name",
                    hint="list names of keys under its keys",
                )

    def paying_account(self, client: str, name: str | None = None) -> SharedAccount:
        """Return the account that pays for a client's request.

        Args:
            client: The name of the client.
            name: The name that the request gives; None: the client's own account.

        Raises:
            ApiError: 400, no account with that name is for this client.
        """
        if name is None:
            # a key that was taken away since it was checked has no account
            return self._by_name.get(client) or SharedAccount(client, {})
        allowed = self._allowed.get(client, set())
        if name not in allowed:
            raise api_error(unknown_name("account", name, sorted(allowed)), "tts.account")
        return self._by_name[name]

    def visible_accounts(self, client: str, *, operator: bool = False) -> list[SharedAccount]:
        """Return the accounts that a client may name; an operator may name those of all clients."""
        names = self._by_name.keys() if operator else self._allowed.get(client, ())
        return [self._by_name[name] for name in sorted(names)]


def amounts_of(budget: Budget) -> dict[str, int]:
    """Return the limits of a budget in whole units, by unit; `seconds` in millionths."""
    seconds = {} if budget.seconds is None else {"seconds": int(budget.seconds * SECONDS_UNIT)}
    return {**budget.whole_units(), **seconds}


def to_budget_unit(unit: str, amount: int) -> float:
    """Return an amount of whole units in the unit of `Budget`: dollars, seconds, or the same number."""
    if unit == "usd":
        return amount / USD_UNIT
    if unit == "seconds":
        return amount / SECONDS_UNIT
    return amount


def part_spending(part: Account) -> dict[str, int]:
    """Return what a request has spent of its part, in whole units, with the seconds since its first call."""
    return {**{unit: part.spending(unit) for unit in UNITS}, "seconds": int(part.elapsed * SECONDS_UNIT)}


def format_amount(unit: str, amount: int) -> str:
    """Return an amount in whole units for messages, such as "0.05 usd"."""
    return f"{format_plain(to_budget_unit(unit, amount), 12)} {unit}"
