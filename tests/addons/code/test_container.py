"""Programs in a container: by llm-sandbox, where it is installed, before a Docker that runs them here; and by what
stands for it.
"""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import tarfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.addons.code.test_code import RIGHT, TESTS, WRONG
from tts.backends.function import FunctionBackend
from tts.errors import CapabilityError, MissingDependency, VerifierError
from tts_addons.code.sandbox import ProgramOutcome, ProgramResult
from tts_addons.code.verifier import Code


class Container:
    """A container whose programs run here, in a folder; it takes what Docker's own takes."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.running: list[subprocess.Popen[bytes]] = []
        self.removed = False

    def start(self) -> None:
        pass

    def put_archive(self, path: str, data: bytes) -> None:
        assert path == "/sandbox"
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(self.folder, filter="data")

    def exec_run(self, *, cmd: str, stream: bool, demux: bool, workdir: str | None = None, **options: Any) -> Any:
        assert demux
        if cmd.startswith("mkdir"):
            return types.SimpleNamespace(exit_code=0, output=(None, None))
        assert stream, "output must be read as it comes, or all of it is held"
        command, file = cmd.split()
        assert (command, workdir) == ("python", "/sandbox")
        return types.SimpleNamespace(
            exit_code=None, output=self.output([sys.executable, "-I", str(self.folder / Path(file).name)])
        )

    def output(self, command: list[str]) -> Iterator[tuple[bytes, None]]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.running.append(process)
        assert process.stdout is not None
        while piece := process.stdout.read1(1 << 14):
            yield piece, None

    def stop(self) -> None:
        for process in self.running:
            process.kill()

    def wait(self) -> None:
        for process in self.running:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def remove(self, *, force: bool) -> None:
        self.removed = force


class Docker:
    """A daemon that has no image yet, and its client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Container] = []
        self.pulled: list[str] = []
        self.images = self.containers = self

    def get(self, name: str) -> Any:
        if name not in self.pulled:
            import docker

            raise docker.errors.ImageNotFound("no such image")
        return types.SimpleNamespace(id=name, tags=[name], remove=self.pulled.clear)

    def pull(self, name: str) -> Any:
        self.pulled.append(name)
        return self.get(name)

    def create(self, **config: Any) -> Container:
        self.made.append(Container(self.folder, config))
        return self.made[-1]

    def list(self, **asked: Any) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class Session:
    """Stands for a session of llm-sandbox: runs the script as a container of the daemon."""

    def __init__(self, daemon: Docker, **options: Any) -> None:
        asked = {"lang": "python", "skip_environment_setup": True, "keep_template": True, "encoding_errors": "replace"}
        assert asked.items() <= options.items()
        self.container = daemon.create(**options["runtime_configs"])

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *failure: object) -> None:
        self.container.stop()
        self.container.wait()
        self.container.remove(force=True)

    def run(
        self, script: str, timeout: float, on_stdout: Callable[[str], None], on_stderr: Callable[[str], None]
    ) -> Any:
        if "sleep(600)" in script:
            raise TooLate
        written = ""
        try:
            for piece, _ in self.container.output([sys.executable, "-I", "-c", script]):
                written += piece.decode("utf-8", "replace")
                on_stdout(piece.decode("utf-8", "replace"))
        except OverflowError:
            pass
        return types.SimpleNamespace(stdout=written, stderr="", exit_code=0)


class TooLate(Exception):
    """Stands for llm-sandbox's timeout."""


class NoDaemon(Exception):
    """Stands for Docker's errors."""


@pytest.fixture(params=["llm-sandbox", "stand-in"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    made = Docker(tmp_path)
    if request.param == "llm-sandbox":
        pytest.importorskip("llm_sandbox")
        monkeypatch.setattr(pytest.importorskip("docker"), "from_env", lambda: made)
        return made
    errors = types.SimpleNamespace(SandboxTimeoutError=TooLate)
    package: Any = types.SimpleNamespace(SandboxSession=lambda **options: Session(made, **options), exceptions=errors)
    docker: Any = types.SimpleNamespace(from_env=lambda: made, errors=types.SimpleNamespace(DockerException=NoDaemon))
    for name, module in {"llm_sandbox": package, "llm_sandbox.exceptions": errors, "docker": docker}.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    return made


def ran(program: str, **options: Any) -> ProgramResult:
    return Code(tests=TESTS, sandbox="docker", **options).outcome(program, TESTS)


def test_it_is_run_there_without_network_and_bounded_and_its_container_is_removed(daemon: Docker) -> None:
    assert ran(RIGHT, memory_mb=64, processes=5).outcome is ProgramOutcome.PASSED
    [container] = daemon.made
    bounds = {"network_mode": "none", "mem_limit": 64 << 20, "pids_limit": 5, "stop_signal": "SIGKILL"}
    assert bounds.items() <= container.config.items()
    assert container.removed
    failed = ran("print('seen')\n" + WRONG)
    assert (failed.outcome, failed.passed, failed.total, failed.output) == (ProgramOutcome.FAILED, 1, 3, "seen\n")


def test_it_raises_leaves_or_says_what_is_no_text(daemon: Docker) -> None:
    assert ran("1 / 0").outcome is ProgramOutcome.ERROR
    left = ran("import os; print('lost'); os.write(1, b'bye'); os._exit(3)")
    assert (left.outcome, left.output) == (ProgramOutcome.CRASHED, "bye")
    odd = ran(RIGHT + "import os\nprint('\\ud800 é')\nos.write(1, b'\\xff\\xc3')")
    assert odd.outcome is ProgramOutcome.PASSED
    assert odd.output.endswith("\ud800 é\n")


@pytest.mark.parametrize(
    "flood", ["print('x' * 2**21)", "import os\nwhile True: os.write(1, b'x' * 2**16)", "import os\nos.system('yes')"]
)
def test_a_flood_of_output_is_not_held(daemon: Docker, flood: str) -> None:
    result = ran(flood)
    assert result.outcome is ProgramOutcome.OUTPUT
    assert len(result.output) <= 4096


@pytest.mark.parametrize("said", ["'{'", "'[3, 4]'", "'[{}, 5]'", "'7'"])
def test_a_forged_report_is_a_crash_of_the_program(daemon: Docker, said: str) -> None:
    find = (
        "import gc, os\nfor o in gc.get_objects():\n    if isinstance(o, dict) and 'runner' in o and 'end' in o:\n "
        "       end = o['end']\n"
    )
    find += "mark = next(c for c in end.__code__.co_consts if isinstance(c, str) and len(c) == 16)\n"
    forged = f"{find}os.write(1, (mark + {said}).encode())\n"
    result = ran(forged + "os._exit(0)\n")
    assert (result.outcome, result.detail) == (ProgramOutcome.CRASHED, "it wrote a report that cannot be read")


def test_the_same_tests_are_decided_apart_there(daemon: Docker) -> None:
    liar = "class L:\n    def __eq__(self, other): return True\ndef f(x): return L()\n"
    assert ran(liar).outcome is ProgramOutcome.FAILED
    shared = "from dataclasses import dataclass\nimport inspect\n@dataclass\nclass P:\n    x: int\n"
    assert (
        ran(shared + "assert P.__annotations__['x'] is int and 'class P' in inspect.getsource(P)\n" + RIGHT).outcome
        is ProgramOutcome.PASSED
    )


def test_its_time_is_bounded(daemon: Docker) -> None:
    assert ran("import time; time.sleep(600)", seconds=0.3).outcome is ProgramOutcome.TIMEOUT
    assert daemon.made[0].removed


def test_what_docker_fails_in_is_one_line(daemon: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(**config: Any) -> Any:
        raise RuntimeError("no space\nleft on device")

    monkeypatch.setattr(daemon, "create", create)
    with pytest.raises(VerifierError, match=r"container failed: RuntimeError:.*\(hint"):
        ran(RIGHT)


def solve() -> tts.Solution:
    return tts.solve(
        "write f",
        tts.Budget(samples=1),
        model=FunctionBackend(lambda ask: RIGHT),
        strategy="best_of_n(n=1) | best",
        verifier=Code(tests=TESTS, sandbox="docker"),
    )


def test_it_scores_in_a_search(daemon: Docker) -> None:
    assert solve().candidates[0].scores == {"main": 1.0}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # docker leaves the socket open on which nobody answered
def test_a_daemon_that_does_not_answer_is_told_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llm_sandbox")
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(CapabilityError, match=r"sandbox.*'docker',.*daemon answers") as caught:
        solve()
    assert "\n" not in str(caught.value)
    del caught
    gc.collect()


@pytest.mark.parametrize("package", ["llm_sandbox", "docker"])
def test_where_it_is_not_installed_that_is_told_before_anything_is_spent(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=r"code\(sandbox='docker'\).*dependency"):
        solve()
