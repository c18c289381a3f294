"""Public names of a package that are imported on first use (PEP 562), so that importing the package itself costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tts.renamed import renamed


def lazy_exports(package: str, homes: Mapping[str, str | Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: its name. homes: the public names, with spaces between them or in a tuple, by the module that defines them, or the package
            that they are modules of.
    """
    home_of = {name: module for module, names in homes.items() for name in (names.split() if isinstance(names, str) else names)}
    names = sorted(home_of)

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(renamed(f"{package}.{name}") or f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(home_of[name])
        value = getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{home.__name__}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: names, names
