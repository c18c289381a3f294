"""`tts serve-model` on programs that stand in for vLLM and llama.cpp, started as the real ones are."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.guard import LIMIT_S

SERVES = """
import http.server, socket, sys, threading
flags = sys.argv[1:]
print("flags:", *flags, flush=True)
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path in ("/health", "/v1/models") else 404)
        self.end_headers()
        if self.path == "/end":
            threading.Thread(target=server.shutdown).start()
http.server.HTTPServer.address_family = socket.AF_INET6 if ":" in flags[flags.index("--host") + 1] else socket.AF_INET
server = http.server.HTTPServer((flags[flags.index("--host") + 1], int(flags[flags.index("--port") + 1])), Answers)
server.serve_forever()
sys.exit("RuntimeError: told to end")
"""
DIES = "import sys\nprint('a line')\nsys.exit('ValueError: no room for this model\\n(see above)')"


@pytest.fixture
def engines(tmp_path: Path) -> Any:
    """A maker of interpreters that have stand-ins of the engines."""

    def made(script: str) -> str:
        packages = tmp_path / "packages"
        for module in ("vllm/entrypoints/openai/api_server.py", "llama_cpp/server/__main__.py"):
            (packages / module).parent.mkdir(parents=True, exist_ok=True)
            (packages / module).write_text(script)
        (packages / "vllm/platforms.py").write_text(
            "class current_platform:\n    is_cpu = staticmethod(lambda: True)\n"
        )
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        return str(python)

    return made


@contextmanager
def running(*arguments: str, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tts serve-model` in a process of its own, once it says that it is ready, and the url."""
    command = [sys.executable, "-m", "tts", "serve-model", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("ready: "), (said, process.stderr and process.stderr.read())
            url = said.split()[1]
            assert f"--model pocket --url {url}" in process.stdout.readline()
            assert f"doctor --url {url}" in process.stdout.readline()
            yield process, url
        finally:
            process.kill()


def gone(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=LIMIT_S)
    except httpx.TransportError:
        return True
    return False


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_it_says_how_the_server_is_used_and_ends_it_when_it_is_ended(
    engines: Any, tmp_path: Path, number: int, status: int
) -> None:
    with running("pocket", "--python", engines(SERVES), "--log", str(tmp_path / "log")) as (process, url):
        assert httpx.get(f"{url}/health").status_code == 200
        process.send_signal(number)
        assert process.wait(LIMIT_S) == status
    assert gone(url)
    flags = (tmp_path / "log").read_text()
    for flag in (
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--generation-config vllm",
        "--max-model-len 1024",
        "--dtype float32",
    ):
        assert flag in flags
    assert re.search(r"--model \S+/policy --served-model-name pocket ", flags)


def test_an_interpreter_is_found_from_the_folder_of_the_command(engines: Any, tmp_path: Path) -> None:
    engines(SERVES)
    with running("pocket", "--python", "./python", cwd=tmp_path) as (process, url):
        assert httpx.get(f"{url}/health").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_no_server_is_left_behind_by_one_that_is_killed(engines: Any) -> None:
    with running("pocket", "--python", engines(SERVES)) as (process, url):
        os.kill(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)
        while not gone(url):  # a test that waits in vain is cut off from outside
            pass


@pytest.mark.slow
def test_a_server_that_ends_later_is_a_failure_with_its_last_words(engines: Any) -> None:
    with running("pocket", "--python", engines(SERVES)) as (process, url):
        httpx.get(f"{url}/end")
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "error: the server ended with status 1; its log ends: RuntimeError: told to end" in err


def test_a_server_that_dies_at_its_start_is_one_line_with_the_end_of_its_log(tts: Any, engines: Any) -> None:
    result = tts("serve-model", "pocket", "--python", engines(DIES), "--port", "0")
    assert result.exit_code == 1
    assert (
        "error: the server ended with status 1; its log ends: ValueError: no room for this model (see above)\n"
        in result.stderr
    )


def test_one_that_is_never_ready_is_given_up(tts: Any, engines: Any) -> None:
    result = tts(
        "serve-model", "pocket", "--python", engines("import time\ntime.sleep(99)"), "--port", "0", "--wait", "0.5"
    )
    assert result.exit_code == 1
    assert "error: the server is not ready after" in result.stderr


def test_llama_cpp_is_given_the_file_and_may_not_interrupt(engines: Any, tmp_path: Path) -> None:
    from tts.backends.serving.commands import launch, readable
    from tts.errors import ConfigError
    from tts.models import registry

    record = registry.get("smollm2")
    try:
        registry.locate(record)
    except ConfigError as missing:
        pytest.skip(missing.hint)
    with readable(record, gguf=True) as location:
        wanted = launch(record, location, "llama_cpp", engines(SERVES))
    assert location.endswith(".gguf")
    assert " ".join(wanted.command).endswith(
        f"-m llama_cpp.server --model {location} --model_alias smollm2 --n_ctx 8192 --n_threads -1 "
        "--interrupt_requests false"
    )


def refused(result: Any, *says: str) -> None:
    assert result.exit_code == 2
    for text in says:
        assert text in result.stderr


def test_what_cannot_be_served_is_refused_before_anything_starts(tts: Any, engines: Any, tmp_path: Path) -> None:
    python = engines(SERVES)
    refused(tts("serve-model", "pockte", "--python", python), "model is 'pockte'", "did you mean pocket?")
    refused(tts("serve-model", "toy", "--python", python), "model 'toy' has no weights to load")
    refused(tts("serve-model", "pocket-process", "--python", python), "which scores and writes nothing")
    refused(tts("serve-model", "pocket", "--engine", "sglang"), "engine is 'sglang', but must be vllm or llama_cpp")
    refused(
        tts("serve-model", "pocket", "--engine", "llama_cpp", "--python", python), "no GGUF file", "hint: --engine vllm"
    )
    refused(tts("serve-model", "pocket", "--wait", "0"), "wait is 0")
    refused(
        tts("serve-model", "pocket", "--python", "/nowhere/python"),
        "python is '/nowhere/python', but must be an interpreter",
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(
            tts("serve-model", "pocket", "--python", python, "--port", port), f"port is {port} on 127.0.0.1", "--port 0"
        )
    refused(tts("serve-model", "pocket", "--python", python, "--port", "99999"), "port is 99999")
    refused(
        tts("serve-model", "pocket", "--python", python, "--host", ""),
        "host is '', but must be an address",
        "127.0.0.1",
    )
    refused(tts("serve-model", "pocket", "--python", python, "--host", "a..b"), "on a..b, where no server can listen")
    refused(tts("serve-model", "pocket", "--python", python, "--host", "[::1"), "on [::1, where no server can listen")


@pytest.mark.parametrize(("host", "url"), [("::1", r"http://\[::1\]:\d+"), ("0.0.0.0", r"http://127\.0\.0\.1:\d+")])
def test_a_server_is_reached_wherever_it_listens(host: str, url: str, tmp_path: Path) -> None:
    from tts.backends.serving.commands import ServerLaunch
    from tts.backends.serving.server import serving

    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as missing:
        pytest.skip(f"this machine has no {host}: {missing}")
    with serving(
        ServerLaunch(command=(sys.executable, "-c", SERVES), health="/health"), tmp_path / "log", 30, host=host
    ) as server:
        assert re.fullmatch(url, server.url)


def test_an_engine_that_is_missing_is_one_line_with_the_command(tts: Any, tmp_path: Path) -> None:
    empty: Sequence[str] = ("#!/bin/sh", f'exec {sys.executable} -I -S "$@"', "")
    python = tmp_path / "python"
    python.write_text("\n".join(empty))
    python.chmod(0o755)
    refused(
        tts("serve-model", "pocket", "--python", str(python)), "the engine 'vllm' is not installed for", "pip install"
    )
    assert len(tts("serve-model", "pocket", "--python", str(python)).stderr.splitlines()) == 2
