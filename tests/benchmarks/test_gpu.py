"""The command for a GPU, on a CPU: every promised row appears, it goes on where it stopped, and a case that fails stops
no other.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("benchmarks.gpu", reason="the benchmarks are no part of the wheel")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import cases
from benchmarks.gpu.models import SHAPES
from benchmarks.gpu.page import TABLES
from tts.models import registry

SMOKE = ("--smoke", "--device", "cpu")
PARTS = {
    "kernels": ["attention"],
    "agreement": ["pocket float32", "tiny float32"],
    "strict": ["tiny W1", "tiny W2"],
    "workloads": [f"tiny W{number}" for number in range(1, 7)],
}
Run = Callable[..., bool]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in this process, on the test's folder; returns whether it says that all is well."""

    def run(*arguments: str) -> bool:
        monkeypatch.setattr(sys, "argv", ["gpu", *SMOKE, "--out", str(tmp_path), *arguments])
        with pytest.raises(SystemExit) as ended:
            command.main()
        assert ended.value.code in (0, 1)
        return ended.value.code == 0

    return run


def results(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        part: json.loads((folder / f"{part}.json").read_text())["cases"]
        for part in PARTS
        if (folder / f"{part}.json").is_file()
    }


def rows(folder: Path) -> dict[str, list[list[str]]]:
    """Return the cells of the page's tables, by heading."""
    tables = (folder / "page.md").read_text().split("\n## ")[1:]
    return {
        text.partition("\n")[0]: [line.strip("| ").split(" | ") for line in re.findall(r"^\| .*", text, re.M)[2:]]
        for text in tables
    }


def test_every_part_has_its_json_and_its_rows(run: Run, tmp_path: Path) -> None:
    assert run()
    found = results(tmp_path)
    assert {part: list(named) for part, named in found.items()} == PARTS
    shown = rows(tmp_path)
    for part, (heading, _, columns, _) in TABLES.items():
        assert [row[0] for row in shown[heading]] == PARTS[part]
        assert all(len(row) == len(columns) + 1 for row in shown[heading]), heading
    for one in found["agreement"].values():
        assert one["agrees"]
        assert one["readings"] > 64
        assert 0 < one["worst"] < cases.TOLERANCE
    for one in found["strict"].values():
        assert one["agrees"]
        assert {kind: len(times) for kind, times in one["seconds"].items()} == {"strict": 1, "fast": 1}
    for one in found["workloads"].values():
        assert one["agrees"]
        assert round(one["tokens_per_s"] * one["seconds"], 6) >= 16
        assert one["faster"] == pytest.approx(one["generate"] / one["seconds"])
        assert all(0 < one[share] < 1 for share in ("of_floor", "of_bandwidth", "of_compute", "on_the_host"))
    page = (tmp_path / "page.md").read_text()
    about = json.loads((tmp_path / "strict.json").read_text())["machine"]
    assert {"device", "torch", "triton"} <= set(about)
    assert all(f"- {name}: {value}" in page for name, value in about.items())


def test_what_has_a_result_is_skipped_and_what_failed_runs_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def fake(name: str, _: cases.Settings) -> dict[str, Any]:
        ran.append(name)
        if len(ran) == 1:
            raise RuntimeError("the device fell off\nand more")
        if name == "attention":
            return {"passed": 3, "failed": 0, "skipped": 1, "reasons": {"test_a": "no device"}}
        seconds = {"strict": [2.0, 3.0, 4.0], "fast": [2.0]}
        return {"seconds": seconds, "slower": 1.5, "aim": 1.34, "batches": [1, 3], "agrees": True}

    for part in ("kernels", "strict"):
        monkeypatch.setitem(command.CASES, part, fake)
    assert not run("--parts", "kernels", "strict")
    assert ran == ["attention", "tiny W1", "tiny W2"]
    assert results(tmp_path)["kernels"]["attention"]["failure"] == "RuntimeError: the device fell off"
    assert rows(tmp_path)["Kernel tests"][0][:2] == ["attention", "FAILED: RuntimeError: the device fell off"]
    assert rows(tmp_path)["Trees beside `generate`"][0][:2] == ["tiny W1", "not run"]
    strict = ["tiny W1", "3.000 (2.000-4.000)", "2.000 (2.000-2.000)", "+50%", "+34%", "yes (1, 3)"]
    assert rows(tmp_path)["Strict against fast"] == [strict, ["tiny W2", *strict[1:]]]
    assert run("--parts", "kernels", "strict")
    assert ran[3:] == ["attention"]
    assert results(tmp_path)["kernels"]["attention"]["passed"] == 3
    assert run("--parts", "strict", "--again")
    assert ran[4:] == ["tiny W1", "tiny W2"]
    assert run("--minutes", "0", "--again")
    assert ran[6:] == []


def test_numbers_that_disagree_are_said_to_be_wrong(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.CASES, "agreement", lambda *_: cases.compare([[0.5]], [[0.4]]))
    assert not run("--parts", "agreement")
    assert rows(tmp_path)["Engine against transformers"][0][-1] == "NO"


def test_results_of_another_machine_are_not_mixed_with_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strict.json").write_text(json.dumps({"machine": {"device": "other"}, "cases": {}}))
    monkeypatch.setattr(sys, "argv", ["gpu", *SMOKE, "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"error: .*strict.json.*results.*other.*name"):
        command.main()


def test_a_case_runs_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", *SMOKE, "--out", str(tmp_path)])
    options = command.arguments()
    options.here = False
    assert command.attempt("agreement", "tiny float32", options, 600)["agrees"]
    found = command.attempt("agreement", "tiny float7", options, 600)
    assert found["failure"].startswith("KeyError: 'float7'")
    ended = command.attempt("agreement", "tiny float32", options, 0.01)
    assert ended["failure"].startswith("RuntimeError: it was ended after 0 s")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ended = command.attempt("agreement", "tiny float32", options, 600)
    assert ended["failure"] == "RuntimeError: it ended with status 1: nothing said"


def test_a_model_that_is_not_on_disk_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", *SMOKE, "--out", str(tmp_path)])
    found = command.attempt("agreement", f"{tmp_path}/none float32", command.arguments(), None)
    assert "none" in found["absent"]
    assert command.format_end(found) == "absent"


def test_bfloat16_is_held_to_the_error_that_transformers_has_in_it() -> None:
    exact = [[0.5, 0.25], [0.125, 0.5]]
    off = [[p * math.exp(0.01) for p in row] for row in exact]
    far = [[p * math.exp(0.02) for p in row] for row in exact]
    assert cases.compare(off, exact, off)["agrees"]
    assert not cases.compare(far, exact, off)["agrees"]
    assert not cases.compare([[0.0, 0.25], [0.125, 0.5]], exact, off)["agrees"]
    assert cases.compare(off, exact, far)["mean_of_transformers"] == pytest.approx(0.02)
    assert not cases.compare(off, exact)["agrees"]


def test_the_outcome_of_tests_is_read_with_its_reasons(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="4" errors="0" failures="1" skipped="1"><testcase name="a"/><testcase name="b"/>'
        '<testcase name="c"><failure message="assert 1 == 2&#10; more">...</failure></testcase>'
        '<testcase name="d"><skipped message="collection skipped">needs a '
        "device</skipped></testcase></testsuite></testsuites>"
    )
    wanted = {"passed": 2, "failed": 1, "skipped": 1, "reasons": {"c": "assert 1 == 2 more", "d": "needs a device"}}
    assert cases.outcome(report) == wanted


def test_a_device_is_asked_every_case_of_known_models() -> None:
    asked = {part: cases.names(part, smoke=False, device="cuda") for part in cases.CASES}
    assert set(asked) == set(TABLES) == set(PARTS)
    assert asked["kernels"] == list(cases.KERNELS)
    named = [case.split() for part in ("agreement", "strict", "workloads") for case in asked[part]]
    assert (
        {model for model, _ in named}
        == {"pocket", "smollm2", "qwen2.5-1.5b", "qwen2.5-7b"}
        <= {*SHAPES, *registry.names()}
    )
    for model in ("pocket", "smollm2", "qwen2.5-1.5b", "qwen2.5-7b"):
        assert [kind for one, kind in named if one == model and "float" in kind] == ["float32", "bfloat16"]
    assert {f"qwen2.5-1.5b W{number}" for number in range(1, 7)} | {"qwen2.5-7b W1", "qwen2.5-7b W2"} == set(
        asked["workloads"]
    )


def test_every_test_for_a_device_has_a_case() -> None:
    files = (command.ROOT / "tests/gpu").glob("test_*.py")
    tests = [name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)]
    for name in tests:
        assert sum(words in name for words in cases.KERNELS) == 1, name
    assert all(any(words in name for name in tests) for words in cases.KERNELS)
