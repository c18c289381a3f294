"""Our engine beside transformers, vLLM and llama.cpp on the same trees, token for token.

    python -m benchmarks.engine [--quick | --smoke] [--json] [--peer vllm=PYTHON] [--peer llama_cpp=PYTHON]

All systems run on this machine. Each replays the same trees (benchmarks/engine/workloads.py) with forced tokens, in a
process of its own. Systems take turns, A/B/C, A/B/C, and the others are stopped meanwhile. A peer is listed as absent,
with the reason, if it does not start, or lacks an interpreter or the model in its format. `--smoke` runs everything
once on tiny trees of the embedded model, in seconds: its times mean nothing.

- seconds: median, with the least and greatest.
- others: share of the machine that other processes took during the run.
- of floor: least time that the measured bandwidth and arithmetic allow a perfect float32 engine, over the time taken.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.engine.convert import TYPES, convert
from benchmarks.engine.facts import facts, floor_s
from benchmarks.engine.machine import Probe, Shapes, load, measure, processor, step_s
from benchmarks.engine.report import disagreement, lines, summary
from benchmarks.engine.systems import SPECS, AbsentError, System, interpreter
from benchmarks.engine.workloads import WORKLOADS, template
from tts.errors import ConfigError, TTSError

CHECK = "W0"  # a small tree with readings: warms each system up, and shows that all compute the same numbers
TOLERANCE = 0.001  # of |ln p|, where weights and keys are float32
MOST_OTHERS = 0.10  # of the machine's time during a run
MOST_DRIFT = 0.10  # of the machine's bandwidth between start and end
REPEATS = {"full": 5, "quick": 3, "smoke": 1}
WARMUPS = {"full": 1, "quick": 0, "smoke": 0}
QUICK_WORKLOADS = ["W1", "W2"]
SMOKE_MODEL = "pocket"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", dest="size", action="store_const", const="quick", default="full", help="small trees: two minutes"
    )
    size.add_argument(
        "--smoke",
        dest="size",
        action="store_const",
        const="smoke",
        help=f"tiny trees, the model {SMOKE_MODEL}: seconds",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--workloads", help="comma-separated; W1,W2 with --quick, else all")
    parser.add_argument(
        "--systems",
        help="comma-separated; the main ones with --quick, else all: "
        + ", ".join(f"{n} ({s.says})" for n, s in SPECS.items()),
    )
    parser.add_argument("--repeats", type=int, help="5; 3 with --quick, 1 with --smoke")
    parser.add_argument(
        "--warmups", type=int, help=f"uncounted runs of each workload, beside {CHECK}: 1; 0 with --quick or --smoke"
    )
    parser.add_argument(
        "--patience",
        type=int,
        default=0,
        help="most repetitions of a run during which others took a tenth of the machine",
    )
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PYTHON", help="the interpreter that has vllm or llama_cpp"
    )
    parser.add_argument(
        "--argument", action="append", default=[], metavar="SYSTEM=ARGUMENT", help="handed to a system's driver"
    )
    parser.add_argument("--model", help=f"smollm2; {SMOKE_MODEL} with --smoke")
    parser.add_argument(
        "--files", type=Path, default=Path("build/engine-benchmark"), help="folder of the peers' copies of models"
    )
    parser.add_argument(
        "--size",
        dest="changed",
        action="append",
        default=[],
        metavar="W1.samples=32",
        help="replaces a size of a workload",
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.model = options.model or (SMOKE_MODEL if options.size == "smoke" else "smollm2")
    options.repeats = options.repeats or REPEATS[options.size]
    options.warmups = WARMUPS[options.size] if options.warmups is None else options.warmups
    return options


def sizes(options: argparse.Namespace, workload: str) -> dict[str, int]:
    """Return what --size says of a workload."""
    given = (
        entry.removeprefix(f"{workload}.").split("=") for entry in options.changed if entry.startswith(f"{workload}.")
    )
    return {name: int(value) for name, value in given}


def chosen_systems(options: argparse.Namespace) -> list[str]:
    """Return the systems to compare: those asked for, else all, or with --quick the main ones."""
    if options.systems:
        return options.systems.split(",")
    return [name for name, spec in SPECS.items() if spec.main or options.size != "quick"]


def interpreters(options: argparse.Namespace, absent: dict[str, str]) -> dict[str, str]:
    """Return the Python of each chosen system that has one; the others go to `absent`."""
    peers = dict(entry.split("=", 1) for entry in options.peer)
    pythons: dict[str, str] = {}
    for name in chosen_systems(options):
        try:
            pythons[name] = interpreter(SPECS[name], peers)
        except AbsentError as reason:
            absent[name] = str(reason)
    return pythons


def convert_arguments(options: argparse.Namespace, pythons: dict[str, str], absent: dict[str, str]) -> dict[str, str]:
    """Return what the arguments of the systems stand for, writing the model's files that are missing.

    Systems that need a file that cannot be written leave `pythons` for `absent`.
    """
    folder = options.files / options.model.replace("/", "_")
    paths = convert(options.model, folder, ["hf"])
    for kind in TYPES:
        users = [name for name in pythons if f"{{{kind}}}" in SPECS[name].arguments]
        try:
            paths |= convert(options.model, folder, [kind] if users else [])
        except ConfigError as failure:
            for name in users:
                absent[name] = failure.cause
                del pythons[name]
    return {"model": options.model, **{kind: str(path.absolute()) for kind, path in paths.items()}}


def start(
    options: argparse.Namespace,
    pythons: Mapping[str, str],
    files: Mapping[str, str],
    templates: Mapping[str, Any],
    absent: dict[str, str],
) -> dict[str, System]:
    """Start the systems, all at once; those that do not get ready go to `absent`."""
    systems: dict[str, System] = {}
    for name, python in pythons.items():
        extra = [entry.split("=", 1)[1] for entry in options.argument if entry.startswith(f"{name}=")]
        systems[name] = System(SPECS[name], python, files, list(templates.values()), extra)
    for name, system in list(systems.items()):
        try:
            system.wait_ready()
        except AbsentError as reason:
            absent[name] = str(reason)
            systems.pop(name).close()
    return systems


def run_undisturbed(system: System, workload: str, patience: int) -> dict[str, Any]:
    """Return a run during which other processes took little of the machine.

    After `patience` repetitions, the least disturbed run is returned.
    """
    runs = [system.run(workload)]
    while runs[-1]["others"] > MOST_OTHERS and len(runs) <= patience:
        runs.append(system.run(workload))
    return min(runs, key=lambda run: run["others"])


def replay(
    workload: str, systems: dict[str, System], absent: dict[str, str], *, repeats: int, warmups: int, patience: int
) -> dict[str, list[dict[str, Any]]]:
    """Return each system's runs.

    The systems take turns. A system that breaks is closed, and is absent from there on.
    """
    runs: dict[str, list[dict[str, Any]]] = {}
    for repeat in range(warmups + repeats):
        for name, system in list(systems.items()):
            try:
                run = run_undisturbed(system, workload, patience if repeat >= warmups else 0)
            except AbsentError as reason:
                absent[name] = f"{workload}: {reason}"
                systems.pop(name).close()
                runs.pop(name, None)
                continue
            print(
                f"{workload} {name} {run['seconds']:.2f} s, {run['cpu_s']:.2f} s of processor time, others "
                f"{run['others']:.0%}",
                file=sys.stderr,
                flush=True,
            )
            if repeat >= warmups:
                runs.setdefault(name, []).append(run)
    return runs


def evaluate(runs: Mapping[str, Any], report: Mapping[str, Any], probe: Probe, shapes: Shapes) -> dict[str, Any]:
    """Return a workload's numbers from the runs of each system."""
    known = facts(report).as_dict()

    def least(rows: int, keys: int) -> float:
        return step_s(probe, shapes, rows, keys)

    floor = floor_s(report, least)
    readings = {system: mine[-1]["readings"] for system, mine in runs.items() if mine[-1]["readings"]}
    return {
        "facts": known,
        "hash": report["hash"],
        "floor_s": floor,
        "systems": {
            system: summary(mine, known, *((None, None) if SPECS[system].precision == "int8" else (floor, least)))
            for system, mine in runs.items()
        },
        "disagreement": disagreement(readings) if readings else {},
    }


def verdicts(report: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    machine, warnings = report["machine"], []
    before, after = machine["bandwidth"]
    drift = abs(after / before - 1)
    if drift > MOST_DRIFT:
        warnings.append(
            f"REJECT: the machine's bandwidth was {before / 1e9:.1f} GB/s before the run, {after / 1e9:.1f} after"
        )
    for name, workload in report["workloads"].items():
        other = [system for system, numbers in workload["systems"].items() if numbers["hash"] != workload["hash"]]
        if other:
            warnings.append(f"WRONG: {', '.join(other)} processed other token ids on {name}")
        for system, difference in workload["disagreement"].items():
            if SPECS[system].precision == "float32" and difference > TOLERANCE:
                warnings.append(f"WRONG: {system} computes other numbers on {name}: |ln p| differs by {difference:.1e}")
    return warnings


def make_templates(options: argparse.Namespace, vocabulary: int) -> dict[str, dict[str, Any]]:
    """Return the templates of the chosen workloads, the check first."""
    some = QUICK_WORKLOADS if options.size == "quick" else list(WORKLOADS)
    chosen = options.workloads.split(",") if options.workloads else some
    return {
        name: template(name, size=options.size, seed=options.seed, vocabulary=vocabulary, **sizes(options, name))
        for name in dict.fromkeys([CHECK, *chosen])
    }


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report of every workload and system.

    The machine's limits are measured before and after the runs.
    """
    report: dict[str, Any] = {"absent": {}}
    pythons = interpreters(options, report["absent"])
    files = convert_arguments(options, pythons, report["absent"])
    config = json.loads((Path(files["hf"]) / "config.json").read_text())
    templates = make_templates(options, config["vocab_size"])
    systems = start(options, pythons, files, templates, report["absent"])
    machine_limits: dict[str, Any] = {}
    try:
        report["versions"] = {name: system.versions for name, system in systems.items()}
        shapes = Shapes.from_config(config)
        loads, before = [load()], measure(shapes)
        for name in templates:
            checking = name == CHECK
            repeats, warmups = (1, 1) if checking else (options.repeats, options.warmups)
            patience = 0 if checking else options.patience
            machine_limits[name] = replay(
                name, systems, report["absent"], repeats=repeats, warmups=warmups, patience=patience
            )
        after = measure(shapes)
        probe = before.best(after)
        report["machine"] = {
            "processor": processor(),
            "load": [*loads, load()],
            "bandwidth": [before.bandwidth, after.bandwidth],
            "flops_by_rows": dict(probe.flops_by_rows),
        }
    finally:
        for system in systems.values():
            system.close()
    report["workloads"] = {
        name: evaluate(machine_limits[name], made, probe, shapes) for name, made in templates.items()
    }
    return report


def show(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    machine, precisions = report["machine"], {system: spec.precision for system, spec in SPECS.items()}
    rates = ", ".join(f"{rows}: {flops / 1e9:.0f}" for rows, flops in machine["flops_by_rows"].items())
    before, after = (value / 1e9 for value in machine["bandwidth"])
    out = [
        f"{machine['processor']}, load {machine['load'][0]:.1f} before, {machine['load'][1]:.1f} after",
        f"reads {before:.1f} GB/s before, {after:.1f} after",
        f"float32 GFLOP/s of the linear layers by rows: {rates}",
        *(
            f"{name}: {SPECS[name].says}; " + ", ".join(f"{k} {v}" for k, v in found.items())
            for name, found in report["versions"].items()
        ),
        *(f"absent: {name}: {reason}" for name, reason in report["absent"].items()),
    ]
    for name, workload in report["workloads"].items():
        out += lines(name, WORKLOADS[name].says, workload, precisions)
    return "\n".join([*out, "", *report["verdicts"]])


def leave(*_: object) -> None:
    """Exit through the `finally` blocks, which end the systems; further signals are ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, leave)
    try:
        report = measure_all(options)
    except TTSError as failure:
        sys.exit(f"error: {failure}")
    report["verdicts"] = verdicts(report)
    print(json.dumps(report) if options.json else show(report))
    fatal = ("WRONG", "REJECT") if options.size == "full" else ("WRONG",)
    sys.exit(any(text.startswith(fatal) for text in report["verdicts"]))


if __name__ == "__main__":
    main()
