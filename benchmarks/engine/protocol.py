"""The lines of JSON by which the benchmark talks to a system.

So each system has a process and an environment of its own.

In:  {"template": {...}}   one for each workload, before anything runs
     {"run": NAME}         replay the workload once, from an empty cache
Out: {"ready": {...}}      the versions of what runs, once it is loaded
     {"workload": ...}     one line a run

Drivers run in environments that lack `tts`: this module needs nothing but Python.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TextIO

from benchmarks.engine.facts import Facts, facts, ids_hash

Children = Sequence[tuple[int, Sequence[int]]]


class Driver(Protocol):
    """A system under test. Nodes are numbers that the template gives."""

    def reset(self) -> None:
        """Forget every node, and every cached key with them."""
        ...

    def open(self, node: int, ids: Sequence[int]) -> Sequence[int]:
        """Make a prompt's node; return the ids that were processed."""
        ...

    def expand(self, first: int, children: Children) -> Sequence[Sequence[int]]:
        """Make nodes `first`, `first + 1`, ... of (parent, ids), and return the ids that were processed.

        All nodes are decoded together.
        """
        ...

    def read(self, nodes: Sequence[int], ids: Sequence[int], *, process: bool) -> Sequence[Sequence[float]]:
        """Return the probabilities of `ids` after each node.

        They are those of the policy, or of a process model with its own cache.
        """
        ...

    def release(self, nodes: Sequence[int]) -> None: ...

    def counters(self) -> dict[str, Any]:
        """Return the counters since the reset: prefill_computed, prefill_reused, peak_kv_tokens and others.

        Unknown counters are left out.
        """
        ...


def own_stdout() -> TextIO:
    """Return the real standard output, and send everything else that is written there to standard error."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return out


def serve(make: Callable[[Sequence[Facts]], tuple[Driver, dict[str, str]]], out: TextIO) -> None:
    """Answer the benchmark's lines until they end.

    Args:
        make: The function that gets the facts of the templates, and returns a driver and versions.
        out: The stream of answers.
    """
    templates: dict[str, dict[str, Any]] = {}
    driver: Driver | None = None
    for line in sys.stdin:
        message = json.loads(line)
        if "template" in message:
            templates[message["template"]["name"]] = message["template"]
        elif "start" in message:
            driver, versions = make([facts(template) for template in templates.values()])
            out.write(json.dumps({"ready": versions}) + "\n")
        elif driver is not None:
            out.write(json.dumps(replay(driver, templates[message["run"]])) + "\n")


def replay(driver: Driver, template: dict[str, Any]) -> dict[str, Any]:
    """Run a template once, and say how long each kind of operation took."""
    driver.reset()
    gc.collect()
    processed: list[Sequence[int]] = []
    readings: list[Sequence[float]] = []
    seconds = dict.fromkeys(("open", "expand", "score", "reward", "release"), 0.0)
    for op in template["ops"]:
        started = time.perf_counter()
        match op["op"]:
            case "open":
                processed.append(driver.open(len(processed), op["ids"]))
            case "expand":
                processed += driver.expand(len(processed), op["children"])
            case "release":
                driver.release(op["nodes"])
            case kind:
                found = driver.read(op["nodes"], op["ids"], process=kind == "reward")
                readings += found if kind == "score" else [[value / sum(row) for value in row] for row in found]
        seconds[op["op"]] += time.perf_counter() - started
    return {
        "workload": template["name"],
        "seconds": sum(seconds.values()),
        "seconds_by_op": seconds,
        "hash": ids_hash(processed),
        "readings": [[float(value) for value in row] for row in readings],
        **driver.counters(),
    }
