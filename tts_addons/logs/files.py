"""Reads the samples of files by their form. A row that cannot be read ends the import with its line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from tts._common.characters import join_surrogates
from tts.errors import ConfigError, unknown_name
from tts.experiments.datasets.files import read_csv
from tts.experiments.datasets.parquet import read_parquet
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts_addons.logs.agent_trials import is_trajectory, read_atif, read_mini_swe_agent
from tts_addons.logs.fields import Names, SampleFields, SampleRow, read_rows
from tts_addons.logs.inspect_logs import is_inspect, read_inspect
from tts_addons.logs.json_rows import first_character, read_json_object, read_json_rows
from tts_addons.logs.lm_eval import is_lm_eval, read_lm_eval
from tts_addons.logs.source import Source, SourceFacts, place_errors

Reader = Callable[[Path, Source, SourceFacts], Iterator[SampleRow]]


def samples_in(path: str | Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a file, or of a folder of trials.

    Args:
        path: The path of the file or the folder.
        source: The options of the import.
        facts: The collector of facts that the file states beside its samples.

    Raises:
        ConfigError: the file is missing or has another form, or a row cannot be read; the error has the line.
        MissingDependency: the file is Parquet or an .eval log, and pyarrow is not installed.
    """
    file = Path(path).expanduser()
    try:
        form = source.form or _form(file)
        if form not in FORMS:
            raise unknown_name("form", form, FORMS)
        facts.forms.add(form)
        yield from FORMS[form](file, source, facts)
    except OSError as failure:
        raise ConfigError(f"the file {str(path)!r} cannot be read: {failure.strerror or failure}") from failure


def samples_of(
    rows: Iterable[Mapping[str, Any]], fields: Names | None = None, facts: SourceFacts | None = None
) -> Iterator[SampleRow]:
    """Yield the samples of rows. Errors name rows by their number, from 1.

    Args:
        rows: The rows, each of one sample, or of one problem with lists of samples.
        fields: The names of fields with unusual names; see `SampleFields`.
        facts: The collector of facts that the rows state beside their samples.

    Raises:
        ConfigError: a row is no mapping, or cannot be read.
    """
    sample_fields = SampleFields(fields, facts)
    for number, row in enumerate(rows, 1):
        any_row: Any = row  # callers may pass other types than the annotation has
        if not isinstance(any_row, Mapping):
            raise ConfigError(f"row {number} is a {type(row).__name__}, but must be a mapping from fields to values")
        place = f"row {number}"
        with place_errors(place):
            yield from sample_fields.read({name: _plain_value(value) for name, value in row.items()}, place)


def _plain_value(value: Any) -> Any:
    """Return a value as JSON would give it. NumPy values become Python's, and tuples lists, at any depth."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain_value(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in cast("list[Any]", value)]
    return value


def check_used(source: Source, forms: Collection[str]) -> None:
    """Refuse an option that none of the files uses.

    Args:
        source: The options of the import.
        forms: The forms of the files.

    Raises:
        ConfigError: there is such an option.
    """
    plain_forms = [form for form in FORMS if form not in ("lm-eval", "inspect", "atif", "mini-swe-agent")]
    for name, value, option_forms in (
        ("filter", source.filter, ["lm-eval"]),
        ("metric", source.metric, ["lm-eval"]),
        ("scorer", source.scorer, ["inspect"]),
        ("field", source.fields, plain_forms),
        ("rows", source.rows, ["json"]),
    ):
        if value and not any(form in forms for form in option_forms):
            raise ConfigError(
                f"{name} was given, but the files are of the form {' and '.join(sorted(forms))}, and {name} is of "
                f"{', '.join(option_forms)}",
                hint="leave it out, or name the form of the files",
            )


def _form(file: Path) -> str:
    """Return the form of a file by its ending, and the form of JSON by its beginning."""
    if is_trajectory(file):
        return "mini-swe-agent"
    if file.is_dir():
        return "mini-swe-agent" if any(map(is_trajectory, file.rglob("*.json"))) else "atif"
    ending = file.suffix.lower()
    if ending not in _ENDINGS:
        hint = "or name its form, such as jsonl (--form)"
        if ending in _PACKED:
            hint = f"decompress it: <({_PACKED[ending]} {file.name}) with its form"
        elif ending in _PICKLES:
            hint = (
                "a pickle may run any program and is not read; load it where you trust it, and write its rows by "
                "json.dump"
            )
        raise ConfigError(
            f"the file {str(file)!r} ends in {ending!r}, but must end in {', '.join(_ENDINGS)}", hint=hint
        )
    if ending not in (".jsonl", ".json"):
        return _ENDINGS[ending]
    if file.is_fifo():
        raise ConfigError(f"the file {str(file)!r} is a pipe, which is read once", hint="name its form, such as jsonl")
    with file.open("rb") as stream:
        is_array = first_character(stream) == "["
    if ending == ".json" and not is_array:
        return "inspect" if is_inspect(file) else "json"
    for _, first_row in read_json_rows(file):
        return "lm-eval" if isinstance(first_row, Mapping) and is_lm_eval(first_row) else "jsonl"
    return "jsonl"  # without rows


def _plain(rows_in: Callable[[Path, Source], Iterator[PlacedRow]]) -> Reader:
    """Return the reader of a form whose rows have fields with the meanings of `SampleFields`.

    Args:
        rows_in: The function that yields the rows of a file, each with its place.
    """

    def read(file: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
        return read_rows(file, rows_in(file, source), SampleFields(source.fields, facts).read)

    return read


def _whole_csv(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a CSV file, each with its place. A row with bytes that are no UTF-8 becomes a `BadRow`."""
    for place, row in read_csv(file):
        if not isinstance(row, BadRow):
            # bytes that are no UTF-8 are surrogates in the text
            broken_names = [name for name, cell in row.items() if join_surrogates(cell) != cell]
            if broken_names:
                yield place, BadRow(f"its {broken_names[0]} is no UTF-8")
                continue
        yield place, row


FORMS: Final[Mapping[str, Reader]] = {
    "jsonl": _plain(lambda file, _: read_json_rows(file)),
    "json": _plain(lambda file, source: read_json_object(file, source.rows)),
    "csv": _plain(lambda file, _: _whole_csv(file)),
    "parquet": _plain(lambda file, _: read_parquet(file)),
    "lm-eval": read_lm_eval,
    "inspect": read_inspect,
    "atif": read_atif,
    "mini-swe-agent": read_mini_swe_agent,
}
_PACKED: Final = {".gz": "zcat", ".zst": "zstdcat", ".bz2": "bzcat", ".xz": "xzcat"}
_PICKLES: Final = (".pkl", ".pickle", ".pt", ".pth")
_ENDINGS: Final = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet", ".json": "json", ".eval": "inspect"}
