"""What only a process of its own shows: imports, exit codes, signals, closed pipes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.support.guard import LIMIT_S

COLOURS = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in COLOURS} | {
    "PYTHONWARNINGS": "error",
    "COLUMNS": "80",
}

# the second request for samples meets Ctrl-C, and ends only when it is cancelled
INTERRUPTED = """
import os, signal, sys
from tts.backends.base import RowSet, Sample
from tts.backends.toy import ToyBackend
from tts.cli import main

class Held(RowSet):
    def cancel(self):
        super().cancel()
        for index in range(len(self.samples)):
            self.resolve(index, Sample("", (), (), "cancelled", None, 0))

sample, requests = ToyBackend.sample, []

def held(self, request):
    requests.append(request)
    if len(requests) == 1:
        return sample(self, request)
    os.kill(os.getpid(), signal.SIGINT)
    return Held(request)

ToyBackend.sample = held
sys.argv[1:] = ["solve", "3 + 4 - 2", "--model", "toy", "--budget", "400", "--strategy", "best_of_n", "--json"]
main()
"""


def python(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=LIMIT_S,
        **{"env": ENVIRONMENT, **options},
    )


def test_the_module_runs():
    result = python("-m", "tts", "solve", "3 + 4 - 2", "--model", "toy", "--strategy", "best_of_n(n=4)", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["answer"] == "5"


def test_exit_codes_reach_the_shell(tts):
    result = python("-m", "tts", "solve", "3 + 4 - 2", "--model", "toy", "--budget", "0")
    assert result.returncode == 2
    assert result.stderr.startswith("error: budget tokens is 0")
    assert tts("solv").exit_code == 2


@pytest.mark.slow
def test_help_loads_no_number_library():
    code = (
        "import sys\nfrom tts.cli import main\nsys.argv = ['tts', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'numpy', 'scipy', 'torch', 'transformers', 'networkx', 'pydantic', 'httpx', 'sympy', 'tts.solver'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    result = python("-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert "solve" in result.stdout


def test_a_missing_extra_is_one_line_with_its_command():
    code = (
        "import sys\nsys.modules['torch'] = None\n"
        "from tts.cli import main\nsys.argv[1:] = ['solve', '3 + 4', '--model', 'smollm2']\nmain()\n"
    )
    result = python("-c", code)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: the engine needs the optional dependency torch, which is not installed",
        "hint: pip install 'test-time-search[engine]'; without a GPU install torch's CPU build first, 0.8 GB in place "
        "of 6 "
        "(docs/how-to/install.md)",
    ]
    assert result.stdout == ""


@pytest.mark.slow
def test_doctor_without_extras():
    code = (
        "import sys\nfor name in ('torch', 'transformers', 'gguf', 'mpmath'):\n    sys.modules[name] = None\n"
        "from tts.cli import main\nsys.argv[1:] = ['doctor']\nmain()\n"
    )
    result = python("-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert "pip install 'test-time-search[engine]'" in result.stdout
    assert "pip install 'test-time-search[math]'" in result.stdout


@pytest.mark.slow
def test_ctrl_c_prints_what_was_found_so_far():
    result = python("-c", INTERRUPTED)
    record = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (130, "")
    assert (record["answer"], record["stopped_by"]) == ("5", "interrupted")
    assert record["candidates"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
def test_ctrl_c_during_a_long_search_prints_what_was_found_and_nothing_else(tmp_path):
    import pty

    screen, terminal = pty.openpty()  # standard error, so that its progress tells when the search is under way
    arguments = [
        "-m",
        "tts",
        "solve",
        "3 + 4 - 2",
        "--model",
        "toy",
        "--budget",
        "1e9",
        "--strategy",
        "best_of_n",
        "--json",
    ]
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=out,
            stderr=terminal,
            env={**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "200"},
        )
    os.close(terminal)
    try:
        seen = ""
        while not re.search(r" [1-9][\d,]* candidates", seen) and (part := _read(screen)):
            seen += part.decode(errors="replace")
        process.send_signal(signal.SIGINT)
        shown = b""
        while part := _read(screen):
            shown += part
        process.wait(timeout=LIMIT_S)
    finally:
        process.kill()
        os.close(screen)
    record = json.loads((tmp_path / "out").read_text())
    assert process.returncode == 130
    assert (record["answer"], record["stopped_by"], record["error"]) == ("5", "interrupted", None)
    assert record["candidates"]
    lines = re.split(r"[\r\n]+|\x1b\[[\d;?]*[A-Za-z]", shown.decode())
    assert [line for line in lines if line.strip() and "candidates" not in line and len(line) > 1] == []


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # nobody writes to it any more
        return b""


SOLVE = "solve 3+4 --model toy --strategy single"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [SOLVE, *(pytest.param(a, marks=pytest.mark.slow) for a in ("--help", f"{SOLVE} --json", "models", "--version"))],
)
def test_an_output_that_nobody_reads_is_no_traceback(arguments: str):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "tts", *arguments.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env=ENVIRONMENT,
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.slow
def test_a_terminal_that_knows_only_ascii():
    options = {"env": {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}}
    result = python("-m", "tts", "solve", "3 + 4 = ü", "--model", "toy", "--strategy", "single", **options)
    assert result.returncode == 0
    assert result.stderr == ""
    assert "| answer" in result.stdout
