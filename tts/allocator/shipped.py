"""The performance models that ship.

They are used where no strategy was given, or `auto` without a model.

A performance model is of one policy, with its verifiers, on one task. Those that ship go by the names of their files,
so that what was run reads the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tts._common.scopes import file_scope
from tts.allocator.performance import PerformanceModel
from tts.allocator.performance_file import REFIT
from tts.models.registry import REINSTALL, SHIPPED
from tts.registry import Scope

FOLDER = SHIPPED / "performance"
_Version = tuple[int, int, int]


@cache
def names() -> tuple[str, ...]:
    """Return the names of those that ship, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def load(model: str) -> PerformanceModel:
    """Return a performance model, by the name of one that ships or by the path of a file.

    Further calls return the same object until the file changes.

    Raises:
        ConfigError: the file cannot be read, or has no performance model.
    """
    path, cure = (FOLDER / f"{model}.json", REINSTALL) if model in names() else (Path(model), REFIT)
    try:
        version = _version(path)
    except (OSError, ValueError):  # `PerformanceModel.load` raises an error that explains this one
        return PerformanceModel.load(path, cure=cure)
    return _load_model(path, cure, version, file_scope())


def _version(path: Path) -> _Version:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=32)
def _load_model(path: Path, cure: str, version: _Version, scope: Scope) -> PerformanceModel:
    """Return the performance model in a version of a file, whose strategies are within a scope."""
    del version, scope
    return PerformanceModel.load(path, cure=cure)


def fitting(
    model: str, task: str, verifiers: Mapping[str, str], others: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """Return the name of the shipped model for a policy, task and verifiers; None: there is none.

    Args:
        model: The name of the policy.
        task: The name of the task.
        verifiers: The verifiers by role, as `describe_verifier` writes them.
        others: Names of the models beside the policy, by role.
    """
    possible = (name for name in names() if _may_fit(name, model))
    return next((name for name in possible if not load(name).fits(model, task, verifiers, others)), None)


def _may_fit(name: str, model: str) -> bool:
    """Return whether a performance model that ships may be fitted to a policy.

    This spares the loading of other performance models, and the import of pydantic for it.
    """
    path = FOLDER / f"{name}.json"
    try:
        return _policy(path, _version(path)) in (model, None)
    except (OSError, ValueError, RecursionError):  # `load` raises an error that explains this one
        return True


@lru_cache(maxsize=32)
def _policy(path: Path, version: _Version) -> Any:
    """Return the policy that a version of a file names, unchecked; None: it names none."""
    del version
    found = json.loads(path.read_text(encoding="utf-8"))
    return found.get("model") if isinstance(found, dict) else None
