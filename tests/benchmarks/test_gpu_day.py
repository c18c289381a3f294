"""The first day's command for a GPU, on a CPU: every part has its lines, and a wrong number or write is found."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("benchmarks.gpu", reason="the benchmarks are no part of the wheel")
pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from tests.support.guard import run_python

ROOT = Path(__file__).parents[2]
# of all installed packages, torch, triton, transformers and what these need can be imported
BARE = """
import re, runpy, sys
from importlib import metadata
from packaging.requirements import Requirement

def plain(name):
    return re.sub("[-_.]+", "-", name).lower()

wanted, todo = set(), ["torch", "triton", "transformers"]
while todo:
    name = plain(todo.pop())
    if name not in wanted:
        wanted.add(name)
        try:
            needs = map(Requirement, metadata.requires(name) or ())
            todo += [one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
        except metadata.PackageNotFoundError:
            pass
refused = {top for top, owners in metadata.packages_distributions().items() if not wanted & set(map(plain, owners))}
assert {"numba", "llvmlite", "scipy", "pytest"} <= refused
sys.modules.update(dict.fromkeys(refused - {"tts", "tts_addons"} | {"pydantic"}))
runpy.run_module("benchmarks.gpu.day", run_name="__main__", alter_sys=True)
"""


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def outcome(script: str) -> Any:
    """Return what a script prints as JSON, in a process with Triton's interpreter."""
    done = run_python("-c", script, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_part_has_its_lines_with_torch_triton_and_transformers_alone(tmp_path: Path) -> None:
    done = run_python("-c", BARE, "--smoke", "--minutes", "60", "--out", str(tmp_path / "day.jsonl"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    begins, *lines = read(tmp_path / "day.jsonl")
    assert "plain Python" in begins["planner"]
    assert "mean nothing" in begins["times"]
    assert not [line for line in lines if "failure" in line or "not_run" in line or line.get("agrees") is False]
    counts = Counter(line["part"] for line in lines)
    assert counts == {"ceilings": 1, "kernels": 64, "memory": 8, "bits": 4, "trees": 15, "steps": 5}
    assert len(done.stdout.splitlines()) == len(lines) + 1
    attention = [line for line in lines if line["part"] == "kernels" and line["name"].startswith("attention")]
    for line in attention:
        most = 1e-6 if "float32" in line["name"] else 1e-2
        assert max(line["error"].values()) < most, line["name"]
        assert set(line["error"]) == {"fast", "folded", "strict", "strict folded"}
    assert any("+ 0" not in line["tiles"]["fast"] for line in attention), "no tile is wide"
    trees = [line for line in lines if line["part"] == "trees"]
    assert {line["name"].rpartition(", ")[2] for line in trees if "absent" in line} == {
        "FlashInfer paged",
        "FlashInfer cascade",
    }
    assert all({"us", "unique_GBps", "of_copy", "error"} <= set(line) for line in trees if "absent" not in line)
    assert all(line["zones"] >= 8 for line in lines if line["part"] == "memory" and "absent" not in line)
    (strict,) = [line for line in lines if line["name"].startswith("strict rows")]
    assert strict["replays"] > 0


def test_a_wrong_reference_and_a_wrong_number_do_not_agree() -> None:
    found = outcome(
        """
import json
import torch
from benchmarks.gpu import kernels
from benchmarks.gpu.day import Day
from benchmarks.gpu.shapes import TINY, attend_exactly, compare

def check():
    nodes = kernels.edge_trees(smoke=True)["a prefix of 15 tokens"]
    return kernels._check_attention(nodes, TINY, torch.float32, Day("cpu", True), 0)["agrees"]

right = check()
kernels.attend_exactly = lambda plan, pool: attend_exactly(plan, pool) + 1e-4
nan = compare(torch.tensor([torch.nan]), torch.tensor([1.0]), 1.0)["agrees"]
print(json.dumps([right, check(), nan]))
"""
    )
    assert found == [True, False, False]


def test_a_write_past_an_array_breaks_its_guard() -> None:
    found = outcome(
        """
import json
import torch
from benchmarks.gpu.kernels import Guards

breaches = []
for past in (0, 2):
    with Guards() as guards:
        out = torch.empty(8)
    out.as_strided((8 + past,), (1,)).fill_(1.0)
    breaches.append(guards.count_breaches())
print(json.dumps(breaches))
"""
    )
    assert found == [0, 8]


def test_what_fails_or_comes_too_late_is_a_line_and_the_others_go_on(tmp_path: Path) -> None:
    from benchmarks.gpu.day import Record

    def fail() -> dict[str, Any]:
        raise RuntimeError("the device fell off\nand more")

    record = Record(tmp_path / "day.jsonl", minutes=1)
    record.run("kernels", "one", fail)
    record.run("kernels", "another", lambda: {"error": 0.5, "agrees": True})
    assert not record.is_fine
    late = Record(tmp_path / "day.jsonl", minutes=0)
    late.run("steps", "last", fail)
    assert late.is_fine
    failed, fine, skipped = read(tmp_path / "day.jsonl")
    assert failed["failure"] == "RuntimeError: the device fell off"
    assert (fine["part"], fine["name"], fine["error"]) == ("kernels", "another", 0.5)
    assert skipped["not_run"] == "the minutes were over"


def test_the_engine_without_numba_is_refused_outside_of_the_command() -> None:
    script = "import sys; sys.modules['numba'] = None; import benchmarks.gpu.day; import tts.backends.engine.planning"
    done = run_python("-c", script)
    assert "No module named 'numba'" in done.stderr or "import of numba halted" in done.stderr
    assert done.returncode == 1


def test_the_model_counts_each_key_once_or_as_often_as_it_is_read() -> None:
    from benchmarks.gpu.model import LLAMA, count_bytes, step_bytes, tables
    from benchmarks.gpu.shapes import LLAMA_8B, grow_tree, lower_as_engine
    from tests.backends.kernels.trees import make_plan

    plan, _ = make_plan(grow_tree([64, 16], [[40]]), spare=0)
    moved = count_bytes(plan, lower_as_engine(plan, LLAMA_8B, 2), LLAMA_8B)
    token = 2 * 8 * 128 * 2
    assert moved.unique == (64 + 40 * 16) * token
    assert moved.gathered == 40 * (64 + 16) * token
    assert moved.read == (3 * 64 + 40 * 16) * token  # a wide tile has 16 queries
    assert moved.partials == 2 * 2 * 40 * 8 * 4 * (128 + 1) * 4
    step = step_bytes(LLAMA, 10**9, 1, 100, 20)
    assert step.floor == 10**9 + 32 * 120 * token
    assert step.logits == 2 * 2 * 128_256
    shown, *files = (
        (ROOT / "docs/results" / f"gpu{end}").read_text().splitlines() for end in (".md", ".csv", "_2.csv")
    )
    stated = [*(line[2:-2].split(" | ") for line in shown), *(row for file in files for row in csv.reader(file))]
    for line in tables(3.35e12).splitlines():
        assert line[2:-2].split(" | ") in stated or "---" in line


def test_pages_of_rows_and_of_depths_are_the_keys_of_each_path() -> None:
    from benchmarks.gpu.peers import cascade_tables, page_table
    from benchmarks.gpu.shapes import TREES, path_places
    from tests.backends.kernels.trees import make_plan

    for name in ("REBASE", "particles", "depth 12"):
        plan, _ = make_plan(TREES[name], spare=0)
        places, lengths = path_places(plan)
        begins, numbers, lasts = page_table(plan)
        levels = cascade_tables(plan, TREES[name])
        assert [queries[-1] for queries, *_ in levels] == [len(lengths)] * len(levels)
        for row, length in enumerate(lengths):
            pages = numbers[begins[row] : begins[row + 1]].tolist()
            assert pages == places[0, row, :length:16].tolist()
            assert 16 * (len(pages) - 1) + lasts[row] == length
            by_depth: list[int] = []
            for queries, page_begins, level_pages, _ in levels:
                node = sum(end <= row for end in queries[1:])
                by_depth += level_pages[page_begins[node] : page_begins[node + 1]]
            assert by_depth == pages
