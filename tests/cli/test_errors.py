"""What a caller's mistake looks like: the exit code, one line, a hint, and nothing spent."""

from __future__ import annotations

import re

import pytest

from tts.backends.toy.backend import ToyBackend
from tts.errors import EngineError, VerifierError
from tts.models import registry
from tts.solver.event_loop import Interrupted
from tts.solver.solver import Solver
from tts.verifiers.compatibility import GIVE_VERIFIER

WHOLE = "but must be a whole number of at least 1"
FORM = "write NAME(parameter=value) | STOP RULE | SELECTION, for example best_of_n(n=8) | majority"

MISTAKES = {
    "empty prompt": (["  "], "the prompt is empty, but must hold a problem", "give the problem's text"),
    "budget 0": (["3 + 4", "--budget", "0"], f"budget tokens is 0, {WHOLE}", "the nearest valid value is 1"),
    "negative budget": (["3 + 4", "--budget", "-5"], f"budget tokens is -5, {WHOLE}", "the nearest valid value is 1"),
    "budget nan": (["3 + 4", "--budget", "nan"], f"budget tokens is nan, {WHOLE}", "the nearest valid value is 1"),
    "fractional samples": (
        ["3 + 4", "--budget", "samples=3.5"],
        f"budget samples is 3.5, {WHOLE}",
        "the nearest valid value is 4",
    ),
    "unknown unit": (
        ["3 + 4", "--budget", "tokns=400"],
        "budget unit is 'tokns', but no budget unit has that name",
        "did you mean tokens?",
    ),
    "budget of words": (
        ["3 + 4", "--budget", "tokens=much"],
        "the budget is 'tokens=much', but 'much' is no number",
        "write a number of tokens, or limits by unit: tokens=2000,seconds=30",
    ),
    "no budget": (
        ["3 + 4", "--budget", ""],
        "the budget is '', but '' is no number",
        "write a number of tokens, or limits by unit: tokens=2000,seconds=30",
    ),
    "unit twice": (
        ["3 + 4", "--budget", "9,tokens=9"],
        "the budget is '9,tokens=9', but gives tokens twice",
        "give each unit once",
    ),
    "unknown strategy": (
        ["3 + 4", "--strategy", "best_of_m(n=8)"],
        "strategy is 'best_of_m', but no strategy has that name",
        "did you mean best_of_n?",
    ),
    "malformed strategy": (
        ["3 + 4", "--strategy", "best_of_n(8) | majority"],
        "the text 'best_of_n(8) | majority' is malformed at character 11 ('8) | majorit'): parameters are named: "
        "write name=value",
        FORM,
    ),
    "selection without a verifier": (
        ["3 + 4", "--strategy", "best_of_n(n=8) | weighted"],
        "best_of_n(n=8) | weighted scores with the role 'main', but no verifier has it",
        f"{GIVE_VERIFIER}; or choose a selection that needs none, such as majority",
    ),
    "missing file": (
        ["@missing.txt"],
        "the problem file is 'missing.txt', but it cannot be read: No such file or directory",
        "give the path of a text file, or the problem itself without the @",
    ),
    "unknown form of the result": (
        ["3 + 4", "--print", "all"],
        "--print is 'all', but must be one of table, json, solution, answer",
        "its options, with what each takes, are listed by the same command with --help",
    ),
    "two forms of the result": (
        ["3 + 4", "--print", "answer", "--json"],
        "--json is given beside --print answer",
        "give one of them",
    ),
    "no sum": (
        ["What is love?"],
        "the problem is 'What is love?', but the toy model solves sums only",
        "for example '3 + 4 - 2'",
    ),
    "unknown verifier": (
        ["3 + 4", "--verifier", "checkr"],
        "verifier is 'checkr', but no verifier has that name",
        "did you mean checker?",
    ),
    "oracle without leave": (
        ["3 + 4", "--verifier", "checker", "--answer", "7", "--strategy", "best_of_n(n=2) | best"],
        "the verifier 'checker' sees the reference answer, but an oracle needs permission",
        "pass allow_oracle=True (--allow-oracle); the result is marked as an oracle's",
    ),
    "trace with another ending": (
        ["3 + 4", "--trace", "search.txt"],
        "the trace file is 'search.txt', but must end in .html or .json",
        "search.html is a page that draws the tree; search.json has all data",
    ),
    "trace as a picture": (
        ["3 + 4", "--trace", "search.svg"],
        "the trace file is 'search.svg', but must end in .html or .json",
        "search.html is a page that draws the tree; search.json has all data",
    ),
    "trace in no folder": (
        ["3 + 4", "--trace", "nowhere/search.html"],
        "the trace file 'nowhere/search.html' cannot be written: No such file or directory",
        "make the folder 'nowhere' first",
    ),
    "url for a model in this process": (
        ["3 + 4", "--url", "http://localhost:8000", "--backend", "toy"],
        "url is 'http://localhost:8000', but the backend 'toy' runs models in this process and calls no server",
        "leave the url out, or name a backend that calls a server",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_and_a_hint(solve, requests, assert_error, monkeypatch, tmp_path, case):
    monkeypatch.chdir(tmp_path)
    arguments, error, hint = MISTAKES[case]
    assert_error(solve(*arguments), 2, error, hint)
    assert requests == []
    assert list(tmp_path.iterdir()) == []


def test_a_missing_model_names_the_nearest(tts, assert_error):
    result = tts("solve", "3 + 4", "--model", "smollm")
    assert_error(result, 2, "model is 'smollm', but no model has that name", "did you mean smollm2?")


def test_a_process_model_is_no_policy(tts, assert_error):
    result = tts("solve", "3 + 4", "--model", "pocket-process")
    error = "the model is 'pocket-process', a process model, but it scores steps and writes nothing"
    assert_error(result, 2, error, "name the policy whose record serves it, such as 'pocket'")


def test_shipped_models_that_are_damaged_name_the_file_and_the_cure(tts, assert_error, monkeypatch, tmp_path):
    for module in ("torch", "transformers", "numba"):
        pytest.importorskip(module)
    monkeypatch.setattr(registry, "SHIPPED", tmp_path)
    error = f"{tmp_path / registry.CHECKSUMS}, which has the checksums of the shipped models, is missing"
    assert_error(tts("solve", "3 + 4"), 2, error, registry.REINSTALL)


def test_a_file_that_is_not_utf8(solve, tmp_path, assert_error):
    path = tmp_path / "latin.txt"
    path.write_bytes("3 + 4 für".encode("latin-1"))
    error = f"the problem file {str(path)!r} is not UTF-8 text: byte 0xfc at position 7"
    assert_error(solve(str(path)), 2, error, "convert it to UTF-8")


def test_standard_input_that_is_not_utf8(solve, assert_error):
    assert_error(
        solve("-", stdin=b"3 \xff"),
        2,
        "the standard input is not UTF-8 text: byte 0xff at position 2",
        "convert it to UTF-8",
    )


def test_an_empty_file_is_an_empty_prompt(solve, tmp_path, assert_error):
    (path := tmp_path / "empty.txt").write_text("\n")
    assert_error(solve(f"@{path}"), 2, "the prompt is empty, but must hold a problem", "give the problem's text")


def test_a_folder_is_no_problem_file(solve, tmp_path, assert_error):
    error = f"the problem file is {str(tmp_path)!r}, but it cannot be read: Is a directory"
    assert_error(solve(f"@{tmp_path}"), 2, error, "give the path of a text file, or the problem itself without the @")


def test_a_trace_that_cannot_be_written(solve, requests, tmp_path, assert_error):
    (path := tmp_path / "folder.json").mkdir()
    error = f"the trace file {str(path)!r} cannot be written: Is a directory"
    assert_error(solve("3 + 4", "--trace", str(path)), 2, error, "name a place that can be written")
    assert requests == []


def test_a_refused_run_leaves_an_old_trace_as_it_was(solve, tmp_path):
    (path := tmp_path / "old.json").write_text("old")
    assert solve("no sum", "--trace", str(path)).exit_code == 2
    assert path.read_text() == "old"


def test_a_url_where_nobody_listens(solve):
    result = solve("3 + 4", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert re.fullmatch(r"error: .*\nhint: .*\n", result.stderr)


@pytest.mark.parametrize("arguments", [["--budgt", "9"], ["--seed", "1.5"], ["--temperature", "warm"]])
def test_usage_errors_are_the_caller_s(solve, arguments):
    result = solve("3 + 4", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")
    assert result.stdout == ""


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("a defect\nof two lines \x1b[31m")


def test_an_unexpected_error_is_one_line(solve, monkeypatch, assert_error):
    monkeypatch.setattr(Solver, "solve", broken)
    error = r"RuntimeError: a defect of two lines \x1b[31m"
    assert_error(solve("3 + 4"), 1, error, "add --debug to see where it was raised")


def test_a_verifier_that_fails_before_anything_is_found_is_one_line(solve, monkeypatch, assert_error):
    def fails(*_: object, **__: object) -> None:
        raise VerifierError("the scorer does not start", hint="install it")

    monkeypatch.setattr(Solver, "solve", fails)
    assert_error(solve("3 + 4"), 1, "the scorer does not start", "install it")


def test_ctrl_c_before_anything_is_found_is_one_line(solve, monkeypatch):
    def stopped(*_: object, **__: object) -> None:
        raise Interrupted(None)

    monkeypatch.setattr(Solver, "solve", stopped)
    result = solve("3 + 4")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "error: interrupted\n")


def test_debug_shows_the_whole_traceback(solve, monkeypatch):
    monkeypatch.setattr(Solver, "solve", broken)
    result = solve("3 + 4", "--debug")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert "in broken" in result.stderr
    assert result.stderr.splitlines()[-1] == r"error: RuntimeError: a defect of two lines \x1b[31m"


def test_an_unexpected_error_in_the_backend_is_one_line(solve, monkeypatch, assert_error):
    monkeypatch.setattr(ToyBackend, "sample", broken)
    error = r"the backend 'toy' failed: RuntimeError: a defect of two lines \x1b[31m"
    assert_error(solve("3 + 4", "--strategy", "single"), 1, error, "add --debug to see where it was raised")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["nosuch.txt", "--model", "toy"], "looks like a file's name, but there is no such file"),
        (["3 + 4", "--model", "toy", "--budget", "2,000"], "a comma separates units"),
        (["3 + 4", "--model", "toy", "--url", "x:8000"], "must be http:// or https:// with a host"),
        (["3 + 4", "--model", "smollm2", "--backend", "toy"], "runs its own language only"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(tts, arguments, cause):
    result = tts("solve", *arguments)
    assert result.exit_code == 2
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert cause in error
    assert hint.startswith("hint: ")


def test_a_failure_without_a_cure_names_the_page_of_what_may_go_wrong(solve, monkeypatch, assert_error):
    def fails(*_: object, **__: object) -> None:
        raise EngineError("the server closed the connection")

    monkeypatch.setattr(Solver, "solve", fails)
    assert_error(solve("3 + 4"), 1, "the server closed the connection", "see docs/how-to/troubleshooting.md")
