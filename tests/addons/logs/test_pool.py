"""Pools of imported samples: what rows mean, and that imported samples replay like recorded ones."""

from __future__ import annotations

import csv
import gc
import itertools
import json
import math
import os
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.addons.connections import is_open, note_connections
from tests.addons.logs.reading import accuracy, answers, judged, right
from tts.errors import ConfigError
from tts.experiments.analysis.replayable import PartialResults
from tts.experiments.datasets.parquet import read_parquet
from tts.experiments.store.store import Store
from tts_addons.logs.building import SILENT
from tts_addons.logs.importing import Import, ImportSettings, NamedAlike, rows_of
from tts_addons.logs.source import Source, SourceFacts

ROWS = [
    {"problem": "a", "prompt": "1 + 1?", "answer": "2", "reference": "2", "scores": 0.9, "tokens": 5},
    {"problem": "b", "prompt": "2 + 2?", "answer": "5", "reference": "4", "scores": 0.2, "tokens": 7},
    {"problem": "a", "answer": "2.0", "scores": 0.8, "tokens": 6},
    {"problem": "b", "answer": "4", "scores": 0.7, "tokens": 8},
    {"problem": "a", "answer": "", "scores": None, "tokens": 9},
    {"problem": "b", "answer": 5, "scores": 0.1, "tokens": 4},
]


def drawn_of(pool: tts.Pool) -> list[str]:
    """Return all samples as text, in which NaN equals NaN."""
    return [repr(one.drawn) for one in pool.problems]


def test_a_pool_that_is_dropped_closes_its_temporary_database() -> None:
    with note_connections() as connections:
        pool = tts.Pool.from_rows(ROWS, task="math")
    assert [is_open(one) for one in connections] == [True]
    del pool
    gc.collect()
    assert [is_open(one) for one in connections] == [False]


def test_rows_of_several_problems_are_grouped_in_order():
    pool = tts.Pool.from_rows(ROWS)
    a, b = pool.problems
    assert [one.answer for one in a.drawn] == ["2", "2.0", None]
    assert [one.answer_class for one in a.drawn] == [0, 0, None]
    assert [one.right for one in b.drawn] == [False, True, False]
    assert [one.tokens for one in b.drawn] == [7, 8, 4]
    assert [one.scores["main"] for one in b.drawn] == [0.2, 0.7, 0.1]
    assert math.isnan(a.drawn[2].scores["main"])
    assert dict(a.cell.verifiers) == {"main": "recorded(low=0, high=1)"}
    assert (pool.report.samples, pool.report.counts[SILENT], pool.report.sizes) == (6, 1, Counter({3: 2}))


def test_a_list_a_problem_is_the_same_as_a_row_a_sample():
    of_samples = ("answer", "scores", "tokens")
    lists = [
        {
            **ROWS[i],
            **{name: [row[name] for row in ROWS if row["problem"] == ROWS[i]["problem"]] for name in of_samples},
        }
        for i in range(2)
    ]
    assert drawn_of(tts.Pool.from_rows(lists)) == drawn_of(tts.Pool.from_rows(ROWS))


def test_replay_agrees_with_an_enumeration():
    """Majority of two of b: 5 and 4 come in either order, the first wins; best goes by score."""
    pool = tts.Pool.from_rows(ROWS)
    wins = [order[0] == 1 if 1 in order else False for order in itertools.permutations(range(3), 2)]
    assert accuracy(pool, "best_of_n | majority", 2) == pytest.approx((1 + sum(wins) / len(wins)) / 2)
    assert accuracy(pool, "best_of_n | best", 3) == 1.0
    assert accuracy(pool, "best_of_n | majority", 3) == 0.5
    assert accuracy(pool, "best_of_n | majority", 1, first=True) == 0.5


def test_answers_alone_are_enough():
    pool = tts.Pool.from_rows([{"id": 7, "answer": answer} for answer in "yyn"], task="text")
    assert right(pool) == [None] * 3
    assert "neither a reference answer nor verdicts" in "\n".join(pool.report.lines())
    with pytest.raises(ConfigError, match="without a reference answer"):
        pool.replay(["best_of_n | majority"], [1])


def test_verdicts_alone_give_coverage():
    pool = tts.Pool.from_rows([{"problem": "p", "correct": [True, False, False, False]}])
    assert accuracy(pool, "pass@k", 2) == 0.5


def test_given_verdicts_are_kept_and_differences_are_told():
    rows = [
        {"problem": "p", "reference": "1/2", "answer": answer, "correct": answer == "1/2"}
        for answer in ("0.5", "1/2", "3")
    ]
    ours = tts.Pool.from_rows(rows)
    assert judged(ours) == [("0.5", True, False), ("1/2", True, True), ("3", False, False)]
    assert (ours.report.differ, ours.report.judged) == (1, 3)
    assert ours.report.differences == [
        "row 1: the answer '0.5' is right by the reference '1/2', but wrong by the source"
    ]
    theirs = tts.Pool.from_rows(rows, verdicts="given")
    assert right(theirs) == [False, True, False]


def test_texts_are_read_by_the_task_and_tokens_are_marked():
    rows = [{"problem": "p", "reference": "4", "text": f"So \\boxed{{{n}}}"} for n in (4, 5)]
    pool = tts.Pool.from_rows(rows)
    assert answers(pool) == ["4", "5"]
    assert pool.report.tokens == {"estimated": 2}
    assert [one.tokens for one in pool.problems[0].drawn] == [3, 3]  # 12 bytes


def test_tokens_are_counted_by_a_named_tokenizer():
    pytest.importorskip("transformers")
    pool = tts.Pool.from_rows([{"problem": "p", "text": "1 + 2\n= 3"}], tokenizer="pocket", task="text")
    assert pool.report.tokens == {"counted": 1}
    assert 3 <= pool.problems[0].drawn[0].tokens <= 10


def test_scores_have_one_scale_in_all_problems():
    """A score below 0 in one problem makes those of the others log-odds too."""
    votes = [("4", 0.8), ("5", 0.3), ("5", 0.3)]
    rows = [{"problem": "p", "reference": "4", "answer": answer, "score": score} for answer, score in votes]
    assert accuracy(tts.Pool.from_rows(rows), "best_of_n | weighted", 3) == 1.0  # 0.8 against 0.6
    others = [{"problem": "q", "reference": "4", "answer": "4", "score": score} for score in (-3.0, 2.0, 2.5)]
    assert accuracy(tts.Pool.from_rows([*rows, *others]), "best_of_n | weighted", 3) == 0.5  # 0.69 against 1.15


def test_step_scores_and_scores_of_several_verifiers():
    rows = [
        {"problem": "p", "reference": "1", "answer": str(n % 2), "prm": [0.5, 0.1 * n], "rm": float(n)}
        for n in range(4)
    ]
    pool = tts.Pool.from_rows(rows, fields={"scores": {"main": "prm", "judge": "rm"}})
    first = pool.problems[0].drawn[1]
    assert (dict(first.steps), dict(first.scores)) == ({"main": (0.5, 0.1)}, {"main": 0.1, "judge": 1.0})
    assert dict(pool.problems[0].cell.verifiers) == {"judge": "recorded(low=0)", "main": "recorded(low=0, high=1)"}
    assert accuracy(pool, "best_of_n | best", 4) == 1.0
    assert accuracy(pool, "best_of_n | best(verifier='judge')", 3) == pytest.approx(0.75)
    for selection in ("weighted", "best_of_majority", "borda", "best(aggregate='min')"):
        assert 0 <= accuracy(pool, f"best_of_n | {selection}", 3) <= 1


@pytest.mark.slow
def test_csv_and_parquet_have_the_same_samples_as_json_lines(tmp_path, write):
    rows = [
        {**row, "answer": str(row["answer"]), "prompt": row.get("prompt"), "reference": row.get("reference")}
        for row in ROWS
    ]
    plain = tts.Pool.from_jsonl(write(*rows))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    assert drawn_of(tts.Pool.from_csv(tmp_path / "rows.csv")) == drawn_of(plain)
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert drawn_of(tts.Pool.from_parquet(tmp_path / "rows.parquet")) == drawn_of(plain)


def test_a_saved_pool_replays_to_the_same_figures(tmp_path):
    pool = tts.Pool.from_rows(ROWS, name="sums")
    study = pool.save(tmp_path / "store.sqlite")
    strategies = ["pass@k", "best_of_n | majority", "best_of_n | weighted", "best_of_n | unanimous(window=2)"]
    stored, own = study.replay(strategies, [1, 2, 3]), pool.replay(strategies, [1, 2, 3])
    assert [one.curve.accuracy for one in stored] == [one.curve.accuracy for one in own]
    assert [one.curve.costs["tokens"].tolist() for one in stored] == [one.curve.costs["tokens"].tolist() for one in own]
    with pytest.warns(NamedAlike, match="already,.*1"):
        assert pool.save(tmp_path / "store.sqlite").name == "sums"
    with Store(tmp_path / "store.sqlite") as store:
        assert len(store.studies()) == 1
        assert store.check().ok
        keys = [result.cell.key for result in store.results(store.find("sums").id)]
        assert len(keys) == 2
        assert store.source(keys[0]) is not None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"respnse": "x"}, r"neither text, answer nor correct, only .*'respnse'; .*--field text=respnse,"),
        ({"predicton": 3}, "--field answer=predicton, in Python by fields={'answer': 'predicton'}"),
        ({}, "only 'problem'; name a field by --field text=…"),
        ({"problem": None, "answer": "1"}, "neither a problem nor a prompt"),
        ({"answer": "1", "scores": math.inf}, "score by 'main' is inf, no finite number"),
        ({"answer": "1", "scores": 10**400}, "score by 'main' is 1"),
        ({"answer": "1", "scores": "high"}, "score by 'main' is 'high'"),
        ({"answer": "1", "scores": True}, "a verdict; name its field as correct"),
        ({"answer": "1", "scores": "[0.5"}, "scores is .*JSON"),
        ({"answer": "1", "scores": {"": 1}}, "verifier role ''"),
        ({"answer": "1", "scores": {"\ud800": 1}}, "verifier role"),
        ({"answer": ["1", "2"], "scores": {"main": [1]}}, "lists are of different lengths"),
        ({"answer": ["1", "2"], "scores": {"main": [1, 2], "judge": [1]}}, "a list for each role"),
        ({"answer": "1", "steps": {"main": 0.1}}, "steps by 'main' is 0.1, but must be a list"),
        ({"answer": "1", "written_tests": "[1"}, "written_tests is .*JSON"),
        ({"answer": "1", "tokens": -2}, "tokens is -2, but must be a whole number"),
        ({"answer": ["1"], "tokens": [1, 2]}, "lists are of different lengths: answer 1, tokens 2"),
        ({"answer": []}, "lists are empty"),
        ({"answer": "1", "correct": "maybe"}, "correct is 'maybe'"),
        ({"text": 5}, "text is 5, but must be a text"),
        ({"problem": "q", "sample": 1, "answer": "1"}, r"the sample 1 of problem 'q' is that of rows\.jsonl, line 1"),
        ({"problem": "q", "answer": "1", "reference": "2"}, "the reference of problem 'q' is '2', but '1'"),
        ({"answer": "1", "like": 0}, "like is 0, but must be the place of an earlier sample"),
        ({"answer": "1", "tokens": 3, "shared": 2}, "shared is 2, but it has 3 tokens"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(write, row: Mapping[str, Any], said: str):
    path = write({"problem": "q", "sample": 1, "answer": "1", "reference": "1"}, {"problem": "p", **row})
    with pytest.raises(ConfigError, match=rf"^rows\.jsonl, line 2: .*{said}"):
        tts.Pool.from_jsonl(path)


@pytest.mark.parametrize("field", ["tokens", "verifier_tokens", "like", "shared", "same"])
@pytest.mark.parametrize("count", [1e300, (1 << 40) + 1, "9" * 5000, str(1 << 63)])
def test_counts_that_no_model_reaches_are_refused_by_field_and_row(field: str, count: float | str) -> None:
    with pytest.raises(ConfigError, match=rf"^row 1: its {field} is .*, but must be (at most|a whole)") as caught:
        tts.Pool.from_rows([{"problem": "a", "answer": "1", field: count}])
    assert len(str(caught.value)) < 300


def test_two_pools_of_one_name_are_told_apart(tmp_path):
    store = tmp_path / "store.sqlite"
    first, second = (
        tts.Pool.from_rows([{"problem": "p", "reference": "1", "answer": [answer]}], name="mine") for answer in "12"
    )
    first.save(store)
    with pytest.warns(NamedAlike, match="'mine'.*1,.*stays; it"):
        second.save(store)
    with pytest.warns(NamedAlike, match="1,.*added;.*name.*2"):
        again = first.save(store)
    by_name, by_number = (tts.Study.from_store(each, store=store) for each in ("mine", "1"))
    assert [accuracy(one, "pass@k") for one in (by_name, by_number, again)] == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tsk": "math"}, "did you mean task"),
        ({"name": 3}, "name is 3, but must be a text"),
        ({"model": 3}, "model is 3, but must be a text"),
        ({"name": " "}, "the name of the pool is empty, but must be a text"),
        ({"verdicts": "theirs"}, "verdicts is 'theirs', but no verdicts has that name"),
        ({"fields": {"text": 3}}, "fields has 3 for 'text', but must have the name of a field"),
    ],
)
def test_a_setting_that_is_none_is_named(settings, said):
    with pytest.raises(ConfigError, match=said):
        tts.Pool.from_rows(ROWS, **settings)


def test_rows_of_numpy_and_tuples_are_those_of_python():
    plain = [{"problem": 1, "answer": ["1", "2"], "scores": [0.5, 0.25], "tokens": [3, 4], "correct": [True, False]}]
    arrays = [
        {"problem": np.int64(1), **{name: np.array(value) for name, value in plain[0].items() if name != "problem"}}
    ]
    tuples = [{name: tuple(value) if isinstance(value, list) else value for name, value in plain[0].items()}]
    expected = tts.Pool.from_rows(plain).problems[0].drawn
    assert [tts.Pool.from_rows(rows).problems[0].drawn for rows in (arrays, tuples)] == [expected, expected]


@pytest.mark.parametrize("column", ["answer", "note"])
def test_a_cell_of_csv_that_is_no_utf8_is_named(tmp_path, column):
    (tmp_path / "rows.csv").write_bytes(f"problem,{column}\np,caf".encode() + b"\xe9\n")
    with pytest.raises(ConfigError, match=rf"rows\.csv, line 2: its {column} is no UTF-8"):
        tts.Pool.from_csv(tmp_path / "rows.csv")


def test_a_long_solution_in_csv_is_read(tmp_path):
    (tmp_path / "rows.csv").write_text(f"problem,text\np,{'word ' * 40_000}\\boxed{{3}}\n")
    assert answers(tts.Pool.from_csv(tmp_path / "rows.csv")) == ["3"]


def test_a_packed_file_is_refused_with_the_cure(tmp_path):
    with pytest.raises(ConfigError, match=r"ends in '\.gz'") as refused:
        tts.Pool.from_files(tmp_path / "rows.jsonl.gz")
    assert refused.value.hint == "decompress it: <(zcat rows.jsonl.gz) with its form"


def test_what_was_not_run_and_what_comes_again_is_told():
    rows = [{"problem": "p", "text": ["f", "f", "g"], "tests": "assert f(1)", "correct": [1, 1, 0]}]
    lines = tts.Pool.from_rows(rows, task="text").report.lines()
    assert "1 samples have the text of an earlier one of their problem" in lines
    assert "1 problems have tests, which were not run: name a file of verdicts by programs (--programs)" in lines


def test_problems_without_a_reference_are_left_out_and_counted():
    rows = [{"problem": "p", "reference": "1", "answer": ["1", "2"]}, {"problem": "q", "answer": ["1", "2"]}]
    pool = tts.Pool.from_rows(rows)
    with pytest.warns(PartialResults, match="1.*reference.*'q'"):
        (curve,) = pool.replay(["best_of_n | majority"], [1])
    assert (curve.curve.problems, curve.curve.accuracy[0].value) == (["p"], 0.5)


def test_a_pipe_is_read_once_where_its_form_is_named(tmp_path):
    os.mkfifo(path := tmp_path / "rows.jsonl")
    with pytest.raises(ConfigError, match="pipe, which"):
        tts.Pool.from_files(path)
    writer = threading.Thread(target=path.write_text, args=('{"problem": "p", "answer": "1"}\n',))
    writer.start()
    assert tts.Pool.from_files(path, form="jsonl").report.samples == 1
    writer.join()


def test_a_field_that_is_named_must_be_there(write):
    with pytest.raises(ConfigError, match=r"1:.*field 'completion'"):
        tts.Pool.from_jsonl(write({"problem": "p", "completions": "1"}), fields={"text": "completion"})
    with pytest.raises(ConfigError, match=r"key of fields is 'answr'.*answer"):
        tts.Pool.from_rows([], fields={"answr": "x"})


def test_mixed_numbers_of_samples_are_said_and_handled():
    pool = tts.Pool.from_rows(
        [{"problem": "p", "reference": "1", "answer": ["1", "1"]}, {"problem": "q", "reference": "1", "answer": ["2"]}]
    )
    assert "1 to 2 each: curves beyond 1 are over fewer problems" in pool.report.lines()[0]
    (curve,) = pool.replay(["best_of_n | majority"], [1, 2])
    assert curve.too_small == [0, 1]
    assert [one.value for one in curve.curve.accuracy] == [0.5, 1.0]


@pytest.mark.slow
def test_the_recorded_pool_with_rewards_has_its_known_figures():
    folder = os.environ.get("TTS_DATA_DIR")
    if not folder or not (path := Path(folder, "pools", "qwen25math", "math_cot_100_n8_rm.jsonl")).exists():
        pytest.skip("TTS_DATA_DIR has no pools/qwen25math")
    meanings, names = "problem text answer reference correct scores", "idx code pred gt score pred_score"
    fields = dict(zip(meanings.split(), names.split(), strict=True))
    pool = tts.Pool.from_jsonl(path, fields=fields, verdicts="given")
    assert accuracy(pool, "pass@k", 1) == pytest.approx(0.910, abs=1e-9)
    assert accuracy(pool, "pass@k", 8) == pytest.approx(0.96)
    assert accuracy(pool, "best_of_n | majority", 8, first=True) == pytest.approx(0.93)
    assert accuracy(pool, "best_of_n | best", 8, first=True) == pytest.approx(0.94)


@pytest.mark.slow
def test_a_large_file_is_imported_in_bounded_memory(tmp_path):
    """Rows of a problem are far apart, and the file has three times what the import may hold."""
    text = "word " * 2000
    path = tmp_path / "large.jsonl"
    with path.open("w") as file:
        for number in range(3000):
            row = {"problem": number % 500, "reference": "3", "text": f"{text} {number}", "answer": str(number % 5)}
            file.write(json.dumps(row) + "\n")
    assert path.stat().st_size > 24 << 20
    source, facts = Source(), SourceFacts()
    tracemalloc.start()
    try:
        with (
            Import(rows_of([path], source, facts), ImportSettings(name="large"), facts) as found,
            Store(tmp_path / "store.sqlite") as store,
        ):
            found.save(store)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.report.samples == 3000
    assert peak < 8 << 20


@pytest.mark.slow
def test_a_large_table_is_read_in_bounded_memory(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    with parquet.ParquetWriter(
        path := tmp_path / "large.parquet", pa.schema([("text", pa.string())]), compression="none", use_dictionary=False
    ) as file:
        for group in range(12):
            file.write_table(pa.table({"text": [f"{group} {i} {'word ' * 2000}" for i in range(200)]}))
    assert path.stat().st_size > 22 << 20
    before, most = pa.total_allocated_bytes(), 0
    for _, row in read_parquet(path):
        most = max(most, pa.total_allocated_bytes() - before)
        assert isinstance(row, dict)
    assert most < 8 << 20


@pytest.mark.parametrize(
    ("correct", "best", "vote"), [((True, False), [1, 1], [1, 1]), ((False, True), [0, 1], [0, 0])]
)
def test_of_two_verdicts_on_one_answer_that_of_the_chosen_sample_counts(
    correct: tuple[bool, bool], best: list[int], vote: list[int]
) -> None:
    scores = [0.9, 0.1] if correct[0] else [0.1, 0.9]
    rows = [{"problem": "a", "answer": ["1", "1"], "correct": list(correct), "scores": scores}]
    pool = tts.Pool.from_rows(rows, name="disputed", verdicts="given")
    for strategy, wanted in (("best_of_n | best", best), ("best_of_n | majority", vote)):
        assert [accuracy(pool, strategy, size, first=True) for size in (1, 2)] == wanted


class FaultyTask(tts.Task):
    name = "faulty"

    def extract(self, text: str) -> str | None:
        if text == "bad":
            raise OverflowError("too large")
        return text


def test_a_fault_of_a_task_on_one_text_is_that_sample_s_own(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(tts.tasks.TABLE.entries, "faulty", f"{__name__}:FaultyTask")
    path = write(*({"problem": "a", "text": text, "reference": "2"} for text in ("2", "bad", "2")))
    facts = SourceFacts()
    with Import(rows_of([path], Source(), facts), ImportSettings(name="pool", task="faulty"), facts) as found:
        (one,) = found
        assert [sample.answer for sample in one.result.drawn or ()] == ["2", None, "2"]
    assert [line for line in found.report.lines() if "OverflowError" in line] == [
        "the task 'faulty' failed in extract on a text of the model, so that candidate has no answer (OverflowError: "
        "too large)"
    ]


def test_a_replay_by_scores_of_another_role_names_the_role() -> None:
    rows = [{"problem": "p", "answer": "1", "correct": True, "scores": {"rm": 0.5}}] * 2
    with pytest.raises(ConfigError, match=r"role 'main', .*weighted\(verifier='rm'\)"):
        tts.Pool.from_rows(rows, name="mine").replay(["best_of_n | weighted"])
