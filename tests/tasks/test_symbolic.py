from __future__ import annotations

import gc
import importlib.util
import itertools
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tts.errors import ConfigError
from tts.tasks.symbolic import SymbolicChecker

HANGING = runpy.run_path(str(Path(__file__).with_name("math_cases.py")))["HANGING"]
NEEDS_MATH_VERIFY = pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="math-verify (extra: math) is not installed")
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and resource limits as on POSIX")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
QUESTIONS = itertools.count(1)
READY = "print('{\"ready\": true}', flush=True)"


def python(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(lines)]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def checker() -> Iterator[SymbolicChecker]:
    checker = SymbolicChecker(time_limit_s=20.0)
    yield checker
    checker.close()


def running_pid(checker: SymbolicChecker) -> int:
    """Ask what was not asked before, which starts the worker where none runs."""
    question = next(QUESTIONS)
    assert checker.equal(f"x+x+{question}", f"2x+{question}")
    assert checker.pid is not None
    return checker.pid


@NEEDS_MATH_VERIFY
@POSIX
@pytest.mark.parametrize(("a", "b"), HANGING)
def test_a_hanging_pair_is_killed_and_the_next_call_works(checker: SymbolicChecker, a: str, b: str, monkeypatch: pytest.MonkeyPatch):
    pid = running_pid(checker)
    timeouts = checker.timeouts
    monkeypatch.setattr(checker, "time_limit_s", 0.5)
    started = time.monotonic()
    assert checker.equal(a, b) is False
    assert 0.5 <= time.monotonic() - started < 5.0
    monkeypatch.undo()
    assert checker.timeouts == timeouts + 1
    assert is_gone(pid)
    assert checker.pid is None
    assert running_pid(checker) != pid
    assert checker.equal(b, a) is False, "the verdict is remembered, for both orders"
    assert checker.timeouts == timeouts + 1


@NEEDS_MATH_VERIFY
def test_it_works_off_the_main_thread(checker: SymbolicChecker):
    verdicts: list[bool] = []
    thread = threading.Thread(target=lambda: verdicts.extend([checker.equal("x+x", "2x"), checker.equal("x", "2x")]))
    thread.start()
    thread.join()
    assert verdicts == [True, False]


@NEEDS_MATH_VERIFY
@POSIX
def test_a_worker_killed_by_others_is_replaced(checker: SymbolicChecker):
    pid = running_pid(checker)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text() and time.monotonic() < deadline:
        pass
    assert running_pid(checker) != pid


@NEEDS_MATH_VERIFY
@POSIX
def test_an_interrupted_question_takes_its_worker_along(checker: SymbolicChecker):
    pid = running_pid(checker)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            checker.equal("9^{9^{9^{9^{8}}}}", "2")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_gone(pid)
    assert running_pid(checker) != pid


@NEEDS_MATH_VERIFY
@POSIX
def test_the_worker_ends_with_close_and_with_its_checker():
    checker = SymbolicChecker()
    pid = running_pid(checker)
    checker.close()
    assert is_gone(pid)
    pid = running_pid(checker)
    del checker
    gc.collect()
    assert is_gone(pid)


@NEEDS_MATH_VERIFY
@POSIX
def test_the_worker_ends_with_the_interpreter_and_nothing_heavy_is_imported_here():
    script = (
        "import sys, tts.tasks",
        "task = tts.tasks.get('math')",
        "assert task.equivalent('x+x', '2x')",
        "assert not {'sympy', 'math_verify', 'latex2sympy2_extended'} & set(sys.modules)",
        "print(task.checker.pid)",
    )
    done = subprocess.run(python(*script), env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=60)
    assert is_gone(int(done.stdout))
    assert done.stderr == ""


@NEEDS_MATH_VERIFY
@POSIX
def test_the_worker_ends_when_its_input_ends_and_bounds_its_memory():
    command = [sys.executable, "-m", "tts.tasks.math_worker"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline()) == {"ready": True}
        limits = Path(f"/proc/{worker.pid}/limits")
        if limits.exists():
            assert f"Max address space         {2 * 1024**3} " in limits.read_text()
        worker.stdin.close()
        assert worker.wait(timeout=10) == 0


@NEEDS_MATH_VERIFY
@POSIX
def test_the_kernel_ends_a_hanging_worker_that_nobody_kills():
    command = [sys.executable, "-m", "tts.tasks.math_worker"]
    # Five seconds after the limit of the pair, hence one second from now.
    request = json.dumps({"a": "9^{9^{9^{9^{9}}}}", "b": "1", "limit_s": -4})
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    ) as worker:
        assert worker.stdin is not None
        worker.stdin.write(request + "\n")
        worker.stdin.close()
        assert worker.wait(timeout=20) == -signal.SIGALRM


@pytest.mark.parametrize(
    "command",
    [
        python("raise SystemExit(1)"),
        python("print('hello', flush=True)"),
        python("print('[]', flush=True)"),
        python("print('{}', flush=True)", "input()"),
        ["/no/such/interpreter"],
        [""],
        python("import time", "time.sleep(60)"),
    ],
)
def test_a_worker_that_cannot_start_makes_symbolic_equality_unavailable(command: list[str]):
    checker = SymbolicChecker(command=command, start_limit_s=0.5)
    assert checker.available
    assert checker.equal("x+x", "2x") is False
    assert not checker.available
    assert checker.failures == 1
    assert checker.pid is None
    assert checker.equal("y+y", "2y") is False
    assert checker.failures == 1, "it was started again"


@pytest.mark.parametrize("answer", ["raise SystemExit(3)", "print('hello', flush=True)", "print('[1]', flush=True)"])
def test_a_worker_that_dies_or_babbles_costs_one_verdict(answer: str):
    checker = SymbolicChecker(command=python(READY, "input()", answer))
    assert checker.equal("x+x", "2x") is False
    assert checker.equal("y+y", "2y") is False
    assert checker.failures == 2
    assert checker.timeouts == 0
    assert checker.available
    checker.close()


def test_pairs_are_asked_once_in_one_order():
    # This worker finds the first pair equal and every later one different.
    checker = SymbolicChecker(
        command=python(READY, "input()", "print('{\"equal\": true}', flush=True)", "input()", "print('{}', flush=True)")
    )
    assert [checker.equal("a", "b"), checker.equal("b", "a"), checker.equal("a", "b")] == [True, True, True]
    assert checker.equal("a", "c") is False
    checker.close()


@pytest.mark.parametrize(("a", "b"), [("", "x"), ("x", ""), ("x" * 1001, "x")])
def test_empty_and_long_answers_are_refused_without_a_worker(a: str, b: str):
    checker = SymbolicChecker(command=python(READY, "input()"))
    assert checker.equal(a, b) is False
    assert checker.pid is None


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_are_positive(limit: float):
    with pytest.raises(ConfigError, match="time_limit_s"):
        SymbolicChecker(time_limit_s=limit)
    with pytest.raises(ConfigError, match="start_limit_s"):
        SymbolicChecker(start_limit_s=limit)
