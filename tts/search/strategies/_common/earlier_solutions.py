"""Prompts that show earlier solutions to the model, where the task and the context let them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tts.errors import ConfigError
from tts.types import Trajectory

if TYPE_CHECKING:
    from tts.search.search import Search


async def opened(search: Search, kind: str, texts: Sequence[str], group: int | None = None) -> Trajectory | None:
    """Return the root of a prompt that shows earlier solutions; None where the task refuses them or they fill the context.

    Raises:
        SearchEnded: the budget cannot pay it.
    """
    try:
        return await search.open(kind, *texts, group=group)
    except ConfigError:  # of which the search warns
        return None
