"""Tests that a model wrote.

All of them run in the process of a program, which states an outcome of each.

Such tests are no evidence about a program that manipulates its tests: it shares its process with them, and could write
their outcomes itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SECONDS: Final = 60.0  # of a program with all its tests
_MARK: Final = "results of the tests: "
# runs all written tests in the program's process, each within a quarter of a second of its time, and prints which
# passed
HARNESS: Final = """
def _run_written_tests(tests, mark):
    import contextlib, io, signal
    class _Late(BaseException):
        pass
    def late(*_):
        raise _Late
    signal.signal(signal.SIGVTALRM, late)
    passed = ""
    for test in tests:
        try:
            code = compile(test, "test", "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.25)
                exec(code, dict(globals()))
            passed += "1"
        except BaseException:
            passed += "0"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    print("\\n" + mark + passed + ".", flush=True)
"""


def with_tests(program: str, tests: Sequence[str]) -> str:
    """Return a program that runs tests after itself, and prints the outcomes.

    A test is Python, such as an assertion.
    """
    return f"{program}\n{HARNESS}\n_run_written_tests({list(tests)!r}, {_MARK!r})\n"


def read_outcomes(output: str, count: int) -> str:
    """Return a digit for each test from the output: "1" where the test passed, else "0".

    The text is "" where the program did not end all tests.
    """
    if _MARK not in output:
        return ""
    outcomes = output.rpartition(_MARK)[2].partition(".")[0]
    is_complete = len(outcomes) == count and set(outcomes) <= {"0", "1"}
    return outcomes if is_complete else ""
