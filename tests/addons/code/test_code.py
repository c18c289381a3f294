"""Programs that are run: what scores what, and that bad ones end in time, with an outcome, and touch nothing but their
folder.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.verifiers.paths import NoCalls, path, wholes
from tts.backends.function import FunctionBackend
from tts.errors import CapabilityError, ConfigError, VerifierError
from tts.types import Problem
from tts.verifiers.ensemble import Ensemble
from tts_addons.code import sandbox
from tts_addons.code import verifier as code
from tts_addons.code.sandbox import ProgramOutcome, ProgramResult, SandboxLimits, run
from tts_addons.code.verifier import Code, program_in

SHUT_IN = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"programs cannot be shut in here: {sandbox.why_not()}")
MODES = [pytest.param(True, marks=SHUT_IN, id="landlock"), pytest.param(False, id="none")]
RIGHT, WRONG = "def f(x):\n    return x + 1\n", "def f(x):\n    return x * 2\n"
TESTS = "assert f(1) == 2\nassert f(2) == 3\nassert f(5) == 6, 'f(5)'\n"


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run below a folder of this test's own: others run programs at the same time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("programs")))


def ran(program: str, tests: str = "assert True", *, isolated: bool = True, **limits: Any) -> ProgramResult:
    before = set(Path(tempfile.gettempdir()).glob("tts-code-*"))
    result = run(program, tests, SandboxLimits(**limits), isolated=isolated)
    assert set(Path(tempfile.gettempdir()).glob("tts-code-*")) <= before, "its folder is left"
    return result


@pytest.mark.parametrize("isolated", MODES)
class TestOutcomes:
    @pytest.mark.slow
    def test_tests_pass_or_fail(self, isolated: bool) -> None:
        right, wrong = ran(RIGHT, TESTS, isolated=isolated), ran(WRONG, TESTS, isolated=isolated)
        assert (right.outcome, right.passed, right.total) == (ProgramOutcome.PASSED, 3, 3)
        assert (wrong.outcome, wrong.passed, wrong.total) == (ProgramOutcome.FAILED, 1, 3)
        assert "f(5)" in wrong.detail

    @pytest.mark.slow
    def test_it_raises_or_leaves_before_its_tests(self, isolated: bool) -> None:
        for program, detail in (
            ("1 / 0", "ZeroDivisionError"),
            ("def f(:", "SyntaxError"),
            ("import sys; sys.exit(0)", "SystemExit"),
            ("input()", "EOFError"),
        ):
            result = ran(program, isolated=isolated)
            assert result.outcome is ProgramOutcome.ERROR
            assert detail in result.detail
        left = ran("import os; print('bye', flush=True); os._exit(0)", isolated=isolated)
        assert (left.outcome, left.output) == (ProgramOutcome.CRASHED, "bye\n")
        assert "SIGSEGV" in ran("import ctypes; ctypes.string_at(0)", isolated=isolated).detail
        assert "SIGKILL" in ran("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", isolated=isolated).detail

    @pytest.mark.slow
    def test_it_uses_up_its_processor_time_before_its_seconds(self, isolated: bool) -> None:
        busy = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 3))\nwhile True:\n    pass"
        result = ran(busy, isolated=isolated, seconds=30.0)
        assert (result.outcome, result.detail) == (ProgramOutcome.TIMEOUT, "it used up its processor time")

    @pytest.mark.slow
    def test_it_sleeps_or_loops(self, isolated: bool) -> None:
        for program in ("import time; time.sleep(600)", "while True:\n    pass"):
            started = time.monotonic()
            assert ran(program, isolated=isolated, seconds=0.3).outcome is ProgramOutcome.TIMEOUT
            assert time.monotonic() - started < 20

    def test_it_prints_a_gigabyte(self, isolated: bool) -> None:
        result = ran("for _ in range(2**20):\n    print('x' * 1023)", isolated=isolated)
        assert result.outcome is ProgramOutcome.OUTPUT
        assert len(result.output) == 4096

    def test_it_wants_all_memory(self, isolated: bool) -> None:
        assert ran("x = bytearray(2**33)", isolated=isolated).outcome is ProgramOutcome.MEMORY

    def test_it_starts_many_processes(self, isolated: bool) -> None:
        started = (  # more than it may, fewer than the kernel lets it: the watch is to see them
            "import os, time\nfor _ in range(12):\n    if not os.fork():\n        time.sleep(600)\n        "
            "os._exit(0)\ntime.sleep(600)"
        )
        assert ran(started, isolated=isolated, processes=8).outcome is ProgramOutcome.PROCESSES

    def test_what_it_leaves_running_is_killed(self, isolated: bool) -> None:
        mark = f"tts-left-{os.getpid()}-{isolated}"
        arguments = ["python", "-c", "import time; time.sleep(60)", mark]
        away = (
            f"import os, time\nif not os.fork():\n    os.setsid()\n    os.execv({sys.executable!r}, "
            f"{arguments!r})\ntime.sleep(0.2)"
        )
        assert ran(away, isolated=isolated).outcome is ProgramOutcome.PASSED
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                assert mark.encode() not in entry.read_bytes()
            except OSError:
                continue

    def test_it_fills_its_folder(self, isolated: bool) -> None:
        many = "for i in range(3000):\n    open(str(i), 'w').close()\nimport time; time.sleep(600)"
        assert ran(many, isolated=isolated).outcome is ProgramOutcome.DISK

    def test_threads_that_go_on_keep_nobody_waiting(self, isolated: bool) -> None:
        going = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
        assert ran(going, isolated=isolated).outcome is ProgramOutcome.PASSED

    def test_tests_that_are_no_python_or_test_nothing(self, isolated: bool) -> None:
        with pytest.raises(VerifierError, match="Python: SyntaxError"):
            ran(RIGHT, "assert f(1) ==", isolated=isolated)
        for nothing in ("7", "import math\nX = 1\ndef check(f):\n    assert f(1) == 3\n"):
            with pytest.raises(VerifierError, match=r"end.*assertions"):
                ran(RIGHT, nothing, isolated=isolated)

    def test_a_loop_over_tests_is_one(self, isolated: bool) -> None:
        loop = "'''What f does.'''\nfor x in (1, 2):\n    assert f(x) == x + 1\nassert f(0) == 1"
        right, wrong = ran(RIGHT, loop, isolated=isolated), ran(WRONG, loop, isolated=isolated)
        assert (right.outcome, right.passed, right.total) == (ProgramOutcome.PASSED, 2, 2)
        assert (wrong.outcome, wrong.passed, wrong.total) == (ProgramOutcome.FAILED, 0, 2)

    @pytest.mark.slow
    def test_a_flood_where_it_is_reported_is_not_held(self, isolated: bool) -> None:
        tries = "        try: os.write(end, b'x' * 2**16)\n        except OSError: pass"
        assert (
            ran(f"import os\nwhile True:\n    for end in range(3, 100):\n{tries}", isolated=isolated).outcome
            is ProgramOutcome.OUTPUT
        )


@SHUT_IN
class TestShutIn:
    @pytest.fixture
    def victim(self, tmp_path: Path) -> Path:
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(0o777)
        (tmp_path / "kept.txt").write_text("kept")
        (tmp_path / "kept.txt").chmod(0o666)
        return tmp_path

    @pytest.mark.parametrize(
        "attempt",
        [
            "import shutil; shutil.rmtree({0!r})", "import os; os.remove({0!r} + '/kept.txt')",
            "open({0!r} + '/kept.txt', 'w')", "open({0!r} + '/new.txt', 'w')",
            "import os; os.chmod({0!r} + '/kept.txt', 0)", "import os; os.rename({0!r} + '/kept.txt', 'mine')",
            "import os; os.utime({0!r} + '/kept.txt', (0, 0))", "print(open({0!r} + '/kept.txt').read())",
            "import os; os.symlink({0!r}, 'link'); open('link/kept.txt', 'w')",
            "import subprocess; subprocess.run(['rm', '-r', {0!r}], check=True)",
        ],
    )  # fmt: skip
    def test_nothing_outside_its_folder_is_touched(self, victim: Path, attempt: str) -> None:
        before = (victim / "kept.txt").stat()
        result = ran(attempt.format(str(victim)))
        assert result.outcome is ProgramOutcome.ERROR
        assert "Error" in result.detail
        after = (victim / "kept.txt").stat()
        assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, before.st_size)
        assert [entry.name for entry in victim.iterdir()] == ["kept.txt"]

    def test_its_own_folder_is_its_own(self) -> None:
        own = (
            "import os, tempfile\nos.mkdir('a')\nopen('a/b', 'w').write('x')\nos.rename('a/b', "
            "'c')\ntempfile.TemporaryFile().write(b'x')"
        )
        assert ran(own).outcome is ProgramOutcome.PASSED

    def test_a_folder_that_is_hard_to_remove_is_removed(self) -> None:
        result = ran("import os\nfor _ in range(30):\n    os.mkdir('d'); os.chdir('d')\nos.chmod('../../d', 0)")
        assert result.outcome is ProgramOutcome.PASSED

    def test_it_reaches_no_network_and_no_other_process(self) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as server:
            reached = ran(f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)")
        assert reached.outcome is ProgramOutcome.ERROR
        killed = ran(f"import os, signal; os.kill({os.getpid()}, signal.SIGTERM)")
        assert (killed.outcome, killed.detail.split(":")[0]) == (ProgramOutcome.ERROR, "ProcessLookupError")

    def test_a_fork_bomb_is_bounded_by_the_kernel_and_killed(self) -> None:
        """Only here: without a namespace of its own nothing but the watch bounds the processes of root's programs."""
        bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
        started = time.monotonic()
        assert ran(bomb, processes=4, seconds=2.0).outcome in (ProgramOutcome.PROCESSES, ProgramOutcome.TIMEOUT)
        assert time.monotonic() - started < 30


class TestTheVerifier:
    @pytest.mark.parametrize(
        ("text", "program"),
        [
            ("x = 1", "x = 1"),
            ("Here:\n```python\nx = 1\n```\nand then\n```py\nx = 2\n```\ndone", "x = 2\n"),
            ("```\nx = 1\n```\n```bash\nls\n```", "x = 1\n"),
            ("```python\nx = 1", "x = 1"),
        ],
    )
    def test_the_program_in_a_text(self, text: str, program: str) -> None:
        assert program_in(text) == program

    @pytest.mark.slow
    def test_all_tests_or_their_share(self) -> None:
        solutions = [
            path([-1.0], text=f"So:\n```python\n{program}```\n") for program in (RIGHT, WRONG, "1 / 0\n", RIGHT)
        ]
        assert wholes(Code(tests=TESTS, sandbox="none"), *solutions, calls=NoCalls()) == [1.0, 0.0, 0.0, 1.0]
        shares = wholes(Code(tests=TESTS, sandbox="none", credit="share"), *solutions[:3], calls=NoCalls())
        assert shares == pytest.approx([1.0, 1 / 3, 0.0])

    def test_without_tests_of_its_own_it_is_an_oracle_of_the_problems(self) -> None:
        assert Code().oracle
        assert not Code(tests=TESTS).oracle
        problem = Problem("write f", answer=TESTS)
        assert wholes(Code(sandbox="none"), path([-1.0], text=RIGHT), problem=problem, calls=NoCalls()) == [1.0]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("tests", "message"),
        [
            ("", "the answer of problem 'bad' is '', but must test something"),
            (
                "def check(f): assert f(1)",
                "the answer of problem 'bad' is .*, but must test something .*end them in assertions",
            ),
            (
                "assert f(1) ==",
                "the answer of problem 'bad' is 'assert f.1. ==', but must be Python that tests programs: invalid "
                "syntax",
            ),
        ],
    )
    def test_a_problem_whose_tests_mean_nothing_is_refused_before_anything_is_written(
        self, tests: str, message: str
    ) -> None:
        asked: list[str] = []

        def write(ask: Any) -> str:
            asked.append(str(ask.prompt))
            return RIGHT

        problems = [Problem("write f", answer=TESTS, id="good"), Problem("write g", answer=tests, id="bad")]
        member = Ensemble(members=(Code(sandbox="none"),))
        for verifier in (Code(sandbox="none"), member):
            asked.clear()
            with tts.Solver(
                FunctionBackend(write), verifier, task="text", strategy="single | best", allow_oracle=True
            ) as solver:
                good, bad = solver.solve_many(problems, each=tts.Budget(samples=1))
            assert good.error is None
            assert isinstance(bad.error, ConfigError)
            assert re.search(message, str(bad.error))
            assert bad.usage.generated_tokens == 0
            assert not any("write g" in prompt for prompt in asked)

    def test_time_that_the_budget_does_not_have_leaves_a_score_unknown(self) -> None:
        over = wholes(
            Code(tests=TESTS, sandbox="none"), path([-1.0], text=RIGHT), calls=NoCalls(seconds_left=lambda: 0.0)
        )
        short = wholes(
            Code(tests=TESTS, sandbox="none"),
            path([-1.0], text="import time; time.sleep(60)"),
            calls=NoCalls(seconds_left=lambda: 0.2),
        )
        assert math.isnan(over[0])
        assert math.isnan(short[0])

    def test_it_chooses_the_program_that_works(self) -> None:
        programs = [WRONG, "1 / 0\n", RIGHT, WRONG]
        model = FunctionBackend(lambda ask: f"```python\n{programs[ask.seed % 4]}```")
        solution = tts.solve(
            Problem("write f", task="text"),
            tts.Budget(samples=12),
            model=model,
            strategy="best_of_n(n=12) | best",
            verifier=Code(tests=TESTS, sandbox="none"),
        )
        assert {c.scores["main"] for c in solution.candidates} == {0.0, 1.0}
        assert RIGHT in solution.candidates[0].trajectory.full_text
        assert solution.usage.verifier_tokens == 0

    def test_where_it_cannot_shut_in_it_refuses_with_the_reason_unless_told(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(code, "why_not", lambda: "Landlock (create_ruleset) failed: Function not implemented")
        model = FunctionBackend(lambda ask: RIGHT)
        with pytest.raises(CapabilityError, match=r"it.*available here:.*not"):
            tts.solve(
                "write f",
                tts.Budget(samples=1),
                model=model,
                strategy="best_of_n(n=1) | best",
                verifier=Code(tests=TESTS),
            )
        allowed = Code(tests=TESTS, sandbox="none")
        tts.solve("write f", tts.Budget(samples=1), model=model, strategy="best_of_n(n=1) | best", verifier=allowed)

    def test_a_kernel_without_landlock_is_a_reason(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The child asks a system call that does not exist in place of Landlock's."""
        child = (
            Path(sandbox.sandbox_child.__file__)
            .read_text(encoding="utf-8")
            .replace("_CREATE, _ADD_RULE, _RESTRICT = 442, 444,", "_CREATE, _ADD_RULE, _RESTRICT = 442, 4444,")
        )
        (tmp_path / "child.py").write_text(child, encoding="utf-8")
        monkeypatch.setattr(sandbox, "_CHILD", tmp_path / "child.py")
        with pytest.raises(CapabilityError, match=r"\(create_ruleset\) failed:.*implemented"):
            ran(RIGHT, TESTS)
        assert ran(RIGHT, TESTS, isolated=False).outcome is ProgramOutcome.PASSED

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"tests": "assert f(1) =="}, "tests is 'assert f.1. ==', but must be Python"),
            ({"tests": "def check(f): assert f(1)"}, "tests is 'def check.f.: assert f.1.', but must test something"),
            ({"sandbox": "chroot"}, "sandbox is 'chroot', but must be 'landlock', 'docker' or 'none'"),
            ({"credit": "some"}, "credit is 'some', but must be 'all' or 'share'"),
            ({"seconds": 0}, "seconds is 0, but must be a number above 0"),
        ],
    )
    def test_what_means_nothing_is_refused(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            Code(**parameters)
