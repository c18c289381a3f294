"""Public names of a package that are imported on first use (PEP 562).

The import of the package itself then costs nothing.
"""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable
from itertools import dropwhile
from types import CodeType
from typing import Any

from tts.renamed import successor


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package.

    They cover the names that the package imports under TYPE_CHECKING.

    Args:
        package: Its name.
    """
    spec: Any = sys.modules[package].__spec__
    home_of = _imports_for_types(spec.loader.get_code(package))
    names = sorted(home_of)

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(successor(f"{package}.{name}") or f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(home_of[name])
        value = getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{home.__name__}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: names, names


def _imports_for_types(code: CodeType) -> dict[str, str]:
    """Return the names that a module imports below `if TYPE_CHECKING:`, with the module of each.

    They are read from compiled code, so source files need not be installed.
    """
    found: dict[str, str] = {}
    home = ""
    for step in dropwhile(
        lambda step: (step.opname, step.argval) != ("LOAD_NAME", "TYPE_CHECKING"), dis.get_instructions(code)
    ):
        if step.opname == "IMPORT_NAME":
            home = step.argval
        elif step.opname == "IMPORT_FROM":
            found[step.argval] = home
    return found
