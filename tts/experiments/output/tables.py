"""Writes tables as text, CSV, JSON, Markdown and LaTeX.

Such a table is the final table of a study, the points of its curves, or a comparison of two strategies.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from tts._core.display import grid
from tts.budget.budget import Budget
from tts.budget.units import format_usd
from tts.errors import ConfigError, MissingDependency, unknown_name
from tts.experiments.analysis.comparing import format_points
from tts.experiments.analysis.curves import AXES
from tts.experiments.analysis.names import strategy_of
from tts.experiments.analysis.pairs import PairedRow
from tts.experiments.analysis.points import Point
from tts.experiments.analysis.table import TableRow
from tts.experiments.output.words import format_percent, list_facts, percent_with_interval

Rows = Sequence[TableRow] | Sequence[Point] | Sequence[PairedRow]
Form = Literal["text", "csv", "json", "markdown", "latex"]

WIDTH: Final = 80  # characters of a line, as of a terminal
_MOST_KINDS: Final = 3  # kinds of stops, failures or errors that one cell names
_WIDEST_KEY: Final = 0.5  # share of a line that names of rows may take; longer names are numbered and listed above


def as_json(rows: Rows) -> str:
    """Return rows as a JSON list of objects. Unknown values are null."""
    return json.dumps([dataclasses.asdict(row) for row in rows], indent=2, allow_nan=False)


_FORMULA: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are the full-width forms
_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def inert(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula.

    A text that begins like a formula, and is no number, gets an apostrophe before it.
    """
    if isinstance(value, str) and value.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def as_csv(rows: Rows) -> str:
    """Return rows as CSV with a header.

    All cells are `inert`. Unknown values are empty. Nested values are JSON.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, _flat_names(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: inert(value) for name, value in row.items()} for row in flat_rows(rows))
    return text.getvalue()


def flat_rows(rows: Rows) -> list[dict[str, Any]]:
    """Return the columns of rows by name, with intervals as three columns and nested values as JSON."""
    return [_flat({field.name: getattr(row, field.name) for field in dataclasses.fields(row)}) for row in rows]


def as_pandas(rows: Rows) -> Any:
    """Return rows as a `pandas.DataFrame`, with the columns of CSV.

    Raises:
        MissingDependency: pandas is not installed.
    """
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        raise MissingDependency(
            "to_pandas needs the package pandas, which is not installed", hint="pip install pandas"
        ) from None
    return pandas.DataFrame(flat_rows(rows), columns=_flat_names(rows))


def _flat_names(rows: Rows) -> list[str]:
    """Return the names of the columns of CSV."""
    fields = dataclasses.fields(rows[0] if rows else TableRow)
    return [name for field in fields for name in _SPREAD.get(field.name, (field.name,))]


# Fields of several CSV columns each.
_SPREAD: Final[Mapping[str, tuple[str, ...]]] = {
    "accuracy": ("accuracy", "accuracy_low", "accuracy_high"),
    "difference": ("difference", "difference_low", "difference_high"),
    "costs": tuple(AXES),
}


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CSV columns of a row.

    Args:
        record: The fields of the row by name.
    """
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if name in ("accuracy", "difference") and value is not None:
            flat |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        elif name != "costs":
            flat[name] = json.dumps(value) if isinstance(value, dict | tuple) else value
    return {**flat, **record.get("costs", {})}


def as_text(rows: Rows, width: int = WIDTH, titles: Sequence[str] = ()) -> str:
    """Return rows as an aligned table.

    Columns with one value in all rows are listed once, above the table.

    Args:
        rows: The rows.
        width: The characters of a line; see `text_of`.
        titles: The columns; see `format_rows`.
    """
    return text_of(columns(rows, titles), width) if rows else "no results yet"


def as_markdown(rows: Rows, titles: Sequence[str] = ()) -> str:
    """Return rows as a Markdown table.

    Columns with one value in all rows are listed once, above the table.

    Args:
        rows: The rows.
        titles: The columns; see `format_rows`.
    """
    if not rows:
        return "no results yet\n"
    common, varied = _divide(columns(rows, titles))
    facts = "".join(f"- {title}: {_MARKDOWN.sub(_escape, value)}\n" for title, value in common.items())
    if facts:
        facts += "\n"
    table = [list(varied), [":--" if title in _LEFT else "--:" for title in varied]]
    for row_cells in zip(*varied.values(), strict=True):
        table.append([_MARKDOWN.sub(_escape, cell) for cell in row_cells])
    return facts + "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def with_labels(rows: Sequence[TableRow], labels: Mapping[str, str]) -> list[TableRow]:
    """Return rows with words in place of strategies.

    Args:
        rows: The rows.
        labels: The words by strategy, as `strategy_of` reads it.

    Raises:
        ConfigError: No row has a strategy.
    """
    strategies = {row.strategy for row in rows}
    words = {strategy_of(name, strategies): label for name, label in labels.items()}
    return [dataclasses.replace(row, strategy=words.get(row.strategy, row.strategy)) for row in rows]


def as_latex(rows: Rows, titles: Sequence[str] = ()) -> str:
    """Return rows as a LaTeX table of the package booktabs.

    Columns with one value in all rows are comments above the table.

    Args:
        rows: The rows.
        titles: The columns; see `format_rows`. (): the columns of a paper, and a comment names the other columns.
    """
    if not rows:
        return "% no results yet\n"
    common, varied = _divide(columns(rows, titles))
    omitted = [] if titles else [title for title in varied if title in _NOT_IN_PAPERS]
    varied = {title: cells for title, cells in varied.items() if title not in omitted}
    table = [list(varied), *zip(*varied.values(), strict=True)]
    head, *body_lines = [f"{' & '.join(map(_latex, cells))} \\\\" for cells in table]
    sides = "".join("l" if title in _LEFT else "r" for title in varied)
    comments = [f"% {title}: {value}" for title, value in common.items()]
    if isinstance(rows[0], TableRow):
        comments.append("% tokens, FLOPs, dollars and seconds: sums over the runs of a row")
    if omitted:
        comments.append(f"% left out, unless columns are named: {', '.join(omitted)}")
    lines = [
        *comments,
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body_lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


_MARKDOWN: Final = re.compile(r"[\\`*_{}\[\]<>#|]")
_LATEX: Final[Mapping[str, str]] = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "…": r"\ldots{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


# the minus of a number or between two names, but not the hyphen of a word or a parameter
_MINUS: Final = re.compile(r"(?<![\w=(.])-(?=[\d.])|(?<= )-(?= )")


def _escape(match: re.Match[str]) -> str:
    return f"\\{match[0]}"


def _latex(cell: str) -> str:
    """Return a cell as LaTeX that prints the same characters.

    A bracket at the beginning is put in braces, since LaTeX would read it as an argument of the row before.
    """
    text = _MINUS.sub("$-$", "".join(_LATEX.get(sign, sign) for sign in cell))
    return f"{{{text}}}" if text.startswith("[") else text


class ShownTable(str):
    """A table as text that notebooks show as HTML."""

    html: str

    @classmethod
    def of(cls, rows: Rows, width: int = WIDTH, titles: Sequence[str] = ()) -> ShownTable:
        """Return rows as text from `as_text`, with HTML from `as_html`."""
        table = cls(as_text(rows, width, titles))
        table.html = as_html(rows, titles)
        return table

    def _repr_html_(self) -> str:
        return self.html


def as_html(rows: Rows, titles: Sequence[str] = ()) -> str:
    """Return rows as an HTML table for notebooks."""
    if not rows:
        return "<p>no results yet</p>"
    cells = columns(rows, titles)
    return grid(list(cells), zip(*cells.values(), strict=True))


def format_rows(rows: Rows, form: Form, width: int = WIDTH, titles: Sequence[str] = ()) -> str:
    """Return rows of a table as text, CSV, JSON, Markdown or LaTeX.

    Args:
        rows: The rows.
        form: The form.
        width: The characters of a line of the text.
        titles: The columns, in their order, as the text titles them; "accuracy" stands for "accuracy [95 %]". (): all
            columns, but in LaTeX the columns of a paper.

    Raises:
        ConfigError: Another form, an unknown column, or `titles` for CSV or JSON, which always have all columns.
    """
    if form not in _FORMS:
        raise unknown_name("form", form, _FORMS)
    if form in _WITH_ALL_COLUMNS:
        if titles:
            raise ConfigError(
                f"columns are given, but {form} always has all",
                hint="leave them out, or choose text, markdown or latex",
            )
        return _WITH_ALL_COLUMNS[form](rows)
    if form == "text":
        return ShownTable.of(rows, width, titles)
    return _WITH_CHOSEN_COLUMNS[form](rows, titles)


def columns(rows: Rows, titles: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the cells of a table of at least one row, by column title.

    Args:
        rows: The rows.
        titles: The columns, as `format_rows` takes them; none: all.

    Raises:
        ConfigError: A column is unknown.
    """
    cell_functions = _COLUMNS[type(rows[0])]
    title_of = {title.partition(" [")[0].partition(",")[0]: title for title in cell_functions}  # by short title
    chosen_titles: list[str] = []
    for title in titles:
        if title not in cell_functions and title not in title_of:
            raise unknown_name("column", title, [*title_of])
        chosen_titles.append(title if title in cell_functions else title_of[title])
    shown_titles = chosen_titles or cell_functions
    return {title: [" ".join(cell_functions[title](row).split()) for row in rows] for title in shown_titles}


def text_of(columns: Mapping[str, Sequence[str]], width: int = WIDTH) -> str:
    """Return columns of cells as an aligned table.

    Columns with one value in all rows are listed once, above the table. Columns of results, such as accuracy, always
    stay in the table. A table of two rows or more also keeps the column of times. A table wider than a line is divided
    into blocks of columns, and each block begins with the names of rows. Long names are numbered.

    Args:
        columns: The cells by title.
        width: The characters of a line.
    """
    common, varied = _divide(columns)
    parts: list[str] = []
    if common:
        parts.append(list_facts(common))
    if varied:
        parts += ["\n".join(block_lines) for block_lines in _blocks(varied, width)]
    return "\n\n".join(parts)


def _blocks(columns: Mapping[str, Sequence[str]], width: int) -> list[list[str]]:
    """Return the lines of a table, in one block, or in several blocks where it is wider than a line."""
    lines = _align(columns)
    if max(map(len, lines)) <= width:
        return [lines]
    widths = {title: max(len(title), *map(len, cells)) + 2 for title, cells in columns.items()}
    row_names = {title: cells for title, cells in columns.items() if title in _KEYS}
    blocks: list[list[str]] = []
    if row_names and sum(widths[title] for title in row_names) > _WIDEST_KEY * width:
        num_rows = max(map(len, columns.values()))
        numbers = [str(number) for number in range(1, num_rows + 1)]
        blocks.append(_align({_ROW_NUMBER: numbers, **row_names}))
        row_names = {_ROW_NUMBER: numbers}
        widths[_ROW_NUMBER] = max(len(_ROW_NUMBER), *map(len, numbers)) + 2
    names_width = sum(widths[title] for title in row_names)
    block, block_width = dict(row_names), names_width
    for title, cells in columns.items():
        if title in _KEYS:
            continue
        has_column = block_width > names_width
        if has_column and block_width + widths[title] - 2 > width:  # no space follows the last column
            blocks.append(_align(block))
            block, block_width = dict(row_names), names_width
        block[title] = cells
        block_width += widths[title]
    if len(block) > len(row_names):
        blocks.append(_align(block))
    return blocks


def _divide(columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
    """Return the values of columns that have one value in all rows, and the other columns.

    Empty columns are left out. Columns that stay in a table are among the other columns.
    """
    num_rows = max(map(len, columns.values()), default=0)
    staying_titles = _RESULT_COLUMNS | _TIME_COLUMNS if num_rows > 1 else _RESULT_COLUMNS
    varied = {title: cells for title, cells in columns.items() if title in staying_titles or len(set(cells)) > 1}
    common = {title: cells[0] for title, cells in columns.items() if title not in varied and cells and cells[0]}
    return common, varied


def _align(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a header and the rows below it, with numbers aligned to the right."""
    widths = {title: max(len(title), *map(len, cells)) for title, cells in columns.items()}
    padded_columns = [
        [cell.ljust(widths[title]) if title in _LEFT else cell.rjust(widths[title]) for cell in (title, *cells)]
        for title, cells in columns.items()
    ]
    return ["  ".join(row).rstrip() for row in zip(*padded_columns, strict=True)]


def _kinds_of_stops(stops: Mapping[str, int]) -> dict[str, int]:
    """Return stops by kind, the most frequent first.

    The kind of a reason with numbers after a colon is the words before the colon. Any other reason is its own kind.
    """
    kinds = Counter[str]()
    for reason, count in stops.items():
        kind, _, detail = reason.partition(":")
        kinds[kind if _DIGIT.search(detail) else reason] += count
    return dict(kinds.most_common())


def _count(counts: Mapping[str, int]) -> str:
    phrases = [f"{count:,} {kind}" for kind, count in list(counts.items())[:_MOST_KINDS]]
    num_others = sum(list(counts.values())[_MOST_KINDS:])
    if num_others:
        phrases.append(f"{num_others:,} others")
    return ", ".join(phrases)


def _format_number(value: float | None, form: str = ",") -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:{form}}"


def _short(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.1f}"


def _origin(point: Point) -> str:
    """Return whether a point was run or replayed, and from which order of samples."""
    return {None: "live", "recorded": "replayed, recorded order"}.get(point.order, "replayed")


_LEFT: Final = frozenset(
    {"data set", "group", "model", "setting", "verifiers", "strategy", "budget", "points", "stopped by", "failed rows",
     "errors", "notes"}
)  # fmt: skip
# columns that name a row
_KEYS: Final = frozenset(
    {"data set", "group", "model", "setting", "verifiers", "strategy", "A", "B", "budget", "points"}
)
_ROW_NUMBER: Final = "row"
_DIGIT: Final = re.compile(r"\d")
_RESULT_COLUMNS: Final = frozenset(  # columns of results, which stay where all values are equal
    {"accuracy [95 %]", "A right", "B right", "tokens A / B", "A - B, points [95 %]", "p", "p (Holm)", "McNemar p"}
)
_NOT_IN_PAPERS: Final = frozenset(  # columns that a LaTeX table leaves out unless they are chosen
    {"setting", "runs", "reused", "cut short", "cancelled", "lost", "lost dollars", "seconds, summed",
     "model seconds, summed", "stopped by", "failed rows", "failed runs", "errors", "notes"}
)  # fmt: skip
# columns that stay in tables of two rows or more, since times are equal only by chance
_TIME_COLUMNS: Final = frozenset({"seconds, summed"})
_ROW: Final[Mapping[str, Callable[[TableRow], str]]] = {
    "data set": lambda row: row.dataset,
    "model": lambda row: row.model,
    "setting": lambda row: row.setting[:12],
    "verifiers": lambda row: ", ".join(f"{role}: {name}" for role, name in row.verifiers.items()),
    "strategy": lambda row: row.strategy,
    "budget": lambda row: str(Budget(**row.budget)),  # pyright: ignore[reportArgumentType]
    "problems": lambda row: f"{row.problems:,}",
    "seeds": lambda row: f"{row.seeds:,}",
    "runs": lambda row: f"{row.runs:,}",
    "accuracy [95 %]": lambda row: (
        f"unknown: {row.no_accuracy}" if row.accuracy is None else percent_with_interval(row.accuracy)
    ),
    "error by group": lambda row: "" if row.group_error is None else f"± {100 * row.group_error:.2f} %",
    "tokens in": lambda row: f"{row.prompt_tokens:,}",
    "reused": lambda row: _format_number(row.reused_tokens),
    "out": lambda row: f"{row.generated_tokens:,}",
    "verifier": lambda row: f"{row.verifier_tokens:,}",
    "cut short": lambda row: f"{row.truncated_tokens:,}" if row.truncated_tokens else "",
    "cancelled": lambda row: f"{row.cancelled_tokens:,}",
    "lost": lambda row: f"{row.lost_tokens:,}",
    "lost dollars": lambda row: "unknown" if row.lost_tokens and row.usd else "",  # the store counts tokens alone
    "FLOPs": lambda row: _format_number(row.flops, ".3g"),
    "dollars": lambda row: "unknown" if row.usd is None else format_usd(row.usd)[1:],
    "seconds, summed": lambda row: f"{row.seconds:,.1f}",
    "model seconds, summed": lambda row: f"{row.work_seconds:,.1f}",
    "stopped by": lambda row: _count(_kinds_of_stops(row.stops)),
    "failed rows": lambda row: _count(row.failures) or "none",
    "failed runs": lambda row: f"{row.failed:,}",
    "errors": lambda row: _count(row.errors),
    "notes": lambda row: ", ".join(row.notes),
}
_POINT: Final[Mapping[str, Callable[[Point], str]]] = {
    "data set": lambda point: point.dataset,
    "group": lambda point: point.group or "",
    "model": lambda point: point.model,
    "verifiers": lambda point: point.verifier,
    "seeds": lambda point: f"{point.seeds}",
    "problems": lambda point: f"{point.problems:,}",
    "pools too small": lambda point: f"{point.too_small or ''}",
    "strategy": lambda point: point.strategy,
    "points": _origin,
    "samples": lambda point: _short(point.costs["samples"]),
    "out": lambda point: _short(point.costs["generated_tokens"]),
    "verifier": lambda point: _short(point.costs["verifier_tokens"]),
    "dollars": lambda point: "" if point.costs["usd"] is None else format_usd(point.costs["usd"])[1:],
    "answered": lambda point: "" if point.answered is None else format_percent(point.answered),
    "coverage": lambda point: "" if point.coverage is None else format_percent(point.coverage),
    "accuracy [95 %]": lambda point: percent_with_interval(point.accuracy),
    "error": lambda point: f"± {format_percent(point.drawing_error)}" if point.drawing_error else "",
}
_PAIR: Final[Mapping[str, Callable[[PairedRow], str]]] = {
    "data set": lambda row: row.dataset,
    "model": lambda row: row.model,
    "verifiers": lambda row: ", ".join(f"{role}: {name}" for role, name in row.verifiers.items()),
    "A": lambda row: row.first,
    "B": lambda row: row.second,
    "budget": lambda row: str(Budget(**row.budget)),  # pyright: ignore[reportArgumentType]
    "problems": lambda row: f"{row.problems:,}",
    "A right": lambda row: f"{row.first_accuracy:.1%}",
    "B right": lambda row: f"{row.second_accuracy:.1%}",
    "tokens A / B": lambda row: _format_number(row.cost_ratio, ",.2f"),
    "A - B, points [95 %]": lambda row: format_points(row.difference).removesuffix(" points"),
    "p": lambda row: f"{row.p:.3g}",
    "p (Holm)": lambda row: f"{row.p_holm:.3g}",
    "A better": lambda row: f"{row.first_better:,}",
    "B better": lambda row: f"{row.second_better:,}",
    "McNemar p": lambda row: f"{row.mcnemar:.3g}",
}
_COLUMNS: Final[Mapping[type, Mapping[str, Callable[[Any], str]]]] = {TableRow: _ROW, Point: _POINT, PairedRow: _PAIR}
_WITH_ALL_COLUMNS: Final[Mapping[str, Callable[[Rows], str]]] = {"csv": as_csv, "json": as_json}
_WITH_CHOSEN_COLUMNS: Final[Mapping[str, Callable[[Rows, Sequence[str]], str]]] = {
    "markdown": as_markdown,
    "latex": as_latex,
}
_FORMS: Final = ("text", *_WITH_ALL_COLUMNS, *_WITH_CHOSEN_COLUMNS)
