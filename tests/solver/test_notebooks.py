"""What a notebook shows: one line as `repr`, an escaped table as HTML, in a notebook that is really run."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.support.guard import LIMIT_S

ROOT = Path(tts.__file__).parents[1]
CELLS = (
    "import tts\nsolution = tts.solve('3 + 4 - 2', 400, model='toy', strategy='best_of_n(n=4) | majority')\nsolution",
    "solution.usage",
    "solution.trace",
    "many = await tts.asolve_many(['1 + 2', '2 + 3'], each=100, model='toy', strategy='single')\n[s.answer for s in "
    "many]",
    "async for event in tts.stream('3 + 4 - 2', 400, model='toy', strategy='best_of_n(n=2) | majority'):\n    last = "
    "event\nlast.solution",
    "study = tts.Study(name='shown', models='toy', problems={'dataset': 'file', 'path': 'PROBLEMS'}, "
    "strategies=['best_of_n | majority'], "
    "budgets={'samples': [1, 2]}, task='arithmetic')\nsummary = study.run('STORE', progress=False)\nstudy",
    "study.table()",
)


@pytest.fixture
def solution() -> tts.Solution:
    return tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=4) | majority")


def test_each_repr_is_one_line(solution: tts.Solution) -> None:
    assert repr(solution).startswith("Solution(answer='5', confidence=")
    assert repr(solution.usage).startswith("Usage(prompt_tokens=5, ")
    assert "samples=4" in repr(solution.usage)
    assert repr(tts.Usage()) == "Usage()"
    assert repr(solution.trace).startswith("Trace(strategy='best_of_n(n=4) | majority', model='toy', nodes=5, ")
    long = dataclasses.replace(solution, answer="line\n" * 500)
    assert all(
        "\n" not in repr(one) and len(repr(one)) < 400 for one in (solution, solution.usage, solution.trace, long)
    )


def test_html_is_escaped(solution: tts.Solution) -> None:
    bad = dataclasses.replace(solution, answer="<script>alert(1)</script>\x1b[2J", warnings=("<b>",))
    told: Any = bad
    assert "<script>" not in told._repr_html_()
    assert "&lt;script&gt;" in told._repr_html_()
    assert "\x1b" not in told._repr_html_()
    assert "&lt;b&gt;" in told._repr_html_()


def test_a_notebook_shows_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("yaml", reason="pyyaml is not installed")
    (tmp_path / "problems.jsonl").write_text(
        '{"problem": "1 + 2", "answer": "3"}\n{"problem": "4 + 5", "answer": "9"}\n'
    )
    places = {"PROBLEMS": str(tmp_path / "problems.jsonl"), "STORE": str(tmp_path / "store.sqlite")}
    sources = [source.replace("PROBLEMS", places["PROBLEMS"]).replace("STORE", places["STORE"]) for source in CELLS]
    kernel = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "here",
        "language": "python",
    }
    folder = tmp_path / "jupyter" / "kernels" / "here"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbclient.NotebookClient(
        book, timeout=LIMIT_S, kernel_name="here", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [next((o for o in cell.outputs if o.output_type == "execute_result"), None) for cell in book.cells]
    html = ["" if one is None else one.data.get("text/html", "") for one in shown]
    for at, words in (
        (0, "<caption>solution</caption>"),
        (1, "<caption>usage</caption>"),
        (2, "<th>call</th>"),
        (4, "solution"),
        (5, "accuracy"),
        (6, "<td>best_of_n | majority</td>"),
    ):
        assert words in html[at], (at, html[at])
    assert shown[3].data["text/plain"] == "['3', '5']"
    assert shown[0].data["text/plain"].count("\n") == 0
