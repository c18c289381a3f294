"""Logs of lm-evaluation-harness and Inspect, in the forms that both write. Where they are installed, the logs are
theirs.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.addons.logs.reading import judged
from tts.errors import ConfigError
from tts_addons.logs.json_stream import json_elements


def document(number: int, texts: list[str], filtered: list[Any], **more: Any) -> dict[str, Any]:
    """A line of `samples_….jsonl`."""
    return {
        "doc_id": number, "doc": {"q": f"{number} + {number}?"}, "target": f"twice it is\n#### {2 * number}",
        "arguments": {"gen_args_0": {"arg_0": f"{number} + {number}?", "arg_1": {"until": ["Q:"]}}}, "resps": [texts],
        "filtered_resps": filtered, "filter": "strict-match", "metrics": ["exact_match"], "doc_hash": "d",
        "prompt_hash": "p", "target_hash": "t", "exact_match": 1.0, **more,
    }  # fmt: skip


SAMPLES_FILE = "samples_sums_2026-01-02T03-04-05.678.jsonl"


@pytest.fixture
def lines(write: Callable[..., Path]) -> Callable[..., Path]:
    return lambda *rows, name=SAMPLES_FILE: write(*rows, name=name)


@pytest.mark.parametrize("metrics", [5, "exact_match", None])
def test_metrics_that_are_no_list_are_those_usually_there(lines, metrics):
    assert judged(tts.Pool.from_lm_eval(lines(document(1, ["#### 2"], ["2"], metrics=metrics)))) == [("2", True, True)]


@pytest.mark.parametrize(
    ("target", "right"), [(None, True), ({}, True), (["2", "3"], True), (["3"], False), (3, False)]
)
def test_without_a_single_target_the_verdict_of_the_source_counts(lines, target, right):
    pool = tts.Pool.from_lm_eval(lines({**document(1, ["#### 2"], ["2"]), "target": target}))
    assert judged(pool) == [("2", right, True)]
    assert (
        "1 documents have no single target, so that the verdicts of the source count" in pool.report.lines()
    ) is right


@pytest.mark.parametrize(("filtered", "answer"), [([None], None), ([math.nan], None), ([{"a": 1}], "2"), ([7], "7")])
def test_what_a_filter_left_without_an_answer_has_none(lines, filtered, answer):
    assert judged(tts.Pool.from_lm_eval(lines(document(1, ["#### 2"], filtered))))[0][0] == answer


def test_a_single_response_has_the_answer_and_the_verdict_of_its_filter(lines):
    path = lines(document(1, ["so #### 2"], ["2"]), document(2, ["no idea"], ["[invalid]"], exact_match=0.0))
    pool = tts.Pool.from_files(path)
    assert [one.cell.problem for one in pool.problems] == ["sums/1", "sums/2"]
    assert judged(pool) == [("2", True, True)]
    assert judged(pool, 1) == [(None, False, False)]
    assert (pool.report.judged, pool.report.differ) == (2, 0)


def test_of_several_filters_one_is_read(lines):
    rows = [
        document(1, ["2 or 3"], ["[invalid]"], exact_match=0.0),
        document(1, ["2 or 3"], ["3"], filter="flexible", exact_match=0.0),
    ]
    path = lines(*rows)
    first = tts.Pool.from_lm_eval(path)
    assert judged(first) == [(None, False, False)]
    told = "documents of the filter 'strict-match', of strict-match with 0.0 % right by the source, flexible with 0.0 %"
    assert any(told in line for line in first.report.lines())
    assert judged(tts.Pool.from_lm_eval(path, filter="flexible")) == [("3", False, False)]
    with pytest.raises(ConfigError, match=r"filter.*samples_sums_.*'flexibel'.*did"):
        tts.Pool.from_lm_eval(path, filter="flexibel")


def test_repeats_are_samples_and_a_filter_that_joins_them_leaves_the_texts(lines):
    texts = ["#### 2", "#### 3", "#### 2"]
    voted = tts.Pool.from_files(lines(document(1, texts, ["2"])))
    assert judged(voted) == [("2", True, None), ("3", False, None), ("2", True, None)]
    each = tts.Pool.from_files(lines(document(1, texts, [["2", "[invalid]", "2"]], exact_match=[1, 0, 1])))
    assert judged(each) == [("2", True, True), (None, False, False), ("2", True, True)]


def test_a_file_for_each_run_adds_its_samples(lines):
    paths = [
        lines(document(1, [f"#### {n}"], [str(n)]), name=f"samples_sums_2026-01-0{n}T03-04-05.678.jsonl")
        for n in (2, 3)
    ]
    assert [answer for answer, _, _ in judged(tts.Pool.from_files(*paths))] == ["2", "3"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            document(1, [["-1.0", "True"]], [["-1.0", "True"]]),
            "line 1: its resps are .* must be the texts of one request",
        ),
        (document(1, [], []), r"line 1: .*resps.*\[\[\]\]"),
        ({"doc_id": 1, "resps": [["x"]], "filtered_resps": ["x"]}, "line 1: it has no target"),
        *((document(1, ["2"], ["2"], doc_id=name), "line 1: .*doc_id") for name in (None, {}, [1], True, "")),
        (document(1, ["2"], ["2"], doc_id="\ud800"), "line 1: .*doc_id.*UTF-8"),
        ([1], "item 1: it is no JSON object"),
    ],
)
def test_what_is_no_sample_of_the_harness_is_named(lines, row: Mapping[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        tts.Pool.from_lm_eval(lines(row))


def test_a_document_without_arguments_has_no_prompt(lines):
    pool = tts.Pool.from_lm_eval(lines(document(1, ["2"], ["2"], arguments=[])))
    assert pool.problems[0].prompt_tokens == 0


def sample(name: Any, epoch: int, text: str, grade: Any, **more: Any) -> dict[str, Any]:
    """A sample of an Inspect log."""
    message = {"role": "assistant", "content": text, "source": "generate"}
    return {
        "id": name, "epoch": epoch, "input": f"question {name}", "target": "4", "messages": [message],
        "output": {
            "model": "m", "choices": [{"message": message, "stop_reason": "stop"}], "completion": text,
            "usage": {"input_tokens": 5, "output_tokens": 10 + epoch, "total_tokens": 15 + epoch},
        },
        "scores": {"match": {"value": grade, "answer": text}}, "metadata": {}, "store": {}, "model_usage": {}, **more,
    }  # fmt: skip


SAMPLES = [
    sample(name, epoch, f"ANSWER: {answer}", grade)
    for name, epoch, answer, grade in (("a", 1, "4", "C"), (2, 1, "5", "I"), ("a", 2, "3", "I"), (2, 2, "4.0", "I"))
]
HEADER = {"version": 2, "status": "success", "eval": {"task": "sums", "model": "openai/small"}, "results": {}}


def write_log(path: Path, samples: Any = SAMPLES, compression: int = zipfile.ZIP_DEFLATED, **header: Any) -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps({**HEADER, **header, "samples": samples}))
        return path
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("_journal/start.json", json.dumps({**HEADER, **header}))
        for one in samples:
            archive.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
        archive.writestr("header.json", json.dumps({**HEADER, **header}))
    return path


@pytest.mark.parametrize("name", ["log.json", "log.eval"])
def test_epochs_are_samples_of_one_problem(tmp_path, name):
    pool = tts.Pool.from_files(write_log(tmp_path / name))
    assert [one.cell.problem for one in pool.problems] == ["sums/a", "sums/2"]
    assert judged(pool) == [("4", True, True), ("3", False, False)]
    assert judged(pool, 1) == [("5", False, False), ("4.0", True, False)]
    assert [one.tokens for one in pool.problems[0].drawn] == [11, 12]
    assert pool.problems[0].cell.model == "openai/small"
    assert pool.report.differences == [
        f"{name}, {'samples 4' if name == 'log.json' else 'samples/2_epoch_2.json'}: "
        "the answer '4.0' is right by the reference '4', but wrong by the source"
    ]


def test_answers_and_scores_of_other_scorers(tmp_path):
    grades = {"choice": {"value": "C", "answer": "4"}, "judge": {"value": 0.7}, "helper": {"value": "P"}}
    grades["none"] = {"value": math.nan}
    path = write_log(tmp_path / "log.json", [sample("a", 1, "It is B.", "I", scores=grades)])
    pool = tts.Pool.from_inspect(path)
    assert judged(pool) == [("4", True, True)]
    assert dict(pool.problems[0].drawn[0].scores) == {"judge": 0.7, "helper": 0.5}
    by_judge = tts.Pool.from_inspect(path, scorer="judge")
    assert dict(by_judge.problems[0].drawn[0].scores) == {"choice": 1.0, "helper": 0.5, "main": 0.7}
    with pytest.raises(ConfigError, match=r"scorer of log.json is 'chioce'.*choice"):
        tts.Pool.from_inspect(path, scorer="chioce")


def test_samples_that_failed_are_left_out_and_counted(tmp_path):
    failed = sample("a", 3, "", "I", output={"model": "m", "choices": [], "completion": ""}, error={"message": "lost"})
    pool = tts.Pool.from_inspect(write_log(tmp_path / "log.json", [*SAMPLES, failed]))
    assert pool.report.samples == 4
    assert "1 samples failed, and are left out" in pool.report.lines()


def test_content_in_parts_and_a_cut_answer(tmp_path):
    content = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "ANSWER: 4"}]
    output = {"choices": [{"message": {"content": content}, "stop_reason": "max_tokens"}]}
    usage = {"m": {"output_tokens": 30}, "n": {"output_tokens": 4}}
    one = sample("a", 1, "", "C", output=output, scores={"match": {"value": "C"}}, model_usage=usage)
    pool = tts.Pool.from_inspect(write_log(tmp_path / "log.json", [one]))
    assert [(each.answer, each.status, each.tokens) for each in pool.problems[0].drawn] == [("4", "truncated", 34)]


@pytest.mark.parametrize("name", ["log.json", "log.eval"])
def test_bad_logs_are_named(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(ConfigError, match=f"{name}: its version is 3, but logs of version 2 are read"):
        tts.Pool.from_files(write_log(path, version=3))
    with pytest.raises(ConfigError, match=f"{name}: it has no samples"):
        tts.Pool.from_files(write_log(path, []))
    with pytest.raises(ConfigError, match=r"it.*Inspect"):
        tts.Pool.from_files(write_log(path, [{"id": "a", "epoch": 1}]))
    write_log(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ConfigError, match=f"{name}: it is (no whole JSON|damaged)"):
        tts.Pool.from_files(path)


OUTPUT = {"choices": [{"message": {"content": "4"}}]}
TYPES = "a part of it is of another type than Inspect writes"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"output": None}, TYPES),
        *(({"output": {"choices": choices}}, TYPES) for choices in (["x"], {"a": 1}, [{"message": None}])),
        ({"output": {"choices": [{"message": {"content": 5}}]}}, TYPES),
        ({"input": ["x"]}, TYPES),
        *(({"scores": scores}, TYPES) for scores in ({"match": None}, [1])),
        *(({"output": OUTPUT, "model_usage": usage}, TYPES) for usage in ({"m": 3}, [3])),
        *(({"output": {**OUTPUT, "usage": {"output_tokens": count}}}, "output_tokens") for count in (-5, True, 3.5)),
        ({"output": OUTPUT, "model_usage": {"m": {"output_tokens": -5}}}, "output_tokens"),
    ],
)
@pytest.mark.parametrize("name", ["log.json", "log.eval"])
def test_a_sample_of_another_form_is_named(tmp_path, name, broken, said):
    path = write_log(tmp_path / name, [SAMPLES[0], {**SAMPLES[1], **broken}])
    with pytest.raises(ConfigError, match=rf"{name}, samples.2.*: .*{said}"):
        tts.Pool.from_files(path)


def test_an_id_with_half_a_character_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"log\.json,.*1:.*characters.*UTF-8"):
        tts.Pool.from_inspect(write_log(tmp_path / "log.json", [sample("\ud800", 1, "4", "C")]))


def test_a_score_of_inspect_that_is_not_finite_is_unknown(tmp_path):
    pool = tts.Pool.from_inspect(
        write_log(tmp_path / "log.json", [{**SAMPLES[0], "scores": {"match": {"value": math.inf}}}])
    )
    assert (pool.problems[0].drawn[0].given, dict(pool.problems[0].drawn[0].scores)) == (None, {})


def test_a_log_that_is_nested_too_deeply_is_named(tmp_path):
    (tmp_path / "log.json").write_text('{"version": 2, "samples": ' + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"log\.json: it.*JSON:.*recursion"):
        tts.Pool.from_files(tmp_path / "log.json")


@pytest.mark.parametrize("name", ["log.json", "log.eval"])
def test_a_log_that_states_no_version_is_refused(tmp_path, name, monkeypatch):
    monkeypatch.delitem(HEADER, "version")
    with pytest.raises(ConfigError, match=f"{name}: it states no version, but logs of version 2 are read") as refused:
        tts.Pool.from_files(write_log(tmp_path / name))
    assert "inspect log convert" in refused.value.hint


def test_a_log_with_fewer_samples_than_its_results_is_cut(tmp_path):
    path = write_log(tmp_path / "log.eval", results={"completed_samples": 5})
    with pytest.raises(ConfigError, match=r"log\.eval:.*4.*results.*5"):
        tts.Pool.from_files(path)
    assert tts.Pool.from_files(write_log(path, results={"completed_samples": 4})).report.samples == 4


def test_a_log_that_did_not_succeed_says_so(tmp_path):
    pool = tts.Pool.from_files(write_log(tmp_path / "log.json", status="cancelled"))
    assert "1 logs have the status 'cancelled', so that samples may be missing" in pool.report.lines()


def test_an_archive_that_is_broken_anywhere_is_named_or_whole(tmp_path):
    path = write_log(tmp_path / "log.eval", results={"completed_samples": 4})
    whole = path.read_bytes()
    for place in range(0, len(whole) - 8, 61):
        path.write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])
        found: list[tts.Pool] = []
        with suppress(ConfigError):
            found.append(tts.Pool.from_files(path))
        assert all(pool.report.samples == 4 for pool in found)


def test_a_header_that_is_no_object_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", "[]")
    with pytest.raises(ConfigError, match=r"log\.eval, header\.json: it.*object"):
        tts.Pool.from_files(tmp_path / "log.eval")


def test_an_output_without_a_text_is_empty(tmp_path):
    output = {"choices": [{"message": {"content": None}}], "completion": None}
    pool = tts.Pool.from_inspect(write_log(tmp_path / "log.json", [{**SAMPLES[0], "output": output, "scores": {}}]))
    assert (judged(pool), pool.problems[0].drawn[0].tokens) == ([(None, False, None)], 0)


def test_logs_of_two_models_are_no_pool(tmp_path):
    paths = [
        write_log(tmp_path / f"{model}.json", [sample(model, 1, "4", "C")], eval={"task": "t", "model": model})
        for model in ("a", "b")
    ]
    with pytest.raises(ConfigError, match=r"logs.*models"):
        tts.Pool.from_files(*paths)
    assert tts.Pool.from_files(*paths, model="both").problems[0].cell.model == "both"


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_large_object_is_read_item_by_item(tmp_path, monkeypatch, size):
    monkeypatch.setattr("tts_addons.logs.json_stream._CHUNK", size)
    given = {"a": [1], "samples": [{"x": "y" * 50}, '}]"', []], "n": 3.25, "empty": {}, "none": [], "samples2": None}
    (path := tmp_path / "log.json").write_text(json.dumps(given, indent=1))
    assert [tuple(element) for element in json_elements(path)] == [
        ("a", 1, 1),
        *(("samples", number, item) for number, item in enumerate(given["samples"], 1)),
        *((name, None, given[name]) for name in ("n", "empty", "samples2")),
    ]
    for text in ("", "3", "[1", '{"a": 1', '{"samples": [1, 2', '{"a" 1}', '{"samples": [1 2]}'):
        path.write_text(text)
        with pytest.raises(ConfigError, match="no whole JSON"):
            list(json_elements(path))


def test_the_prompt_of_a_single_message_is_its_content(tmp_path):
    def prompt_tokens(given: Any) -> float:
        path = write_log(tmp_path / "log.json", [sample("a", 1, "4", "C", input=given)])
        return tts.Pool.from_inspect(path).problems[0].prompt_tokens

    assert prompt_tokens([{"role": "user", "content": "What is 2 + 2?"}]) == prompt_tokens("What is 2 + 2?") == 4
