from __future__ import annotations

import gc
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.guard import LIMIT_S
from tts.errors import ConfigError
from tts.tasks.symbolic import SymbolicChecker

HANGING = yaml.safe_load(Path(__file__).with_name("math_cases.yaml").read_text(encoding="utf-8"))["HANGING"]
NEEDS_MPMATH = pytest.mark.skipif(
    importlib.util.find_spec("mpmath") is None, reason="mpmath (extra: math) is not installed"
)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and resource limits as on POSIX")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
QUESTIONS = itertools.count(1)
READY = "print('{\"ready\": true}', flush=True)"


def python(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(lines)]


def working(command: list[str]) -> Any:
    """Start a worker, whose input and output are pipes."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


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
    """Ask what was not asked before, which starts a worker where none runs."""
    question = next(QUESTIONS)
    assert checker.key(f"x+x+{question}") == checker.key(f"2x+{question}")
    return checker.pids[0]


@NEEDS_MPMATH
@pytest.mark.parametrize(("a", "b"), HANGING)
def test_what_would_take_for_ever_is_refused_by_its_size(checker: SymbolicChecker, a: str, b: str):
    pid = running_pid(checker)
    assert checker.key(a) != checker.key(b)
    assert (checker.timeouts, checker.failures) == (0, 0)
    assert checker.pids == (pid,)


@POSIX
def test_the_guard_kills_a_worker_that_hangs_and_the_verdict_is_remembered():
    checker = SymbolicChecker(
        command=python(READY, "input()", "import time", "time.sleep(60)"), time_limit_s=0.3, num_workers=1
    )
    with pytest.raises(TimeoutError):
        checker.key("x+x")
    assert (checker.timeouts, checker.pids) == (1, ())
    with pytest.raises(TimeoutError):
        checker.key("x+x")
    assert checker.timeouts == 1, "it was asked again"


def test_an_easy_answer_does_not_wait_for_a_hard_one():
    # This worker takes as long as the test for the form "hard", and answers all others at once.
    command = python(
        READY,
        "import json, time",
        "while True:",
        " form = json.loads(input())['form']",
        " if form == 'hard(x)': time.sleep(60)",
        " print(json.dumps({'key': form}), flush=True)",
    )
    checker = SymbolicChecker(command=command, num_workers=2, time_limit_s=30.0)
    said: list[str] = []

    def hard() -> None:
        try:
            checker.key("hard(x)")
        except TimeoutError:
            said.append("given up")

    thread = threading.Thread(target=hard, daemon=True)
    thread.start()
    while not checker.pids:
        pass
    assert [checker.key(form) for form in ("x+1", "x+2", "x+3")] == ["x+1", "x+2", "x+3"]
    assert thread.is_alive()
    assert len(checker.pids) == 2
    checker.close()


@NEEDS_MPMATH
def test_it_works_off_the_main_thread(checker: SymbolicChecker):
    keys: list[str] = []
    thread = threading.Thread(target=lambda: keys.extend(checker.key(form) for form in ("x+x", "2x", "x")))
    thread.start()
    thread.join()
    assert keys[0] == keys[1] != keys[2]


@NEEDS_MPMATH
@POSIX
def test_a_worker_killed_by_others_is_replaced(checker: SymbolicChecker):
    pid = running_pid(checker)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + LIMIT_S
    while (
        Path(f"/proc/{pid}/stat").exists()
        and " Z " not in Path(f"/proc/{pid}/stat").read_text()
        and time.monotonic() < deadline
    ):
        pass
    assert running_pid(checker) != pid


@POSIX
def test_an_interrupted_question_takes_its_worker_along():
    checker = SymbolicChecker(command=python(READY, "input()", "import time", "time.sleep(60)"), num_workers=1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            checker.key("x+x")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert checker.pids == ()


@pytest.mark.slow
@NEEDS_MPMATH
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


@pytest.mark.slow
@NEEDS_MPMATH
@POSIX
def test_the_worker_ends_with_the_interpreter_and_nothing_heavy_is_imported_here():
    script = (
        "import sys, tts.tasks",
        "task = tts.tasks.get('math')",
        "assert task.equivalent('x+x', '2x')",
        "assert not {'sympy', 'mpmath'} & set(sys.modules)",
        "print(task.checker.pids[0])",
    )
    done = subprocess.run(python(*script), env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert is_gone(int(done.stdout))
    assert done.stderr == ""


@NEEDS_MPMATH
@POSIX
def test_the_worker_ends_when_its_input_ends_and_bounds_its_memory():
    command = [sys.executable, "-m", "tts.tasks.math_worker"]
    with working(command) as worker:
        assert json.loads(worker.stdout.readline()) == {"ready": True}
        limits = Path(f"/proc/{worker.pid}/limits")
        if limits.exists():
            assert f"Max address space         {2 * 1024**3} " in limits.read_text()
        worker.stdin.close()
        assert worker.wait(timeout=LIMIT_S) == 0


@POSIX
def test_the_kernel_ends_a_hanging_worker_that_nobody_kills():
    command = python(
        "import time", "from tts.tasks.worker import serve", "serve(lambda: lambda request: time.sleep(60) or {})"
    )
    request = json.dumps({"form": "x", "limit_s": -4})  # five seconds after the limit, hence one second from now
    with working(command) as worker:
        worker.stdin.write(request + "\n")
        worker.stdin.close()
        assert worker.wait(timeout=LIMIT_S) == -signal.SIGALRM


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
    ids=["exits", "text", "list", "empty", "missing", "nothing", "slow"],
)
def test_a_worker_that_cannot_start_makes_symbolic_equality_unavailable(command: list[str]):
    checker = SymbolicChecker(command=command, start_limit_s=0.5)
    assert checker.available
    assert checker.key("x+x") != checker.key("2x")
    assert not checker.available
    assert checker.failures == 1
    assert checker.pids == ()
    assert checker.key("y+y") == checker.key("y+y") != checker.key("2y")
    assert checker.failures == 1, "it was started again"


@pytest.mark.parametrize("answer", ["raise SystemExit(3)", "print('hello', flush=True)", "print('[1]', flush=True)"])
def test_a_worker_that_dies_or_babbles_costs_one_verdict(answer: str):
    checker = SymbolicChecker(command=python(READY, "input()", answer))
    for form in ("x+x", "y+y"):
        with pytest.raises(TimeoutError):
            checker.key(form)
    assert checker.failures == 2
    assert checker.timeouts == 0
    assert checker.available
    checker.close()


def test_a_key_is_asked_for_once_by_all_threads():
    count = "n = 0", "while True:", " input(); n += 1", ' print(\'{"key": "%d"}\' % n, flush=True)'
    checker = SymbolicChecker(command=python(READY, *count), num_workers=1)
    keys: list[str] = []
    threads = [threading.Thread(target=lambda: keys.append(checker.key("a+b"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert keys == ["1"] * 8
    assert checker.key("a+c") == "2"
    checker.close()


@pytest.mark.parametrize("form", ["", "x" * 1001])
def test_empty_and_long_answers_need_no_worker(form: str):
    checker = SymbolicChecker(command=python(READY, "input()"))
    assert checker.key(form) == checker.key(form) != checker.key("5")
    assert checker.pids == ()


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_are_positive(limit: float):
    with pytest.raises(ConfigError, match="time_limit_s"):
        SymbolicChecker(time_limit_s=limit)
    with pytest.raises(ConfigError, match="start_limit_s"):
        SymbolicChecker(start_limit_s=limit)


def test_at_least_one_worker_is_needed():
    with pytest.raises(ConfigError, match="num_workers"):
        SymbolicChecker(num_workers=0)
