"""Rows of samples: how cells of CSV are read, and what a row without an id, a form or a sample gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.addons.logs.test_pool import ROWS
from tts.cli.app import app
from tts.errors import ConfigError


def test_a_whole_number_may_be_written_as_a_fraction():
    assert tts.Pool.from_rows([{"problem": "p", "answer": "1", "tokens": 5.0}]).problems[0].drawn[0].tokens == 5


def test_cells_of_csv_have_verdicts_counts_and_json(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('problem,answer,correct,tokens,scores\np,1,True,5,"[0.25, 0.5]"\np,2,FALSE,7,"{""judge"": 1}"\n')
    first, second = tts.Pool.from_files(path).problems[0].drawn
    assert (first.right, first.tokens, first.steps, first.scores["main"]) == (True, 5, {"main": (0.25, 0.5)}, 0.5)
    assert (second.right, second.tokens, second.scores["judge"]) == (False, 7, 1.0)


def test_samples_of_one_prompt_are_of_one_problem_without_an_id():
    rows = [{"prompt": prompt, "answer": "1"} for prompt in ("1 + 0?", "2 - 1?", "1 + 0?")]
    pool = tts.Pool.from_rows(rows)
    assert repr(pool) == "Pool('pool', 2 problems, 3 samples)"
    assert [len(one.drawn) for one in pool.problems] == [2, 1]
    assert all(one.cell.problem.startswith("prompt/") for one in pool.problems)


def test_verdicts_that_differ_on_equal_answers_are_told():
    pool = tts.Pool.from_rows([{"problem": "p", "answer": ["1", "1"], "correct": [True, False]}])
    assert "in 1 problems the source gives equal answers different verdicts" in pool.report.lines()


def test_what_is_no_row_no_form_and_no_sample_is_named(tmp_path):
    rows: Any = [3]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with pytest.raises(ConfigError, match=r"1.*mapping"):
        tts.Pool.from_rows(rows)
    with pytest.raises(ConfigError, match=r"form.*'xml',.*form"):
        tts.Pool.from_files(path, form="xml")
    with pytest.raises(ConfigError, match=r"samples,.*pool"):
        tts.Pool.from_rows([])


def test_replayed_curves_are_a_table():
    pool = tts.Pool.from_rows(ROWS)
    header, first, second = pool.table(pool.replay(["pass@k", "best_of_n | majority"], [1]), "csv").splitlines()
    assert header.startswith("dataset,group,model,verifier,strategy")
    assert ("pass@k" in first, "best_of_n | majority" in second) == (True, True)


@pytest.mark.parametrize(
    ("last", "cut"),
    [
        *(
            (text, True)
            for text in ('{"answer": "3', '{"answer": 3', '{"answer": tr', '{"answer": -', '{"answer":', "{")
        ),
        *((text, False) for text in ("answer", '{"answer": 3}}', "{'answer': 3}", '{"answer": 3,}', "[" * 100_000)),
    ],
)
def test_a_file_ends_in_the_middle_of_a_line_only_where_more_text_could_make_it_json(
    tmp_path: Path, last: str, cut: bool
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"problem": "a", "answer": "1"}\n' + last)
    with pytest.raises(ConfigError, match="line 2: it") as caught:
        tts.Pool.from_jsonl(file)
    assert ("ends in the middle of this line" in str(caught.value)) is cut


def test_errors_of_an_import_tell_of_rows_and_not_of_strategies(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"problem": "a", "answer": "1", "tokens": 1e300}\n')
    told = CliRunner().invoke(app, ["import", str(file), "--store", str(tmp_path / "s.sqlite")])
    assert told.exit_code == 2
    assert "its tokens is 1e+300" in told.output
    assert "strategies" not in told.output
    assert "hint: correct it, or leave it out" in told.output
