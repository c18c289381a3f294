from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tts.errors import ConfigError, MissingDependency
from tts.experiments.datasets import load
from tts.experiments.datasets.rows import RowsLeftOut
from tts.types import Message, Problem

FOLDER = os.environ.get("TTS_DATA_DIR")

ROWS: list[dict[str, Any]] = [
    {"id": "a", "problem": "1 + 1?", "answer": "2", "level": 1},
    {"id": 7, "problem": "2 + 2?", "answer": 4, "level": 2},
    {"problem": "3 + 3?", "answer": None, "level": 3},
]


def written(folder: Path, lines: Sequence[Mapping[str, Any] | str | bytes], name: str = "mine.jsonl") -> str:
    path = folder / name
    path.write_bytes(b"".join(_bytes(line) + b"\n" for line in lines))
    return str(path)


def _bytes(line: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


def left_out(path: str, **parameters: Any) -> tuple[list[Problem], str]:
    with pytest.warns(RowsLeftOut) as caught:
        problems = load("file", path=path, **parameters)
    assert len(caught) == 1
    return problems, str(caught[0].message)


def is_rows(problems: Sequence[Problem]) -> bool:
    """Whether these are the problems of ROWS, read from any format."""
    assert [problem.text for problem in problems] == ["1 + 1?", "2 + 2?", "3 + 3?"]
    assert [problem.answer for problem in problems] == ["2", "4", None]
    assert [problem.id for problem in problems[:2]] == ["a", "7"]
    assert (problems[2].id or "").startswith("mine/")
    return [int(problem.metadata["level"]) for problem in problems] == [1, 2, 3]


def test_json_lines(tmp_path: Path):
    problems = load("file", path=written(tmp_path, [b"\xef\xbb\xbf" + _bytes(ROWS[0]), "", *ROWS[1:]]), task="math")
    assert is_rows(problems)
    assert {problem.task for problem in problems} == {"math"}


def test_csv(tmp_path: Path):
    lines = ["id,problem,answer,level", "a,1 + 1?,2,1", '7,"2 + 2?",4,2', "", ",3 + 3?,,3"]
    assert is_rows(load("file", path=written(tmp_path, lines, "mine.csv")))


@pytest.mark.slow
def test_parquet(tmp_path: Path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{**row, "id": None if row.get("id") is None else str(row["id"])} for row in ROWS]
    rows = [{**row, "answer": None if row["answer"] is None else float(row["answer"])} for row in rows]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "mine.parquet", row_group_size=1)
    assert is_rows(load("file", path=str(tmp_path / "mine.parquet")))
    (tmp_path / "mine.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ConfigError, match=r"mine\.parquet.*Parquet"):
        load("file", path=str(tmp_path / "mine.parquet"))


def test_parquet_without_pyarrow_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"pip install 'test-time-search\[experiments\]'"):
        load("file", path=written(tmp_path, [], "mine.parquet"))


def test_bad_rows_are_named_and_do_not_stop_the_rest(tmp_path: Path):
    bad = {
        "{": "it is no JSON: ",
        "[1]": "it is no JSON object",
        b'{"problem": "\xff"}': "it is no UTF-8",
        "[" * 100_000: "it is no JSON: ",
        '{"question": "1"}': "it has no field 'problem', only 'question'",
        '{"problem": " "}': "its problem is ' ', but must be a text",
        '{"problem": 3}': "its problem is 3, but must be a text",
        '{"problem": "1", "answer": [1]}': "its answer is [1], but must be a text or a number",
        '{"problem": "1", "answer": true}': "its answer is True, but",
        '{"problem": "1", "answer": Infinity}': "its answer is inf, but",
        '{"problem": "1", "id": {}}': "its id is {}, but",
        '{"problem": "\\ud800"}': "its problem has characters that are no UTF-8",
        '{"problem": []}': "its problem is [], but messages must have a role and a content",
        '{"problem": [{"role": "user"}]}': "but messages must have a role and a content",
        '{"problem": "1 +  1?"}': "it is the problem of line 1 again",
    }
    problems, message = left_out(written(tmp_path, [ROWS[0], *bad, ROWS[1]]))
    assert [problem.text for problem in problems] == ["1 + 1?", "2 + 2?"]
    assert message.startswith(f"mine.jsonl: rows left out: {len(bad)}. line 2: it is no JSON: ")
    for number, reason in enumerate(bad.values(), 2):
        assert (
            f"line {number}: {reason}" in message or reason in message.split(f"line {number}: ")[1].split("; line")[0]
        )


def test_bad_rows_of_csv(tmp_path: Path):
    lines = [
        b"problem,answer",
        b"1 + 1?,2",
        b"2 + 2?",
        b"2,+ 2,4",
        b"\xff + 2?,4",
        b'"two\nlines",6',
        b'"2" + 2?,4',
        b"3 + 3?,6",
        b'"open,7',
        b"8",
    ]
    problems, message = left_out(written(tmp_path, lines, "mine.csv"))
    assert [problem.text for problem in problems] == ["1 + 1?", "two\nlines", "3 + 3?"]
    assert message == (
        "mine.csv: rows left out: 5. line 3: its values are 1, but the header has 2 columns; line 4: its values are "
        "3, but the header has "
        "2 columns; line 5: its problem has characters that are no UTF-8; line 8: it is no CSV: ',' expected after "
        "'\"'; "
        "line 10: it is no CSV: unexpected end of data"
    )


def test_very_many_bad_rows_are_counted(tmp_path: Path):
    _, message = left_out(written(tmp_path, [ROWS[0], *["{"] * 150]))
    assert message.count("it is no JSON") == 100
    assert message.endswith("; and 50 more")


def test_messages_are_a_problem(tmp_path: Path):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
    [problem] = load("file", path=written(tmp_path, [{"problem": turns}]))
    assert problem.prompt == (Message("system", "Be brief."), Message("user", "1 + 1?"))


def test_fields_have_other_names(tmp_path: Path):
    path = written(tmp_path, [{"question": "1 + 1?", "gold": 2.0, "key": "a", "answer": "see gold"}])
    [problem] = load("file", path=path, fields={"problem": "question", "answer": "gold", "id": "key"})
    assert (problem.text, problem.answer, problem.id, problem.metadata) == ("1 + 1?", "2", "a", {"answer": "see gold"})


def test_numbers_are_written_as_they_are(tmp_path: Path):
    answers = [0.5, -3, 1e300, 12345678901234567890, "007", " x ", ""]
    problems = load("file", path=written(tmp_path, [{"problem": str(i), "answer": a} for i, a in enumerate(answers)]))
    assert [problem.answer for problem in problems] == [
        "0.5",
        "-3",
        str(int(1e300)),
        "12345678901234567890",
        "007",
        "x",
        None,
    ]


def test_objects_and_lists_are_references_of_the_task_json(tmp_path: Path):
    lines = ['{"problem": "1", "answer": {"name": "Åsa"}}', '{"problem": "2", "answer": [1, null]}']
    problems = load("file", path=written(tmp_path, lines), task="json")
    assert [problem.answer for problem in problems] == ['{"name": "Åsa"}', "[1, null]"]
    problems, message = left_out(written(tmp_path, lines))
    assert [problem.answer for problem in problems] == ['{"name": "Åsa"}']
    assert "task: json" in message
    with pytest.raises(ConfigError, match="task: json"):
        load("file", path=written(tmp_path, lines), task="math")


def test_a_limit_takes_the_first_and_a_seed_draws_an_order(tmp_path: Path):
    path = written(tmp_path, [{"problem": f"{i} + 1?", "id": f"p{i}"} for i in range(50)])
    names = [problem.id for problem in load("file", path=path)]
    assert names == [f"p{i}" for i in range(50)]
    assert [problem.id for problem in load("file", path=path, limit=7)] == names[:7]
    drawn = [problem.id for problem in load("file", path=path, seed=3)]
    assert drawn != names
    assert sorted(map(str, drawn)) == sorted(names)
    assert [problem.id for problem in load("file", path=path, seed=3, limit=7)] == drawn[:7]
    assert [problem.id for problem in load("file", path=path, seed=4)] != drawn


def test_ids_of_problems_without_one_do_not_depend_on_the_file_s_order(tmp_path: Path):
    rows = [{"problem": f"{i} + 1?"} for i in range(5)]
    there = {problem.text: problem.id for problem in load("file", path=written(tmp_path, rows))}
    again = {problem.text: problem.id for problem in load("file", path=written(tmp_path, rows[::-1]))}
    assert there == again
    assert len(set(there.values())) == 5


@pytest.mark.parametrize(
    ("lines", "parameters", "message"),
    [
        ([], {}, "mine.jsonl has no problem, but must have one"),
        (["", "{"], {}, "mine.jsonl has no problem, but must have one; line 2: it is no JSON"),
        (
            [{"problem": "1", "id": "a"}, {"problem": "2", "id": "a"}],
            {},
            "mine.jsonl, line 2: the id 'a' is that of line 1 already, but",
        ),
        (
            [{"problem": "1", "id": "a"}, {"problem": "1", "id": "a"}],
            {},
            "mine.jsonl, line 2: the id 'a' is that of line 1 already, but",
        ),
        (
            ROWS,
            {"fields": {"answer": "gold"}},
            "field of mine.jsonl is 'gold', but no field of mine.jsonl has that name",
        ),
        (ROWS, {"fields": {"id": "ids"}}, "did you mean id?"),
        (
            ROWS,
            {"fields": {"answers": "gold"}},
            "key of fields is 'answers', but no key of fields has that name (hint: did you mean answer?)",
        ),
        (ROWS, {"fields": {"answer": 3}}, "fields has 3 for 'answer', but must have the name of a field"),
        (ROWS, {"limit": 0}, "limit is 0, but must be a whole number of at least 1, or None for all"),
        (ROWS, {"limit": True}, "limit is True, but"),
        (ROWS, {"seed": -1}, "seed is -1, but must be a whole number from 0 to 2**64 - 1"),
        (ROWS, {"pathe": 1}, "did you mean path?"),
    ],
)
def test_what_is_no_data_set_is_refused(tmp_path: Path, lines: list[Any], parameters: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as failure:
        load("file", path=written(tmp_path, lines), **parameters)
    assert message in str(failure.value)


def test_paths_that_are_no_file_are_refused(tmp_path: Path):
    (tmp_path / "folder.csv").mkdir()
    for path, message in (
        ("", "path is not given, but the data set 'file' needs one"),
        (str(tmp_path / "mine.xlsx"), "mine.xlsx', but must end in .jsonl, .csv, .parquet"),
        (str(tmp_path / "none.jsonl"), "none.jsonl' cannot be read: No such file or directory"),
        (str(tmp_path / "folder.csv"), "folder.csv' cannot be read: Is a directory"),
        (written(tmp_path, ["a,a"], "twice.csv"), "the header of twice.csv is a,a, but no column may come twice"),
        (written(tmp_path, [], "empty.csv"), "empty.csv has no problem, but must have one"),
    ):
        with pytest.raises(ConfigError) as failure:
            load("file", path=path)
        assert message in str(failure.value)


@pytest.mark.skipif(not FOLDER, reason="TTS_DATA_DIR does not name a folder of problems")
@pytest.mark.parametrize(
    ("name", "count"), [("gsm8k_train", 7473), ("gsm8k_test_a", 660), ("math500_a", 250), ("aime24", 30)]
)
def test_public_problems_are_read_whole(name: str, count: int):
    path = Path(FOLDER or ".") / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in TTS_DATA_DIR")
    problems = load("file", path=str(path), task="math")
    assert len(problems) == count
    assert all(problem.answer and problem.metadata["solution"] for problem in problems)


# Usual columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["problem", "question", "prompt", "input"])
@pytest.mark.parametrize("answer", ["answer", "target", "solution"])
def test_usual_columns_need_no_names(problem: str, answer: str, tmp_path: Path) -> None:
    [found] = load("file", path=written(tmp_path, [{problem: "1 + 1?", answer: 2, "level": 1}]))
    assert (found.prompt, found.answer, dict(found.metadata)) == ("1 + 1?", "2", {"level": 1})


def test_of_several_usual_columns_the_first_is_taken_and_the_rest_is_metadata(tmp_path: Path) -> None:
    [found] = load(
        "file", path=written(tmp_path, [{"input": "x", "problem": "1 + 1?", "solution": "as one adds", "answer": "2"}])
    )
    assert (found.prompt, found.answer, dict(found.metadata)) == (
        "1 + 1?",
        "2",
        {"input": "x", "solution": "as one adds"},
    )


def test_a_row_without_any_of_them_is_named(tmp_path: Path) -> None:
    _, told = left_out(written(tmp_path, [{"text": "1 + 1?"}, {"question": "1 + 1?"}, {"problem": "2 + 2?"}]))
    assert "line 1: it has none of the fields problem, question, prompt, input, only 'text'" in told
    assert "line 3: it has no field 'question', only 'problem'" in told  # one column means the same in all rows


def test_the_path_of_a_file_is_a_data_set(tmp_path: Path) -> None:
    path = written(tmp_path, [{"question": "1 + 1?", "answer": "2"}, {"question": "2 + 2?", "answer": "4"}])
    assert [problem.answer for problem in load(path, limit=1)] == ["2"]
    with pytest.raises(ConfigError, match=r"read:.*file"):
        load(str(tmp_path / "none.jsonl"))
    with pytest.raises(ConfigError, match="parameter"):
        load(path, path="other.jsonl")
