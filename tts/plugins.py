"""Tables of names: what can be called by name, here or in another package, resolved on use and never at import."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tts.errors import ConfigError, MissingDependency, unknown_name


class Table:
    """A plain table from names to "module:attribute", which third parties extend through an entry-point group.

    Our own names cannot be taken: an entry point of the same name is never loaded. A name that two other packages give to
    different things is refused when it is asked for, and no sooner.

    Args:
        kind: what the names are, for messages. group: the entry-point group. entries: our own.
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self.entries = dict(entries)

    def names(self) -> list[str]:
        """Return every name, ours and third parties', sorted; nothing is loaded."""
        return sorted({*self.entries, *(entry.name for entry in entry_points(group=self.group))})

    def __contains__(self, name: str) -> bool:
        return name in self.entries or name in entry_points(group=self.group).names

    def get(self, name: str) -> Any:
        """Return the class or function that a name stands for.

        Raises:
            ConfigError: nothing has that name (the nearest names are in the hint), several packages give it to different things,
                or it stands for nothing that can be called.
            MissingDependency: another package's module cannot be imported.
        """
        if name in self.entries:
            module, _, attribute = self.entries[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        found = {entry.value: entry for entry in entry_points(group=self.group) if entry.name == name}
        if not found:
            raise unknown_name(self.kind, name, self.names())
        if len(found) > 1:
            packages = " and ".join(sorted(map(_package, found.values())))
            raise ConfigError(f"{self.kind} {name!r} is in the packages {packages}, but only one may give it", hint="uninstall the others")
        return self._load(*found.values())

    def _load(self, entry: EntryPoint) -> Any:
        what = f"{self.kind} {entry.name!r} of the package {_package(entry)}"
        try:
            loaded = entry.load()
        except Exception as failure:  # the boundary: other people's modules may raise anything when imported
            why = " ".join(f"{type(failure).__name__}: {failure}".split())
            raise MissingDependency(f"{what} cannot be loaded: {why}", hint=f"repair or uninstall {_package(entry)}") from failure
        if not callable(loaded):
            raise ConfigError(f"{what} is {entry.value}, a {type(loaded).__name__}, but must be a class or a function")
        return loaded


def _package(entry: EntryPoint) -> str:
    return "of an unknown name" if entry.dist is None else entry.dist.name
