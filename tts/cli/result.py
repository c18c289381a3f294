"""A solution as a table for people and as one JSON object for programs."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from tts._core.display import one_visible_line, visible
from tts.budget.units import format_usd
from tts.cli.boundary import warn
from tts.cli.terminal import output, print_note
from tts.errors import ConfigError, TTSError

if TYPE_CHECKING:
    from tts.types import Candidate, Solution

_UNKNOWN = "unknown"
_USAGE = (
    "prompt_tokens", "reused_tokens", "generated_tokens", "cancelled_tokens", "verifier_tokens", "verifier_calls",
    "samples", "requests", "flops", "usd", "seconds", "estimated",
)  # fmt: skip


def print_json(solution: Solution, *, explain: bool = False) -> None:
    """Write a solution to standard output as one line of JSON.

    What is unknown is null. With `explain` the line has the reasons of the solution's strategy.
    """
    record = {
        "answer": solution.answer,
        "confidence": _finite_or_none(solution.confidence),
        "checked": check_solution(solution),
        "stopped_by": solution.stopped_by,
        "strategy": solution.strategy,
        "model": solution.model,
        "seed": solution.seed,
        "usage": {name: getattr(solution.usage, name) for name in _USAGE},
        "candidates": [_candidate(c) for c in solution.candidates],
        "oracle": solution.oracle,
        "reproducible": solution.reproducible,
        "warnings": list(solution.warnings),
        "failures": dict(solution.failures),
        "error": None if solution.error is None else _error(solution.error),
        **({"reasons": list(_reasons(solution))} if explain else {}),
    }
    typer.echo(json.dumps(record, allow_nan=False))


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "answer": candidate.answer,
        "score": _finite_or_none(candidate.scores.get("main", math.nan)),
        "weight": _finite_or_none(candidate.weight),
        "text": candidate.trajectory.response,
        **({"thought": candidate.trajectory.thought} if candidate.trajectory.thought else {}),
    }


def _error(error: Exception) -> dict[str, str]:
    cause, hint = (error.cause, error.hint) if isinstance(error, TTSError) else (str(error), "")
    return {"type": type(error).__name__, "cause": cause, "hint": hint}


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _reasons(solution: Solution) -> tuple[str, ...]:
    return () if solution.trace is None else solution.trace.reasons


def print_table(solution: Solution, *, explain: bool = False) -> None:
    """Write a solution to standard output as one table.

    Failures by kind and warnings follow on standard error.

    Args:
        solution: The solution to write.
        explain: Whether the reasons of its strategy follow the table, one a line.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    oracle_note = " · oracle" if solution.oracle else ""
    run_note = "" if solution.reproducible else " (another run may differ)"
    caption = one_visible_line(f"{solution.strategy} · {solution.model} · seed {solution.seed}{run_note}{oracle_note}")
    console = output()
    rows = _rows(solution)
    label_width = max(len(label) for label, _, _ in rows)
    value_width = min(len(caption), console.width) - label_width - 7  # 3 lines of the frame, 4 spaces beside the texts
    table = Table(box=box.ROUNDED, show_header=False, caption=Text(caption), caption_style="dim")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold", min_width=max(1, value_width))  # else a narrow table would break its caption
    for label, value, style in rows:
        table.add_row(Text(label), Text(visible(value), style=style))
    console.print(table)
    if explain:
        reasons = _reasons(solution) or (f"{solution.strategy} was asked for, and it ended by: {solution.stopped_by}",)
        for reason in reasons:
            console.print(Text(f"why: {one_visible_line(reason)}"), soft_wrap=True)
    if solution.failures:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(solution.failures.items()))
        print_note(f"failed tries of rows: {one_visible_line(kinds)}")
    for text in solution.warnings:
        warn(text)


def _print_alone(solution: Solution, attribute: str, *, explain: bool = False) -> None:
    """Write only one attribute of a solution to standard output; warnings follow on standard error."""
    text: str | None = getattr(solution, attribute)
    if text is not None:
        printed = text.rstrip("\n").encode("utf-8", "replace").decode()
        typer.echo(visible(printed) if sys.stdout.isatty() else printed)
    lines = list(_reasons(solution)) if explain else []
    lines += solution.warnings
    if text is None:
        lines.append("there is no answer")
    for line in lines:
        warn(line)


def _rows(solution: Solution) -> list[tuple[str, str, str]]:
    """Return the rows of a solution's table, each as label, value and style of the value."""
    usage, total = solution.usage, len(solution.candidates)
    confidence = _UNKNOWN
    if not math.isnan(solution.confidence):
        confidence = f"{solution.confidence:.2f} ({solution.confidence_of})"
    rows = [("answer", "none", "yellow") if solution.answer is None else ("answer", solution.answer, "bold green")]
    is_right = check_solution(solution)
    if is_right is not None:
        verdict, style = ("right", "bold green") if is_right else ("wrong", "bold red")
        rows.append(("checked", f"by rules of the prompt: {verdict}", style))
    if solution.oracle:
        rows.append(("oracle", "yes: a verifier saw the reference answer", "bold red"))
    return [
        *rows,
        ("confidence", confidence, ""),
        ("agreed", f"{_count_agreeing(solution):,} of {total:,} candidate{'' if total == 1 else 's'}", ""),
        ("tokens in", f"{usage.prompt_tokens:,}", ""),
        ("tokens reused", _UNKNOWN if usage.reused_tokens is None else f"{usage.reused_tokens:,}", ""),
        ("tokens out", _format_output(solution), ""),
        ("verifier tokens", f"{usage.verifier_tokens:,}", ""),
        *_rate(solution),
        ("wall seconds", f"{usage.seconds:.3f}" if usage.seconds < 10 else f"{usage.seconds:,.1f}", ""),
        ("stopped by", solution.stopped_by, ""),
    ]


def _rate(solution: Solution) -> list[tuple[str, str, str]]:
    """Return a row of requests, and rows of dollars and of FLOPs where the budget limits their units."""
    usage, remaining = solution.usage, solution.remaining
    usd = _UNKNOWN if usage.usd is None else format_usd(usage.usd)
    flops = _UNKNOWN if usage.flops is None else f"{usage.flops:.3g}"
    requests = _UNKNOWN if usage.requests is None else f"{usage.requests:,}"
    left = f" ({remaining['requests']:,} left)" if "requests" in remaining else ""
    rows = [("requests", requests + left, "")]
    if "usd" in remaining:
        rows.append(("dollars", f"{usd} ({format_usd(remaining['usd'])} left)", ""))
    if "flops" in remaining:
        rows.append(("FLOPs", f"{flops} ({remaining['flops']:.3g} left)", ""))
    return rows


def check_solution(solution: Solution) -> bool | None:
    """Return whether the answer keeps the rules that the problem itself states.

    None: there is no answer, or no such rule. Programs are not run. Answers to free text are not checked, since other
    text may surround them.
    """
    if solution.answer is None or solution.trace is None or solution.trace.task.partition("(")[0] == "text":
        return None
    from tts.verifiers.rules.verifier import rule_of

    accepts = rule_of(solution.problem)
    return None if accepts is None else accepts(solution.answer)


def _count_agreeing(solution: Solution) -> int:
    """Return the number of candidates whose answers are equivalent to the solution's answer."""
    classes = [c.answer_class for c in solution.candidates if c.answer == solution.answer]
    if solution.answer is None or not classes or classes[0] is None:
        return 0
    return sum(c.answer_class == classes[0] for c in solution.candidates)


def _format_output(solution: Solution) -> str:
    usage = solution.usage
    notes = [f"{usage.cancelled_tokens:,} more cancelled"] if usage.cancelled_tokens else []
    notes += [f"{usage.truncated_tokens:,} in solutions cut short"] if usage.truncated_tokens else []
    notes += ["estimated: not reported"] if usage.estimated else []
    return f"{usage.generated_tokens:,}" + (f" ({'; '.join(notes)})" if notes else "")


PRINTED = {
    "table": print_table,
    "json": print_json,
    "solution": partial(_print_alone, attribute="text"),
    "answer": partial(_print_alone, attribute="answer"),
}


def printing(name: str, *, as_json: bool) -> str:
    """Return the name in `PRINTED` of the form that the options ask for.

    Raises:
        ConfigError: no form has that name, or two forms are asked for.
    """
    if name not in PRINTED:
        raise ConfigError(f"--print is {name!r}, but must be one of {', '.join(PRINTED)}")
    if as_json and name not in ("table", "json"):
        raise ConfigError(f"--json is given beside --print {name}", hint="give one of them")
    return "json" if as_json else name
