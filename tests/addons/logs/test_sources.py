"""Files of other programs, as they are: programs as references, replies, batches, messages, costs, several models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.addons.logs.reading import accuracy, judged, right
from tests.addons.logs.test_logs import document
from tests.experiments.trials import trial
from tts.errors import ConfigError
from tts_addons.logs.fields import text_in

CASES = Path(os.environ.get("TTS_DATA_DIR", "")) / "cases4"
needs_cases = pytest.mark.skipif(not os.environ.get("TTS_DATA_DIR"), reason="TTS_DATA_DIR names no folder of cases")


def texts_of(pool: tts.Pool) -> list[str | None]:
    return [one.answer for problem in pool.problems for one in problem.drawn]


def batch(text: Any, number: str = "q0", endpoint: str = "chat") -> dict[str, Any]:
    choices = [{"message": {"role": "assistant", "content": text}}] if endpoint == "chat" else [{"text": text}]
    body = {"model": "m", "choices": choices, "usage": {"completion_tokens": 20}}
    return {"id": "b", "custom_id": number, "response": {"status_code": 200, "body": body}, "error": None}


@pytest.mark.parametrize("metric", ["pass_at_1", "pass@1", "pass_at_1,create_test", "pass@1,create_test", "passed"])
def test_passes_of_programs_are_verdicts_and_tests_are_no_answers(write, metric):
    program, tests = "def add(a, b):\n    return a + b + {}", "assert add(1, 2) == 3\nassert add(2, 2) == 4"
    rows = [
        document(i, [f"{program.format(i)}\n```"], [program.format(i)], target=tests, metrics=[metric])
        | {metric: float(i == 0)}
        for i in range(4)
    ]
    for row in rows:
        del row["exact_match"]
    pool = tts.Pool.from_files(write(*rows))
    assert [right(pool, i) for i in range(4)] == [[True], [False], [False], [False]]


@needs_cases
def test_mbpp_of_the_harness_has_the_accuracy_of_its_log():
    assert accuracy(tts.Pool.from_files(*(CASES / "import_lm_eval_mbpp").glob("*.jsonl"))) == 1


@pytest.mark.parametrize("program", ["def f(x):\n    return x", "class A:\n    pass", "#include <a>\nint main() {}"])
def test_references_that_are_programs_are_compared_by_no_task(program):
    pool = tts.Pool.from_rows(
        [{"problem": "p", "text": "```python\nf = 1\n```", "reference": program, "correct": True}]
    )
    assert (texts_of(pool), accuracy(pool)) == (["f = 1\n"], 1)
    assert any("a program as reference" in line for line in pool.report.lines())


def test_programs_that_do_not_run_are_told(tmp_path):
    from tts_addons.code import sandbox

    if reason := sandbox.why_not():
        pytest.skip(reason)
    pool = tts.Pool.from_rows([{"problem": "p", "answer": "4", "reference": "4"}], programs=str(tmp_path / "v.sqlite"))
    assert any("no program was run" in line for line in pool.report.lines())


def test_a_whole_reply_in_the_field_of_answers_is_a_text():
    replies = [f"Let me see.\n\nSo the answer is \\boxed{{{number}}}." for number in (4, 5)]
    row = {"problem_idx": 1, "problem": "2 + 2?", "parsed_answer": "4", "gold_answer": "4"}
    rows = [{**row, "answer": reply} for reply in [*replies, "I give up.\n\nThis is too hard."]]
    pool = tts.Pool.from_rows(rows)
    assert (texts_of(pool), accuracy(pool)) == (["4", "5", None], pytest.approx(1 / 3))


def test_one_long_answer_among_short_ones_stays_an_answer():
    rows = [{"problem": "p", "answer": answer} for answer in ("4", "5", "a\n\nb \\boxed{6}")]
    assert texts_of(tts.Pool.from_rows(rows))[2] == "a\n\nb \\boxed{6}"


@pytest.mark.parametrize("reference", ['["42"]', "['42']", "('42',)", ["42"], [42]])
def test_a_reference_in_a_list_is_the_reference(reference):
    pool = tts.Pool.from_rows([{"problem": "p", "text": "\\boxed{42}", "reference": reference}])
    assert right(pool) == [True]


WORDS_OF_PROGRAMS = ["import tariffs", "class struggle", "assert dominance", "the public good"]


@pytest.mark.parametrize("reference", ["[1, 2]", "(0, 1]", "[42]", *WORDS_OF_PROGRAMS])
def test_lists_of_numbers_and_words_of_programs_stay_references(reference):
    pool = tts.Pool.from_rows([{"problem": "p", "answer": reference, "reference": reference}], task=None)
    assert right(pool) == [True]


def test_several_references_leave_the_verdict_to_the_source():
    pool = tts.Pool.from_rows([{"problem": "p", "answer": "4", "reference": ["4", "four"], "correct": True}])
    assert accuracy(pool) == 1
    assert any("several references" in line for line in pool.report.lines())


@pytest.mark.parametrize(("files", "problems"), [(1, 1), (3, 2)])
def test_each_file_of_a_batch_has_further_samples(write, files, problems):
    paths = [
        write(*(batch(f"\\boxed{{{i}}}", f"q{p}") for p in range(problems)), name=f"s{i}.jsonl") for i in range(files)
    ]
    pool = tts.Pool.from_files(*paths)
    assert [len(problem.drawn) for problem in pool.problems] == [files] * problems


def test_lists_of_samples_in_several_files_are_joined_where_numbers_are_left_out(write):
    paths = [write({"problem": "p", "answer": [str(i), "4"]}, name=f"{i}.jsonl") for i in range(2)]
    with pytest.raises(ConfigError, match=r"--field sample=-"):
        tts.Pool.from_files(*paths)
    assert texts_of(tts.Pool.from_files(*paths, fields={"sample": "-"})) == ["0", "4", "1", "4"]


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("So \\boxed{7}", "chat"),
        ([{"type": "text", "text": "So \\boxed{7}"}], "chat"),
        ("So \\boxed{7}", "completions"),
    ],
)
def test_texts_of_batches_are_read_as_texts_and_as_parts(write, text, endpoint):
    assert texts_of(tts.Pool.from_files(write(batch(text, endpoint=endpoint)), task="math")) == ["7"]


def test_results_of_verifiers_have_messages_references_and_rewards(write):
    turns = [{"role": "assistant", "content": "I call a tool."}, {"role": "tool", "content": "\\boxed{9}"}]
    blank = {"role": "assistant", "content": " "}
    row = {"example_id": 0, "prompt": [{"role": "user", "content": "2 + 2?"}], "answer": "4"}
    rows = [
        {
            **row,
            "reward": reward,
            "completion": [*turns, {"role": "assistant", "content": f"So \\boxed{{{answer}}}"}, blank],
        }
        for reward, answer in ((1.0, 4), (0.3, 5), (0, 5))
    ]
    pool = tts.Pool.from_files(write(*rows))
    assert judged(pool) == [("4", True, True), ("5", False, None), ("5", False, False)]
    assert pool.report.scored == {}


def test_the_last_item_of_a_list_has_the_index_minus_one():
    row = {"problem": "p", "turns": [{"content": "a"}, {"content": "\\boxed{4}"}]}
    assert texts_of(tts.Pool.from_rows([row], fields={"text": "turns.-1.content"})) == ["4"]
    with pytest.raises(ConfigError, match="the list has 2 items"):
        tts.Pool.from_rows([row], fields={"text": "turns.-3.content"})


@pytest.mark.parametrize("rows", [lambda row: row, lambda row: [row, row]])
def test_objects_of_rows_by_key_have_the_key_as_problem(tmp_path, rows):
    (tmp_path / "a.json").write_text(json.dumps({f"q-{i}": rows({"text": f"\\boxed{{{i}}}"}) for i in range(3)}))
    pool = tts.Pool.from_files(tmp_path / "a.json")
    assert [problem.cell.problem for problem in pool.problems] == ["q-0", "q-1", "q-2"]


def test_rows_of_several_models_are_refused_or_divided():
    rows = [{"problem": "p", "model": "ab"[i], "answer": "45"[i], "reference": "4"} for i in range(2)]
    with pytest.raises(ConfigError, match=r"a and b.*--model NAME"):
        tts.Pool.from_rows(rows)
    pool = tts.Pool.from_rows(rows, model="b")
    assert (texts_of(pool), pool.problems[0].cell.model, pool.report.samples) == (["5"], "b", 1)


def test_hints_name_fields_whose_content_can_have_the_meaning():
    with pytest.raises(ConfigError, match="--field text=completion_text") as refused:
        tts.Pool.from_rows([{"problem": "p", "texts": 7, "completion_text": "a"}])
    assert "text=texts" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"name it by .*--field answer=answer"):
        tts.Pool.from_rows([{"problem": "p", "text": ["a", "b"], "answer": ["1", "2", "3"]}])


COSTS = ["seconds", "n_steps", "steps", "cost_usd", "latency_ms", "num_turns", "output_tokens", "wall time", "length"]
SCORES = ["judge", "step_score", "length_reward", "time_score", "process", "confidence_per_token", "timeless"]


def test_costs_lengths_and_times_are_no_scores_unless_they_are_named():
    row = {"problem": "p", "answer": "4", "scores": dict.fromkeys([*COSTS, *SCORES], 3.5)}
    assert set(tts.Pool.from_rows([row]).problems[0].drawn[0].scores) == set(SCORES)
    named = tts.Pool.from_rows([{**row, "n": 4}], fields={"scores": {"seconds": "n"}})
    assert named.problems[0].drawn[0].scores == {"seconds": 4}


@pytest.mark.parametrize("steps", [12, 3.5, "12", ["First,", "then"]])
def test_steps_that_are_no_scores_are_not_read(steps):
    pool = tts.Pool.from_rows([{"problem": "p", "text": "\\boxed{4}", "steps": steps}])
    assert pool.problems[0].drawn[0].steps == {}


def test_boolean_evidence_is_a_score_and_a_boolean_score_may_be_the_verdict():
    pool = tts.Pool.from_rows([{"problem": "p", "answer": "4", "scores": {"tests": True, "lint": False}}])
    assert pool.problems[0].drawn[0].scores == {"tests": 1, "lint": 0}
    with pytest.raises(ConfigError, match="name its field as correct"):
        tts.Pool.from_rows([{"problem": "p", "answer": "4", "score": True}])
    named = tts.Pool.from_rows([{"problem": "p", "answer": "4", "score": True}], fields={"scores": "score"})
    assert named.problems[0].drawn[0].scores == {"main": 1}


LATE = {"exception_type": "AgentTimeoutError"}


@pytest.mark.parametrize("exception", [None, LATE])
def test_a_trial_with_a_reward_counts_without_a_trajectory(tmp_path, exception):
    trial(tmp_path, "a", 1.0)
    for name, reward in (("b", 0.0), ("c", 1.0)):
        folder = trial(tmp_path, name, reward, exception_info=exception)
        (folder / "agent" / "trajectory.json").unlink()
    pool = tts.Pool.from_files(tmp_path, form="atif")
    assert [one.right for one in pool.problems[0].drawn] == [True, False, True]
    assert accuracy(pool) == pytest.approx(2 / 3)
    assert any("2 trials have no agent/trajectory.json" in line for line in pool.report.lines())


def test_rewards_may_be_booleans_and_steps_and_seconds_are_no_scores(tmp_path):
    trial(tmp_path, "a", verifier_result={"rewards": {"seconds": 41.5, "n_steps": 12, "passed": True, "style": 0.5}})
    (one,) = tts.Pool.from_files(tmp_path, form="atif").problems[0].drawn
    assert (one.right, one.scores) == (True, {"style": 0.5})


def test_a_blank_last_message_makes_no_right_trial_wrong(tmp_path):
    log = {"schema_version": "ATIF-v1.5", "agent": {"name": "a"}, "steps": [{"source": "agent", "message": " "}]}
    trial(tmp_path, "a", 1.0, log=log)
    pool = tts.Pool.from_files(tmp_path, form="atif")
    (vote,) = pool.replay(["best_of_n | majority"], [1])
    assert vote.curve.accuracy[0].value == 1


@needs_cases
def test_late_trials_of_harbor_have_the_accuracy_of_their_rewards():
    assert accuracy(tts.Pool.from_files(CASES / "import_harbor_timeouts" / "job", form="atif")) == pytest.approx(
        0.3056, abs=1e-4
    )


PATCH = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+{}\n"


@pytest.mark.parametrize("text", ["{}", "I change it.\n\n```diff\n{}```\nDone.", "I change it.\n{}"])
def test_a_text_that_is_a_patch_is_the_patch(text):
    rows = [{"problem": "p", "text": text.format(PATCH.format(new))} for new in ("b", "b  ", "c")]
    drawn = tts.Pool.from_rows(rows, task="patch").problems[0].drawn
    assert drawn[0].answer == PATCH.format("b")
    assert [one.answer_class for one in drawn] == [0, 0, 1]


@pytest.mark.parametrize("command", [r"\frac{3}{2}", r"\theta", r"\nu", r"\beta+\rho", r"\alpha"])
@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("escape", [False, True])
def test_a_reference_in_a_list_keeps_its_commands(command, quote, escape):
    """Lists in texts have LaTeX with single backslashes too, which JSON and Python read as a form feed or a tab."""
    written = command.replace("\\", "\\\\") if escape else command
    rows = [
        {"problem": "p", "sample": i, "text": rf"\boxed{{{text}}}", "reference": f"[{quote}{written}{quote}]"}
        for i, text in enumerate([command, "7"])
    ]
    assert accuracy(tts.Pool.from_rows(rows, task="math")) == 0.5


def test_a_text_that_is_nested_deeply_is_read_as_it_is():
    """The import then refuses it in one line, as any other text that is none."""
    for outer in (lambda inner: [inner], lambda inner: {"content": inner}):
        nested: Any = "4"
        for _ in range(5000):
            nested = outer(nested)
        assert not isinstance(text_in(nested), str)
