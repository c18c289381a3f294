"""The documentation's site: it builds without a warning, has every part and name, loads nothing from elsewhere, and can be read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tts
from tests.support.browser import CHROMIUM, open_page
from tts.search.plan import SELECTIONS, STOP_RULES, STRATEGIES
from tts.verifiers import VERIFIERS

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="the documents are not here"),
    pytest.mark.xdist_group("site"),
]
PAGES = ("index", "reference/methods", "reference/methods/beam", "reference/python/values", "how-to/gateway", "results/methods")
# what the switch of colours keeps between pages
CHOSEN = """localStorage.setItem(__md_scope.pathname + ".__palette", JSON.stringify(
  {index: INDEX, color: {media: "(prefers-color-scheme: SCHEME)", scheme: "NAME", primary: "custom", accent: "custom"}}));"""
SCHEMES = {"light": ("0", "default"), "dark": ("1", "slate")}
READABLE = (Path(__file__).parent / "support" / "readable.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The site, built with warnings as errors, once for all tests."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    pytest.importorskip("material", reason="the extra docs is not installed")
    pytest.importorskip("mkdocstrings_handlers.python", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    yield folder
    shutil.rmtree(folder)


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(https?:[^\"]+)", text)
        styles = re.findall(r"<link\b(?=[^>]*rel=\"(?:stylesheet|preconnect|icon)\")[^>]*href=\"(https?:[^\"]+)", text)
        assert loaded + styles == [], page


@pytest.mark.parametrize("registry", [STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS], ids=lambda registry: registry.kind)
def test_every_part_has_a_page_with_its_lines(registry: object, site: Path) -> None:
    for name in registry.entries:  # type: ignore[attr-defined]
        text = (site / "reference" / "methods" / f"{name}.html").read_text(encoding="utf-8")
        assert "our lines" in text.lower(), name
        assert re.search(r"\bdef \w", re.sub(r"<[^>]+>", "", text)), name


def test_every_public_name_has_its_place(site: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "reference" / "python").glob("*.html"))
    for name in set(tts.__all__) - {"__version__"}:
        assert f'id="tts.{name}"' in text or f"<code>tts.{name}</code>" in text, name


def test_every_command_and_every_key_of_the_files_has_its_line(site: Path) -> None:
    from tts.experiments.study.config import StudyConfig
    from tts.serve.config import GatewayConfig, GatewayLimits

    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for name in ("solve", "run", "replay", "import", "serve", "models add", "verifiers report"):
        assert f"tts {name}" in commands, name
    for page, sections in (("study_file", [StudyConfig]), ("gateway_file", [GatewayConfig, GatewayLimits])):
        text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        for section in sections:
            for key in section.model_fields:
                row = re.search(rf"<td[^>]*><code>{key}</code></td>\s*<td.*?</td>\s*<td.*?</td>\s*<td[^>]*>(.*?)</td>", text, re.DOTALL)
                assert row is not None, key
                assert row[1].strip(), f"{section.__name__} does not say what {key} means"


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", ["1400,900", "500,900"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_can_be_read(site: Path, name: str, size: str, scheme: str) -> None:
    text = (site / f"{name}.html").read_text(encoding="utf-8")
    html = text.replace("</body>", f"<script>{READABLE}</script></body>")
    index, chosen = SCHEMES[scheme]
    script = CHOSEN.replace("INDEX", index).replace("SCHEME", scheme).replace("NAME", chosen)
    html = html.replace("</head>", f"<script>{script}</script></head>")
    assert READABLE in html
    page = open_page(html, (site / f"{name}.html").parent, size=size)
    assert page.log == []
    assert page.body["data-md-color-scheme"] == chosen
    found = json.loads(page.body["data-found"])
    assert found == {"faint": [], "bare": [], "wide": 0}
