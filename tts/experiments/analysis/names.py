"""Strategies by the names that users give them, and the conditions of their runs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from tts._common.scopes import file_scope
from tts.errors import TTSError, unknown_name
from tts.experiments.study.record import Cell
from tts.search.plan import parse


def strategy_of(name: str, known: Collection[str], kind: str = "strategy") -> str:
    """Return the stored text of a strategy that a user names.

    The name may be written differently from the stored text of the same plan. It may also leave out the selection,
    where only one stored plan has the rest of the name.

    Args:
        name: A strategy, such as "single" for "single | majority".
        known: The stored texts.
        kind: The role of the strategy, for the error.

    Raises:
        ConfigError: The name fits no stored strategy, or several.
    """
    if name in known:
        return name
    with suppress(TTSError):
        text = str(parse(name, file_scope()))
        if text in known:
            return text
    matches = [text for text in known if text.partition(" | ")[0] == name]
    if len(matches) != 1:
        raise unknown_name(kind, name, known)
    return matches[0]


def condition_of(cell: Cell) -> tuple[object, ...]:
    """Return the data set, model, setting and verifiers of a run, under which strategies are compared."""
    return (cell.dataset, cell.model, cell.setting, *sorted(cell.verifiers.items()))
