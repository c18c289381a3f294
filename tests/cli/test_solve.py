from __future__ import annotations

import dataclasses
import json
import re

import pytest

import tts
from tts.backends.base import Sampling
from tts.backends.toy.backend import ToyBackend
from tts.cli.result import check_solution
from tts.errors import ConfigError, EngineError
from tts.models import registry
from tts.solver.event_loop import Interrupted
from tts.solver.solver import DEFAULT_MODEL, Solver
from tts.trace.trace import Trace

KEYS = [
    "answer", "confidence", "checked", "stopped_by", "strategy", "model", "seed", "usage", "candidates", "oracle",
    "reproducible", "warnings", "failures", "error",
]  # fmt: skip
USAGE = [
    "prompt_tokens", "reused_tokens", "generated_tokens", "cancelled_tokens", "verifier_tokens", "verifier_calls",
    "samples", "requests", "flops", "usd", "seconds", "estimated",
]  # fmt: skip


def cells(table: str) -> dict[str, str]:
    """Return the rows of a printed table, label to value."""
    return dict(re.findall(r"^│ (\S.*?) +│ (.*?) +│$", table, re.MULTILINE))


def test_a_solution_is_one_table(solve):
    result = solve("3 + 4 - 2", "--budget", "400", "--strategy", "best_of_n(n=8) | majority")
    rows = cells(result.stdout)
    assert result.exit_code == 0
    assert list(rows) == [
        "answer",
        "checked",
        "confidence",
        "agreed",
        "tokens in",
        "tokens reused",
        "tokens out",
        "verifier tokens",
        "requests",
        "wall seconds",
        "stopped by",
    ]
    assert rows["answer"] == "5"
    assert rows["checked"] == "by rules of the prompt: right"
    assert rows["confidence"] == "0.88 (share of the votes, not calibrated)"
    assert rows["agreed"] == "7 of 8 candidates"
    assert (rows["tokens in"], rows["tokens reused"], rows["tokens out"], rows["verifier tokens"]) == (
        "5",
        "40",
        "120",
        "0",
    )
    assert result.stdout.splitlines()[-1].strip() == "best_of_n(n=8) | majority · toy · seed 0"
    assert result.stderr == ""


def test_the_confidence_of_one_sample_is_told_to_say_nothing(solve):
    rows = cells(solve("3 + 4 - 2", "--strategy", "single").stdout)
    assert rows["confidence"] == "1.00 (of one sample, so it says nothing)"
    assert rows["agreed"] == "1 of 1 candidate"
    told = tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="single")
    assert "1.00 (of one sample, so it says nothing)" in told._repr_html_()


@pytest.mark.parametrize(
    ("problem", "task", "text", "right"),
    [
        ("Reach 8 with 1 2 3 2.", "countdown", "A: (3 - 1) * 2 * 2\n", True),
        ("Reach 8 with 1 2 3 2.", "countdown", "A: (3 + 1) * 2\n", False),  # a number is left out
        ("Reach 8 with 1 2 3 2.", "text", "(3 - 1) * 2 * 2 is the answer", None),
        ("How many days has a leap year?", "math", "The answer is \\boxed{366}.", None),
        ("Reach 8 with 1 2 3 2.", "countdown", "I do not know.", None),  # no answer
    ],
)
def test_an_answer_is_checked_where_the_problem_states_its_rules(problem, task, text, right):
    solution = tts.solve(problem, tts.Budget(samples=1), backend=lambda _: text, task=task, strategy="single")
    assert check_solution(solution) is right


def test_the_table_says_what_the_library_returns(solve):
    solution = tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="best_of_n | majority", seed=3)
    rows = cells(solve("3 + 4 - 2", "--budget", "400", "--strategy", "best_of_n | majority", "--seed", "3").stdout)
    assert rows["answer"] == solution.answer
    assert rows["requests"] == str(solution.usage.requests)
    assert rows["tokens out"] == str(solution.usage.generated_tokens)
    assert rows["stopped by"] == solution.stopped_by


def test_json_is_one_object_and_nothing_else(solve):
    result = solve("3 + 4 - 2", "--strategy", "best_of_n(n=2)", "--json")
    record = json.loads(result.stdout)
    assert list(record) == KEYS
    assert list(record["usage"]) == USAGE
    assert [list(c) for c in record["candidates"]] == [["answer", "score", "weight", "text"]] * 2
    assert record["answer"] == "5"
    assert record["candidates"][0] == {
        "answer": "5",
        "score": None,
        "weight": 1.0,
        "text": "3 + 4 = 7\n7 - 2 = 5\nA: 5",
    }
    assert record["error"] is None
    assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)


def test_json_has_the_scores_of_the_main_verifier(solve):
    record = json.loads(
        solve("3 + 4 - 2", "--strategy", "best_of_n(n=4) | best", "--verifier", "toy(error=0.1)", "--json").stdout
    )
    assert {c["score"] for c in record["candidates"]} <= {0.9, 0.1}
    assert record["usage"]["verifier_calls"] == 4


def test_the_same_seed_gives_the_same_json(solve):
    arguments = ("3 + 4 - 2 + 8", "--strategy", "best_of_n(n=5)", "--seed", "7", "--json")
    first, second = (json.loads(solve(*arguments).stdout) for _ in range(2))
    del first["usage"]["seconds"], second["usage"]["seconds"]
    assert first == second


def test_an_oracle_is_marked(solve):
    arguments = (
        "3 + 4 - 2",
        "--strategy",
        "best_of_n(n=4) | best",
        "--verifier",
        "checker",
        "--answer",
        "5",
        "--allow-oracle",
    )
    result = solve(*arguments)
    assert cells(result.stdout)["oracle"] == "yes: a verifier saw the reference answer"
    assert result.stdout.splitlines()[-1].strip().endswith("· oracle")
    assert json.loads(solve(*arguments, "--json").stdout)["oracle"] is True


def test_no_answer_is_a_result(solve):
    result = solve("3 + 4 - 2", "--budget", "tokens=400,seconds=1e-9", "--strategy", "best_of_n(n=4)")
    rows = cells(result.stdout)
    assert result.exit_code == 0
    assert (rows["answer"], rows["confidence"], rows["agreed"]) == ("none", "unknown", "0 of 0 candidates")
    assert result.stderr == "warning: no candidate was completed, so there is no answer\n"
    alone = solve(
        "3 + 4 - 2", "--budget", "tokens=400,seconds=1e-9", "--strategy", "best_of_n(n=4)", "--print", "answer"
    )
    assert (alone.exit_code, alone.stdout, alone.stderr) == (0, "", f"{result.stderr}warning: there is no answer\n")


def test_a_limit_of_every_budget_flag_ends_the_search(solve):
    for flags in (("samples=2", "tokens=4000"), ("tokens=4000", "samples=2")):
        options = [option for flag in flags for option in ("--budget", flag)]
        record = json.loads(solve("3 + 4 - 2", *options, "--strategy", "best_of_n | majority", "--json").stdout)
        assert (record["usage"]["samples"], record["stopped_by"]) == (2, "budget: samples")


def test_unknown_confidence_is_null(solve):
    record = json.loads(solve("3 + 4", "--budget", "tokens=400,seconds=1e-9", "--strategy", "single", "--json").stdout)
    assert (record["answer"], record["confidence"]) == (None, None)


def test_without_a_strategy_it_is_auto(solve):
    result = solve("3 + 4 - 2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "auto | majority · toy" in result.stdout


def test_a_judge_may_be_another_model_by_its_name(solve):
    judged = solve(
        "3 + 4 - 2", "--model", "toy", "--verifier", "judge(model='toy-thinking', prompt_tokens=9)", "--json"
    )
    assert "longer than the judge's prompt_tokens=9" in " ".join(json.loads(judged.stdout)["warnings"])
    refused = solve("3 + 4 - 2", "--model", "toy", "--verifier", "judge(model='pocked')")
    assert refused.exit_code == 2
    assert "pocked" in refused.stderr
    assert "did you mean pocket" in refused.stderr


def test_free_text_without_a_verifier_is_one_sample_and_a_warning(tts, tmp_path, monkeypatch):
    (tmp_path / "leaf_model.py").write_text("def leaf(ask):\n    return 'a red leaf'\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = tts("solve", "Write a haiku.", "--backend", "leaf_model:leaf")
    assert result.exit_code == 0
    assert "warning: no strategy was given, so one greedy sample is drawn" in result.stderr
    assert "single(temperature=0)" in result.stdout


@pytest.fixture
def scoring_toy(monkeypatch):
    """The toy with a verifier in its record."""
    records = {**registry.RECORDS, "toy": dataclasses.replace(registry.get("toy"), verifier="toy(error=0.1)")}
    monkeypatch.setattr(registry, "RECORDS", records)


@pytest.mark.slow
def test_the_models_own_verifier_scores_unless_another_or_none_is_asked_for(solve, scoring_toy):
    def scores(*arguments):
        return {
            c["score"]
            for c in json.loads(solve("3 + 4 - 2", "--budget", "400", "--json", *arguments).stdout)["candidates"]
        }

    assert scores() <= {0.9, 0.1}
    assert scores("--verifier", "toy(error=0.2)") <= {0.8, 0.2}
    assert scores("--verifier", "none") == {None}
    assert "auto | weighted" in solve("3 + 4 - 2").stdout
    assert "auto | majority" in solve("3 + 4 - 2", "--verifier", "none").stdout


def test_sampling_is_passed_on(solve, requests):
    solve("3 + 4 - 2", "--strategy", "single", "--temperature", "0.3", "--max-tokens", "9")
    assert requests[0].sampling == Sampling(temperature=0.3, max_tokens=9)


@pytest.mark.slow
def test_the_defaults_in_the_help_are_the_library_s(tts):
    shown = " ".join(tts("solve", "--help").stdout.split())
    assert DEFAULT_MODEL in shown
    assert f"{Sampling().temperature} unless given" in shown


@pytest.mark.parametrize("suffix", [".html", ".json"])
def test_the_trace_is_saved(solve, tmp_path, suffix):
    path = tmp_path / f"search{suffix}"
    assert solve("3 + 4 - 2", "--strategy", "single", "--trace", str(path)).exit_code == 0
    text = path.read_text(encoding="utf-8")
    if suffix == ".json":
        assert Trace.from_json(text).answer == "5"
    else:
        assert text.lstrip().lower().startswith("<!doctype html")


def test_a_file_is_read(solve, tmp_path):
    path = tmp_path / "problem.txt"
    path.write_text("3 + 4 - 2\n", encoding="utf-8-sig")
    direct = json.loads(solve("3 + 4 - 2", "--strategy", "single", "--json").stdout)
    for given in (str(path), f"@{path}"):
        record = json.loads(solve(given, "--strategy", "single", "--json").stdout)
        assert record["candidates"] == direct["candidates"]


def test_standard_input_is_read(solve):
    assert json.loads(solve("-", "--strategy", "single", "--json", stdin="3 + 4 - 2\n").stdout)["answer"] == "5"


def broken_after(monkeypatch: pytest.MonkeyPatch, calls: int, failure: Exception) -> None:
    """Let the toy fail at its next request for samples but `calls`."""
    sample, left = ToyBackend.sample, [calls]

    def broken(self, request):
        left[0] -= 1
        if left[0] < 0:
            raise failure
        return sample(self, request)

    monkeypatch.setattr(ToyBackend, "sample", broken)


def test_a_failed_run_keeps_what_it_found(solve, monkeypatch):
    broken_after(monkeypatch, 2, EngineError("the engine stopped", hint="start it again"))
    result = solve("3 + 4 - 2", "--budget", "400", "--strategy", "best_of_n")
    assert result.exit_code == 1
    assert cells(result.stdout)["answer"] == "5"
    assert cells(result.stdout)["stopped by"] == "failed"
    assert result.stderr.splitlines()[-2:] == ["error: the engine stopped", "hint: start it again"]


def test_a_failed_run_keeps_what_it_found_as_json(solve, monkeypatch):
    broken_after(monkeypatch, 2, EngineError("the engine stopped", hint="start it again"))
    result = solve("3 + 4 - 2", "--budget", "400", "--strategy", "best_of_n", "--json")
    record = json.loads(result.stdout)
    assert result.exit_code == 1
    assert record["answer"] == "5"
    assert record["error"] == {"type": "EngineError", "cause": "the engine stopped", "hint": "start it again"}


def test_a_mistake_found_in_a_run_that_had_begun_is_a_failed_run(solve, monkeypatch):
    solution = tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="single")
    failed = dataclasses.replace(solution, error=ConfigError("the selection does not fit"))
    monkeypatch.setattr(Solver, "solve", lambda *_, **__: failed)
    assert solve("3 + 4 - 2", "--strategy", "single").exit_code == 1


def test_a_run_that_failed_before_its_first_candidate(solve, monkeypatch, assert_error):
    broken_after(monkeypatch, 0, EngineError("the engine stopped", hint="start it again"))
    assert_error(solve("3 + 4 - 2", "--strategy", "single"), 1, "the engine stopped", "start it again")


def test_ctrl_c_prints_what_was_found(solve, monkeypatch):
    partial = tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="best_of_n(n=3)")

    def interrupted(*_, **__):
        raise Interrupted(partial)

    monkeypatch.setattr(Solver, "solve", interrupted)
    result = solve("3 + 4 - 2")
    assert result.exit_code == 130
    assert cells(result.stdout)["answer"] == "5"
    assert json.loads(solve("3 + 4 - 2", "--json").stdout)["answer"] == "5"


@pytest.mark.parametrize("stop", [Interrupted(None), KeyboardInterrupt()])
def test_ctrl_c_before_anything_was_found(solve, monkeypatch, assert_error, stop):
    def interrupted(*_, **__):
        raise stop

    monkeypatch.setattr(Solver, "solve", interrupted)
    assert_error(solve("3 + 4 - 2"), 130, "interrupted", None)


def test_a_table_is_printed_even_if_its_trace_cannot_be_saved(solve, monkeypatch, tmp_path):
    def full(*_):
        raise ConfigError("the disk is full")

    monkeypatch.setattr(Trace, "save", full)
    result = solve("3 + 4 - 2", "--strategy", "single", "--trace", str(tmp_path / "a.json"))
    assert cells(result.stdout)["answer"] == "5"
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "error: the disk is full")


def test_what_is_unknown_cancelled_or_failed_is_said(solve, monkeypatch):
    solution = tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="single")
    usage = dataclasses.replace(
        solution.usage, reused_tokens=None, requests=None, cancelled_tokens=1200, estimated=True
    )
    changed = dataclasses.replace(
        solution, usage=usage, trace=None, calibrated=True, failures={"timeout": 2, "content": 1}
    )
    monkeypatch.setattr(Solver, "solve", lambda *_, **__: changed)
    result = solve("3 + 4 - 2")
    rows = cells(result.stdout)
    assert (rows["tokens reused"], rows["requests"]) == ("unknown", "unknown")
    assert rows["tokens out"] == "15 (1,200 more cancelled; estimated: not reported)"
    assert rows["confidence"] == "1.00 (a probability of being right)"
    assert (result.exit_code, result.stderr) == (0, "failed tries of rows: 1 content, 2 timeout\n")


def test_every_option_of_the_library_s_solve_that_is_text_is_there(tts):
    shown = tts("solve", "--help").stdout
    for option in (
        "budget",
        "strategy",
        "model",
        "verifier",
        "backend",
        "url",
        "task",
        "seed",
        "allow-oracle",
        "trace",
        "debug",
        "json",
    ):
        assert f"--{option}" in shown


@pytest.mark.parametrize("width", ["20", "50", "80", "200"])
def test_a_caption_makes_the_table_no_wider_than_the_terminal(solve, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    lines = solve(
        "3 + 4", "--strategy", "best_of_n(n=2) | unanimous(window=2) | majority(truncated='drop')"
    ).stdout.splitlines()
    assert max(map(len, lines)) <= max(40, int(width))  # narrower, the values would not be seen
    assert len({len(line) for line in lines if line[0] in "╭│╰"}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["-5 + 3", "-(2 + 3) * 4"])
def test_a_problem_may_begin_with_a_minus_sign(tts, problem):
    pytest.importorskip("torch")
    pytest.importorskip("numba")
    result = tts("solve", problem, "--seed", "-1", "--model", "pocket")
    assert result.exit_code == 2
    assert f"'{problem}'" in result.stderr  # which the embedded policy was not trained on: it was read as a problem
    assert "No such option" not in result.stderr


def test_explain_says_why_the_strategy_went_on_and_why_it_stopped(solve):
    table = solve("3 + 4 - 2", "--budget", "400", "--strategy", "auto | majority", "--explain")
    whys = [line.removeprefix("why: ") for line in table.stdout.splitlines() if line.startswith("why: ")]
    assert whys[0] == "after 0 samples (0 agree): pilots, to see how hard it is"
    assert len(whys) > 1
    record = json.loads(
        solve("3 + 4 - 2", "--budget", "400", "--strategy", "auto | majority", "--explain", "--json").stdout
    )
    assert record["reasons"] == whys
    plain = solve("3 + 4 - 2", "--budget", "400", "--strategy", "best_of_n(n=2) | majority", "--explain")
    assert plain.stdout.splitlines()[-1] == "why: best_of_n(n=2) | majority was asked for, and it ended by: done"


def test_the_winning_text_or_the_answer_is_printed_alone(solve):
    arguments = ("3 + 4 - 2", "--strategy", "best_of_n(n=4) | majority", "--print")
    result = solve(*arguments, "solution")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "3 + 4 = 7\n7 - 2 = 5\nA: 5\n", "")
    assert solve(*arguments, "answer").stdout == "5\n"
    assert json.loads(solve(*arguments, "json").stdout)["answer"] == "5"


def test_messages_examples_and_templates_reach_the_model(tts, tmp_path, monkeypatch):
    (tmp_path / "echo_model.py").write_text(
        "import tts\n\ndef echo(ask):\n    return tts.Answer('|'.join(f'{m.role}:{m.content}' for m in ask.prompt), "
        "tokens=3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shots.jsonl").write_text('{"question": "q", "answer": "a"}\n')
    (tmp_path / "earlier.json").write_text(
        '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]'
    )
    (tmp_path / "form.txt").write_text("<{problem}>\n")
    result = tts(
        "solve",
        "why",
        "--backend",
        "echo_model:echo",
        "--strategy",
        "single",
        "--print",
        "solution",
        "--system",
        "be brief",
        "--few-shot",
        str(tmp_path / "shots.jsonl"),
        "--messages",
        str(tmp_path / "earlier.json"),
        "--template",
        f"@{tmp_path / 'form.txt'}",
    )
    assert result.stdout == "system:be brief|user:<q>|assistant:a|user:hi|assistant:hello|user:<why>\n"
    alone = tts("solve", "--messages", str(tmp_path / "earlier.json"), "--backend", "echo_model:echo")
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert "do not end with a turn of the user" in alone.stderr


def test_without_a_problem_that_is_said(tts):
    result = tts("solve", "--model", "toy")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "error: there is no problem")
