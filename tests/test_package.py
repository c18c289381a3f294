"""What stands around the package: citation and metadata."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import tts

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.docs, pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the documents are not here")]


def test_every_place_states_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == tts.__version__
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert str(citation["version"]) == tts.__version__
    assert f"version = {{{tts.__version__}}}" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert citation["license"] == project["license"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = str(citation.get("date-released", "unreleased"))
    assert re.search(r"^## (\S+) - (\S+)$", changes, re.MULTILINE).groups() == (tts.__version__, released)


def test_types_are_marked() -> None:
    assert all((ROOT / package / "py.typed").exists() for package in ("tts", "tts_addons"))


@pytest.mark.parametrize("name", ["search", "verifiers", "backends", "experiments"])
def test_the_root_links_to_the_main_parts_of_the_package(name: str) -> None:
    assert (ROOT / name).is_symlink()
    assert (ROOT / name).resolve() == (ROOT / "tts" / name).resolve()
    assert f"`{name}`" in (ROOT / "README.md").read_text(encoding="utf-8").rsplit("## Read on", 1)[1]
