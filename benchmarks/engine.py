"""Our engine beside transformers, vLLM and llama.cpp on the same trees, token for token, on this machine.

    python benchmarks/engine.py [--quick] [--json] [--peer vllm=PYTHON] [--peer llama_cpp=PYTHON]

Every system replays the same trees (benchmarks/engine/workloads.py) with forced tokens, in a process of its own; they take turns,
A/B/C, A/B/C, and whoever is not asked stands still. A peer whose interpreter is not given, or that does not start, is listed as
absent with its reason. Seconds are medians with the least and greatest; "others" is what other processes took of the machine
meanwhile; "of floor" is the least time that this machine's measured
bandwidth and arithmetic allow a perfect float32 engine, over the time taken.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.convert import convert
from engine.facts import facts, floor_s
from engine.machine import Probe, Shapes, load, measure, processor, step_s
from engine.report import disagreement, lines, summary
from engine.systems import SPECS, AbsentError, System, interpreter
from engine.workloads import WORKLOADS, template

CHECK = "W0"  # a small tree with readings: warms each system up, and shows that all compute the same numbers
TOLERANCE = 0.001  # of |ln p|, where weights and keys are float32
MOST_OTHERS = 0.10  # of the machine's time during a run
MOST_DRIFT = 0.10  # of the machine's bandwidth between start and end


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="small trees: two minutes for everything")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--workloads", help="comma-separated; W1,W2 with --quick, all without")
    parser.add_argument(
        "--systems",
        help="comma-separated; the main ones with --quick, all without: " + ", ".join(f"{n} ({s.says})" for n, s in SPECS.items()),
    )
    parser.add_argument("--repeats", type=int, help="3 with --quick, 5 without")
    parser.add_argument("--warmups", type=int, help=f"runs of each workload that do not count, beside {CHECK}; 0 with --quick, 1 without")
    parser.add_argument("--patience", type=int, default=0, help="most tries more of a run while which others took a tenth of the machine")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="the interpreter that has vllm or llama_cpp")
    parser.add_argument("--argument", action="append", default=[], metavar="SYSTEM=ARGUMENT", help="handed to a system's driver")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--files", type=Path, default=Path("build/engine-benchmark"), help="where the peers' copies of the model lie")
    parser.add_argument("--size", action="append", default=[], metavar="W1.samples=32", help="replaces a size of a workload")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def sizes(options: argparse.Namespace, workload: str) -> dict[str, int]:
    """Return what --size says of a workload."""
    given = (entry.removeprefix(f"{workload}.").split("=") for entry in options.size if entry.startswith(f"{workload}."))
    return {name: int(value) for name, value in given}


def chosen_systems(options: argparse.Namespace) -> list[str]:
    """Return the systems to compare: those asked for, else all, or with --quick the main ones."""
    if options.systems:
        return options.systems.split(",")
    return [name for name, spec in SPECS.items() if spec.main or not options.quick]


def start(options: argparse.Namespace, templates: Mapping[str, Any], absent: dict[str, str]) -> dict[str, System]:
    """Start the systems, all at once; those that do not get ready go to `absent`."""
    files = convert(options.model, options.files)
    peers = dict(entry.split("=", 1) for entry in options.peer)
    systems: dict[str, System] = {}
    for name in chosen_systems(options):
        extra = [entry.split("=", 1)[1] for entry in options.argument if entry.startswith(f"{name}=")]
        try:
            systems[name] = System(SPECS[name], interpreter(SPECS[name], peers), files, list(templates.values()), extra)
        except AbsentError as reason:
            absent[name] = str(reason)
    for name, system in list(systems.items()):
        try:
            system.wait_ready()
        except AbsentError as reason:
            absent[name] = str(reason)
            systems.pop(name).close()
    return systems


def undisturbed(system: System, workload: str, patience: int) -> dict[str, Any]:
    """Return a run while others took little of the machine, or after so many tries more the one they disturbed the least."""
    runs = [system.run(workload)]
    while runs[-1]["others"] > MOST_OTHERS and len(runs) <= patience:
        runs.append(system.run(workload))
    return min(runs, key=lambda run: run["others"])


def replay(
    workload: str, systems: dict[str, System], absent: dict[str, str], *, repeats: int, warmups: int, patience: int
) -> dict[str, list[dict[str, Any]]]:
    """Return each system's runs; the systems take turns. One that breaks is closed, and absent from here on."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for repeat in range(warmups + repeats):
        for name, system in list(systems.items()):
            try:
                found = undisturbed(system, workload, patience if repeat >= warmups else 0)
            except AbsentError as reason:
                absent[name] = f"{workload}: {reason}"
                systems.pop(name).close()
                runs.pop(name, None)
                continue
            print(
                f"{workload} {name} {found['seconds']:.2f} s, {found['cpu_s']:.2f} s of processor time, others {found['others']:.0%}",
                file=sys.stderr,
                flush=True,
            )
            if repeat >= warmups:
                runs.setdefault(name, []).append(found)
    return runs


def evaluate(runs: Mapping[str, Any], made: Mapping[str, Any], probe: Probe, shapes: Shapes) -> dict[str, Any]:
    """Return a workload's numbers from the runs of each system."""
    known = facts(made).as_dict()

    def least(rows: int, keys: int) -> float:
        return step_s(probe, shapes, rows, keys)

    floor = floor_s(made, least)
    readings = {system: mine[-1]["readings"] for system, mine in runs.items() if mine[-1]["readings"]}
    return {
        "facts": known,
        "hash": made["hash"],
        "floor_s": floor,
        "systems": {
            system: summary(mine, known, *((None, None) if SPECS[system].precision == "int8" else (floor, least)))
            for system, mine in runs.items()
        },
        "disagreement": disagreement(readings) if readings else {},
    }


def verdicts(report: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    machine, found = report["machine"], []
    before, after = machine["bandwidth"]
    drift = abs(after / before - 1)
    if drift > MOST_DRIFT:
        found.append(f"REJECT: the machine's bandwidth was {before / 1e9:.1f} GB/s before the run, {after / 1e9:.1f} after")
    for name, workload in report["workloads"].items():
        other = [system for system, numbers in workload["systems"].items() if numbers["hash"] != workload["hash"]]
        if other:
            found.append(f"WRONG: {', '.join(other)} processed other token ids on {name}")
        for system, difference in workload["disagreement"].items():
            if SPECS[system].precision == "float32" and difference > TOLERANCE:
                found.append(f"WRONG: {system} computes other numbers on {name}: |ln p| differs by {difference:.1e}")
    return found


def measure_all(options: argparse.Namespace, templates: Mapping[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    """Return the runs of every workload and system; what the machine can do is measured before and after them."""
    systems = start(options, templates, report["absent"])
    found: dict[str, Any] = {}
    try:
        report["versions"] = {name: system.versions for name, system in systems.items()}
        shapes = Shapes.of(json.loads((options.files / "hf" / "config.json").read_text()))
        loads, before = [load()], measure(shapes)
        for name in templates:
            checking = name == CHECK
            repeats = 1 if checking else options.repeats or (3 if options.quick else 5)
            warmups = 1 if checking else options.warmups if options.warmups is not None else 0 if options.quick else 1
            patience = 0 if checking else options.patience
            found[name] = replay(name, systems, report["absent"], repeats=repeats, warmups=warmups, patience=patience)
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
    report["workloads"] = {name: evaluate(found[name], made, probe, shapes) for name, made in templates.items()}
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
        *(f"{name}: {SPECS[name].says}; " + ", ".join(f"{k} {v}" for k, v in found.items()) for name, found in report["versions"].items()),
        *(f"absent: {name}: {reason}" for name, reason in report["absent"].items()),
    ]
    for name, workload in report["workloads"].items():
        out += lines(name, WORKLOADS[name].says, workload, precisions)
    return "\n".join([*out, "", *report["verdicts"]])


def leave(*_: object) -> None:
    """End as an error does, so that the systems end too: some of them stand still. Once is enough."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, leave)
    chosen = options.workloads.split(",") if options.workloads else ["W1", "W2"] if options.quick else [n for n in WORKLOADS if n != CHECK]
    templates = {
        name: template(name, quick=options.quick, seed=options.seed, **sizes(options, name)) for name in dict.fromkeys([CHECK, *chosen])
    }
    report = measure_all(options, templates, {"absent": {}})
    report["verdicts"] = verdicts(report)
    print(json.dumps(report) if options.json else show(report))
    fatal = ("WRONG",) if options.quick else ("WRONG", "REJECT")
    sys.exit(any(text.startswith(fatal) for text in report["verdicts"]))


if __name__ == "__main__":
    main()
