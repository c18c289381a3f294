"""Registries of names: what can be called by name, here or in another package, resolved on use and never at import."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tts.errors import ConfigError, MissingDependency, TTSError, unknown_name
from tts.places import at_place, dotted


class ClassName:
    """The default of an attribute for a part's name: the name of its class in snake case."""

    def __get__(self, part: object, owner: type) -> str:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", owner.__name__).lower()


class Registry:
    """A table from names to "module:attribute", which other packages extend through an entry-point group.

    A name with a colon is a place itself ("package.module:attribute") and needs no registration. Our own names cannot be taken: an
    entry point of the same name is never loaded. A name that two other packages define is refused when it is used.

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

    def names_it(self, name: str, found: Any) -> bool:
        """Whether a name stands for this very object."""
        try:
            return name in self and self.get(name) is found
        except TTSError:
            return False

    def get(self, name: str) -> Any:
        """Return the class or function that a name or a place stands for.

        Raises:
            ConfigError: nothing has that name or is at that place (the hint has the nearest names), several packages define the name,
                or it stands for something that cannot be called.
            MissingDependency: another package's module cannot be imported.
        """
        if name in self.entries:
            module, _, attribute = self.entries[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        if ":" in name:
            return at_place(self.kind, name)
        found = {entry.value: entry for entry in entry_points(group=self.group) if entry.name == name}
        if not found:
            unknown = unknown_name(self.kind, name, self.names())
            raise ConfigError(unknown.cause, hint=dotted(name) or unknown.hint)
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
