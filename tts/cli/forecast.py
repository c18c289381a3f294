"""The expected cost of a study, with a row for each row of its final table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tts._core.display import one_visible_line, visible
from tts.budget.units import format_usd
from tts.cli.terminal import print_note, table_width

if TYPE_CHECKING:
    from tts.experiments.run.forecast import RowForecast
    from tts.experiments.run.runner import PreparedStudy
    from tts.experiments.study.task_choice import ReferenceCheck

_ANSWER_CHARACTERS = 24  # characters of an answer


def print_forecast(prepared: PreparedStudy, file: Path, part: tuple[int, int]) -> None:
    """Print the expected cost of a study, given the results in a store. The store is only read."""
    from tts.budget.budget import Budget
    from tts.experiments.output.tables import text_of
    from tts.experiments.run.forecast import EarlierResults, forecast
    from tts.experiments.store.store import Store

    print_references(prepared)
    earlier = EarlierResults()
    if file.exists():
        with Store(file) as opened:
            for study in opened.studies():
                earlier.add(opened.results(study.id, drawn=False))
    rows = forecast(prepared.cells(part), prepared.executor.settings, earlier, slots=prepared.executor.slots)
    row_costs = [_costs([row]) for row in rows]
    columns = {
        "data set": [one_visible_line(row.dataset) for row in rows],
        "model": [one_visible_line(row.model) for row in rows],
        "strategy": [one_visible_line(row.strategy) for row in rows],
        "budget": [str(Budget(**row.budget)) for row in rows],  # pyright: ignore[reportArgumentType]
        "from": [row.basis for row in rows],
    }
    columns |= {title: [costs[title] for costs in row_costs] for title in row_costs[0]}
    typer.echo(visible(text_of(columns, table_width())))
    totals = ", ".join(f"{title} {cost}" for title, cost in _costs(rows).items())
    typer.echo("\nin all: " + visible(totals))
    if not all(row.whole for row in rows):
        print_note(
            "'at least' is without what verifiers compute: that is unknown until a few of these cells have been run"
        )
    if any(row.seconds is None for row in rows):
        print_note(
            "time is unknown until something like it has been run: a few problems (--set problems.limit=5) are enough"
        )


def print_references(prepared: PreparedStudy) -> None:
    """Print how the task reads the first reference answers of each data set.

    Each reference is read from a right text and from a wrong text. If the task asks for no form of the answer, it is
    read from a sentence around it too.
    """
    from tts.experiments.output.tables import text_of
    from tts.experiments.study.task_choice import check_references

    checks = check_references(prepared.config, prepared.problems)
    if not checks:
        return

    def describe(check: ReferenceCheck, answer: str | None, *, right: bool | None) -> str:
        return "form not known" if check.right is None else f"{_short(answer)}, {'right' if right else 'wrong'}"

    columns = {
        "data set": [one_visible_line(check.dataset) for check in checks],
        "task": [check.task for check in checks],
        "reference": [_short(check.reference) for check in checks],
        "a right text gives": [describe(check, check.right_answer, right=check.right) for check in checks],
        "a wrong text gives": [describe(check, check.wrong_answer, right=check.wrong) for check in checks],
    }
    if any(check.in_sentence is not None for check in checks):
        sentence_words = {None: "-", False: "wrong", True: "right"}
        columns["a sentence with it is"] = [sentence_words[check.in_sentence] for check in checks]
    typer.echo(visible(text_of(columns, table_width())).rstrip("\n") + "\n")
    if any(check.right is False or check.wrong for check in checks):
        print_note("the task reads some of these references wrongly: name another by the line  task: …")
    elif any(check.in_sentence is False for check in checks):
        print_note(
            "the task compares whole texts, so whole sentences are wrong answers: ask for the bare answer, or look for "
            "the reference in the answer by the line  task: text(match='includes')"
        )


def _short(answer: str | None) -> str:
    if answer is None:
        return "no answer"
    if len(answer) > _ANSWER_CHARACTERS:
        answer = f"{answer[: _ANSWER_CHARACTERS - 1]}…"
    return one_visible_line(answer)


def _costs(rows: Sequence[RowForecast]) -> dict[str, str]:
    """Return the expected total cost of rows, by title."""
    from tts.experiments.run.forecast import total
    from tts.experiments.run.progress import duration

    def format_cost(name: str, form: Callable[[float], str]) -> str:
        value = total(getattr(row, name) for row in rows)
        return "unknown" if value is None else form(value)

    prefix = "" if all(row.whole for row in rows) else "at least "  # verifiers' tokens may be unknown

    return {
        "cells": f"{sum(row.cells for row in rows):,}",
        "done": f"{sum(row.done for row in rows):,}",
        "tokens": format_cost("tokens", f"{prefix}{{:,.0f}}".format),
        "at most": format_cost("at_most", "{:,.0f}".format),
        "time": format_cost("seconds", duration),
        "dollars": format_cost("usd", format_usd),
    }
