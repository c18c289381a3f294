"""Finds what has no contract: names in a table, and public classes in a folder or an add-on."""

from __future__ import annotations

import ast
from collections.abc import Collection
from pathlib import Path

import tts
from tts.registry import Registry

PACKAGE = Path(tts.__file__).parent


def _files(folder: str) -> list[Path]:
    """Return the Python files of a folder of the package, and those of all add-ons."""
    return sorted([*(PACKAGE / folder).rglob("*.py"), *(PACKAGE.parent / "tts_addons").rglob("*.py")])


def classes_with(folder: str, methods: Collection[str], attribute: str = "") -> dict[str, str]:
    """Return "module:Class" of each class in a folder that has these methods (and sets an attribute), but for protocols
    and bases.
    """
    found: dict[str, str] = {}
    for file in _files(folder):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if any(ast.unparse(base).endswith(("Protocol", "ABC")) for base in node.bases):
                continue
            defined = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
            named = {
                target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(target := one.target, ast.Name)
            }
            if set(methods) <= defined and (not attribute or attribute in named):
                module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
                found[f"{module}:{node.name}"] = node.name
    return found


def registered_in(folder: str) -> set[str]:
    """Return "module:Class" of each class in a folder that states the name by which it is registered."""
    found: set[str] = set()
    for file in _files(folder):
        module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and "registered_as" in {
                ast.unparse(t) for one in node.body for t in getattr(one, "targets", [])
            }:
                found.add(f"{module}:{node.name}")
    return found


def descendants(base: type) -> set[type]:
    """Return the classes below a class."""
    return {one for child in base.__subclasses__() for one in (child, *descendants(child))}


def missing(table: Registry, covered: Collection[str]) -> list[str]:
    """Return our own names of a table that have no contract class."""
    return sorted(set(table.entries) - set(covered))
