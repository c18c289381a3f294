"""Imports rows of samples into a store, in bounded memory.

All rows are read and checked before the store is changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from tts import tasks
from tts.checks import check_text
from tts.errors import ConfigError, quote, unknown_name
from tts.experiments.analysis.pools import pools_of
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.datasets.unpacking import pack
from tts.experiments.store.rows import pack_candidates
from tts.experiments.store.store import Store
from tts.experiments.study.grid import digest
from tts.experiments.study.record import Cell, Result
from tts.experiments.study.snapshot import commit, versions
from tts.search.plan import parse
from tts.tasks.by_references import choose_task
from tts.tasks.isolation import isolate
from tts.types import Usage
from tts_addons.logs.building import (
    NO_ANSWERS,
    SILENT,
    Building,
    CountTokens,
    ImportReport,
    ProblemSamples,
    fold_literal,
)
from tts_addons.logs.fields import SampleRow
from tts_addons.logs.files import check_used, samples_in
from tts_addons.logs.programs import WRITTEN, ProgramVerdicts, program_kind
from tts_addons.logs.source import Source, SourceFacts
from tts_addons.logs.staging import Staging
from tts_addons.logs.thoughts import marks_in

_VERDICTS: Final = ("ours", "given")
_ENOUGH: Final = 3  # number of samples right by the source from which one must also be right by the task
_STRATEGY: Final = "best_of_n | majority"


class NamedAlike(UserWarning):
    """A warning that a pool was added to a store that has studies of its name.

    The text says how each of these studies is named.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """The settings by which recorded samples become a pool.

    Args:
        name: The name of the pool, and of its data set.
        task: The task that extracts and compares answers, by name, such as "math" or "text". None: the task that fits
            the references, as the report says, or "math" without references.
        model: The model that wrote the samples, as tables show it; None: as logs name it.
        verdicts: The verdicts that count where both the task and the source have one: "ours", by the task, or "given",
            by the source. None: "ours", and an import is refused whose right samples by the source are all wrong by
            the task.
        tokenizer: A model by name or folder, whose tokenizer counts tokens that are not given; None: such tokens are
            estimated, and marked.
        thoughts: Marks of thoughts, from which no answer is extracted: two marks with a space between them, or a name
            in `thoughts.THOUGHTS` such as "harmony". All known marks count as well. "none": the texts have no thoughts.
        programs: A file of verdicts. The programs of problems with `tests` run once each, contained
            (`ProgramVerdicts`), and equal programs are equal answers. The outcomes of `written_tests` are scores of
            the role "tests". None: programs are not run.
        no_answer: Further literals that stand for no answer, beside `building.NO_ANSWERS`.

    Raises:
        ConfigError: the name is empty, or a value is unknown.
    """

    name: str
    task: str | None = None
    model: str | None = None
    verdicts: str | None = None
    tokenizer: str | None = None
    thoughts: str = "<think>"
    programs: str | None = None
    no_answer: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        for setting in ("name", "task", "model", "tokenizer", "thoughts"):
            check_text(setting, getattr(self, setting), optional=setting not in ("name", "thoughts"))
        if not self.name.strip():
            raise ConfigError("the name of the pool is empty, but must be a text", hint="for example --name gsm8k")
        if self.verdicts is not None and self.verdicts not in _VERDICTS:
            raise unknown_name("verdicts", self.verdicts, _VERDICTS)
        marks_in(self.thoughts)
        for literal in self.no_answer:
            check_text("no_answer", literal, optional=False)

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any]) -> ImportSettings:
        """Return the settings of a pool from their names and values.

        Args:
            name: The name of the pool.
            given: The other settings by name.

        Raises:
            ConfigError: a name is unknown; or as the class.
        """
        names = {field.name for field in dataclasses.fields(cls)} - {"name"}
        unknown_names = given.keys() - names
        if unknown_names:
            raise unknown_name("setting of an import", min(unknown_names), names)
        return cls(name=name, **given)

    def building(self, report: ImportReport, facts: SourceFacts) -> Building:
        """Return the builder of samples.

        Args:
            report: The report of the rows, which gets a line where the task fails on a text.
            facts: The facts that the sources state beside their samples.

        Raises:
            ConfigError: the task or the tokenizer is unknown.
        """
        count = None if self.tokenizer is None else _counter(self.tokenizer)
        programs = None if self.programs is None else ProgramVerdicts(self.programs)
        task = isolate(tasks.get(self.task or "math"), report.faults.append)
        literals = [self.no_answer] if isinstance(self.no_answer, str) else self.no_answer
        return Building(
            task=task,
            verdicts="given" if self.verdicts == "given" else "ours",
            count=count,
            programs=programs,
            marks=marks_in(self.thoughts),
            facts=facts,
            no_answers=(NO_ANSWERS - report.answers) | set(map(fold_literal, literals)),
            report=report,
            replies=report.bare[True] > report.bare[False] and task.name not in ("json", "patch"),
        )


class ImportedSamples(NamedTuple):
    """One problem of an import: a result with its samples, and their texts; see `bodies.source_in`."""

    result: Result
    source: bytes


class Import:
    """An import that has been read and checked, as a context manager.

    Its problems are read from a temporary file.

    Args:
        rows: The rows of any number of sources, in order.
        settings: The settings by which the rows become a pool.
        facts: The collector of facts that the sources state beside the samples.

    Attributes:
        report: The report of the import.
        model: The model that wrote the samples.

    Raises:
        ConfigError: a row cannot be read, or rows contradict each other; the error has file and line.
    """

    def __init__(self, rows: Iterable[SampleRow], settings: ImportSettings, facts: SourceFacts | None = None) -> None:
        self.settings = settings
        self.facts = facts or SourceFacts()
        self.report = ImportReport(notes=self.facts.notes)
        self._is_chosen = False  # whether only rows of the model that the caller names are taken
        self._digest = hashlib.sha256()  # hash of the keys of all cells
        self._staging = Staging()
        try:
            self._build(rows)
        except BaseException:
            self._staging.close()
            raise

    def _build(self, rows: Iterable[SampleRow]) -> None:
        """Read all rows, build the samples of each problem, and check the whole.

        Raises:
            ConfigError: there are no samples, or the verdicts of task and source disagree.
        """
        chosen = ImportReport(notes=self.facts.notes)  # of the rows of the model that the caller names
        self._staging.add(self._note(row, chosen) for row in rows)
        if len(self.facts.models) > 1 and self.settings.model in self.facts.models:
            self.report, self._is_chosen = chosen, True
        if self.settings.task is None:
            self.settings = dataclasses.replace(self.settings, task=self._choose_task())
        building = self.settings.building(self.report, self.facts)
        try:
            self.model = self.facts.model(self.settings.model)
            verifiers = {role: self._verifier(role) for role in sorted(self.report.scored)}
            if building.programs is not None and self.report.written:
                verifiers[WRITTEN] = "recorded(low=0, high=1)"
            self._staging.keep(self._build_samples(building, verifiers))
        finally:
            building.task.close()
            if building.programs is not None:
                building.programs.close()
        if not self.report.problems:
            raise ConfigError("there are no samples, but a pool must have some", hint="see that the files have rows")
        if self.report.stand_ins and self.report.counts[SILENT] == self.report.samples:
            (literal, _), *_ = self.report.stand_ins.most_common(1)
            raise ConfigError(
                f"all {self.report.samples:,} samples have no answer, or a text that stands for none: {quote(literal)}",
                hint="name the field of the answers (--field answer=…) or of the texts (--field text=…)",
            )
        if self.settings.programs is not None and not self.report.ran:
            self.report.faults.append("no program was run: no row has tests; name their field (--field tests=…)")
        self.report.read = self.facts.lines()
        if self.settings.verdicts is None:
            self._check_agreement()

    def _note(self, row: SampleRow, chosen: ImportReport) -> SampleRow:
        """Note a row in the report of all rows, and of the chosen model, and return the row.

        A program is no reference, but may be the tests of programs.
        """
        is_free = self.settings.task is None or self.settings.programs is not None
        kind = program_kind(row.reference) if is_free else ""
        if kind:
            self.facts.notes[f"rows have {kind} as reference, which no task compares"] += 1
            tests = row.tests or (row.reference if kind == "tests" else "")  # "": answers are programs
            row = dataclasses.replace(row, reference=None, tests=tests)
        if row.model is not None and row.model == self.settings.model:
            chosen.note_row(row)
        return self.report.note_row(row)

    def _choose_task(self) -> str:
        """Return the task that the sources state, or that fits the references, and report the choice.

        Raises:
            ConfigError: the references are of several kinds; the hint has the option to add.
        """
        if self.facts.tasks:
            tasks_of_sources = sorted(self.facts.tasks)
            return tasks_of_sources[0] if len(tasks_of_sources) == 1 else "text"
        try:
            choice = choose_task(self.report.references, "the file")
        except ConfigError as failure:
            raise ConfigError(str(failure.args[0]), hint=f"{failure.hint} (--task)") from failure
        if choice is not None:
            self.report.task = f"{choice.line('the file')} (--task)"
        if choice is None:
            return "text" if self.report.tested else "math"
        return choice.task

    def _check_agreement(self) -> None:
        """Refuse an import whose right samples by the source are all wrong by the task.

        Raises:
            ConfigError: at least three samples are right by the source, and none of these is right by the task.
        """
        right = self.report.right
        if right["by both"] == 0 and right["by the source"] >= _ENOUGH:
            example = f"; {self.report.differences[0]}" if self.report.differences else ""
            raise ConfigError(
                f"the task {self.settings.task!r} finds none of the {right['by the source']:,} samples right that the "
                "source calls right, "
                f"so that a field or the task is probably another{example}. {'; '.join(self.report.read)}",
                hint="name the field (--field reference=…) or the task (--task …); or say whose verdicts count: "
                "--verdicts given, or ours",
            )

    def _build_samples(self, building: Building, verifiers: Mapping[str, str]) -> Iterator[ImportedSamples]:
        """Yield the problems of the pool."""
        for name, all_rows in self._staging.problems():
            rows = [row for row in all_rows if not self._is_chosen or row.model == self.settings.model]
            if not rows:
                continue
            samples = building.samples(name, rows)
            imported = _import_problem(samples, self.settings, self.model, verifiers)
            self._digest.update(imported.result.cell.key.encode())
            yield imported

    def __enter__(self) -> Import:
        return self

    def __exit__(self, *_: object) -> None:
        self._staging.close()

    def __iter__(self) -> Iterator[ImportedSamples]:
        return self._staging.read_rows()

    def _verifier(self, role: str) -> str:
        """Return the text of the verifier that stands for given scores, with the range that all of them have."""
        if self.report.lowest[role] < 0:
            return "recorded(unbounded=True)"
        return "recorded(low=0, high=1)" if self.report.highest[role] <= 1 else "recorded(low=0)"

    def save(self, store: Store) -> int:
        """Add the pool to a store, in one transaction, and return the id of its study.

        Warns:
            NamedAlike: the store has studies of this name.
        """
        name = self.settings.name
        namesakes = [stored.id for stored in store.studies() if stored.name == name]
        study = store.adopt(name, self._snapshot(), self)
        if not namesakes:
            return study
        latest = namesakes[-1]  # the study that the name stood for
        if study not in namesakes:
            _warn(f"the name {name!r} was that of study {latest}, which stays; it is now named by that number")
        else:
            named = (
                "" if study == latest else f"; the name is that of study {latest}, so that these are named by {study}"
            )
            _warn(f"these samples are in the store already, as study {study}, and nothing was added{named}")
        return study

    def _snapshot(self) -> dict[str, Any]:
        """Return the description of the pool's study that the store keeps."""
        settings = dataclasses.asdict(self.settings)
        settings["programs"] = self.settings.programs is not None
        data = {
            "source": "imported samples",
            "licence": "not stated",
            "note": "",
            "problems": self.report.problems,
            "sha256": self._digest.hexdigest(),
        }
        return {
            "configuration": {"imported": settings},
            "versions": versions(),
            "commit": commit(),
            "models": {},
            "data": {self.settings.name: data},
            "report": self.report.lines(),
        }


def rows_of(paths: Sequence[str | Path], source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of files, one after another; see `samples_in`.

    Raises:
        ConfigError: as `samples_in`, or an option belongs to a form that no file has.
    """
    for path in paths:
        yield from samples_in(path, source, facts)
    check_used(source, facts.forms)


def _import_problem(
    samples: ProblemSamples, settings: ImportSettings, model: str, verifiers: Mapping[str, str]
) -> ImportedSamples:
    """Return one problem with its samples as a result, whose answer is the samples' majority.

    A sample that a role did not score gets the score NaN by this role.

    Args:
        samples: The problem and its samples.
        settings: The settings of the import.
        model: The model that wrote the samples.
        verifiers: The verifier of each role, as a cell has them.
    """
    problem, drawn = samples.problem, samples.drawn
    if verifiers:
        unknown_scores = dict.fromkeys(verifiers, math.nan)
        drawn = tuple(dataclasses.replace(sample, scores={**unknown_scores, **sample.scores}) for sample in drawn)
    source = {
        "prompt": problem.prompt if problem.prompt != problem.id else None,  # the id stands for a missing prompt
        "reference": problem.answer,
        "tests": samples.tests,
        "texts": samples.texts,
        "task": settings.task,
    }
    packed_name = f"the samples of the problem {quote(str(problem.id))}"  # for errors
    packed_source = pack(packed_name, json.dumps(source).encode("ascii"))
    dollars = [sample.usd for sample in drawn if sample.usd is not None]
    usage = Usage(
        prompt_tokens=samples.prompt_tokens * len(drawn),
        generated_tokens=sum(sample.tokens for sample in drawn),
        verifier_tokens=sum(sample.verifier_tokens for sample in drawn),
        samples=len(drawn),
        requests=None,
        flops=None,
        usd=sum(dollars) if len(dollars) == len(drawn) else None,
        estimated=samples.estimated,
    )
    setting_digest = digest(task=settings.task, verdicts=settings.verdicts or "ours")
    cell = Cell(
        key="",
        dataset=settings.name,
        problem=str(problem.id),
        group=samples.group,
        model=model,
        setting=setting_digest[:16],
        verifiers=verifiers,
        strategy=_STRATEGY,
        budget={"samples": len(drawn)},
        seed=0,
    )
    packed_drawn = pack_candidates(packed_name, drawn)
    key = digest(cell=dataclasses.asdict(cell), drawn=packed_drawn.hex(), source=packed_source.hex())
    result = Result(
        cell=dataclasses.replace(cell, key=key),
        answer=None,
        right=None,
        confidence=math.nan,
        stopped_by="imported",
        usage=usage,
        drawn=drawn,
    )
    return ImportedSamples(result=_answer_by_vote(result), source=packed_source)


def _answer_by_vote(result: Result) -> Result:
    """Return a result with the answer of its samples' majority."""
    (pool,) = pools_of([result]).pools
    outcome = RecordedSearch(pool, parse(_STRATEGY)).run(range(len(pool.drawn)))
    is_judged = any(sample.right is not None for sample in pool.drawn)
    return dataclasses.replace(result, answer=outcome.answer, right=bool(outcome.right) if is_judged else None)


def _warn(text: str) -> None:
    warnings.warn(NamedAlike(text), stacklevel=3)


def _counter(name: str) -> CountTokens:
    """Return a function that counts the tokens of a text by the tokenizer of a model.

    Raises:
        ConfigError: there is no model of that name.
        MissingDependency: transformers is not installed.
    """
    from tts.backends.loading.models import load_tokenizer

    tokenizer = load_tokenizer(name)
    return lambda text: len(tokenizer(text, add_special_tokens=False)["input_ids"])
