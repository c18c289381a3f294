"""The documentation's site: it builds without a warning, has every part and name, loads nothing from elsewhere, and can
be read.
"""

from __future__ import annotations

import importlib
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
from tests.support.browser import CHROMIUM
from tests.support.devtools import tab
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.verifiers import VERIFIERS

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="the documents are not here"),
    pytest.mark.xdist_group("site"),
]
PAGES = (
    "index.html",
    "reference/methods.html",
    "reference/methods/beam.html",
    "reference/python/values.html",
    "results/methods.html",
)
SCHEMES = {"light": "default", "dark": "slate"}
READABLE = (Path(__file__).parent / "support" / "readable.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The site, built with warnings as errors, once for all tests."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    pytest.importorskip("material", reason="the extra docs is not installed")
    pytest.importorskip("mkdocstrings_handlers.python", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    yield folder
    shutil.rmtree(folder)


def test_the_site_has_a_list_of_its_pages_and_one_text_for_language_models(site: Path) -> None:
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert [link for link in links if not (site / link).exists()] == [] != links
    text = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert "<!-- README.md -->" in text
    assert (ROOT / "docs" / "choose.md").read_text(encoding="utf-8").strip() in text
    assert "<!-- docs/results/" not in text


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(https?:[^\"]+)", text)
        styles = re.findall(r"<link\b(?=[^>]*rel=\"(?:stylesheet|preconnect|icon)\")[^>]*href=\"(https?:[^\"]+)", text)
        assert loaded + styles == [], page


@pytest.mark.parametrize(
    "registry", [STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS], ids=lambda registry: registry.kind
)
def test_every_part_has_a_page_with_its_lines(registry: object, site: Path) -> None:
    for name in registry.entries:  # type: ignore[attr-defined]
        text = (site / "reference" / "methods" / f"{name}.html").read_text(encoding="utf-8")
        assert "our code" in text.lower(), name
        assert re.search(r"\bdef \w", re.sub(r"<[^>]+>", "", text)), name


def test_every_public_name_has_its_place(site: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "reference" / "python").glob("*.html"))
    for name in set(tts.__all__) - {"__version__"}:
        assert f'id="tts.{name}"' in text or f"<code>tts.{name}</code>" in text, name


def test_every_command_and_every_key_of_the_files_has_its_line(site: Path) -> None:
    from tts.experiments.study.config import StudyConfig
    from tts_addons.gateway.config import GatewayAccount, GatewayConfig, GatewayLimits

    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for name in ("solve", "run", "replay", "import", "serve", "models add", "verifiers report"):
        assert f"tts {name}" in commands, name
    for page, sections in (
        ("study_file", [StudyConfig]),
        ("gateway_file", [GatewayConfig, GatewayLimits, GatewayAccount]),
    ):
        text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        for section in sections:
            for key in section.model_fields:
                row = re.search(
                    rf"<td[^>]*><code>{key}</code></td>\s*<td.*?</td>\s*<td.*?</td>\s*<td[^>]*>(.*?)</td>",
                    text,
                    re.DOTALL,
                )
                assert row is not None, key
                assert row[1].strip(), f"{section.__name__} does not say what {key} means"


def shown(page: Path) -> str:
    """What a page shows beside its head, foot and navigation."""
    found = re.search(r"<article.*</article>", page.read_text(encoding="utf-8"), re.DOTALL)
    return found[0] if found else ""


def test_every_figure_has_words_and_the_command_that_made_it(site: Path) -> None:
    figures = 0
    for page in site.rglob("*.html"):
        text = shown(page)
        pictures = re.findall(r"<img\b[^>]*>", text)
        assert all(re.search(r'\balt="[^"]{20,}"', picture) for picture in pictures), page
        command = re.search(r"<code[^>]*>(?:python|make|tts)\b|<span[^>]*>(?:python|make|tts)</?\b", text)
        assert command or not pictures, f"{page.relative_to(site)}: a figure, and no command"
        figures += len(pictures)
    assert figures > 90


@pytest.mark.parametrize(
    "name", [name for registry in (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS) for name in registry.entries]
)
def test_a_methods_page_has_its_cost_and_its_figure(site: Path, name: str) -> None:
    text = shown(site / "reference" / "methods" / f"{name}.html")
    assert re.search(r"<th[^>]*>Cost</th>\s*<th[^>]*>Pays</th>\s*<th[^>]*>Measured</th>", text)
    assert f'src="{name}.svg"' in text
    assert f"<code>python scripts/site_figures.py {name}" in text
    drawn = (site / "reference" / "methods" / f"{name}.svg").read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in drawn
    assert "animation" not in drawn
    assert 'viewBox="0 0 640 ' in drawn
    assert not re.search(r"<script|href=", drawn)
    assert len(drawn) < 40_000


@pytest.mark.parametrize(
    "name", [name for registry in (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS) for name in registry.entries]
)
def test_a_methods_page_writes_out_what_it_inherits_and_links_its_paper_and_the_others(site: Path, name: str) -> None:
    page = site / "reference" / "methods" / f"{name}.html"
    text = shown(page)
    parameters = text.partition("A parameter outside of its range")[2].partition('id="our-code"')[0]
    assert not re.search(r"[;:–-] as in <code>", parameters), name
    cited = re.findall(r"(?<![\w./])\d{4}\.\d{4,5}(?!\w)", re.search(r"<tbody>.*?</tbody>", text, re.DOTALL)[0])
    assert all(f'href="https://arxiv.org/abs/{number}"' in text for number in cited), name
    other = "beam" if name != "beam" else "rebase"
    navigation = page.read_text(encoding="utf-8").partition('data-md-type="navigation"')[2].partition("<article")[0]
    assert f'href="{other}.html"' in navigation or "Strategies" in navigation, name


def test_parameters_of_bases_are_on_the_page(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", shown(site / "reference" / "methods" / "beam.html"))
    for words in (
        "max_steps",
        "The most steps of a path, the last of which runs to the end of the solution",
        "The paths at each level, at least 1",
    ):
        assert words in text, words


def test_measurements_have_a_heading_of_their_own_and_records_come_last_in_the_search(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    tabs = re.findall(r'class="md-tabs__link"[^>]*>\s*([\w-]+)', home)
    assert tabs == ["Home", "What", "Tutorials", "How-to", "Add-ons", "Reference", "Explanation", "Measurements"]
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    boosts = {one["location"].partition("#")[0]: one.get("boost", 1) for one in index["docs"] if "boost" in one}
    records = {one["location"].partition("#")[0] for one in index["docs"] if one["location"].startswith("decisions/")}
    assert records
    assert all(boosts[record] < 0.1 for record in records)


def test_links_are_named_by_what_they_lead_to() -> None:
    for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"):
        if not {"results", "decisions"} & set(page.parts):
            vague = re.findall(
                r"\[((?:this|its|the) page|here|results|below|page)\]\(",
                page.read_text(encoding="utf-8"),
                re.IGNORECASE,
            )
            assert vague == [], page


def test_the_example_of_a_study_is_code(site: Path) -> None:
    text = (site / "reference" / "python" / "studies.html").read_text(encoding="utf-8")
    own = text.partition('id="tts.Study"')[2].partition('id="tts.Study.run"')[0]
    shown_code = re.sub(r"<[^>]+>", "", "".join(re.findall(r"<pre>.*?</pre>", own, re.DOTALL)))
    assert "study = tts.Study(" in shown_code
    assert (
        "tts.Study("
        not in re.sub(r"<[^>]+>", "", re.sub(r"<pre>.*?</pre>", "", own, flags=re.DOTALL)).partition("Parameters")[0]
    )


def test_a_figure_is_the_same_again(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    figures = importlib.import_module("site_figures")
    for name in ("beam", "unanimous", "borda", "judge"):
        assert figures.figure(name).picture == (site / "reference" / "methods" / f"{name}.svg").read_text(
            encoding="utf-8"
        )


def test_examples_of_docstrings_are_code(site: Path) -> None:
    for page in (site / "reference").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<blockquote>\s*<blockquote>", text), page


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 360])
@pytest.mark.parametrize("every", [16, pytest.param(4, marks=pytest.mark.slow)])
def test_pages_can_be_read(site: Path, every: int, width: int, scheme: str, tmp_path: Path) -> None:
    """The first pages of each part at both widths in both schemes; of the others one in four at one of them each, and
    all with 4.
    """
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    turn = 2 * (width == 360) + (scheme == "dark")
    found: dict[str, object] = {}
    with tab(tmp_path) as browser:
        browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.send("Emulation.setScrollbarsHidden", hidden=True)
        browser.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        for name in dict.fromkeys([*PAGES, *pages[turn * every // 4 :: every]]):
            browser.send("Page.navigate", url=(site / name).as_uri())
            browser.wait_for(f"location.pathname.endsWith({json.dumps(name)}) && document.readyState === 'complete'")
            assert browser.run("document.body.dataset.mdColorScheme") == SCHEMES[scheme]
            browser.run(READABLE)
            said = json.loads(browser.run("document.body.dataset.found"))
            if said != {"faint": [], "bare": [], "skipped": [], "wide": 0} or browser.log:
                found[name] = [said, *browser.log]
                browser.log.clear()
    assert found == {}


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("name", ["index", "reference/methods/beam"])
def test_the_search_finds_pages_that_are_opened_as_files(site: Path, name: str, tmp_path: Path) -> None:
    results = "[...document.querySelectorAll('.md-search-result__link')]"
    with tab(tmp_path) as page:
        page.send("Page.navigate", url=(site / f"{name}.html").as_uri())
        page.wait_for("location.protocol === 'file:' && document.readyState === 'complete'")
        page.run("document.querySelector('[data-md-component=search-query]').focus()")
        page.type("particle gibbs")
        page.press("End")  # the page looks when a key is released
        wanted = (site / "reference/methods/particle_gibbs.html").as_uri()
        page.wait_for(f"{results}.some(one => one.href.startsWith({json.dumps(wanted)}))")
        assert page.log == []
        assert [url for url in page.urls if not url.startswith(("file:", "data:"))] == []


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_search_finds_what_newcomers_look_for(site: Path, tmp_path: Path) -> None:
    """The site's own search, in a browser: a page for use is first, and no decision is among the first three."""
    wanted = {
        "quickstart": "tutorials/first_solve", "timeout": "how-to/servers/failures", "retry": "how-to/servers/failures",
        "temperature": "choose", "DataFrame": "how-to/studies", "latex": "how-to/study_results",
        "price": "how-to/budgets", "resume": "how-to/studies", "verifier": "how-to/reward_models",
        "reward model": "how-to/reward_models", "install": "how-to/install", "choose": "choose",
    }  # fmt: skip
    results = "[...document.querySelectorAll('.md-search-result__item > .md-search-result__link')].map(one => one.href)"
    with tab(tmp_path) as page:
        for word, place in wanted.items():
            address = word.replace(" ", "_")
            page.send("Page.navigate", url=(site / "index.html").as_uri() + f"?{address}")
            page.wait_for(f"location.search === '?{address}' && document.readyState === 'complete'")
            page.run("document.querySelector('[data-md-component=search-query]').focus()")
            page.type(word)
            page.press("End")
            page.wait_for(f"{results}[0]?.startsWith({json.dumps((site / f'{place}.html').as_uri())})")
            assert not any("/decisions/" in one for one in page.run(f"{results}.slice(0, 3)")), word


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_code_fits_its_page(site: Path, tmp_path: Path) -> None:
    pages = (
        "index", "choose", "tutorials/first_solve", "tutorials/scaling_curve", "how-to/studies", "how-to/study_results",
        "how-to/gateway", "how-to/gateway_requests", "how-to/clients", "reference/methods/beam", "how-to/command_line",
    )  # fmt: skip
    wide = (
        "[...document.querySelectorAll('pre > code')].filter(one => one.scrollWidth > one.clientWidth + 1).map(one "
        "=> one.textContent)"
    )
    with tab(tmp_path) as page:
        page.send("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
        for name in pages:
            page.send("Page.navigate", url=(site / f"{name}.html").as_uri())
            page.wait_for(
                f"location.pathname.endsWith({json.dumps(name + '.html')}) && document.readyState === 'complete'"
            )
            assert page.run(wide) == [], name


def test_what_commands_print_fits_a_page() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for shown_block in re.findall(r'```text title="Output"\n(.*?)```', page.read_text(encoding="utf-8"), re.DOTALL):
            assert max(map(len, shown_block.splitlines())) <= 100, page


FOCUSED = """(() => {
  const own = document.activeElement, style = getComputedStyle(own);
  const field = own.matches("body, [data-md-component=search-query], [type=radio], [type=checkbox]");
  return [own.textContent.trim().slice(0, 30), field || (style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2)];
})()"""  # noqa: E501


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("width", [1400, 360])
def test_what_the_keyboard_reaches_shows_that_it_has_the_focus(site: Path, width: int, tmp_path: Path) -> None:
    with tab(tmp_path) as page:
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        page.send("Page.navigate", url=(site / "tutorials/first_solve.html").as_uri())
        page.wait_for("location.protocol === 'file:' && document.readyState === 'complete'")
        reached: list[tuple[str, bool]] = []
        for _ in range(30):
            page.press("Tab")
            reached.append(tuple(page.run(FOCUSED)))
        assert len(set(reached)) > 10
        assert [text for text, drawn in reached if not drawn] == []


def test_a_figure_of_measurements_is_fitted_to_dark_pages(site: Path) -> None:
    for name, marked in (
        ("how-to/command_line", True),
        ("results/methods", True),
        ("pictures/index", False),
        ("reference/methods/beam", False),
    ):
        pictures = re.findall(r"<img\b[^>]*>", shown(site / f"{name}.html"))
        assert pictures, name
        assert all(('class="drawn-on-white"' in picture) == marked for picture in pictures), name


def test_the_list_of_commands_is_whole(site: Path) -> None:
    text = shown(site / "reference" / "cli.html")
    assert '<a href="#tts-run"><code>run</code></a>: Run a study, or the cells of it that have no result yet.' in text
    assert not re.search(r"</code>(?:</a>)?: [^<\n]*\.\.\.(?:</li>|\n)", text)
