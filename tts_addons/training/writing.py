"""Writes searches in a form to one file, row by row.

A card beside the file says how the rows were made.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tts import tasks
from tts._common.characters import join_surrogates
from tts._common.files import Exported, replace_file, write_json_lines
from tts.errors import ConfigError, require_extra
from tts.tasks.base import Task
from tts.trace.trace import Trace
from tts_addons.training.filters import Filters, Sieve
from tts_addons.training.forms import FORMS, Form, Kind, Row, check_one_model, form_of
from tts_addons.training.records import SearchRows, search_rows

_GROUP_CHARACTERS: Final = 16 << 20  # of rows as JSON that are written to a Parquet file at once
SCORE_CURE: Final = "run a strategy or selection that scores, such as 'best_of_n | weighted'; or relax the filters"
_ENDINGS: Final = (".jsonl", ".parquet")
_LABELS: Final = {  # how the labels of steps are estimated, by judge
    "verdict": "soft: the share of right samples of those with the same first steps; hard: whether any is right",
    "score": "soft: the verifier's score of the step; hard: whether it is at least the threshold",
}


def check_target(path: str | Path) -> Path:
    """Return the path of a file for rows.

    Raises:
        ConfigError: The path has another ending.
    """
    target = Path(path)
    if target.suffix.lower() not in _ENDINGS:
        raise ConfigError(
            f"path is {str(path)!r}, but must end in {' or '.join(_ENDINGS)}", hint="for example rows.jsonl"
        )
    return target


def export_trace(
    trace: Trace,
    path: str | Path,
    form: str,
    *,
    problem: str | None = None,
    reference: str | None = None,
    task: Task | None = None,
    **filters: Any,
) -> Exported:
    """Write the search of a trace as rows for trainers; see `Trace.export`."""
    judge = tasks.get(trace.task) if task is None else task
    record = search_rows(trace, judge, problem, reference, filters.get("verifier"))
    return export_searches([record], path, form, Filters(**filters))


def export_searches(
    records: Iterable[SearchRows],
    path: str | Path,
    form: str,
    filters: Filters,
    *,
    facts: Mapping[str, Any] | None = None,
) -> Exported:
    """Write searches to a file, and a card with the ending .md beside it.

    An existing file is replaced when all rows are written. One search is in memory at a time; for a Parquet file also
    one group of rows.

    Args:
        records: The searches.
        path: The file; it ends in .jsonl or .parquet.
        form: A name of `tts_addons.training.forms.FORMS`.
        filters: The filters of samples.
        facts: Further lines of the card, by name, such as the licence of the problems.

    Returns:
        The written file, with the numbers of its rows and searches.

    Raises:
        ConfigError: the ending or the form is unknown, searches are of several models, or no row is left.
        MissingDependency: pyarrow is missing, which Parquet needs.
        TTSError: a file cannot be written.
    """
    target, form_rules = check_target(path), form_of(form, filters)
    facts = {**({"labels": _LABELS[filters.judge]} if form == "trl-prm" else {}), **(facts or {})}
    sieve, card = Sieve(filters, form_rules.keep), _Card(form, filters, facts)
    searches = card.note_searches(check_one_model(iter(records)))
    rows = itertools.chain.from_iterable(form_rules.rows(record, sieve) for record in searches)
    plain_rows = map(_plain, rows)
    with replace_file(target) as partial_file:
        if target.suffix.lower() == ".jsonl":
            num_rows = write_json_lines(plain_rows, partial_file)
        else:
            num_rows = _write_parquet(plain_rows, partial_file, form_rules)
        left_out = {reason: number for reason, number in sieve.left_out.items() if number}
        if not num_rows:
            reasons = "; ".join(f"{number:,} {reason}" for reason, number in left_out.items())
            after_colon = f": {reasons}" if reasons else ""
            hint = SCORE_CURE if filters.judge == "score" else _cure(form)
            raise ConfigError(
                f"no row of the form {form} is left of {card.searches:,} searches{after_colon}", hint=hint
            )
    exported = Exported(target, num_rows, card.searches, left_out, sieve.wrong)
    with replace_file(target.with_suffix(".md")) as partial_file:
        partial_file.write_text(card.text(exported), encoding="utf-8")
    return exported


def _cure(form: str) -> str:
    """Return a hint for an export without rows."""
    if not FORMS[form].tokens:
        return "relax the filters, or judge by the score of a verifier"
    text_forms = ", ".join(name for name, other_form in FORMS.items() if not other_form.tokens)
    return f"forms without token ids are {text_forms}"


def _plain(value: Any) -> Any:
    """Return a value with texts in whole characters, which JSON readers and Parquet need."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], str | dict):
        return [_plain(item) for item in value]
    return value


class _Card:
    """The contents of a card, gathered while searches pass."""

    def __init__(self, form: str, filters: Filters, facts: Mapping[str, Any]) -> None:
        self.searches = 0
        self._form, self._filters, self._facts = form, filters, facts
        # the distinct values of each field of the searches, as keys in order
        self._values: dict[str, dict[str, None]] = {
            name: {} for name in ("model", "strategy", "budget", "seed", "temperature")
        }
        self._problems: set[str] = set()

    def note_searches(self, records: Iterator[SearchRows]) -> Iterator[SearchRows]:
        """Yield searches unchanged, and note their problems, models and settings."""
        for record in records:
            self.searches += 1
            self._problems.add(record.problem)
            for name, values in self._values.items():
                value = getattr(record, name)
                values.setdefault("unknown" if value is None else str(value))
            yield record

    def text(self, exported: Exported) -> str:
        """Return the card, as Markdown with a header that data set hubs read."""
        set_filters = {
            name: value for name, value in asdict(self._filters).items() if value is not None and value is not False
        }
        licence = join_surrogates(str(self._facts.get("licence") or "unknown"))
        lines = [
            "---",
            f"license: {json.dumps(licence)}",
            "---",
            "",
            f"# {exported.path.name}",
            "",
            f"Rows of the form `{self._form}`, made from searches of test-time-search.",
            "",
            "| | |",
            "|---|---|",
            f"| rows | {exported.rows:,} |",
            *([f"| rows known to be wrong | {exported.wrong:,} |"] if exported.wrong else []),
            f"| searches | {exported.searches:,} |",
            f"| problems | {len(self._problems):,} |",
            *(_line(name, ", ".join(values)) for name, values in self._values.items()),
            *(_line(f"filter {name}", value) for name, value in set_filters.items()),
            *(_line(f"left out: {reason}", f"{count:,}") for reason, count in exported.left_out.items()),
            *(_line(name, value) for name, value in self._facts.items()),
            "",
            "Columns: " + ", ".join(f"`{name}`" for name in FORMS[self._form].columns) + ".",
            "",
        ]
        return "\n".join(lines)


def _line(name: str, value: Any) -> str:
    text = " ".join(join_surrogates(str(value)).split()).replace("|", "\\|")
    return f"| {name} | {text} |"


def _write_parquet(rows: Iterator[Row], path: Path, form: Form) -> int:
    """Write rows to a Parquet file, group by group, and return their number."""
    with require_extra("pyarrow", "experiments", "a Parquet file"):
        import pyarrow as pa
        from pyarrow import parquet
    first_row = next(rows, None)
    if first_row is None:
        return 0
    columns = [(name, _arrow_type(pa, kind, first_row[name])) for name, kind in form.columns.items()]
    schema, num_rows = pa.schema(columns), 0
    with parquet.ParquetWriter(path, schema) as writer:
        for group in _groups(itertools.chain([first_row], rows)):
            try:
                writer.write_table(pa.Table.from_pylist(group, schema))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
                raise ConfigError(
                    f"rows have values of several types in one column ({failure})",
                    hint="export texts and chats into a file each",
                ) from failure
            num_rows += len(group)
    return num_rows


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in groups of about `_GROUP_CHARACTERS` characters of JSON."""
    group, size = list[Row](), 0
    for row in rows:
        group.append(row)
        size += len(json.dumps(row))
        if size >= _GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _arrow_type(pa: Any, kind: Kind, value: Any) -> Any:
    """Return the type of a column in Arrow."""
    texts, ints, floats = pa.list_(pa.string()), pa.list_(pa.int64()), pa.list_(pa.float64())
    turns = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    scores = pa.list_(pa.struct([("verifier", pa.string()), ("values", floats)]))
    node = {
        "node": pa.int64(),
        "parent": pa.int64(),
        "kind": pa.string(),
        "model": pa.string(),
        "text": pa.string(),
        "ids": ints,
        "logprobs": floats,
        "sampling_logprobs": floats,
        "status": pa.string(),
        "pruned": pa.bool_(),
        "scratch": pa.bool_(),
        "scores": scores,
        "candidate": pa.int64(),
        "answer": pa.string(),
        "selection_weight": pa.float64(),
        "right": pa.bool_(),
        "weight": pa.float64(),
    }
    level = {
        "kind": pa.string(),
        "chain": pa.int64(),
        "sweep": pa.int64(),
        "nodes": ints,
        "log_weights": floats,
        "temperature": pa.float64(),
        "ancestors": ints,
    }
    types: dict[Kind, Callable[[], Any]] = {
        "text": pa.string,
        "turns": lambda: pa.string() if isinstance(value, str) else turns,
        "messages": lambda: turns,
        "bool": pa.bool_,
        "int": pa.int64,
        "float": pa.float64,
        "texts": lambda: texts,
        "bools": lambda: pa.list_(pa.bool_()),
        "ints": lambda: ints,
        "floats": lambda: floats,
        "nodes": lambda: pa.list_(pa.struct(list(node.items()))),
        "levels": lambda: pa.list_(pa.struct(list(level.items()))),
    }
    return types[kind]()
