"""Writes the report of a study as one page: its settings, curves, table, and searches side by side.

The page is the template `report_page.html`, and loads nothing from a network. The page of a trace (`tts.trace.html`),
embedded once, shows the searches. Texts of models and data sets are escaped.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from tts.budget.budget import Budget
from tts.errors import ConfigError, unknown_name
from tts.experiments.analysis.comparing import bases_of, compare, describe_result
from tts.experiments.analysis.curves import AXES, Curve, curves_of
from tts.experiments.analysis.table import table
from tts.experiments.output import plots
from tts.experiments.output.tables import columns
from tts.experiments.store.bodies import search_in
from tts.experiments.study.record import Result, StoredStudy
from tts.trace.html import SLOT, embed_record, script_hash, seal_page, viewer
from tts.trace.trace import winning_node

if TYPE_CHECKING:
    from tts.experiments.store.store import Store

_MOST_PROBLEMS = 3  # problems whose searches are shown
_NUMBER = re.compile(r"[0-9][0-9.,e+-]*( %)?( \[.*\])?|unknown")
_ID = re.compile(r'(\bid="|url\(#|href="#)')


def report(
    store: Store,
    study: StoredStudy,
    *,
    rng: np.random.Generator,
    x: str = "tokens",
    baseline: str | None = None,
) -> str:
    """Return the page of a study, finished or not.

    Args:
        store: The store that has the study.
        study: The study.
        rng: The generator of the intervals.
        x: The cost that is shown first, and by which strategies are compared.
        baseline: The strategy that others are compared with; None: the first.

    Raises:
        ConfigError: there is no such axis or baseline.
        MissingDependency: matplotlib is not installed.
    """
    if x not in AXES:
        raise unknown_name("axis", x, AXES)
    rows = table(store.results(study.id, drawn=False), rng=rng)
    searches = [_show(store, result) for result in _choose(_trace(store, study))]
    data = {"viewer": viewer(), "slot": SLOT, "searches": searches}
    page_parts = {
        "TITLE": _text(study.name),
        "FACTS": _facts(study),
        "FIGURES": _figures(store, study, x, baseline, rng),
        "TABLE": _table(columns(rows)) if rows else _note("No run is finished yet."),
        "VIEWER_HASH": script_hash(viewer()),
        "DATA": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
    }
    page = seal_page(resources.files("tts.experiments.output").joinpath("report_page.html").read_text(encoding="utf-8"))
    return re.sub("{{([A-Z_]+)}}", lambda slot: page_parts[slot[1]], page)


# ---- searches ----


def _trace(store: Store, study: StoredStudy) -> list[Result]:
    """Return the results with a recorded search."""
    traced_keys = store.cells_with_trace(study.id)
    if not traced_keys:
        return []
    return [result for result in store.results(study.id, drawn=False) if result.cell.key in traced_keys]


def _choose(results: Sequence[Result]) -> list[Result]:
    """Return the results of a few problems, beginning where runs disagree."""
    by_problem: dict[str, list[Result]] = {}
    for result in results:
        by_problem.setdefault(result.cell.problem, []).append(result)
    agrees = {problem: len({result.right for result in runs}) == 1 for problem, runs in by_problem.items()}
    chosen_problems = sorted(by_problem, key=lambda problem: agrees[problem])[:_MOST_PROBLEMS]
    return [result for problem in chosen_problems for result in by_problem[problem]]


def _show(store: Store, result: Result) -> dict[str, Any]:
    """Return a recorded search in the form that the page's script reads."""
    cell, recorded = result.cell, store.trace(result.cell.key)
    assert recorded is not None, "a recorded search stays in its store"
    trace = search_in(cell.key, recorded)
    limits = str(Budget(**cell.budget))  # pyright: ignore[reportArgumentType]
    return {
        "problem": cell.problem,
        "label": f"{cell.strategy} · {limits} · {cell.model}",
        "right": result.right,
        "answer": result.answer,
        "tokens": result.usage.tokens,
        "trace": embed_record(trace.to_dict(), winning_node(trace)),
    }


# ---- parts of the page, with texts of others escaped ----


def _text(value: object) -> str:
    """Return a value as escaped HTML text, with the numbers of unprintable characters in their place."""
    characters = [
        character if character.isprintable() or character == "\n" else f"⟨U+{ord(character):04X}⟩"
        for character in str(value)
    ]
    return html.escape("".join(characters))


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _facts(study: StoredStudy) -> str:
    """Return the facts of a study as HTML: its runs, cells, machines, versions and data sets.

    A fact that differs between runs has each of its values once.
    """
    failed = f", {study.failed:,} failed" if study.failed else ""
    cells = f"{study.done:,} of {study.cells:,} done{failed}"
    facts = {"begun": f"{_minute(study.created_at)} UTC", "runs": f"{len(study.runs):,}", "cells": cells}
    snapshots = [run.snapshot for run in study.runs]
    facts["commit"] = "; ".join(dict.fromkeys(snapshot.get("commit") or "unknown" for snapshot in snapshots))
    for name in ("machine", "versions"):
        values = [
            ", ".join(f"{part} {value}" for part, value in snapshot[name].items() if value)
            for snapshot in snapshots
            if name in snapshot
        ]
        if values:
            facts[name] = "; ".join(dict.fromkeys(values))
    for name, data in snapshots[0].get("data", {}).items():
        facts[f"data set {name}"] = _source(data)
    pairs = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts.items())
    runs = [{"begun": _minute(run.begun_at), **run.snapshot} for run in study.runs]
    runs_text = _text(json.dumps(runs, indent=2, default=str))
    return (
        f'<dl class="facts">{pairs}</dl><details><summary>Everything it was run '
        f"with</summary><pre>{runs_text}</pre></details>"
    )


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="minutes")[:16]


def _source(data: Mapping[str, Any]) -> str:
    """Return the number of problems of a data set, its source and its licence."""
    parts = [f"{data['problems']:,} problems", data["source"], f"licence: {data['licence']}", data["note"]]
    return "; ".join(part for part in parts if part)


def _figures(store: Store, study: StoredStudy, x: str, baseline: str | None, rng: np.random.Generator) -> str:
    """Return the figures and the comparisons, or the reason why there are none."""
    try:
        curves = curves_of(store.results(study.id, drawn=False), rng=rng)
    except ConfigError as unknown:
        return _note(f"No figure: {unknown.cause}.")
    group_curves = curves_of(store.results(study.id, drawn=False), rng=rng, by_group=True)
    known_axes = [axis for axis in AXES if any(axis in curve.costs and curve.costs[axis].max() > 0 for curve in curves)]
    axes = sorted(known_axes, key=lambda axis: axis != x)  # x first
    comparisons = _comparisons(curves, baseline, axes[0], rng)
    figures = "".join(_figure(axis, AXES[axis].unit, plots.draw(curves, axis)) for axis in axes)
    if len({curve.group for curve in group_curves}) > 1:
        figures += _figure("groups", "by group", plots.draw(group_curves, axes[0], order=curves))
    return figures + comparisons


def _figure(name: str, title: str, figure: Any) -> str:
    """Return a figure as part of the page, with ids and styles of its own."""
    drawing = plots.render(figure, "svg").decode("utf-8")
    drawing = drawing[drawing.index("<svg") :]
    drawing = drawing.replace('<style type="text/css">*{', f'<style type="text/css">#figure-{name} *{{')
    drawing = _ID.sub(rf"\g<1>{name}-", drawing)
    attributes = f'data-title="{_text(title)}" role="img" aria-label="accuracy against cost: {_text(title)}"'
    return f'<figure id="figure-{name}" {attributes}>{drawing}</figure>'


def _comparisons(curves: Sequence[Curve], baseline: str | None, x: str, rng: np.random.Generator) -> str:
    """Return the gains of each strategy over the baseline."""
    possible_bases = [curve for curve in curves if curve.role != "oracle"] or curves
    first_curve = possible_bases[0]
    has_several_units = len({curve.units for curve in curves}) > 1
    base = baseline or (first_curve.strategy if has_several_units else first_curve.label)
    bases_of(curves, base)  # refuses an unknown baseline
    has_several_datasets = len({curve.dataset for curve in curves}) > 1
    try:
        comparisons = compare(curves, base, x, rng=rng)
    except ConfigError as failure:
        return _note(f"Not compared with {base}: {failure.cause}.")
    if not comparisons:
        return ""
    columns: dict[str, list[str]] = {"strategy": []}
    if any(comparison.base != base for comparison in comparisons):
        columns["compared with"] = [comparison.base for comparison in comparisons]
    columns |= {"at equal accuracy": [], "at equal cost": []}
    for comparison in comparisons:
        prefix = f"{comparison.dataset}: " if has_several_datasets else ""
        columns["strategy"].append(prefix + comparison.label)
        columns["at equal accuracy"].append(
            describe_result(comparison.gain, x) if comparison.gain else "no common accuracy"
        )
        columns["at equal cost"].append(
            describe_result(comparison.differences[-1], x) if comparison.differences else "no common cost"
        )
    return f"<h3>Compared with {_text(base)}</h3>{_grid(columns)}"


def _table(cells: Mapping[str, Sequence[str]]) -> str:
    """Return the final table. Columns with one value in all rows are listed once, above the table."""
    facts = {title: column[0] for title, column in cells.items() if len(set(column)) == 1}
    pairs = "".join(
        f"<div><dt>{_text(title)}</dt><dd>{_text(cell)}</dd></div>" for title, cell in facts.items() if cell
    )
    varied = {title: column for title, column in cells.items() if title not in facts}
    grid = _grid(varied) if varied else ""
    return f'<dl class="facts">{pairs}</dl>{grid}'


def _grid(cells: Mapping[str, Sequence[str]]) -> str:
    """Return columns of cells by title as an HTML table. Columns of numbers have a class of their own."""
    looks = [' class="number"' if all(map(_NUMBER.fullmatch, column)) else "" for column in cells.values()]
    head = "".join(f'<th scope="col"{look}>{_text(title)}</th>' for look, title in zip(looks, cells, strict=True))
    rows = ""
    for row in zip(*cells.values(), strict=True):
        fields = "".join(f"<td{look}>{_text(cell)}</td>" for look, cell in zip(looks, row, strict=True))
        rows += f"<tr>{fields}</tr>"
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
