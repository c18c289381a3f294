"""Samples of files, by their form. A row that cannot be read ends the import with its line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from tts.characters import in_whole_characters
from tts.errors import ConfigError, unknown_name
from tts.experiments.datasets.files import read_csv, read_json_lines, read_parquet
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts.experiments.imported.fields import Names, SampleFields, SampleRow
from tts.experiments.imported.inspect_logs import read_inspect
from tts.experiments.imported.lm_eval import is_lm_eval, read_lm_eval
from tts.experiments.imported.source import Source, SourceFacts

Reader = Callable[[Path, Source, SourceFacts], Iterator[SampleRow]]


def samples_in(path: str | Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a file.

    Args:
        path: of the file. source: how it is read. facts: collects what it states beside its samples.

    Raises:
        ConfigError: the file is missing or of another form, or a row cannot be read; the text has its line.
        MissingDependency: the file is Parquet or an .eval log, and pyarrow is not installed.
    """
    file = Path(path).expanduser()
    try:
        form = source.form or _form(file)
        facts.forms.add(form)
        yield from FORMS[form](file, source, facts)
    except OSError as failure:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {failure.strerror or failure}") from failure


def samples_of(rows: Iterable[Mapping[str, Any]], fields: Names | None = None) -> Iterator[SampleRow]:
    """Yield the samples of rows, which are named by their number, from 1."""
    meant = SampleFields(fields)
    for number, row in enumerate(rows, 1):
        given: Any = row
        if not isinstance(given, Mapping):
            raise ConfigError(f"row {number} is a {type(row).__name__}, but must be a mapping from fields to values")
        yield from meant.read({name: _of_python(value) for name, value in row.items()}, f"row {number}")


def _of_python(value: Any) -> Any:
    """Return a value as JSON would give it: NumPy's as Python's, and tuples as lists, inside lists and mappings too."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _of_python(each) for name, each in cast("Mapping[Any, Any]", value).items()}
    return [_of_python(each) for each in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


def check_form(form: str | None) -> None:
    """Refuse a form that is unknown.

    Raises:
        ConfigError: it is.
    """
    if form is not None and form not in FORMS:
        raise unknown_name("form", form, FORMS)


def check_used(source: Source, forms: Collection[str]) -> None:
    """Refuse an option that none of the files uses.

    Args:
        forms: of the files.

    Raises:
        ConfigError: there is one.
    """
    plain = [form for form in FORMS if form not in ("lm-eval", "inspect")]
    for name, given, of in (
        ("filter", source.filter, ["lm-eval"]),
        ("scorer", source.scorer, ["inspect"]),
        ("field", source.fields, plain),
    ):
        if given and not any(form in forms for form in of):
            raise ConfigError(
                f"{name} was given, but the files are of the form {' and '.join(sorted(forms))}, and {name} is of {', '.join(of)}",
                hint="leave it out, or name the form of the files",
            )


def _form(file: Path) -> str:
    """Return the form of a file by its ending, and of JSON lines by the first line."""
    ending = file.suffix.lower()
    if ending not in _ENDINGS:
        packed = ending in _PACKED
        raise ConfigError(
            f"the file {str(file)!r} ends in {ending!r}, but must end in {', '.join(_ENDINGS)}",
            hint=f"decompress it: <({_PACKED[ending]} {file.name}) with its form" if packed else "or name its form, such as jsonl (--form)",
        )
    if ending == ".jsonl":
        if file.is_fifo():
            raise ConfigError(f"the file {str(file)!r} is a pipe, which is read once", hint="name its form, such as jsonl")
        _, first = next(read_json_lines(file), ("", None))
        return "lm-eval" if isinstance(first, Mapping) and is_lm_eval(first) else "jsonl"
    return _ENDINGS[ending]


def _plain(rows: Callable[[Path], Iterator[PlacedRow]]) -> Reader:
    def read(file: Path, source: Source, _facts: SourceFacts) -> Iterator[SampleRow]:
        fields = SampleFields(source.fields)
        for place, row in rows(file):
            where = f"{file.name}, {place}"
            if isinstance(row, BadRow):
                raise ConfigError(f"{where}: {row}")
            yield from fields.read(row, where)

    return read


def _whole_csv(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a CSV file; one with a byte that is no UTF-8 is bad, whatever its field."""
    for place, row in read_csv(file):
        broken = [] if isinstance(row, BadRow) else [name for name, cell in row.items() if in_whole_characters(cell) != cell]
        yield place, BadRow(f"its {broken[0]} is no UTF-8") if broken else row


FORMS: Final[Mapping[str, Reader]] = {
    "jsonl": _plain(read_json_lines),
    "csv": _plain(_whole_csv),
    "parquet": _plain(read_parquet),
    "lm-eval": read_lm_eval,
    "inspect": read_inspect,
}
_PACKED: Final = {".gz": "zcat", ".zst": "zstdcat", ".bz2": "bzcat", ".xz": "xzcat"}
_ENDINGS: Final = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet", ".json": "inspect", ".eval": "inspect"}
