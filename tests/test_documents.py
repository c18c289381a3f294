"""The commands of the documents: each is run by `scripts/document_commands.py`, or stands there with the reason why not."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "document_commands.py"
pytestmark = pytest.mark.skipif(not (SCRIPT.parents[1] / "docs").exists(), reason="the documents are not here")


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
    for document in found.DOCUMENTS:
        commands = list(found.commands(document))
        assert commands, document
        for command in commands:
            runs = command.python or command.code.startswith(("tts ", "export "))
            assert runs or command.left_out, f"{document}: {command.code}"
    every = [command.code for document in found.DOCUMENTS for command in found.commands(document)]
    for begin in (*found.LEFT_OUT, *found.SLOW):
        assert any(code.startswith(begin) for code in every), f"no document has {begin!r}"


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    found = script()
    environ = found.environment(tmp_path, "http://127.0.0.1:9")
    assert found.run(found.Command("x.md", "tts solve --budgt 3"), tmp_path, environ).startswith("exit code 2: ")
    assert found.run(found.Command("x.md", "print(tts.__name__)", python=True), tmp_path, environ) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README", "vllm", "llama_cpp", "sglang", "ollama", "hosted"])
def test_the_commands_of_the_pages_of_servers_run(name: str) -> None:
    wrong = {command.code: fault for command, fault in script().checked(f"docs/servers/{name}.md", slow=False) if fault}
    assert wrong == {}


@pytest.mark.parametrize("document", ["README.md", pytest.param("docs/guide.md", marks=pytest.mark.slow)])
def test_the_snippets_run(document: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(ROOT / "scripts" / "readme_snippets.py"), str(ROOT / document)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_readme_is_short_and_counts_the_parts() -> None:
    from tts.search.plan import SELECTIONS, STOP_RULES, STRATEGIES
    from tts.verifiers import VERIFIERS

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    counted = re.findall(r"(\d+) (strategies|selections|stop rules|verifiers)", text)
    kinds = {"strategies": STRATEGIES, "selections": SELECTIONS, "stop rules": STOP_RULES, "verifiers": VERIFIERS}
    assert {kind: int(number) for number, kind in counted} == {kind: len(table.names()) for kind, table in kinds.items()}
