"""The systems under test, and the process that each runs in.

A process is stopped while another system runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]  # of the checkout, which drivers run in


@dataclass(frozen=True)
class Spec:
    """How to run a system.

    Args:
        driver: The module of its driver in this folder.
        peer: The system whose interpreter it needs; "": this project's own.
        precision: "float32", "f16 keys" (with float32 weights) or "int8" (weights).
        says: The name of the system for people.
        arguments: The driver's arguments; {model} stands for the model's name, and {hf}, {f32} and {q8_0} for its
            files.
        main: Whether a quick comparison includes it.
    """

    driver: str
    peer: str
    precision: str
    says: str
    arguments: str = ""
    main: bool = True


OURS, TRANSFORMERS, VLLM, LLAMA = "peer_ours", "peer_transformers", "peer_vllm", "peer_llama_cpp"
SPECS: Mapping[str, Spec] = {
    "ours": Spec(OURS, "", "float32", "our engine", "--model {model}"),
    "ours-f16": Spec(OURS, "", "f16 keys", "our engine, keys in float16", "--model {model} --halves"),
    "ours-unshared": Spec(
        OURS, "", "float32", "our engine, every row reads its whole path", "--model {model} --unshared", main=False
    ),
    "ours-no-reuse": Spec(
        OURS, "", "float32", "our engine, every child computes its whole path", "--model {model} --no-reuse", main=False
    ),
    "generate": Spec(TRANSFORMERS, "", "float32", "transformers' generate, once a level", "{hf} --variant generate"),
    "forward": Spec(
        TRANSFORMERS, "", "float32", "transformers' forward with a cache for each row", "{hf} --variant cache"
    ),
    "vllm": Spec(
        VLLM, "vllm", "float32", "vLLM with prefix caching; by its own choice a core is left to its scheduler", "{hf}"
    ),
    "vllm-all": Spec(VLLM, "vllm", "float32", "the same, its worker on every core", "{hf} --cpus all", main=False),
    "llama.cpp": Spec(LLAMA, "llama_cpp", "float32", "llama.cpp, keys in float32", "{f32} --kv f32 --flash off"),
    "llama.cpp-f16": Spec(LLAMA, "llama_cpp", "f16 keys", "llama.cpp as it comes: flash attention", "{f32} --kv f16"),
    "ours-int8": Spec(OURS, "", "int8", "our engine, 8-bit weights", "--model {model} --precision int8"),
    "llama.cpp-q8": Spec(LLAMA, "llama_cpp", "int8", "llama.cpp, Q8_0 weights, keys in float16", "{q8_0} --kv f16"),
}


class AbsentError(Exception):
    """A system cannot run here; the message says why."""


class System:
    """A driver's process.

    The process is stopped, with all its children, unless it runs a workload. So idle systems take no time.

    Args:
        spec: The system.
        python: Its interpreter.
        files: The values of its arguments.
        templates: The workloads.
        extra: Further arguments of the driver.
    """

    def __init__(
        self,
        spec: Spec,
        python: str,
        files: Mapping[str, str],
        templates: Sequence[dict[str, Any]],
        extra: Sequence[str],
    ) -> None:
        self.spec, self.errors = spec, tempfile.TemporaryFile("w+")  # noqa: SIM115  # it lives as long as the process
        arguments = [part.format(**files) for part in spec.arguments.split()]
        environment = os.environ | {
            "OMP_WAIT_POLICY": "PASSIVE",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }
        self.process = subprocess.Popen(
            [python, "-m", f"benchmarks.engine.{spec.driver}", *arguments, *extra],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.versions: dict[str, str] = {}
        with suppress(BrokenPipeError):  # it ended while it was being told; wait_ready says so
            for template in templates:
                self._send({"template": template})
            self._send({"start": True})

    def wait_ready(self) -> None:
        """Wait until it is loaded, then stop it.

        Raises:
            AbsentError: it ended instead.
        """
        self.versions = self._receive()["ready"]
        self._signal(signal.SIGSTOP)

    def run(self, workload: str) -> dict[str, Any]:
        """Replay a workload once, and return the result.

        The result has two keys more: `cpu_s`, the processor time of the run, and `others`, the share of the machine
        that other
        processes took.

        Raises:
            AbsentError: The process ended instead of answering.
        """
        self._signal(signal.SIGCONT)
        before = used_s(self.process.pid)
        self._send({"run": workload})
        result = self._receive()
        after = used_s(self.process.pid)
        self._signal(signal.SIGSTOP)
        by_all, by_this = after[0] - before[0], after[1] - before[1]
        return result | {
            "cpu_s": by_this,
            "others": max(0.0, by_all - by_this) / (after[2] - before[2]) / (os.cpu_count() or 1),
        }

    def close(self) -> None:
        """End it, and its children with it."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self._signal(signal.SIGKILL)  # and whoever of its children outlived it
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            lines = [text for text in self.errors.read().splitlines() if text.strip()]
            raise AbsentError(lines[-1].strip() if lines else f"ended with status {self.process.returncode}")
        return json.loads(line)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, number)


def used_s(group: int) -> tuple[float, float, float]:
    """Return seconds of processor time so far of everything and of one process group, and the time now.

    Where /proc has no figures, both are 0.
    """
    if not Path("/proc/stat").is_file():
        return 0.0, 0.0, time.perf_counter()
    tick = os.sysconf("SC_CLK_TCK")
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    own = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            facts = path.read_text().rpartition(")")[2].split()
            if int(facts[2]) == group:
                own += int(facts[11]) + int(facts[12])
    return (sum(fields) - fields[3] - fields[4]) / tick, own / tick, time.perf_counter()


def interpreter(spec: Spec, peers: Mapping[str, str]) -> str:
    """Return the absolute path of the Python that runs a system.

    Raises:
        AbsentError: none was given.
    """
    if not spec.peer:
        return sys.executable
    if spec.peer not in peers:
        raise AbsentError(f"no --peer {spec.peer}=PYTHON")
    if not Path(peers[spec.peer]).is_file():
        raise AbsentError(f"{peers[spec.peer]} is not a file")
    return str(Path(peers[spec.peer]).absolute())
