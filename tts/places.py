"""Places, "package.module:name", which stand for what is defined there: from a text to the object, and from a class to its text."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from tts.errors import ConfigError, MissingDependency

_INNER = "<locals>"  # in the qualified name of what a function defines


def place_of(cls: type) -> str:
    """Return the place of a class: "module:Class", "module:Outer.Inner"; that of a class within a function cannot be read back."""
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__  # the main module, in processes that it spawned
    return f"{module}:{cls.__qualname__}"


def is_at_its_place(cls: type) -> bool:
    """Whether the place of a class stands for that class."""
    try:
        return _INNER not in cls.__qualname__ and attrgetter(cls.__qualname__)(sys.modules[cls.__module__]) is cls
    except (KeyError, AttributeError):
        return False


def at_place(kind: str, place: str) -> Any:
    """Return what a place stands for.

    Raises:
        ConfigError: nothing is there (the hint has the nearest names), what is there cannot be called, or another module of the same
            name hides that of the current folder.
        MissingDependency: the module is there, but importing it fails.
    """
    module, _, attribute = place.partition(":")
    what = f"the {kind} {place!r}"
    if _INNER in attribute:
        raise ConfigError(f"{what} is defined within a function, where no name reaches it", hint="define it at the top of its module")
    path = attribute.split(".")
    if not all(part.isidentifier() for part in (*path, *module.split("."))):
        raise ConfigError(f"{what} cannot be read", hint="write package.module:name")
    _check_not_hidden(what, module)
    if not _is_module(module):
        raise ConfigError(
            f"{what} cannot be loaded: no module {module!r} is in the current folder or installed", hint=_nearest_module(module, attribute)
        )
    try:
        home = importlib.import_module(module)
    except (Exception, SystemExit) as failure:  # the boundary: other people's modules may raise anything when imported
        why = " ".join(f"{type(failure).__name__}: {failure}".split())
        raise MissingDependency(f"{what} cannot be loaded: {why}", hint=f"repair the module {module}") from failure
    found: Any = home
    for name in path:
        if not hasattr(found, name):
            raise _nothing_there(what, place, home, found, name)
        found = getattr(found, name)
    if not callable(found):
        raise ConfigError(f"{what} is a {type(found).__name__}, but must be a class or a function", hint="write a function that returns it")
    return found


def _nothing_there(what: str, place: str, home: ModuleType, owner: Any, name: str) -> ConfigError:
    found = vars(owner) if hasattr(owner, "__dict__") else {}
    own = [name for name, value in found.items() if not isinstance(value, ModuleType) and not name.startswith("_")]
    made_here = [name for name in own if getattr(found[name], "__module__", None) == home.__name__]
    near = difflib.get_close_matches(name, own, n=3) or sorted(made_here or own)[:8]
    where = getattr(home, "__file__", None) or "built in"
    holder = home.__name__ if owner is home else place.rpartition(".")[0]
    return ConfigError(f"{what} cannot be loaded: {holder!r} ({where}) has no {name!r}", hint=f"it has {', '.join(near) or 'nothing'}")


def _is_module(name: str) -> bool:
    """Whether a module can be found, without importing it; its parent packages are imported."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as missing:  # a parent is absent, or is no package
        return not (missing.name and f"{name}.".startswith(f"{missing.name}."))  # else a parent fails to import something: shown later
    except (Exception, SystemExit):  # noqa: BLE001 - a parent fails to import: importing the module shows how
        return True


def _check_not_hidden(what: str, module: str) -> None:
    """Refuse a module where the current folder, of which modules are imported, has another one of that name."""
    top = module.partition(".")[0]
    here = next((path for path in (Path(f"{top}.py"), Path(top, "__init__.py")) if path.is_file()), None)
    if here is None or not _imports_from_here():
        return
    loaded = sys.modules.get(top)
    spec = None if top == "__main__" else getattr(loaded, "__spec__", None) if loaded is not None else find_spec(top)
    origin = None if spec is None else spec.origin
    if spec is None or (origin is not None and Path(origin).exists() and here.samefile(origin)):
        return
    where = "built into Python" if origin in {"built-in", "frozen"} else origin or "another package"
    raise ConfigError(f"{what} cannot be loaded: {top!r} is {where}, which hides ./{here}: rename it", hint=f"for example my_{here}")


def _imports_from_here() -> bool:
    here = Path.cwd()
    return any(not entry or Path(entry).resolve() == here for entry in sys.path)


def _nearest_module(module: str, attribute: str) -> str:
    """Return the hint for a module that is not there."""
    if module.endswith(".py"):
        return f"write {module.removesuffix('.py')}:{attribute}, without .py"
    near = difflib.get_close_matches(module, _modules_here(), n=3)
    return f"did you mean {' or '.join(f'{name}:{attribute}' for name in near)}?" if near else "check its name"


def _modules_here() -> Iterable[str]:
    return sorted({path.stem for path in (*Path().glob("*.py"), *(found.parent for found in Path().glob("*/__init__.py")))})


def dotted(name: str) -> str:
    """Return the hint for a dotted name that may have been meant as a place; "" where it was not."""
    module, dot, attribute = name.rpartition(".")
    return f"a place is written {module}:{attribute}" if dot and all(map(str.isidentifier, name.split("."))) else ""
