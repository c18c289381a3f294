"""The pictures of the documentation, drawn at their smallest size."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "pictures.py"
pytestmark = [pytest.mark.docs, pytest.mark.skipif(not SCRIPT.exists(), reason="the scripts are not here")]
NAMES = ("search", "sharing", "budget", "calibration")


def script() -> Any:
    spec = importlib.util.spec_from_file_location("pictures", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_each_is_drawn_the_same_twice(tmp_path: Path) -> None:
    drawing = script()
    first, again = drawing.draw(tmp_path / "a", small=True), drawing.draw(tmp_path / "b", small=True)
    assert [path.stem for path in first] == list(NAMES)
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert ET.fromstring(one.read_text(encoding="utf-8")).find("{http://www.w3.org/2000/svg}desc").text


@pytest.mark.parametrize("name", NAMES)
def test_those_of_the_documents_are_for_light_and_dark_and_load_nothing(name: str) -> None:
    text = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    picture = ET.fromstring(text)
    assert "prefers-color-scheme:dark" in text
    assert picture.get("viewBox", "").startswith("0 0 640 ")
    links = [key for each in picture.iter() for key in each.attrib if key.endswith("href")]
    assert not links
    assert not list(picture.iter("{http://www.w3.org/2000/svg}script"))
