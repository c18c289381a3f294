from __future__ import annotations

import json
import sys

import pytest

from tests.experiments.made import cell, result
from tts.errors import ConfigError, MissingDependency, TTSError
from tts.experiments.output.export import export
from tts.experiments.output.tables import inert
from tts.experiments.study.record import RecordedSample
from tts.types import Usage

RESULTS = [
    result(cell(0, group="2 operations"), 12, failures={"lost": 1}, seconds_at=1.5),
    result(
        cell(1, verifiers={"main": "process"}),
        answer='a "b",\nc\ud800',
        right=None,
        confidence=float("nan"),
        error="EngineError: it broke",
        usage=Usage(generated_tokens=3, flops=10**25, usd=None, reused_tokens=None, kv_bytes_per_token=96),
        drawn=(
            RecordedSample(
                answer="4",
                answer_class=0,
                right=True,
                status="finished",
                tokens=3,
                scores={"main": 0.5},
                steps={"main": (0.5,)},
            ),
        ),
    ),
]


def test_json_lines(tmp_path):
    assert export(RESULTS, tmp_path / "x.jsonl") == 2
    first, second = map(json.loads, (tmp_path / "x.jsonl").read_text("ascii").splitlines())
    assert (first["key"], first["budget"], first["right"]) == ("key 0", {"tokens": 100}, True)
    assert first["generated_tokens"] == 12
    assert (first["failures"], first["drawn"], first["group"]) == ({"lost": 1}, None, "2 operations")
    assert second["answer"] == 'a "b",\nc\ud800'
    assert [second[name] for name in ("right", "confidence", "usd")] == [None] * 3
    assert (second["flops"], second["drawn"][0]["steps"]) == (10**25, {"main": [0.5]})


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ("=HYPERLINK(0)", "'=HYPERLINK(0)"), ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"), ("-2+3", "'-2+3"),
        ("@SUM(1)", "'@SUM(1)"), (" =1", "' =1"), ("\t=1", "'\t=1"), ("\uff1d1", "'\uff1d1"), ("-7", "-7"),
        ("+1.5e-3", "+1.5e-3"), ("x=1", "x=1"), ("", ""), ("-x", "'-x"),
    ],
)  # fmt: skip
def test_no_cell_is_a_formula(tmp_path, answer, written):
    assert inert(answer) == written
    export([result(cell(0), 1, answer=answer)], tmp_path / "x.jsonl")
    assert json.loads((tmp_path / "x.jsonl").read_text("ascii"))["answer"] == answer


def test_parquet(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("tts.experiments.output.export._GROUP", 1)
    assert export(RESULTS, tmp_path / "x.parquet") == 2
    found = parquet.read_table(tmp_path / "x.parquet")
    kinds = {name: str(found.schema.field(name).type) for name in found.column_names}
    assert {
        kinds[name] for name in ("seed", "generated_tokens", "kv_bytes_per_token", "lost_tokens", "reused_tokens")
    } == {"int64"}
    assert {kinds[name] for name in ("confidence", "flops", "usd", "seconds")} == {"double"}
    assert {kinds[name] for name in ("right", "oracle", "estimated")} == {"bool"}
    assert {kinds[name] for name in ("key", "budget", "failures", "warnings", "drawn", "group")} == {"string"}
    first, second = found.to_pylist()
    assert (first["right"], first["flops"], first["failures"], first["drawn"]) == (True, 0.0, '{"lost": 1}', None)
    assert (second["right"], second["confidence"], second["flops"]) == (None, None, 1e25)
    assert second["answer"] == 'a "b",\nc\\ud800'
    assert json.loads(second["drawn"])[0]["scores"] == {"main": 0.5}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_study_without_results_is_a_file_without_rows(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    assert export([], tmp_path / f"x.{ending}") == 0
    assert (tmp_path / f"x.{ending}").exists()


def test_another_ending_is_refused(tmp_path):
    message = r"path is '.*x\.json', but must end in \.parquet, \.jsonl \(hint: for example results\.parquet\)"
    with pytest.raises(ConfigError, match=message):
        export(RESULTS, tmp_path / "x.json")
    assert not list(tmp_path.iterdir())


def test_parquet_without_pyarrow_names_the_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"dependency pyarrow.*pip.*'test-time-search\[experiments\]'"):
        export(RESULTS, tmp_path / "x.parquet")


def test_what_parquet_cannot_hold_is_one_line(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(TTSError, match=r"numbers.*2\*\*63 .*\(hint:.*\.jsonl\)"):
        export([result(cell(seed=2**70))], tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_only_when_all_is_written(tmp_path):
    (tmp_path / "x.jsonl").write_text("what was here")

    def broken():
        yield from RESULTS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(broken(), tmp_path / "x.jsonl")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("x.jsonl", "what was here")]


def test_a_place_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(TTSError, match=r"x\.jsonl.*written:.*directory \(hint"):
        export(RESULTS, tmp_path / "folder" / "x.jsonl")
