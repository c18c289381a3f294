"""Interfaces by which the agents of a workspace call a model, with keys that are leases.

`tts_addons.agents.door` implements them, since a gateway keeps the leases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tts.backends.base import Backend
from tts.types import Usage


class Loan(Protocol):
    """A key for one row, with limits on the cost of its calls of the model.

    Attributes:
        url: The gateway, without the path of an API.
        key: The key.
        model: The model's name on the gateway.
        calls: The number of calls that were made.
        stop: A function that is called when a second call is refused, since the agent goes on without a model.
    """

    url: str
    key: str
    model: str
    calls: int
    stop: Callable[[], None]

    @property
    def is_used_up(self) -> bool:
        """Whether the limits are reached, or a call was refused or cut."""
        ...

    def end(self) -> Usage:
        """Make the key invalid, end its calls, and return their usage."""
        ...


class Door(Protocol):
    """An entrance through which agents call a model, each row with its own key.

    Attributes:
        backend: The model.
    """

    backend: Backend

    def lend(self, limits: Mapping[str, int], seed: int) -> Loan:
        """Return a new key.

        Args:
            limits: The most that the calls of the key may spend, in whole units, by the name of the limit.
            seed: The seed of the calls' random draws.
        """
        ...

    def close(self, *, waits: bool = True) -> None:
        """End all calls.

        Args:
            waits: Whether to wait for the end of the calls. This must be False in the thread of the library's event
                loop.
        """
        ...
