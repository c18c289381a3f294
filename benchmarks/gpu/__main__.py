"""Questions to a GPU after its first day: tests, real models, the strict executor, and whole trees.

    python -m benchmarks.gpu [--out FOLDER] [--parts kernels agreement strict workloads] [--minutes 8]
        [--again]
    python -m benchmarks.gpu --smoke --device cpu
        every row once on tiny models, in seconds; the figures mean nothing

Nothing is downloaded: real weights are those on disk, and others are random in known shapes. FOLDER gets a JSON file
for each part and `page.md`. A case that has a result there is skipped, and one that failed is run again. So the
command may be called as often as it takes. On a device each case runs in a process of its own, so that a case which
breaks the device's context breaks no other.

- kernels: tests/gpu.
- agreement: log-probabilities against transformers, on real and random weights.
- strict: the strict executor against the fast one, and whether its rows have bits of their own.
- workloads: the trees W1 to W6 beside `generate`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

NEEDED = ("torch", "transformers", "numba", "safetensors", "pytest")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(
        f"error: {', '.join(missing)} must be installed for this command (numba compiles the engine's planner on any "
        "device)"
    )

import torch

from benchmarks.gpu.cases import CASES, ROOT, Settings, names
from benchmarks.gpu.models import AbsentError
from benchmarks.gpu.page import page

LAST_LINE = "case: "  # before the JSON of a case that ran in a process of its own


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--smoke", action="store_true", help="tiny models and trees: shows that every row appears")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of results")
    parser.add_argument("--parts", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--again", action="store_true", help="run what has a result too")
    parser.add_argument("--minutes", type=float, help="end after so many; what is left is run by the next call")
    parser.add_argument("--here", action="store_true", help="run the cases in this process, as on a CPU")
    parser.add_argument("--case", nargs=2, metavar=("PART", "NAME"), help="run one case, and print its JSON last")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "--device is cuda, but torch finds no CUDA device; --smoke --device cpu shows what the command does"
        )
    options.here = options.here or options.device == "cpu"
    return options


def machine(device: str) -> dict[str, str]:
    """Return what runs, by name."""
    versions = {"device": "CPU"}
    if device == "cuda":
        about = torch.cuda.get_device_properties(0)
        versions["device"] = (
            f"{about.name}, {about.total_memory / 2**30:.0f} GiB, compute capability {about.major}.{about.minor}"
        )
        versions["CUDA"] = str(torch.version.cuda)
    for name in ("torch", "triton", "transformers", "numba"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def read(folder: Path, part: str) -> dict[str, Any]:
    """Return the results of a part, by case."""
    path = folder / f"{part}.json"
    return json.loads(path.read_text())["cases"] if path.is_file() else {}


def write(folder: Path, part: str, about: Mapping[str, str], cases: Mapping[str, Any]) -> None:
    unfinished = folder / f"{part}.json.new"
    unfinished.write_text(json.dumps({"machine": about, "cases": cases}, indent=1) + "\n")
    unfinished.replace(folder / f"{part}.json")


def attempt(part: str, name: str, options: argparse.Namespace, limit_s: float | None) -> dict[str, Any]:
    """Return a case's result; of one that fails, the reason in one line."""
    began = time.perf_counter()
    try:
        settings = Settings(options.device, options.smoke)
        result = CASES[part](name, settings) if options.here else run_apart(part, name, options, limit_s)
    except AbsentError as reason:
        result = {"absent": str(reason)}
    except Exception as failure:  # noqa: BLE001 - the other cases go on
        text = str(failure).strip() or "no message"
        result = {"failure": f"{type(failure).__name__}: {text.splitlines()[0]}"[:500]}
    return {**result, "wall_s": round(time.perf_counter() - began, 3)}


def run_apart(part: str, name: str, options: argparse.Namespace, limit_s: float | None) -> dict[str, Any]:
    """Run a case in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", options.device, "--out", str(options.out.absolute())]
    command += ["--smoke"] * options.smoke + ["--case", part, name]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it was ended after {limit_s:.0f} s, when the call's time was over") from None
    told = [line for line in done.stdout.splitlines() if line.startswith(LAST_LINE)]
    if not told:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"it ended with status {done.returncode}: {lines[-1].strip() if lines else 'nothing said'}")
    return json.loads(told[-1].removeprefix(LAST_LINE))


def run(options: argparse.Namespace) -> bool:
    """Run what has no result yet, write JSON and page, and return whether all results are right."""
    about = machine(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    ends = None if options.minutes is None else time.perf_counter() + 60 * options.minutes
    wanted = {part: names(part, smoke=options.smoke, device=options.device) for part in CASES}
    for part in [part for part in CASES if part in options.parts]:
        cases = read(options.out, part)
        for name in wanted[part]:
            left = None if ends is None else ends - time.perf_counter()
            has_result = name in cases and "failure" not in cases[name]
            if (has_result and not options.again) or (left is not None and left <= 0):
                continue
            cases[name] = attempt(part, name, options, left)
            write(options.out, part, about, cases)
            print(
                f"{part}, {name}: {format_end(cases[name])}, {cases[name]['wall_s']:.1f} s", file=sys.stderr, flush=True
            )
    parts = {part: read(options.out, part) for part in CASES}
    (options.out / "page.md").write_text(page(about, parts, wanted))
    return all(format_end(found) in ("done", "absent") for cases in parts.values() for found in cases.values())


def format_end(found: Mapping[str, Any]) -> str:
    """Return how a case ended, in a word or with its reason."""
    if "failure" in found:
        return f"FAILED: {found['failure']}"
    if "absent" in found:
        return "absent"
    return "WRONG" if found.get("agrees") is False or found.get("failed") else "done"


def check_folder(options: argparse.Namespace) -> None:
    """Exit where the folder has results of another machine or size, which one page would mix with these."""
    about = machine(options.device)
    for part in CASES:
        path = options.out / f"{part}.json"
        other = json.loads(path.read_text())["machine"] if path.is_file() else about
        if other != about:
            differ = ", ".join(f"{name} {other.get(name)}" for name in about if other.get(name) != about[name])
            sys.exit(f"error: {path} has results of {differ}; name another folder by --out")


def main() -> None:
    options = arguments()
    if options.case:
        part, name = options.case
        options.here = True
        print(LAST_LINE + json.dumps(attempt(part, name, options, None)))
        return
    check_folder(options)
    fine = run(options)
    print(options.out / "page.md")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
