"""What a workspace needs so that its agents call a model: keys that are leases.

`tts.serve.leases` has it, for a gateway keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tts.backends.base import Backend
from tts.types import Usage


class Loan(Protocol):
    """A key for one row, and what its calls of the model may spend.

    Attributes:
        url: The gateway, without the path of an API.
        key: The key.
        model: The name by which the model is asked for.
        calls: The calls that were made.
        stop: A function that is called when a second call is refused: the agent goes on without a model.
    """

    url: str
    key: str
    model: str
    calls: int
    stop: Callable[[], None]

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left, or a call was refused or cut."""
        ...

    def end(self) -> Usage:
        """Let the key be of no use any more, end its calls, and return what they have spent."""
        ...


class Door(Protocol):
    """Where agents call a model, each row by a key of its own.

    Attributes:
        backend: The model.
    """

    backend: Backend

    def lend(self, limits: Mapping[str, int], seed: int) -> Loan:
        """Return a new key.

        Args:
            limits: What its calls may spend, in whole units.
            seed: What the draws of its calls follow from.
        """
        ...

    def close(self, *, waits: bool = True) -> None:
        """End all calls.

        Args:
            waits: Whether to return when they have ended; not in the thread of the library's event loop.
        """
        ...
