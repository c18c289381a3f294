"""The wall: what a core without add-ons does, what a search loads, and names that stay where parts have moved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tts
from tests.support.guard import LIMIT_S
from tts.backends import BACKENDS
from tts.cli.app import COMMANDS
from tts.experiments.datasets import DATASETS
from tts.registry import load_place
from tts.search.parts import STRATEGIES
from tts.tasks import TABLE as TASKS
from tts.verifiers import VERIFIERS

ROOT = Path(tts.__file__).parents[1]
ALONE = "import sys, tests.support.core_alone\n"
COUNT = """
import ast, json, sys
sys.path.insert(0, {scripts!r})
import check_architecture as checks
from pathlib import Path
modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "tts"]
files = {{module.__file__ for module in modules if getattr(module, "__file__", None)}}
texts = {{path: Path(path).read_text(encoding="utf-8") for path in files}}
sources = [checks.Source(Path(path), "", text, ast.parse(text)) for path, text in texts.items()]
print(json.dumps(sum(map(checks.code_lines, sources))))
"""
SOLVE = (
    "import tts\nprint(tts.solve('3 + 4 - 2', budget=400, model='toy', strategy='best_of_n(n=8) | majority').answer)\n"
)
RUN = """
import sys
sys.argv = ["tts", "run", {study!r}, "--store", "study.sqlite"]
from tts.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def run(code: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path[1:]])}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "scripts").exists(), reason="the scripts are not here")
@pytest.mark.parametrize(("kind", "most"), [("solve", 13_500), ("run", 21_700)])
def test_a_toy_loads_a_part_of_the_code(kind: str, most: int, tmp_path: Path) -> None:
    code = SOLVE if kind == "solve" else RUN.format(study=str(ROOT / "examples" / "toy.yaml"))
    if kind == "run":
        pytest.importorskip("yaml")
    done = run(code + COUNT.format(scripts=str(ROOT / "scripts")), tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) <= most


def test_the_core_solves_without_add_ons() -> None:
    done = run(ALONE + SOLVE + "print(sorted(name for name in sys.modules if name.startswith('tts_addons')))")
    assert done.stdout.splitlines() == ["5", "[]"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "patch", "import", "export", "workspace"])
def test_a_command_of_a_missing_add_on_says_so_in_one_line(command: str) -> None:
    words = [command, "--port", "0", "x"]
    done = run(f"{ALONE}sys.argv = ['tts', *{words!r}]\nfrom tts.cli import main\nmain()")
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert "add-on tts_addons." in error
    assert hint.startswith("hint: install")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "tts.solve('1 + 1', 100, model='toy', strategy='archon | majority')",
        "tts.solve('1 + 1', 100, model='toy', verifier='code')",
        "tts.Workspace",
        "tts.solve('1 + 1', 100, model='toy').trace.export('rows.jsonl', 'chat')",
    ],
)
def test_a_part_of_a_missing_add_on_is_named(code: str) -> None:
    done = run(f"{ALONE}import tts\n{code}")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "Error" in last or "MissingDependency" in last
    assert "add-on" in last


@pytest.mark.slow
def test_what_can_run_is_listed_without_add_ons() -> None:
    done = run(f"{ALONE}sys.argv = ['tts', 'strategies', '--for', 'engine']\nfrom tts.cli import main\nmain()")
    assert done.returncode == 0, done.stderr
    assert " beam " in done.stdout


def test_each_place_in_an_add_on_is_there() -> None:
    """Names of add-ons are texts alone, wherever the core has them."""
    places = [place for table in (BACKENDS, DATASETS, STRATEGIES, TASKS, VERIFIERS) for place in table.entries.values()]
    places += [place for place in COMMANDS.values() if isinstance(place, str)]
    ours = [place for place in places if place.startswith("tts_addons.")]
    assert len(ours) > 20
    for place in ours:
        module, _, name = place.partition(":")
        path = ROOT / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert f" {name}" in file.read_text(encoding="utf-8") or f"{name} =" in file.read_text(encoding="utf-8"), place


def test_a_study_may_name_the_place_where_repositories_were() -> None:
    from tts_addons.agents.repositories import Repositories

    assert load_place("backend", "tts.backends.workspace.repositories:Repositories") is Repositories
