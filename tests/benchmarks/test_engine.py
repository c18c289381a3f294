"""The engine benchmark: replayed trees give the tokens and the numbers that they should, and every row that is promised
appears.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarks.engine", reason="the benchmarks are no part of the wheel")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

from benchmarks.engine import convert, int8_quality, pocket, protocol, systems, workloads
from benchmarks.engine.facts import facts, floor_s, steps
from benchmarks.engine.peer_ours import Ours
from benchmarks.engine.replay import Replayer
from tests.benchmarks.commands import printed, started
from tts.backends.loading.gguf import GGUFFile, read_gguf
from tts.errors import ConfigError

WAYS: dict[str, dict[str, Any]] = {"ours": {}, "unshared": {"sharing": False}, "no reuse": {"reuse": False}}


@pytest.fixture(scope="module")
def replayed() -> dict[str, dict[str, dict[str, Any]]]:
    """What each way gives for each template, on one random model."""
    model = pocket.pocket_checkpoint(1)
    templates = [workloads.template(name, size="smoke", vocabulary=pocket.VOCABULARY) for name in ("W3", "W5", "W6")]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, options in WAYS.items():
        driver = Ours(Replayer(model, threads=1, **options))
        found[name] = {one["name"]: {**protocol.replay(driver, one), "template": one} for one in templates}
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["W3", "W5", "W6"])
def test_our_engine_writes_the_tokens_of_the_template(replayed: Any, way: str, name: str) -> None:
    run = replayed[way][name]
    known = facts(run["template"])
    assert run["hash"] == run["template"]["hash"]
    assert run["stats"]["decode_tokens"] == known.generated
    assert sum(step["rows"] for step in run["stats"]["per_step"]) >= known.generated - known.nodes
    read = {way: runs[name]["prefill_computed"] for way, runs in replayed.items()}
    assert read["ours"] == read["unshared"] < known.no_reuse_prefill <= read["no reuse"]


@pytest.mark.parametrize("name", ["W3", "W5"])
def test_readings_do_not_depend_on_what_is_shared_or_kept(replayed: Any, name: str) -> None:
    readings = [np.array(runs[name]["readings"]) for runs in replayed.values()]
    asked = sum(len(op["nodes"]) for op in replayed["ours"][name]["template"]["ops"] if op["op"] in ("score", "reward"))
    assert readings[0].shape == (asked, 2)
    for other in readings[1:]:
        np.testing.assert_allclose(other, readings[0], rtol=1e-4)


def test_a_process_model_of_the_same_weights_reads_what_the_policy_does() -> None:
    driver = Ours(Replayer(pocket.pocket_checkpoint(1), threads=1))
    driver.open(0, [30, 31, 32])
    driver.expand(1, [(0, [40, 41]), (0, [42])])
    driver.expand(3, [(1, [50])])
    policy = np.array(driver.read([1, 2, 3], [24, 25], process=False))
    process = np.array(driver.read([1, 2, 3], [24, 25], process=True))
    np.testing.assert_allclose(process, policy / policy.sum(1, keepdims=True), rtol=1e-4)


def test_facts_of_a_tree_are_its_own() -> None:
    ops = [
        {"op": "open", "ids": [1, 2, 3]},
        {"op": "expand", "children": [[0, [4, 5]], [0, [6]]]},
        {"op": "release", "nodes": [0, 2]},
        {"op": "expand", "children": [[1, [7, 8]]]},
        {"op": "reward", "nodes": [3], "ids": [1, 2]},
    ]
    found = facts({"ops": ops})
    assert (found.nodes, found.unique, found.logical, found.peak_unique) == (4, 8, 11, 7)
    assert (found.generated, found.useful, found.prompts, found.no_reuse_prefill) == (5, 4, 3, 11)
    # the prompt but its last token; that token; one more of the longer child; that child's last; one of its own child;
    # the process model's
    assert list(steps({"ops": ops})) == [(2, 2), (1, 3), (1, 4), (1, 5), (1, 6), (7, 7)]
    assert floor_s({"ops": ops}, lambda rows, keys: rows + keys / 100) == pytest.approx(13.27)


@pytest.mark.parametrize("size", ["full", "quick", "smoke"])
@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_templates_are_drawn_from_their_seed_alone(name: str, size: str) -> None:
    first, again, other = (workloads.template(name, size=size, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first["hash"] != other["hash"]
    ids = [token for op in first["ops"] if op["op"] == "open" for token in op["ids"]]
    assert min(ids) >= workloads.PLAIN[0]
    assert max(ids) < workloads.PLAIN[1]


def test_the_templates_of_results_are_what_they_were() -> None:
    assert {name: workloads.template(name)["hash"] for name in ("W1", "W3")} == {
        "W1": "77303fac62b79ec4",
        "W3": "9981961a296b53a5",
    }


def test_a_system_without_an_interpreter_is_absent_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(systems.AbsentError, match="no --peer vllm=PYTHON"):
        systems.interpreter(systems.SPECS["vllm"], {})
    with pytest.raises(systems.AbsentError, match="is not a file"):
        systems.interpreter(systems.SPECS["vllm"], {"vllm": str(tmp_path / "none")})


def test_a_driver_that_ends_is_absent_with_the_last_line_of_its_errors() -> None:
    import sys

    system = systems.System(systems.SPECS["llama.cpp"], sys.executable, {"f32": "none"}, [], [])
    try:
        with pytest.raises(systems.AbsentError, match="No module named 'llama_cpp'"):
            system.wait_ready()
    finally:
        system.close()


def test_a_gguf_file_is_written_again_in_both_types(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    source = GGUFFile(
        {"general.architecture": "llama", "llama.block_count": 2, "a.list": [1, 2]}, {"w": weights, "b": weights[0]}
    )
    for kind, most in (("f32", 0.0), ("q8_0", 0.02)):
        convert.write(source, tmp_path / f"{kind}.gguf", kind)
        found = read_gguf(tmp_path / f"{kind}.gguf")
        assert found.metadata["llama.block_count"] == 2
        np.testing.assert_allclose(found.tensors["w"], weights, atol=most)
        np.testing.assert_array_equal(found.tensors["b"], weights[0])
    assert not list(tmp_path.glob("*.[0-9]*"))


def test_a_folder_is_converted_to_a_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(
        "benchmarks.engine.convert",
        str(tmp_path),
        "--model",
        "pocket",
        "--kinds",
        "hf",
        monkeypatch=monkeypatch,
        capsys=capsys,
    )
    assert out == f"hf {tmp_path / 'hf'}\n"
    assert (tmp_path / "hf/config.json").is_file()
    with pytest.raises(ConfigError, match=r"GGUF.*made"):
        convert.convert("pocket", tmp_path)
    with pytest.raises(SystemExit, match=r"^error:.*'pocket'.*GGUF.*made"):
        printed("benchmarks.engine.convert", str(tmp_path), "--model", "pocket", monkeypatch=monkeypatch, capsys=capsys)


def test_a_system_whose_file_cannot_be_written_is_absent_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from benchmarks.engine import __main__ as command

    monkeypatch.setattr(
        sys, "argv", ["engine", "--smoke", "--files", str(tmp_path), "--peer", f"llama_cpp={sys.executable}"]
    )
    absent: dict[str, str] = {}
    options = command.arguments()
    pythons = command.interpreters(options, absent)
    files = command.convert_arguments(options, pythons, absent)
    assert files.keys() == {"model", "hf"}
    assert not {name for name in pythons if name.startswith("llama.cpp")}
    for name in ("llama.cpp", "llama.cpp-f16", "llama.cpp-q8"):
        assert "GGUF files are made from a GGUF file only" in absent[name]


def test_a_size_of_a_workload_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from benchmarks.engine import __main__ as command

    monkeypatch.setattr(sys, "argv", ["engine", "--smoke", "--workloads", "W1", "--size", "W1.samples=2"])
    options = command.arguments()
    assert (options.size, command.sizes(options, "W1"), command.sizes(options, "W2")) == ("smoke", {"samples": 2}, {})
    made = command.make_templates(options, vocabulary=94)
    assert list(made) == ["W0", "W1"]
    assert made["W1"]["hash"] != workloads.template("W1", size="smoke", vocabulary=94)["hash"]


def test_int8_quality_of_a_model_is_measured() -> None:
    found = int8_quality.measure("pocket", tokens=2, prompts=int8_quality.PROMPTS[:2])
    assert 2 <= found.tokens <= 4
    assert 0 <= found.kl_mean < 0.1
    same = int8_quality.measure("pocket", precision="float32", tokens=2, prompts=int8_quality.PROMPTS[:2])
    assert same.kl_mean == pytest.approx(0, abs=1e-6)
    assert same.free_agreement == 1
    halves = int8_quality.measure(
        "pocket", precision="float32", halves=True, tokens=2, prompts=int8_quality.PROMPTS[:2]
    )
    assert same.kl_max < halves.kl_max < 0.01


def test_the_pocket_command_prints_every_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--rows", "2", "--tokens", "4", "--repeats", "1", "--json")
    found = json.loads(printed("benchmarks.engine.pocket", *small, monkeypatch=monkeypatch, capsys=capsys))
    shares = [found[part]["median"] for part in pocket.PARTS]
    assert all(0 <= share <= 1 for share in shares)
    assert 0 < math.fsum(shares) <= 1.01
    assert found["tokens_per_second"]["median"] > 0


def test_the_command_for_revisions_prints_a_row_for_each_number_of_rows_and_a_checkout_has_its_own_texts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, row = printed("benchmarks.engine.revisions", "--smoke", monkeypatch=monkeypatch, capsys=capsys).splitlines()
    rows, before, now, ratio, same = (cell.strip() for cell in row.strip("|").split("|"))
    assert (rows, same) == ("2", "yes")
    assert float(ratio.partition(" ")[0]) > 0
    assert min(float(speed.replace(",", "")) for speed in (before, now)) > 0


def test_the_command_on_halves_prints_a_row_for_each_shape(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba")
    from benchmarks.engine import halves

    if not halves.WIDENS_HALVES:
        pytest.skip("this CPU has no F16C")
    monkeypatch.setattr(halves, "SHAPES", ((3, 40, 5), (1, 0, 50)))
    machine, *rows = printed("benchmarks.engine.halves", "--smoke", monkeypatch=monkeypatch, capsys=capsys).splitlines()
    assert machine.startswith(halves.INSTRUCTIONS)
    assert [re.match(r" *(\d+) rows, .* ratio \d+\.\d+ \[\d+\.\d+, \d+\.\d+\]$", row)[1] for row in rows] == ["3", "1"]  # type: ignore[index]


def test_the_planning_command_prints_its_two_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--nodes", "60", "--rows", "8", "--repeat", "2")
    shape, times = printed("benchmarks.engine.planning", *small, monkeypatch=monkeypatch, capsys=capsys).splitlines()
    assert shape.startswith("60 nodes, 8 rows: ")
    assert times.startswith("make_plan: median ")


@pytest.mark.slow
def test_the_command_has_a_row_for_every_system_and_workload(tmp_path: Path) -> None:
    done = started("benchmarks.engine", "--smoke", "--json", "--files", str(tmp_path))
    report = json.loads(done.stdout)
    assert done.returncode == 0, report["verdicts"]
    here = {name for name, spec in systems.SPECS.items() if not spec.peer}
    assert set(report["absent"]) == set(systems.SPECS) - here
    assert set(report["workloads"]) == set(workloads.WORKLOADS)
    for workload in report["workloads"].values():
        assert set(workload["systems"]) == here
        assert {one["hash"] for one in workload["systems"].values()} == {workload["hash"]}
