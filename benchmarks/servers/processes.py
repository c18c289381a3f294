"""The processes that are measured. They take turns: a process is stopped while another runs."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from benchmarks.engine.systems import ROOT, used_s

STARTS_S = 300.0


class Process:
    """A program in a process group of its own, run in the checkout, and stopped while others run.

    The program ends with this process at the latest.

    Args:
        command: The command of the program.
        environment: The variables added to this process's environment.
        answers: Whether the program answers with lines of JSON.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, answers: bool = True
    ) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if answers else self.errors,
                stderr=self.errors,
                text=True,
                start_new_session=True,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
            )
        except OSError:
            self.errors.close()
            raise
        atexit.register(self.close)

    @property
    def group(self) -> int:
        """The number of its process group."""
        return self._process.pid

    def ask(self, message: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the next line that it writes, after a message if there is one.

        Raises:
            RuntimeError: it has ended; the message ends with the end of its errors.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if message is not None:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=20)  # its output ends a moment before it does
            raise RuntimeError(self.read_errors())
        return json.loads(line)

    def read_errors(self) -> str:
        """Return the end of what it wrote of errors; "" while it runs."""
        if self._process.poll() is None:
            return ""
        self.errors.seek(0)
        return self.errors.read()[-2000:] or f"ended with status {self._process.returncode}"

    @contextmanager
    def running(self) -> Generator[None]:
        """Let it run, then stand still again."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it, and its children with it."""
        atexit.unregister(self.close)
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._signal(number)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20)
        self._signal(signal.SIGKILL)  # and whoever of its children outlived it
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self.errors):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, number)


class VllmServer(Process):
    """A vLLM server on this machine.

    Args:
        python: The interpreter, which has vLLM.
        model: The folder of the model.
        name: The name of the served model.
        options: The options of the engine, as `vllm.LLM` has them.
        environment: The variables added to this process's environment.
    """

    def __init__(
        self, python: str, model: str, name: str, options: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        flags = [
            f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}") for key, value in options.items()
        ]
        command = [
            python,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            model,
            "--served-model-name",
            name,
            *flags,
        ]
        command += ["--host", "127.0.0.1", "--port", port, "--enable-prompt-tokens-details"]
        # it lets its cache be emptied
        super().__init__(command, {**environment, "VLLM_SERVER_DEV_MODE": "1"}, answers=False)
        end = time.monotonic() + STARTS_S
        while not self._healthy():
            if (why := self.read_errors()) or time.monotonic() > end:
                raise RuntimeError(why or "the server did not start in time")
            time.sleep(0.5)

    def _healthy(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        return False

    def forget(self) -> None:
        """Empty its prefix cache."""
        httpx.post(f"{self.url}/reset_prefix_cache", timeout=60).raise_for_status()

    def count_generated(self) -> int:
        """Return the tokens that it has generated, by its own count."""
        page = httpx.get(f"{self.url}/metrics", timeout=60).text
        return round(
            sum(
                float(value)
                for value in re.findall(r"^vllm:generation_tokens_total\{[^}]*\} (\S+)", page, re.MULTILINE)
            )
        )


class Shares:
    """What others took of the machine's time since this was made."""

    def __init__(self, groups: Sequence[int]) -> None:
        self._groups = groups
        self._before = [used_s(group) for group in groups]
        self._own = time.process_time()

    def others(self) -> float:
        """Return the share of all cores."""
        after = [used_s(group) for group in self._groups]
        own = time.process_time() - self._own + sum(b[1] - a[1] for a, b in zip(self._before, after, strict=True))
        everything, seconds = after[0][0] - self._before[0][0], after[0][2] - self._before[0][2]
        return max(0.0, everything - own) / seconds / (os.cpu_count() or 1)
