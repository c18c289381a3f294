"""From the runs of a workload to numbers, and from numbers to a table for people."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Runs = Sequence[Mapping[str, Any]]

_BUCKETS = (1, 4, 16, 64, 256)


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def summary(
    runs: Runs, facts: Mapping[str, int], floor_s: float | None, step_s: Callable[[int, int], float] | None
) -> dict[str, Any]:
    """Return one system's numbers on one workload.

    Args:
        runs: The driver's report of each repeat.
        facts: The numbers of the template.
        floor_s: The least seconds of the whole template on this machine; None: not known.
        step_s: The least seconds of one step by its rows and keys; None: not known.
    """
    seconds = spread([run["seconds"] for run in runs])
    last = runs[-1]
    numbers = {
        "seconds": seconds,
        "seconds_by_op": {
            op: statistics.median(run["seconds_by_op"][op] for run in runs) for op in last["seconds_by_op"]
        },
        "tokens_per_s": facts["generated"] / seconds["median"],
        "useful_tokens_per_s": facts["useful"] / seconds["median"],
        "prefill_computed": last["prefill_computed"],
        "prefill_reused": last["prefill_reused"],
        "peak_kv_tokens": last["peak_kv_tokens"],
        "peak_kv_by_unique": last["peak_kv_tokens"] / facts["peak_unique"] if last["peak_kv_tokens"] else None,
        "floor_fraction": floor_s / seconds["median"] if floor_s else None,
        "cpu_s": statistics.median(run["cpu_s"] for run in runs),
        "others": statistics.median(run["others"] for run in runs),
        "hash": last["hash"],
    }
    stats = dict(last.get("stats", {}))
    per_step = stats.pop("per_step", None)
    if stats:
        numbers["stats"] = stats
    if per_step and step_s:
        numbers["floor_fraction_by_rows"] = group_by_rows(per_step, step_s)
    return numbers


def group_by_rows(
    per_step: Sequence[Mapping[str, Any]], step_s: Callable[[int, int], float]
) -> dict[str, dict[str, float]]:
    """Return the fraction of the floor of steps by their width.

    Each bucket of rows has the median and the tenth percentile.
    """
    buckets: dict[str, list[float]] = {}
    for step in per_step:
        most = next((edge for edge in _BUCKETS if step["rows"] <= edge), math.inf)
        name = f"<={most}" if most < math.inf else f">{_BUCKETS[-1]}"
        buckets.setdefault(name, []).append(step_s(step["rows"], step["keys"]) / step["seconds"])
    return {
        name: {"steps": len(found), "median": statistics.median(found), "p10": sorted(found)[len(found) // 10]}
        for name, found in buckets.items()
    }


def disagreement(readings: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, float]:
    """Return each system's greatest difference from the first in the logarithm of a probability."""
    reference, *others = readings.items()
    return {
        name: max(
            (
                abs(math.log(a / b))
                for row, other in zip(found, reference[1], strict=True)
                for a, b in zip(row, other, strict=True)
            ),
            default=0.0,
        )
        for name, found in others
    }


_OURS = {"float32": "ours", "f16 keys": "ours-f16", "int8": "ours-int8"}  # by precision


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


# a column: its title, its width, and its value from a system's numbers
_COLUMNS: Sequence[tuple[str, int, Callable[[Mapping[str, Any]], str]]] = (
    ("seconds", 24, lambda of: "{median:.2f} [{least:.2f}, {greatest:.2f}]".format(**of["seconds"])),
    ("tok/s", 8, lambda of: _number(of["tokens_per_s"], "{:.1f}")),
    ("useful", 8, lambda of: _number(of["useful_tokens_per_s"], "{:.1f}")),
    ("computed", 10, lambda of: _number(of["prefill_computed"], "{:,}")),
    ("reused", 10, lambda of: _number(of["prefill_reused"], "{:,}")),
    ("KV/unique", 10, lambda of: _number(of["peak_kv_by_unique"], "{:.2f}")),
    ("of floor", 9, lambda of: _number(of["floor_fraction"], "{:.0%}")),
    ("others", 8, lambda of: f"{of['others']:.0%}"),
)


def lines(name: str, says: str, workload: Mapping[str, Any], precisions: Mapping[str, str]) -> list[str]:
    """Return a workload's table.

    The last column is the time over ours at the same precision: above 1, ours takes less.
    """
    facts, systems = workload["facts"], workload["systems"]
    out = [
        "",
        f"{name}  {says}",
        f"  {facts['nodes']} nodes; {facts['generated']:,} tokens generated, {facts['useful']:,} of them useful",
        f"  {facts['no_reuse_prefill']:,} read without reuse; hash of the ids {workload['hash']}",
        f"  {facts['peak_unique']:,} unique tokens at a time at most, {facts['peak_logical']:,} logical ones",
        f"  {'':<15} {'':<8}" + "".join(f"{title:>{width}}" for title, width, _ in _COLUMNS) + f"{'/ ours':>8}",
    ]
    for system, numbers in systems.items():
        ours = systems.get(_OURS[precisions[system]])
        ratio = numbers["seconds"]["median"] / ours["seconds"]["median"] if ours else None
        row = "".join(f"{value(numbers):>{width}}" for _, width, value in _COLUMNS)
        wrong = "" if numbers["hash"] == workload["hash"] else "  OTHER IDS"
        out.append(f"  {system:<15} {precisions[system]:<8}{row}{_number(ratio, '{:.2f}'):>8}{wrong}")
    for system, numbers in systems.items():
        for bucket, share in numbers.get("floor_fraction_by_rows", {}).items():
            out.append(
                f"  {system}, rows {bucket}: {share['median']:.0%} of the floor, p10 {share['p10']:.0%}, "
                f"{share['steps']} steps"
            )
    if workload["disagreement"]:
        differences = ", ".join(f"{name} {value:.1e}" for name, value in workload["disagreement"].items())
        out.append(f"  greatest difference of ln p from the first system: {differences}")
    return out
