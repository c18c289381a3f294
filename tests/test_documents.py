"""The commands of the documents: each is run by `scripts/document_commands.py`, or stands there with the reason why
not.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "document_commands.py"
SLOW = (
    "README.md",
    "docs/how-to/command_line.md",
    "docs/how-to/servers/",
    "docs/tutorials/process_model.md",
)
FOLDERS = ("docs", "tts", "tts_addons", "research", "benchmarks", "scripts", "tests", "examples")
GENERATED = ("cli.md", "study_file.md", "gateway_file.md")  # pages of the site that stand in no folder
MADE = ("docs/results/claims.md", "docs/results/claims_auto.md")  # by a command that a document names
pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the documents are not here")


def script() -> Any:
    spec = importlib.util.spec_from_file_location("document_commands", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_command_is_run_or_left_out_for_a_reason() -> None:
    found = script()
    every = [command for document in found.documents() for command in found.commands(document)]
    for command in every:
        runs = (
            command.python
            or command.file
            or command.code.startswith(("tts ", "export ", "curl ", "python mine.py", "python -m research."))
        )
        assert runs or command.left_out, f"{command.document}: {command.code}"
    for begin in (*found.LEFT_OUT, *found.SLOW):
        assert any(command.code.startswith(begin) for command in every), f"no document has {begin!r}"


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    found = script()
    environ = found.environment(tmp_path, "http://127.0.0.1:9")
    assert found.run(found.Command("x.md", "tts solve --budgt 3"), tmp_path, environ).startswith("exit code 2: ")
    assert found.run(found.Command("x.md", "import tts\nprint(tts.__name__)", python=True), tmp_path, environ) == ""


def test_what_is_shown_is_what_is_printed(tmp_path: Path) -> None:
    found = script()
    environ = found.environment(tmp_path, "")
    command = found.Command("x.md", "print('1 of 3')", python=True, shown="1 of …\n")
    assert found.run(command, tmp_path, environ) == ""
    assert found.run(dataclasses.replace(command, shown="2 of …\n"), tmp_path, environ).startswith(
        "it shows\n2 of …\nbut was printed"
    )


@pytest.mark.parametrize("document", [page for page in script().documents() if not page.startswith(SLOW)])
def test_the_commands_of_a_page_run(document: str) -> None:
    pytest.importorskip("torch", reason="the embedded pair needs the extra engine")
    wrong = {command.code: fault for command, fault in script().check_document(document, slow=False) if fault}
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("document", [page for page in script().documents() if page.startswith(SLOW)])
def test_the_commands_of_long_pages_run(document: str) -> None:
    wrong = {command.code: fault for command, fault in script().check_document(document, slow=False) if fault}
    assert wrong == {}


LINK = re.compile(r"(?<![\w/])docs/[\w./-]+\.(?:md|svg|png|json)|\]\((?!https?:|#|mailto:)([^)#\s]+)")


def test_no_path_of_a_document_leads_nowhere() -> None:
    """Links, and paths below docs/ wherever they are named: documents, docstrings, messages, tests. Anchors are the
    build's to check.
    """
    texts = [
        *ROOT.glob("*.md"),
        *(p for name in FOLDERS for p in (ROOT / name).rglob("*") if p.suffix in (".md", ".py", ".yaml", ".toml")),
    ]
    assert len(texts) > 500
    wrong: list[str] = []
    for path in texts:
        text = path.read_text(encoding="utf-8")
        for found in LINK.finditer(text if path.suffix == ".md" else re.sub(r"\]\(", "", text)):
            target = ROOT / found[0] if found[1] is None else path.parent / found[1]
            if (
                not target.exists()
                and found[0] not in MADE
                and target.name not in GENERATED
                and target.parent.name != "methods"
            ):
                wrong.append(f"{path.relative_to(ROOT)}: {found[0]}")
    assert wrong == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_page_with_figures_names_the_command_that_made_them(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    pictures = re.findall(r"!\[([^\]]*)\]\(", text)
    assert all(pictures), "a picture without words"
    assert not pictures or re.search(r"`(?:python(?: -m)?|make) [\w./]+", text)


ADDONS = [f"tts_addons/{name}/README.md" for name in ("agents", "code", "logs", "training", "zoo")]


@pytest.mark.parametrize("document", ["README.md", *ADDONS])
def test_the_snippets_run(document: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(ROOT / "scripts" / "readme_snippets.py"), str(ROOT / document)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_printed_value_that_a_snippet_states_wrongly_is_told(tmp_path: Path) -> None:
    for said, wrong in (
        ("7, and more", ""),
        ("8", "printed '7 8', but says '8'"),
        ("7 8 9", "printed '7 8', but says '7 8 9'"),
    ):
        (tmp_path / "page.md").write_text(f"<!-- needs: core -->\n```python\nprint(7, 8)  # {said}\n```\n")
        command = [sys.executable, str(ROOT / "scripts" / "readme_snippets.py"), str(tmp_path / "page.md")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (int(bool(wrong)), f"snippet 1 (core): {wrong or 'ok'}\n")


def test_sizes_that_pages_state_are_those_of_what_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "extra_sizes.py")], capture_output=True, text=True, check=True
    )
    measured = {name: int(size) for name, size in re.findall(r"^(\S+) (\d+) MB", done.stdout, re.MULTILINE)}
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    stated = {
        name: int(size.replace(",", ""))
        for name, size in re.findall(r"^\| `([\w-]+)` \|.*\| ([\d,]+) MB", page, re.MULTILINE)
    }
    stated["core"] = int(re.search(r"The core takes (\d+) MB", page)[1])  # type: ignore[index]
    readme = re.search(r"([\d.]+) GB\n", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert readme is not None
    assert abs(1000 * float(readme[1]) - stated["core"]) <= 10
    assert {"core", "serve", "experiments"} <= stated.keys()
    for name, size in stated.items():
        if name in measured and not (name == "engine" and measured[name] > 3000):  # torch with CUDA
            assert abs(measured[name] - size) <= max(2, 0.25 * size), (
                f"{name}: {measured[name]} MB are installed, but {size} are stated"
            )


def test_the_figures_of_the_choice_stand_on_their_pages() -> None:
    """They stand there or in the page's CSV files; the order of strategies is the code's."""
    from tts.search.families import EVIDENCE

    text = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    pages: dict[str, str] = defaultdict(str)
    for path in sorted((ROOT / "docs" / "results").glob("*.[mc][ds]*"), key=lambda path: path.suffix, reverse=True):
        pages[re.sub(r"_\d+$", "", path.stem)] += path.read_text(encoding="utf-8")
    told = re.findall(r"((?:(?!\]\(results/|\n).)*)\]\(results/(\w+)\.md\)", text)
    figures = [(one, page) for words, page in told for one in re.findall(r"[+-]?\d+\.\d \[[^\]]+\]", words)]
    assert len(figures) >= 10
    assert [(one, page) for one, page in figures if one not in pages[page]] == []
    stated = re.findall(r"`(\w+)` ([+-]?\d[.\d]*)", text.partition("## All strategies by evidence")[2])
    assert [(name, float(gain)) for name, gain in stated] == list(EVIDENCE.items())
    for name in set(EVIDENCE) - {"best_of_n"}:
        page = pages["claims_auto" if name == "auto" else "claims"]
        rows = re.findall(rf"learnt(?:,| \| ){name}(?:,| \| )(62|124|248)\D.*?([+-]\d+\.\d) \[", page)
        gains = {budget: float(points) for budget, points in reversed(rows)}
        assert round(sum(gains.values()) / 3, 1) == EVIDENCE[name], name


def test_the_readme_is_short_and_counts_the_parts() -> None:
    from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
    from tts.verifiers import VERIFIERS

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    counted = re.findall(r"(\d+) (strategies|selections|stop rules|verifiers)", text)
    kinds = {"strategies": STRATEGIES, "selections": SELECTIONS, "stop rules": STOP_RULES, "verifiers": VERIFIERS}
    assert {kind: int(number) for number, kind in counted} == {
        kind: len(table.names()) for kind, table in kinds.items()
    }
