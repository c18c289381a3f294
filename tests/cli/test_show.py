from __future__ import annotations

import csv
import io
import json
import re

import pytest

import tts as library
from tests.experiments.made import cell, result
from tests.experiments.studies import SUMS
from tts.experiments.output.tables import _latex
from tts.experiments.store.store import Store, default_store


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A study of two budgets, done, in the default place, after one that was cut off."""
    monkeypatch.chdir(tmp_path)
    with Store(default_store()) as opened:
        early = opened.begin("early", {})
        opened.add(early, map(cell, range(4)))
        opened.finish("w", result(cell(0), error="EngineError: it broke", right=None))
        opened.lease(early, "w", 1)
        opened.beat("w", {"key 1": 25})
        opened.release("w", ["key 1"])
        done = opened.begin("done", {})
        cells = [cell(10 + i, budget={"tokens": 100 if i < 10 else 200}, problem=f"sums/{i % 10}") for i in range(20)]
        opened.add(done, cells)
        for number, each in enumerate(cells):
            opened.finish("w", result(each, 100, right=number % 10 < 4 + number // 5))
    return opened.path


def test_runs_lists_studies(tts, store):
    result = tts("runs")
    assert result.exit_code == 0
    assert re.search(r"│ +1 │ early │ \d{4}-\d\d-\d\d \d\d:\d\d │ +4 │ +0 │ +1 │ +25 │", result.stdout)
    assert re.search(r"│ +2 │ done +│ .* │ +20 │ +20 │ +0 │ +0 │", result.stdout)


@pytest.mark.slow
def test_show_prints_the_newest_study(tts, store):
    result = tts("show")
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.search(r"^strategy +best_of_n\(n=4\) \| majority$", result.stdout, re.MULTILINE)
    assert re.search(r"^tokens=100 +40\.0 % \[\d+\.\d, \d+\.\d\] +\d+\.\d$", result.stdout, re.MULTILINE)
    assert re.search(r"^tokens=200 +70\.0 % \[\d+\.\d, \d+\.\d\] +\d+\.\d$", result.stdout, re.MULTILINE)
    assert tts("show", "done").stdout == tts("show", "2", "--store", str(store)).stdout == result.stdout


def test_show_prints_json_and_csv(tts, store):
    rows = json.loads(tts("show", "--json").stdout)
    flat = list(csv.DictReader(io.StringIO(tts("show", "--csv").stdout)))
    assert [row["accuracy"]["value"] for row in rows] == [float(row["accuracy"]) for row in flat] == [0.4, 0.7]


@pytest.mark.slow
def test_a_form_is_of_an_export_and_an_export_is_no_table(tts, store, assert_error):
    told = "--form samples was given without --export, which it is for"
    assert_error(tts("show", "--form", "samples"), 2, told, "add --export FILE")
    for two in (("--csv", "--json"), ("--latex", "--markdown"), ("--json", "--samples", "page.html")):
        told = f"{two[0]} and {two[1]} were asked for at once, but only one can be"
        assert_error(tts("show", *two), 2, told, "leave one out")


def test_show_prints_latex_and_markdown(tts, store):
    paper = tts("show", "--latex").stdout
    assert r"\toprule" in paper
    assert "% left out, unless columns are named: seconds, summed\n" in paper
    assert "seconds, summed" in tts("show", "--latex", "--columns", "seconds,accuracy").stdout
    assert re.search(r"^\| :-+ \|", tts("show", "--markdown").stdout, re.MULTILINE)


@pytest.mark.filterwarnings("default::tts.experiments.api.PartialResults")
def test_a_study_that_was_cut_off_is_shown_as_far_as_it_is(tts, store):
    result = tts("show", "early")
    assert result.exit_code == 0
    assert result.stderr == "warning: study early: 1 of 4 cells are done, so this is not its final table\n"
    assert re.search(r"^ +accuracy \[95 %\]\nunknown: every run failed$", result.stdout, re.MULTILINE)
    assert re.search(r"^errors +1 EngineError$", result.stdout, re.MULTILINE)


def test_strategies_have_the_words_of_a_label(tts, store, assert_error):
    assert re.search(
        r"^strategy +Vote of four$", tts("show", "--label", "best_of_n(n=4)=Vote of four").stdout, re.MULTILINE
    )
    hint = "known: best_of_n(n=4) | majority"
    assert_error(tts("show", "--label", "beam=Beam"), 2, "strategy is 'beam', but no strategy has that name", hint)
    hint = "for example --label 'best_of_n | majority=voting'"
    assert_error(tts("show", "--label", "Vote"), 2, "--label is 'Vote', but must be STRATEGY=WORDS", hint)


def test_numbers_below_zero_have_a_minus_in_latex():
    assert _latex("-1.2 [-3.4, 0.5]") == "$-$1.2 [$-$3.4, 0.5]"
    assert _latex("A - B, points") == "A $-$ B, points"
    assert (_latex("best-of-n(n=-1)"), _latex("1e-05")) == ("best-of-n(n=-1)", "1e-05")


def test_a_study_without_results(tts, tmp_path):
    with Store(tmp_path / "s.sqlite") as opened:
        opened.begin("new", {})
    assert tts("show", "--store", str(tmp_path / "s.sqlite")).stdout == "no results yet\n"


def test_show_exports(tts, store, tmp_path):
    result = tts("show", "--export", "x.jsonl")
    assert (result.exit_code, result.stdout) == (0, "20 results in x.jsonl\n")
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 20


def test_merge_takes_what_is_missing(tts, store):
    result = tts("merge", str(store), "--store", "new.sqlite")
    assert (result.exit_code, result.stdout) == (0, "21 results from .tts/store.sqlite\n")
    assert tts("show", "--store", "new.sqlite").stdout == tts("show").stdout
    assert tts("merge", str(store), "--store", "new.sqlite").stdout == "0 results from .tts/store.sqlite\n"


def test_what_is_asked_for_wrongly_is_refused(tts, store, assert_error):
    assert_error(tts("show", "don"), 2, "study is 'don', but no study has that name", "did you mean done?")
    for command in ("show", "runs"):
        hint = "name the file of your runs with --store, or make one with tts run"
        assert_error(tts(command, "--store", "none.sqlite"), 2, "store none.sqlite is not there", hint)
    store.with_name("text").write_text("no store")
    cause = "store .tts/text is a file of another kind, no store"
    assert_error(tts("show", "--store", ".tts/text"), 2, cause, "name another file with --store")


def test_nothing_that_a_terminal_would_obey_is_printed(tts, tmp_path):
    with Store(tmp_path / "s.sqlite") as opened:
        study = opened.begin("\x1b[31mred", {})
        opened.add(study, [cell(dataset="\x1b[2J")])
        opened.finish("w", result(cell(dataset="\x1b[2J")))
    for command in ("show", "runs"):
        assert "\x1b" not in tts(command, "--store", str(tmp_path / "s.sqlite")).output


def test_rows_for_trainers_are_written_with_a_card(tts, tmp_path, monkeypatch, assert_error):
    monkeypatch.chdir(tmp_path)
    study = library.Study(
        name="sums", models="toy", problems={**SUMS, "limit": 2}, strategies="best_of_n", budgets={"samples": [4]}
    )
    study.run(progress=False)
    result = tts("export", "sums", "--form", "trl-kto", "--out", "rows.jsonl", "--per-problem", "2")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        "4 rows of 2 searches in rows.jsonl; left out: 4 rows beyond the most of their problem"
    )
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [set(row) for row in rows] == [{"prompt", "completion", "label"}] * 4
    assert (tmp_path / "rows.md").exists()
    result = tts("export", "--form", "tokens", "--out", "tokens.jsonl")
    assert "2 searches are drawn again from their seeds" in result.stderr
    assert len((tmp_path / "tokens.jsonl").read_text().splitlines()) == 8
    told = "form is 'trl-stf', but no form has that name"
    assert_error(tts("export", "--form", "trl-stf", "--out", "x.jsonl"), 2, told, "did you mean trl-sft or trl-kto?")
