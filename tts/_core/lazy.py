"""Public names of a package that are imported on first use (PEP 562).

The import of the package itself then costs nothing.
"""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package.

    They cover the names that the package imports under TYPE_CHECKING.

    Args:
        package: The name of the package.
    """
    spec: Any = sys.modules[package].__spec__
    module_of = _imports_for_types(spec.loader.get_code(package))
    names = sorted(module_of)

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(module_of[name])
        except ModuleNotFoundError as failure:
            if (failure.name or "").split(".")[0] != "tts_addons":
                raise
            text = f"{package}.{name} is in an add-on, which is not installed: install the whole of test-time-search"
            raise ModuleNotFoundError(text, name=failure.name) from None
        value = getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{module.__name__}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: names, names


def _imports_for_types(code: CodeType) -> dict[str, str]:
    """Return the names that a module imports below `if TYPE_CHECKING:`, with the module of each.

    They are read from compiled code, so source files need not be installed.
    """
    module_of: dict[str, str] = {}
    module = ""
    is_below = False  # whether `TYPE_CHECKING` has been read
    for instruction in dis.get_instructions(code):
        if (instruction.opname, instruction.argval) == ("LOAD_NAME", "TYPE_CHECKING"):
            is_below = True
        elif is_below and instruction.opname == "IMPORT_NAME":
            module = instruction.argval
        elif is_below and instruction.opname == "IMPORT_FROM":
            module_of[instruction.argval] = module
    return module_of
