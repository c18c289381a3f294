"""The options for reading sources of samples, and the facts that sources state beside samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tts.errors import ConfigError
from tts.experiments.datasets.rows import BadRow
from tts_addons.logs.paths import roots_of

COMPARED: Final = "an answer to compare"  # the meaning of an answer that does not count
# the order in which a report lists meanings
_ORDER: Final = ("problem", "sample", "prompt", "text", "answer", COMPARED, "reference", "correct")
MOST_REFERENCES: Final = 1000  # different references that are kept
_MOST_UNREAD: Final = 12  # fields that a report names


@contextmanager
def place_errors(place: str) -> Generator[None]:
    """Turn a `BadRow` within the context into an error that begins with its place.

    Raises:
        ConfigError: a row cannot be read.
    """
    try:
        yield
    except BadRow as failure:
        raise ConfigError(f"{place}: {failure}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The options for reading files.

    Args:
        fields: The names of fields of plain rows; see `SampleFields`.
        form: The form of all files, as in `FORMS`; None: each file's form follows from its name and content.
        rows: The member of a JSON object that has the rows; None: its only list of objects.
        filter: The filter of lm-evaluation-harness, by name, or by its number from 1 in files that name no filter;
            None: the first filter of each file.
        metric: The metric of lm-evaluation-harness that gives the verdicts; None: the best-known metric.
        scorer: The scorer of Inspect that gives the verdicts; None: the first of each log.
    """

    fields: Mapping[str, str | Mapping[str, str]] | None = None
    form: str | None = None
    rows: str | None = None
    filter: str | None = None
    metric: str | None = None
    scorer: str | None = None


@dataclass(slots=True)
class SourceFacts:
    """The facts that sources state beside their samples.

    Args:
        notes: Sentences about samples, with the number of samples that each sentence is about.
        models: The models that wrote the samples, as logs name them.
        forms: The forms of the files.
        tasks: The tasks that sources show without references.
        layouts: The programs whose layout the rows have.
        meanings: The fields that were read, by meaning, in order of first use.
        seen: The fields that rows have.
        with_repeats: The files that name no filter and have different responses of a document. Equal responses are
            samples in such files, not copies.
        extracting: The filters and columns that extract: at least one of their answers differs from its text.
    """

    notes: Counter[str] = field(default_factory=Counter[str])
    models: dict[str, None] = field(default_factory=dict[str, None])
    forms: set[str] = field(default_factory=set[str])
    tasks: set[str] = field(default_factory=set[str])
    layouts: dict[str, None] = field(default_factory=dict[str, None])
    meanings: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    seen: dict[str, None] = field(default_factory=dict[str, None])
    with_repeats: set[str] = field(default_factory=set[str])
    extracting: set[str] = field(default_factory=set[str])

    def add_meaning(self, meaning: str, name: str) -> None:
        """Note that a field was read for a meaning."""
        self.meanings.setdefault(meaning, {})[name] = None

    def add_meanings(self, **names: str) -> None:
        """Note the field of each meaning."""
        for meaning, name in names.items():
            self.add_meaning(meaning, name)

    def lines(self) -> list[str]:
        """Return a line on the fields that were read, with their meanings, and a line on the other fields."""
        ordered_meanings = [meaning for meaning in _ORDER if meaning in self.meanings]
        ordered_meanings += [meaning for meaning in self.meanings if meaning not in _ORDER]
        phrases = [f"{meaning} from {' and '.join(map(repr, self.meanings[meaning]))}" for meaning in ordered_meanings]
        read_names = {root for names in self.meanings.values() for name in names for root in roots_of(name)}
        lines: list[str] = []
        if phrases:
            layouts = f" (as files of {' and '.join(self.layouts)})" if self.layouts else ""
            lines.append(f"read: {', '.join(phrases)}{layouts}")
        unread_names = [repr(name) for name in self.seen if name not in read_names]
        if unread_names:
            num_others = len(unread_names) - _MOST_UNREAD
            other_words = f" and {num_others} more" if num_others > 0 else ""
            lines.append(f"not read: {', '.join(unread_names[:_MOST_UNREAD])}{other_words}")
        return lines

    def model(self, given: str | None) -> str:
        """Return the given name of the model, else the name in the logs, else "recorded".

        Raises:
            ConfigError: the sources name several models, and no name was given.
        """
        if given is None and len(self.models) > 1:
            raise ConfigError(
                f"the logs are of the models {' and '.join(self.models)}, but samples of one pool are of one model",
                hint="--model NAME (model=) takes the samples of this model; a new name is given to all samples",
            )
        return given or next(iter(self.models), "recorded")
