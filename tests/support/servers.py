"""Real servers for tests, started with the flags that the pages of `docs/how-to/servers/` show.

A test is skipped, with the reason, if its server is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

import httpx
import pytest

from tts.errors import ConfigError
from tts.models.registry import ModelRecord, locate

ServerEngine = Literal["vllm", "llama_cpp"]
# interpreters of environments that have an engine, where that of the tests has none
VARIABLES: dict[ServerEngine, str] = {"vllm": "TTS_VLLM_PYTHON", "llama_cpp": "TTS_LLAMA_PYTHON"}
HEALTH: dict[ServerEngine, str] = {"vllm": "/health", "llama_cpp": "/v1/models"}
STARTS_S = 540.0
_ENDS_S = 20.0  # seconds until a server that was told to end is killed
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}


def interpreter(engine: ServerEngine) -> str:
    """Return one that has an engine; a test that needs it is skipped where there is none."""
    named = os.environ.get(VARIABLES[engine]) or (sys.executable if importlib.util.find_spec(engine) else "")
    if not named:
        pytest.skip(f"{engine} is not installed, and {VARIABLES[engine]} names no interpreter that has it")
    return named


def vllm_flags(record: ModelRecord, location: str, python: str) -> list[str]:
    """Return the flags of vLLM's programs, which a model on a CPU needs more of."""
    flags = ["--model", location, "--served-model-name", record.name]
    flags += ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--generation-config", "vllm"]
    if record.context is not None:
        flags += ["--max-model-len", str(record.context)]
    script = "from vllm.platforms import current_platform; print(current_platform.is_cpu())"
    if subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.endswith("True\n"):
        flags += ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]
    return flags


def llama_flags(record: ModelRecord, location: str) -> list[str]:
    """Return the flags of llama.cpp's Python server."""
    flags = ["--model", location, "--model_alias", record.name, "--n_ctx", str(record.context or 4096)]
    return [*flags, "--n_threads", "-1", "--interrupt_requests", "false"]


@contextmanager
def serve_model(record: ModelRecord, engine: ServerEngine, folder: Path, *options: str) -> Iterator[str]:
    """Serve a model, and yield the url.

    Args:
        record: The model.
        engine: The server.
        folder: The folder of the server's output.
        options: Further options of its command.
    """
    from tts.backends.vllm.loading import readable

    python = interpreter(engine)
    try:
        located = locate(record)
    except ConfigError as missing:
        pytest.skip(f"{missing.cause}; {missing.hint}")
    with readable(record) if engine == "vllm" else nullcontext(str(located)) as location:
        if engine == "vllm":
            # `vllm serve` needs a distribution of that name, which builds for CPUs do not have
            command = [python, "-m", "vllm.entrypoints.openai.api_server", *vllm_flags(record, location, python)]
        else:
            command = [python, "-m", "llama_cpp.server", *llama_flags(record, location)]
        with serving([*command, *options], HEALTH[engine], folder / "log", OFFLINE) as url:
            yield url


@contextmanager
def serving(command: Sequence[str], health: str, log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a server on a free port, yield its url when it is ready, and end it with all its processes.

    Args:
        command: The command without host and port.
        health: The path that answers 200 when the server is ready.
        log: The file of the server's output.
        environment: Variables beside those of this process.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        start = time.monotonic()
        while not _answers(url + health):
            assert process.poll() is None, f"the server ended with status {process.returncode}:\n{_tail(log)}"
            assert time.monotonic() - start < STARTS_S, f"the server is not ready:\n{_tail(log)}"
            time.sleep(0.5)
        yield url
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):  # the second for processes that the server leaves behind
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDS_S)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200  # short on purpose
    except httpx.TransportError:
        return False


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]
