"""Problems of the Hugging Face Hub: known benchmarks as published, and other data sets by fields.

Fields and splits are as the data sets' cards state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from tts.errors import ConfigError, require_extra, unknown_name
from tts.experiments.datasets import DataSet
from tts.experiments.datasets.rows import BadRow, Fields, PlacedRow, answer_in, collect, read_row, text_in
from tts.randomness import hash64
from tts.types import Problem

_LETTERS: Final = "ABCD"


def load(
    *,
    path: str = "",
    config: str | None = None,
    split: str = "test",
    revision: str | None = None,
    limit: int | None = None,
    seed: int | None = None,
    task: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Return the problems of a data set on the Hub.

    Fields other than problem, answer and id become metadata.

    Args:
        path: The data set's name (organisation/name), or a local folder that the package `datasets` can read.
        config: The name of a configuration.
        split: The name of a split.
        revision: A commit, whose rows never change; None: the newest.
        limit: The largest number of problems; None: all.
        seed: The seed of a random order, of which a limit takes the first problems; None: the source's order.
        task: The task of every problem; None: the study's, otherwise the model's.
        fields: The names of fields that differ from {"problem": "problem", "answer": "answer", "id": "id"}. The problem
            may be a list of chat messages. Answers and ids may be missing; without an id, the problem's hash is its id.

    Raises:
        ConfigError: the data set cannot be loaded, no row is a problem, or two problems have the same id.
        MissingDependency: the package `datasets` is not installed.

    Warns:
        RowsLeftOut: rows are left out because they are not problems, or repeat an earlier problem.
    """
    if not path:
        raise ConfigError("path is not given, but the data set 'hub' needs one", hint="set path: organisation/name")
    field_meanings = Fields(fields, task)
    source = f"{path} ({split})"
    problems = collect(
        _rows(path, config, split, revision),
        lambda row: read_row(row, field_meanings),
        where=source,
        name=f"{path}/{split}",
        limit=limit,
        seed=seed,
    )
    field_meanings.check_met(source)
    return problems


def _rows(path: str, config: str | None, split: str, revision: str | None) -> Iterator[PlacedRow]:
    """Yield the rows of a data set on the Hub, each with its number; see `load`.

    Raises:
        ConfigError: the data set cannot be loaded.
        MissingDependency: the package `datasets` is not installed.
    """
    with require_extra("datasets", "experiments", f"the data set {path}"):
        from datasets import load_dataset
    try:
        table = load_dataset(path, config, split=split, revision=revision)
    # the library may raise anything: no network, no such name, a missing registration, a broken file
    except Exception as failure:
        cause = " ".join(f"{type(failure).__name__}: {failure}".split())
        raise ConfigError(
            f"the data set {path} ({split}) cannot be loaded: {cause}",
            hint="check the name and the network; where a data set requires a registration, run: hf auth login",
        ) from failure
    for number, row in enumerate(cast("Iterable[Mapping[str, Any]]", table), 1):
        yield f"row {number}", row


def _gsm8k(row: Mapping[str, Any]) -> Problem:
    """Return the problem of a row, whose answer stands after "####" in the worked solution."""
    solution, mark, answer = text_in(row, "answer").rpartition("####")
    if not mark or not answer.strip():
        raise BadRow("its answer has no '####' with a number after it")
    return Problem(
        prompt=text_in(row, "question"),
        answer=answer.strip().replace(",", ""),
        task="math",
        metadata={"solution": solution.strip()},
    )


def _mathematics(
    name: str, question: str, number: str, metadata_columns: Sequence[str]
) -> Callable[[Mapping[str, Any]], Problem]:
    """Return a function that reads the rows of a mathematical benchmark, by the names of its columns."""

    def read(row: Mapping[str, Any]) -> Problem:
        return Problem(
            prompt=text_in(row, question),
            answer=_require_value(row, "answer"),
            id=f"{name}/{_require_value(row, number)}",
            task="math",
            metadata={column: row.get(column) for column in metadata_columns},
        )

    return read


_math500 = _mathematics("math500", "problem", "unique_id", ("level", "subject", "solution"))
_aime24 = _mathematics("aime24", "problem", "id", ("url", "solution"))
_amc23 = _mathematics("amc23", "question", "id", ("url",))


def _gpqa_diamond(row: Mapping[str, Any]) -> Problem:
    """Return the question with its choices in an order that depends on the question alone.

    Rows list the right choice first.
    """
    name = text_in(row, "Record ID")
    published = [
        text_in(row, "Correct Answer").strip(),
        *(text_in(row, f"Incorrect Answer {number}").strip() for number in (1, 2, 3)),
    ]
    order = sorted(range(len(published)), key=lambda place: hash64("choices", name, place))
    choices = [f"{letter}) {published[place]}" for letter, place in zip(_LETTERS, order, strict=True)]
    return Problem(
        prompt="\n".join([text_in(row, "Question").strip(), "", *choices]),
        answer=_LETTERS[order.index(0)],
        id=f"gpqa_diamond/{name}",
        task="multiple_choice",
        metadata={"domain": row.get("High-level domain"), "subdomain": row.get("Subdomain")},
    )


def _require_value(row: Mapping[str, Any], name: str) -> str:
    value = answer_in(row, name)
    if value is None:
        raise BadRow(f"it has no {name}")
    return value


def _benchmark(
    name: str,
    path: str,
    splits: Sequence[str],
    read: Callable[[Mapping[str, Any]], Problem],
    *,
    licence: str,
    config: str | None = None,
    note: str = "",
) -> DataSet:
    """Return a published benchmark as a data set.

    Args:
        name: The name in the registry.
        path: The name on the Hub.
        config: The configuration on the Hub; None: its default.
        splits: All splits, the usual split first.
        read: A function that returns the problem of a row, or raises `BadRow`.
        licence: As in `DataSet`.
        note: As in `DataSet`.
    """
    published = path

    def load(
        *,
        limit: int | None = None,
        seed: int | None = None,
        split: str | None = splits[0],
        path: str | None = None,
        revision: str | None = None,
    ) -> list[Problem]:
        """Return the problems of the benchmark.

        Args:
            limit: The most problems; None: all.
            seed: The seed of a random order, of which a limit takes the first problems; None: the source's order.
            split: The split of the benchmark; None: the usual split.
            path: Another place of the same rows, a name on the Hub or a local folder; None: the benchmark's own name.
                A folder has one configuration.
            revision: A commit, which never changes; None: the newest.

        Raises:
            ConfigError: the benchmark cannot be loaded, or a value is not valid.
            MissingDependency: the package `datasets` is not installed.

        Warns:
            RowsLeftOut: rows are not as they were published.
        """
        chosen_split = splits[0] if split is None else split
        if chosen_split not in splits:
            raise unknown_name(f"split of {name}", chosen_split, splits)
        source = path or published
        rows = _rows(source, None if path else config, chosen_split, revision)
        return collect(
            rows, read, where=f"{source} ({chosen_split})", name=f"{name}/{chosen_split}", limit=limit, seed=seed
        )

    return DataSet(load=load, source=f"{published} on the Hub", licence=licence, note=note, splits=splits)


_MAA = "not stated; the problems are the Mathematical Association of America's"

GSM8K = _benchmark("gsm8k", "openai/gsm8k", ("test", "train"), _gsm8k, config="main", licence="MIT")
MATH500 = _benchmark(
    "math500", "HuggingFaceH4/MATH-500", ("test",), _math500, licence="MIT, as MATH, whose problems these are"
)
AIME24 = _benchmark("aime24", "HuggingFaceH4/aime_2024", ("train",), _aime24, licence=_MAA)
AMC23 = _benchmark("amc23", "math-ai/amc23", ("test",), _amc23, licence=_MAA)
GPQA_DIAMOND = _benchmark(
    "gpqa_diamond",
    "Idavidrein/gpqa",
    ("train",),
    _gpqa_diamond,
    config="gpqa_diamond",
    licence="CC-BY-4.0",
    note="the Hub gives it to those who accept its conditions: register there, then run hf auth login; do not publish "
    "its questions",
)
DATASET = DataSet(load=load, source="any data set of the Hub, by the names of its fields", licence="its own")
