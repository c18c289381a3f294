"""Tables of names: what can be called by name, here or in another package, resolved on use and never at import."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from tts.errors import unknown_name


class Table:
    """A plain table from names to "module:attribute", which third parties extend through an entry-point group.

    Args:
        kind: what the names are, for messages. group: the entry-point group. entries: our own.
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self.entries = dict(entries)

    def names(self) -> list[str]:
        """Return every name, ours and third parties', sorted."""
        return sorted({*self.entries, *(entry.name for entry in entry_points(group=self.group))})

    def get(self, name: str) -> Any:
        """Return what a name stands for.

        Raises:
            ConfigError: nothing has that name; the nearest names are in the hint.
        """
        if name in self.entries:
            module, _, attribute = self.entries[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        for entry in entry_points(group=self.group):
            if entry.name == name:
                return entry.load()
        raise unknown_name(self.kind, name, self.names())
