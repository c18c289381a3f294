"""Rows with lists of samples: which names are known, and which rows are refused with their cure."""

from __future__ import annotations

import json
import re

import pytest

import tts
from tts.errors import ConfigError

TEXTS = ["\\boxed{1}", "\\boxed{2}", "\\boxed{1}"]
VERDICTS = [True, False, True]
SCORES = [0.25, 0.5, 0.75]


@pytest.mark.parametrize("name", ["samples", "responses", "completions", "generations", "outputs", "texts"])
@pytest.mark.parametrize("verdicts", ["correct", "is_correct"])
def test_lists_of_texts_and_verdicts_are_known_by_their_usual_names(name, verdicts):
    (problem,) = tts.Pool.from_rows([{"problem": "p", "reference": "1", name: TEXTS, verdicts: VERDICTS}]).problems
    assert [(sample.answer, sample.given) for sample in problem.drawn] == [("1", True), ("2", False), ("1", True)]


def test_answers_beside_equally_many_texts_are_those_of_the_samples():
    pool = tts.Pool.from_rows([{"problem": "p", "samples": TEXTS, "answer": ["1", "2", "3"], "correct": VERDICTS}])
    assert (pool.report.samples, pool.report.compared, pool.report.unlike) == (3, 3, 1)


def test_a_count_of_samples_is_no_text():
    pool = tts.Pool.from_rows([{"problem": "p", "reference": "1", "samples": 16, "text": TEXTS[0]}])
    assert (pool.report.samples, pool.report.read[-1]) == (1, "not read: 'samples'")


def test_cells_of_csv_have_lists_as_long_as_others(tmp_path):
    path = tmp_path / "rows.csv"
    cells = '"[\'\\boxed{1}\', \'\\boxed{2}\']","[True, False]","[0.25, 0.5]"'
    path.write_text(f"problem,reference,samples,correct,scores\np,1,{cells}\n")
    (problem,) = tts.Pool.from_files(path, task="math").problems
    assert [(one.given, one.scores["main"]) for one in problem.drawn] == [(True, 0.25), (False, 0.5)]
    assert [one.answer for one in problem.drawn] == ["1", "2"]


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ({"attempts": TEXTS, "correct": VERDICTS}, {"text": "attempts"}),
        ({"attempts": [{"text": text} for text in TEXTS], "correct": VERDICTS}, {"text": "attempts.*.text"}),
        ({"samples": [{"text": text} for text in TEXTS], "correct": VERDICTS}, {"text": "samples.*.text"}),
        ({"answer": "1", "attempts": TEXTS, "scores": SCORES}, {"text": "attempts", "reference": "answer"}),
        ({"answer": "1", "samples": TEXTS, "scores": SCORES}, {"reference": "answer"}),
        ({"answer": "1", "correct": VERDICTS}, {"reference": "answer"}),
        ({"text": "1 + 0?", "correct": VERDICTS}, {"text": "-"}),
    ],
)
def test_a_row_whose_texts_are_not_read_is_refused_with_a_cure_that_works(fields, cure):
    row = {"problem": "p", **fields}
    meaning, field = next(iter(cure.items()))
    with pytest.raises(ConfigError, match=f"row 1.*--field {meaning}={re.escape(field)}"):
        tts.Pool.from_rows([row])
    assert tts.Pool.from_rows([row], fields=cure).report.samples == 3


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ConfigError, match="text 3, correct 2"):
        tts.Pool.from_rows([{"problem": "p", "samples": TEXTS, "correct": VERDICTS[:2]}])


@pytest.mark.filterwarnings("default::tts.experiments.analysis.replayable.PartialResults")
def test_nothing_is_imported_without_texts_and_a_pool_of_verdicts_says_what_it_lacks(tmp_path):
    from typer.testing import CliRunner

    from tts.cli.app import app

    def run(*arguments):
        return CliRunner().invoke(app, [*map(str, arguments), "--store", str(tmp_path / "store.sqlite")])

    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"problem": "p", "reference": "1", "tries": TEXTS, "correct": VERDICTS}))
    refused = run("import", path)
    assert refused.exit_code == 2
    assert all(word in refused.stderr for word in ("own.jsonl", "'tries'", "--field text=tries"))
    assert not (tmp_path / "store.sqlite").exists()
    assert run("import", path, "--field", "text=-").exit_code == 0
    replayed = run("replay", "own")
    assert (replayed.exit_code, "majority" in replayed.stdout) == (0, False)
    assert "warning: no sample has an answer" in replayed.stderr
