"""The first day of a GPU: what the kernels compute there, and how fast, in eight minutes.

    python -m benchmarks.gpu.day [--minutes 8] [--out build/gpu/day.jsonl] [--parts ceilings kernels ...]
    python -m benchmarks.gpu.day --smoke
        every part once at tiny sizes, on a CPU in Triton's interpreter; its times mean nothing
    python -m benchmarks.gpu.day --model [--bandwidth 3.35e12]
        tables of the bytes that the same steps move, as a model; nothing is measured

Each result is printed and added to the file at once, as a line of JSON. A case that fails is a line with its `failure`,
and the others go on. After the minutes the remaining cases are lines with `not_run`. Needed are torch, triton and
transformers. Without numba the engine's planner runs as plain Python, and the first line says so.

- ceilings: bytes and operations a second of the card. kernels: each kernel against float64, on shapes at edges.
- memory: whether a kernel writes outside of its arrays. bits: the same rows with and without graphs, in any batch, and
  beside a second engine; log-probabilities against transformers.
- trees: attention over search trees beside FlashInfer and gathered attention. steps: decode steps of an 8B shape.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

Case = tuple[str, Callable[[], dict[str, Any]]]
ROOT = Path(__file__).parents[2]
# part -> module and function that gives its cases, in order of worth
PARTS: dict[str, tuple[str, str]] = {
    "ceilings": ("kernels", "list_ceilings"),
    "kernels": ("kernels", "list_kernels"),
    "memory": ("kernels", "list_memory"),
    "bits": ("steps", "list_bits"),
    "trees": ("peers", "list_trees"),
    "steps": ("steps", "list_steps"),
}
_SANITIZER = "compute-sanitizer"


@dataclass(frozen=True)
class Day:
    """The settings of a run.

    Args:
        device: "cuda" or "cpu".
        smoke: Whether sizes are the smallest.
        known: The ceilings that were measured, by name; other parts give shares of them.
    """

    device: str
    smoke: bool
    known: dict[str, float] = field(default_factory=dict[str, float])


class _Absent(ModuleType):
    """Stands for numba: functions stay plain Python, and code for a CPU is named but never made."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self.__name__}.{name}")

    def __call__(self, *_args: Any, **_options: Any) -> _Absent:
        return self

    def __iter__(self) -> Iterator[_Absent]:  # a target's triple, name and features
        return iter([self] * 3)

    def __bool__(self) -> bool:
        return False

    @staticmethod
    def njit(function: Any = None, **_options: Any) -> Any:
        """Return the function as it is."""
        return function or (lambda decorated: decorated)


@contextmanager
def plain_planner() -> Generator[bool]:
    """Let the engine be imported where numba is missing; yield whether it is.

    The kernels for a CPU then do not work. After the block numba is missing as before.
    """
    names = ("numba", "numba.core", "numba.extending", "llvmlite")
    is_missing = importlib.util.find_spec("numba") is None
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    if is_missing:
        sys.modules.update({name: _Absent(name) for name in names})
    try:
        yield is_missing
    finally:
        for name in names if is_missing else ():
            del sys.modules[name]
        sys.modules.update(before)


class Record:
    """Prints results as they come, and adds them to a file.

    Args:
        path: The file, to which a line of JSON is added for each result.
        minutes: The time after which no further case begins.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._began = time.perf_counter()
        self._ends = self._began + 60 * minutes
        self.is_fine = True

    def add(self, part: str, name: str, found: Mapping[str, Any]) -> None:
        """Write one result."""
        at_s = round(time.perf_counter() - self._began, 1)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, "name": name, **found, "at_s": at_s}) + "\n")
        self.is_fine &= "failure" not in found and found.get("agrees") is not False
        text = ", ".join(f"{key} {_format(value)}" for key, value in found.items())
        print(f"{at_s:6.1f} s  {part}, {name}: {text}", flush=True)

    def run(self, part: str, name: str, case: Callable[[], dict[str, Any]]) -> None:
        """Run a case, and write what it finds, or why it fails."""
        began = time.perf_counter()
        if began >= self._ends:
            self.add(part, name, {"not_run": "the minutes were over"})
            return
        try:
            found = case()
        except Exception as failure:  # noqa: BLE001 - the other cases go on
            lines = str(failure).strip().splitlines() or ["no message"]
            found = {"failure": f"{type(failure).__name__}: {lines[0]}"[:500]}
        self.add(part, name, {**found, "wall_s": round(time.perf_counter() - began, 2)})


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_format(one)}" for key, one in value.items())
    return str(value)


def _describe_run(day: Day, *, is_plain: bool) -> dict[str, Any]:
    """Return what runs: the device, versions of packages, and what the reader of times must know."""
    import torch

    about: dict[str, Any] = {"device": "CPU", "CUDA": str(torch.version.cuda)}
    if day.device == "cuda":
        card = torch.cuda.get_device_properties(0)
        about["device"] = f"{card.name}, {card.total_memory / 2**30:.0f} GiB, {card.multi_processor_count} processors"
    for name in ("torch", "triton", "transformers", "numba", "flashinfer-python"):
        try:
            about[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            about[name] = "not installed"
    if is_plain:
        about["planner"] = "plain Python, since numba is not installed: steps of many rows wait longer for the host"
    if day.smoke:
        about["times"] = "they mean nothing: this is Triton's interpreter on a CPU"
    return about


def _sanitize() -> dict[str, Any]:
    """Run the part `memory` below compute-sanitizer where it is installed."""
    tool = shutil.which(_SANITIZER)
    if tool is None:
        return {"absent": f"{_SANITIZER} is not on the PATH"}
    command = [tool, "--error-exitcode", "99", sys.executable, "-m", "benchmarks.gpu.day", "--parts", "memory"]
    command += ["--out", os.devnull]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    told = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    return {"agrees": done.returncode == 0, "said": told[-1] if told else f"status {done.returncode}"}


def _list_cases(module: ModuleType, function: str, day: Day) -> list[Case]:
    """Return the cases of a part; where they cannot be listed, one that fails for that reason."""
    try:
        return getattr(module, function)(day)
    except Exception as failure:  # noqa: BLE001 - the other parts go on
        reason = failure

        def fail() -> dict[str, Any]:
            raise reason

        return [("its cases", fail)]


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=8.0, help="no case begins after so many")
    parser.add_argument("--out", type=Path, default=Path("build/gpu/day.jsonl"), help="file that lines are added to")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), help="run these alone")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on a CPU, in Triton's interpreter")
    parser.add_argument("--model", action="store_true", help="print the byte model, and measure nothing")
    parser.add_argument("--bandwidth", type=float, default=3.35e12, help="bytes a second of the model's card")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.smoke:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
    import torch
    import transformers  # noqa: F401 - before numba is hidden from it

    if options.model:
        with plain_planner():
            print(importlib.import_module("benchmarks.gpu.model").tables(options.bandwidth))
        return
    if not options.smoke and not torch.cuda.is_available():
        sys.exit("error: torch finds no CUDA device; --smoke runs all parts on a CPU")
    day = Day("cpu" if options.smoke else "cuda", options.smoke)
    record = Record(options.out, options.minutes)
    with plain_planner() as is_plain:
        modules = {name: importlib.import_module(f"benchmarks.gpu.{name}") for name in ("kernels", "steps", "peers")}
    record.add("day", "begins", _describe_run(day, is_plain=is_plain))
    for part in [part for part in PARTS if part in (options.parts or PARTS)]:
        module, function = PARTS[part]
        for name, case in _list_cases(modules[module], function, day):
            record.run(part, name, case)
    if options.parts is None:
        record.run("memory", _SANITIZER, _sanitize)
    sys.exit(0 if record.is_fine else 1)


if __name__ == "__main__":
    main()
