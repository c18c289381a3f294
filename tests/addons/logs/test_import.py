"""`tts import`: recorded samples of other programs become a pool, or nothing does."""

from __future__ import annotations

import json

import pytest

ROWS = [
    {
        "problem": f"p{i}",
        "reference": "1",
        "completion": ["\\boxed{1}", "\\boxed{2}", "\\boxed{1}"],
        "rm": [0.1, 0.2, 0.3],
    }
    for i in range(3)
]


def test_a_file_is_imported_and_replayed(tts, tmp_path):
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    store = ("--store", str(tmp_path / "store.sqlite"))
    done = tts("import", str(tmp_path / "mine.jsonl"), "--field", "scores.main=rm", *store)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:2] == ["imported mine", "9 samples of 3 problems, 3 each"]
    replayed = tts(
        "replay", "mine", "--n", "1,3", "--strategy", "best_of_n | best", "--strategy", "pass@k", "--json", *store
    )
    assert replayed.exit_code == 0, replayed.output
    points = json.loads(replayed.stdout)
    assert [point["accuracy"]["value"] for point in points] == [2 / 3, 1.0, 2 / 3, 1.0]
    shown = tts("show", "mine", *store)
    assert shown.exit_code == 0, shown.output
    assert "100.0 %" in shown.stdout


def test_nothing_is_half_imported(tts, tmp_path, assert_error):
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + '{"problem": "p9", "completion": [3]}\n')
    result = tts("import", str(path), "--store", str(tmp_path / "store.sqlite"))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == "error: bad.jsonl, line 4: its text is 3, but must be a text"
    assert not (tmp_path / "store.sqlite").exists()


def test_a_field_without_an_equals_sign_is_refused(tts, tmp_path, assert_error):
    (tmp_path / "mine.jsonl").write_text(json.dumps(ROWS[0]))
    result = tts("import", str(tmp_path / "mine.jsonl"), "--field", "text")
    assert_error(result, 2, "--field is 'text', but must be MEANING=FIELD", "for example --field text=completion")


@pytest.mark.parametrize(
    "twice", [("text=a", "text=b"), ("scores.main=a", "scores.main=b"), ("scores=a", "scores.main=b")]
)
def test_a_field_that_is_given_twice_is_refused(tts, tmp_path, assert_error, twice):
    (tmp_path / "mine.jsonl").write_text(json.dumps(ROWS[0]))
    result = tts("import", str(tmp_path / "mine.jsonl"), "--field", twice[0], "--field", twice[1])
    meaning = twice[1].partition("=")[0]
    assert_error(result, 2, f"--field {meaning} was given twice, but can be given once", "leave one out")


def test_fields_are_named_by_their_meaning(tts, tmp_path):
    rows = [
        {"question": f"p{i}", "truth": "1", "said": ["\\boxed{1}", "\\boxed{2}"], "rm": [0.1, 0.2]} for i in range(2)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = [
        part
        for field in ("problem=question", "reference=truth", "text=said", "scores.main=rm")
        for part in ("--field", field)
    ]
    done = tts("import", str(tmp_path / "mine.jsonl"), *named, "--store", str(tmp_path / "store.sqlite"))
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:2] == ["imported mine", "4 samples of 2 problems, 2 each"]


@pytest.mark.parametrize(("option", "of"), [("filter", "lm-eval"), ("scorer", "inspect")])
def test_an_option_that_no_file_uses_is_refused(tts, tmp_path, assert_error, option, of):
    file, store = tmp_path / "rows.jsonl", tmp_path / "store.sqlite"
    file.write_text('{"problem": "1", "answer": "2", "reference": "2"}\n')
    result = tts("import", str(file), "--name", "rows", f"--{option}", "strict", "--store", str(store))
    told = f"{option} was given, but the files are of the form jsonl, and {option} is of {of}"
    assert_error(result, 2, told, "leave it out, or name the form of the files")
    assert not store.exists()


def test_a_missing_file_is_one_line(tts, tmp_path):
    result = tts("import", str(tmp_path / "none.jsonl"), "--store", str(tmp_path / "store.sqlite"))
    assert result.exit_code == 2
    assert "cannot be read: No such file or directory" in result.stderr


@pytest.mark.slow
def test_recorded_order_stands_beside_the_mean_over_orders_with_dollars(tts, tmp_path):
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    store = ("--store", str(tmp_path / "store.sqlite"))
    assert tts("import", str(tmp_path / "mine.jsonl"), *store).exit_code == 0
    options = ("--n", "2", "--strategy", "best_of_n | majority", "--order", "both", "--prices", "1/M,2/M", "--json")
    done = tts("replay", "mine", *options, *store)
    assert done.exit_code == 0, done.output
    recorded, mean = json.loads(done.stdout)
    assert (recorded["order"], recorded["accuracy"]["value"]) == ("recorded", 1.0)
    assert (mean["order"], mean["accuracy"]["value"], mean["drawing_error"]) == ("all", 2 / 3, 0.0)
    assert recorded["costs"]["usd"] == 2 * recorded["costs"]["generated_tokens"] / 1e6
    assert tts("replay", "mine", "--order", "bth", *store).exit_code == 2
    assert "must be the price of prompts and that of output" in tts("replay", "mine", "--prices", "1/M", *store).stderr
    shared = tts("replay", "mine", "--strategy", "auto", "--total", "--n", "2", "--order", "recorded", *store)
    assert shared.exit_code == 0, shared.output


def test_the_default_replay_of_scored_samples_is_one_table_of_eighty_columns(tts, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    store = ("--store", str(tmp_path / "store.sqlite"))
    assert tts("import", str(tmp_path / "mine.jsonl"), "--field", "scores.main=rm", *store).exit_code == 0
    facts, table = tts("replay", "mine", *store).stdout.split("\n\n")
    assert "points     replayed" in facts
    assert "best_of_majority" in table
    assert max(map(len, table.splitlines())) <= 80
