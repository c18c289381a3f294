"""The page of a run: what each part found, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Found = Mapping[str, Any]
Row = Sequence[str]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _kernels(found: Found) -> Row:
    reasons = "; ".join(f"{test}: {reason}" for test, reason in found["reasons"].items())
    return f"{found['passed']}", f"{found['failed']}", f"{found['skipped']}", reasons.replace("|", "\\|")


def _agreement(found: Found) -> Row:
    theirs = (_number(found.get(f"{kind}_of_transformers"), "{:.2g}") for kind in ("worst", "mean"))
    return (
        f"{found['worst']:.2g}",
        f"{found['mean']:.2g}",
        *theirs,
        found["tolerance"],
        "yes" if found["agrees"] else "NO",
    )


def _strict(found: Found) -> Row:
    spans = (
        f"{sorted(times)[len(times) // 2]:.3f} ({min(times):.3f}-{max(times):.3f})"
        for times in found["seconds"].values()
    )
    batches = ", ".join(map(str, found["batches"]))
    return (
        *spans,
        f"{found['slower'] - 1:+.0%}",
        f"{found['aim'] - 1:+.0%}",
        f"{'yes' if found['agrees'] else 'NO'} ({batches})",
    )


def _workloads(found: Found) -> Row:
    shares = (_number(found.get(key), "{:.0%}") for key in ("of_floor", "of_bandwidth", "of_compute", "on_the_host"))
    seconds = f"{found['seconds']:.3f} ({found['least']:.3f}-{found['greatest']:.3f})"
    return seconds, f"{found['tokens_per_s']:,.0f}", *shares, f"{found['generate']:.2f}", f"{found['faster']:.1f}x"


# part -> heading, what it means, columns behind the case's name, cells
TABLES: dict[str, tuple[str, str, Row, Callable[[Found], Row]]] = {
    "kernels": (
        "Kernel tests",
        "The tests of `tests/gpu` on the device.",
        ("passed", "failed", "skipped", "reasons"),
        _kernels,
    ),
    "agreement": (
        "Engine against transformers",
        "Differences of ln p behind decoded paths. In bfloat16 both are compared with transformers in float32 on the "
        "rounded weights.",
        ("worst", "mean", "transformers' worst", "its mean", "tolerance", "agrees"),
        _agreement,
    ),
    "strict": (
        "Strict against fast",
        "Seconds, in turns; the aim; whether a row has the same bits in batches of several sizes.",
        ("strict", "fast", "slower by", "aim at most", "same bits"),
        _strict,
    ),
    "workloads": (
        "Trees beside `generate`",
        "The aim is half of the floor: the least time that the measured bandwidth and arithmetic allow. `host`: "
        "planning and draws.",
        ("seconds", "tokens/s", "of floor", "of bandwidth", "of compute", "host", "`generate`, s", "faster"),
        _workloads,
    ),
}


def page(
    machine: Mapping[str, str], parts: Mapping[str, Mapping[str, Found]], wanted: Mapping[str, Sequence[str]]
) -> str:
    """Return the page.

    Args:
        machine: what ran, by name.
        parts: results by part and case.
        wanted: the cases of each part; those without a result are listed.
    """
    lines = ["# The engine on a GPU", "", *(f"- {name}: {value}" for name, value in machine.items())]
    for part, (heading, says, columns, cells) in TABLES.items():
        found = parts.get(part, {})
        lines += ["", f"## {heading}", "", says, "", _line(("case", *columns)), _line(["---"] * (len(columns) + 1))]
        for case in dict.fromkeys([*wanted.get(part, ()), *found]):
            lines.append(_line((case, *_cells(found.get(case), cells, len(columns)))))
    return "\n".join([*lines, ""])


def _cells(found: Found | None, cells: Callable[[Found], Row], count: int) -> Row:
    if found is None:
        text = "not run"
    elif "failure" in found:
        text = f"FAILED: {found['failure']}"
    elif "absent" in found:
        text = f"absent: {found['absent']}"
    else:
        return cells(found)
    return text.replace("|", "\\|"), *[""] * (count - 1)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
