"""The samples of one problem as a pool: answers, their classes, verdicts, tokens and scores."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from tts._common.characters import join_surrogates
from tts.errors import ConfigError, VerifierError, quote
from tts.experiments.run.candidates import earlier_equals, judge_answers
from tts.experiments.study.record import RecordedSample
from tts.search.answers import Answers
from tts.solver.model_cache import LOOP
from tts.tasks.base import Task
from tts.thoughts import THINK, ThoughtMarks, without_marks
from tts.types import Problem
from tts_addons.code.verifier import program_in
from tts_addons.logs.fields import SampleRow, is_response
from tts_addons.logs.programs import WRITTEN, ProgramVerdicts
from tts_addons.logs.source import MOST_REFERENCES, SourceFacts
from tts_addons.logs.staging import check_unique

Verdicts = Literal["ours", "given"]
CountTokens = Callable[[str], int]
_Answers = Sequence[str | None]

_BYTES_PER_TOKEN: Final = 4  # estimate for English text, where no tokenizer is named
_MOST_NAMED: Final = 20  # differing verdicts that a report lists
_MOST_UNLIKE: Final = 5  # differing answers that a report lists
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_PATCH: Final = re.compile(r"^diff --git .*?(?=^```|\Z)", re.MULTILINE | re.DOTALL)
_LETTER: Final = re.compile(r"[A-Ja-j]")
_SHARE: Final = 0.05  # of the samples, above which a word that no reference resembles is reported
# sentences of a report, each with its number of samples or problems
UNFILTERED: Final = "{:,} answers of the source are the whole text, so that the task extracts them"
THINKING: Final = "{:,} samples end within their thought, and have no answer"
UNMARKED: Final = "{:,} texts have the marks of thoughts, which thoughts='none' does not use: leave out --thoughts none"
SILENT: Final = "{:,} samples have no answer, and do not vote"
REPEATED: Final = "{:,} samples have the text of an earlier one of their problem"
DISPUTED: Final = "in {:,} problems the source gives equal answers different verdicts"
UNJUDGED: Final = "{:,} problems have neither a reference answer nor verdicts, so that their accuracy is unknown"
_OF_PROBLEM: Final = ("prompt", "reference", "tests", "group", "written_tests")  # what all rows of a problem share
_REPLY: Final = re.compile(r"\n\s*\n|\\boxed\b|.{200}", re.DOTALL)  # in an answer that is a whole reply


# What sources write where there is no answer, as `fold_literal` writes it. It is an answer where a reference equals it,
# or a source calls it right.
NO_ANSWERS: Final = frozenset(
    ("none", "no answer", "noanswer", "no answer found", "no answer given", "no answer provided", "no valid answer",
     "no final answer", "answer not found", "not found", "null", "n/a", "nan", "invalid", "invalid answer", "unknown",
     "unanswered", "no response", "unparsable", "unparseable", "parse error", "extraction failed")
)  # fmt: skip
_AROUND: Final = " \t\r\n[](){}<>|*_`\"'$#.,!「」【】“”‘’\\"
_COMMAND: Final = re.compile(r"\\(?:text|textbf|mathrm|boxed)\b")


def fold_literal(text: str) -> str:
    """Return a text in folded case, without brackets and quotes around it, and with single spaces."""
    return re.sub(r"[\s_-]+", " ", _COMMAND.sub("", text).strip(_AROUND)).casefold()


@dataclass(slots=True)
class ImportReport:
    """The counts of an import, and the findings that the user should check.

    Args:
        notes: Sentences about samples, with the number of samples that each sentence is about.
        problems: The number of problems.
        samples: The number of samples.
        sizes: The number of problems by their number of samples.
        counts: The number of samples or problems by their sentence, such as `SILENT`.
        judged: The number of samples with a verdict of the task and a verdict of the source.
        differ: The number of samples whose two verdicts differ.
        differences: A line on each of the first samples whose verdicts differ.
        tokens: The number of samples whose tokens were given, counted or estimated.
        written: Whether a problem has tests that a model wrote.
        faults: The errors that the task raised on texts, one line a kind.
        scored: The number of samples with a score, by verifier role.
        lowest: The lowest score, by verifier role.
        highest: The highest score, by verifier role.
        references: The first different references.
        answers: The literals of `NO_ANSWERS` that a reference equals or the source calls right.
        stand_ins: The number of samples by their literal that stands for no answer.
        words: The number of samples by their answer of one word, under the task "math".
        bare: The numbers of answers without a text that are whole replies, and that are not.
        tested: Whether a problem has tests of programs.
        task: A line on how the task was chosen; "": the user named the task.
        read: Lines on the fields that were read, and on the meaning of each.
        right: The number of samples with both verdicts that are right by the task, by the source, and by both.
        compared: The number of samples whose source has both a text and an answer, which were compared.
        unlike: The number of compared samples where the task extracts another answer.
        unlikenesses: A line on each of the first compared samples with another answer.
        ran: Whether programs were run with tests.
    """

    references: dict[str, None] = field(default_factory=dict[str, None])
    answers: set[str] = field(default_factory=set[str])
    stand_ins: Counter[str] = field(default_factory=Counter[str])
    words: Counter[str] = field(default_factory=Counter[str])
    bare: Counter[bool] = field(default_factory=Counter[bool])
    tested: bool = False
    task: str = ""
    read: list[str] = field(default_factory=list[str])
    notes: Counter[str] = field(default_factory=Counter[str])
    problems: int = 0
    samples: int = 0
    sizes: Counter[int] = field(default_factory=Counter[int])
    counts: Counter[str] = field(default_factory=Counter[str])
    judged: int = 0
    differ: int = 0
    differences: list[str] = field(default_factory=list[str])
    tokens: Counter[str] = field(default_factory=Counter[str])
    written: bool = False
    faults: list[str] = field(default_factory=list[str])
    scored: Counter[str] = field(default_factory=Counter[str])
    lowest: dict[str, float] = field(default_factory=dict[str, float])
    highest: dict[str, float] = field(default_factory=dict[str, float])
    right: Counter[str] = field(default_factory=Counter[str])
    compared: int = 0
    unlike: int = 0
    unlikenesses: list[str] = field(default_factory=list[str])
    ran: bool = False

    def note_row(self, row: SampleRow) -> SampleRow:
        """Count the tests, references and scores of a row, and return the row."""
        self.written = self.written or row.written_tests is not None
        self.tested = self.tested or row.tests is not None
        stated = (row.reference, row.answer if row.correct else None)
        self.answers |= NO_ANSWERS & {fold_literal(literal or "") for literal in stated}
        if row.answer is not None and row.text is None:
            self.bare[_REPLY.search(row.answer) is not None] += 1
        if row.reference is not None and row.tests is None and len(self.references) < MOST_REFERENCES:
            self.references[row.reference] = None
        for role, score in row.scores.items():
            if not math.isnan(score):
                self.scored[role] += 1
                self.lowest[role] = min(score, self.lowest.get(role, score))
                self.highest[role] = max(score, self.highest.get(role, score))
        return row

    def lines(self) -> list[str]:
        """Return the report, a sentence a line."""
        fewest, largest = (min(self.sizes), max(self.sizes)) if self.sizes else (0, 0)
        size_words = f"{largest} each"
        if fewest != largest:
            size_words = f"{fewest} to {largest} each: curves beyond {fewest} are over fewer problems"
        lines = [f"{self.samples:,} samples of {self.problems:,} problems, {size_words}", *self.read]
        if self.task:
            lines.append(self.task)
        lines += self._answer_lines() + self._verdict_lines() + self.faults
        tokens = ", ".join(f"{count:,} {source}" for source, count in sorted(self.tokens.items()))
        lines.append(f"tokens: {tokens}")
        for role, count in sorted(self.scored.items()):
            unknown = f", {self.samples - count:,} samples lack one" if count < self.samples else ""
            lines.append(f"scores {role!r}: from {self.lowest[role]:g} to {self.highest[role]:g}{unknown}")
        return lines + [f"{count:,} {note}" for note, count in sorted(self.notes.items())]

    def _count_lines(self, *sentences: str) -> list[str]:
        return [sentence.format(self.counts[sentence]) for sentence in sentences if self.counts[sentence]]

    def _answer_lines(self) -> list[str]:
        """Return the sentences about texts and their answers."""
        lines = self._count_lines(UNFILTERED)
        if self.compared:
            sentence = (
                f"{self.unlike:,} of {self.compared:,} answers of the source are not those that the task extracts"
            )
            lines += _list_examples(sentence, self.unlikenesses)
        lines += self._count_lines(THINKING, UNMARKED, SILENT)
        for literal, count in self.stand_ins.most_common(_MOST_UNLIKE):
            lines.append(f"  {count:,} of these have {quote(literal)}, which stands for no answer")
        known_words = " ".join(self.references).casefold()
        for word, count in self.words.most_common(_MOST_UNLIKE):
            if count > _SHARE * self.samples and word.casefold() not in known_words:
                doubt = f"{word!r}, a word that no reference resembles; if it stands for no answer: --no-answer {word}"
                lines.append(f"{count:,} answers are {doubt}")
        return lines + self._count_lines(REPEATED)

    def _verdict_lines(self) -> list[str]:
        """Return the sentences about verdicts."""
        lines: list[str] = []
        if self.judged:
            by_task, by_source = (100 * self.right[judge] / self.judged for judge in ("by the task", "by the source"))
            lines.append(f"right: {by_task:.1f} % by the task, {by_source:.1f} % by the source")
            sentence = f"{self.differ:,} of {self.judged:,} verdicts of the source differ from ours"
            lines += _list_examples(sentence, self.differences)
        return lines + self._count_lines(DISPUTED, UNJUDGED)


def _list_examples(sentence: str, examples: Sequence[str]) -> list[str]:
    """Return the lines of a sentence and its examples."""
    return [f"{sentence}:" if examples else sentence, *(f"  {example}" for example in examples)]


class _Reading(NamedTuple):
    """The answers of a row.

    Args:
        answer: The answer that counts; None: there is none.
        other: The answer that does not count, of the task or of the source; None: there is none.
        is_compared: Whether the source has an answer apart from the text, which is compared.
    """

    answer: str | None
    other: str | None
    is_compared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSamples:
    """A problem and its samples.

    Args:
        problem: The problem, with its id.
        drawn: The samples in order.
        group: The group of the problem.
        texts: The text of each sample; None: the source gave only an answer.
        tests: The tests of programs; None: there are none.
        prompt_tokens: The number of tokens of the prompt; 0: there is no prompt.
        estimated: Whether tokens are estimated.
    """

    problem: Problem
    drawn: tuple[RecordedSample, ...]
    group: str | None
    texts: tuple[str | None, ...]
    tests: str | None
    prompt_tokens: int
    estimated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """Builds samples from the rows of a problem.

    Args:
        task: The task that extracts answers from texts, sorts answers into classes, and compares them with the
            reference.
        verdicts: The verdicts that count where both are known: "ours", by the task, or "given", by the source.
        count: A function that counts the tokens of a text; None: tokens that the source does not give are estimated.
        programs: The runner of programs with the tests of their problem; None: programs are not run.
        marks: The marks of thoughts, from which no answer is extracted; None: texts have no thoughts.
        facts: The facts that the sources state; see `SourceFacts.extracting`.
        no_answers: The literals that stand for no answer, as `fold_literal` writes them.
        replies: Whether answers that are whole replies are read as texts.
        report: The report, to which all samples are added.
    """

    task: Task
    verdicts: Verdicts = "ours"
    count: CountTokens | None = None
    programs: ProgramVerdicts | None = None
    marks: ThoughtMarks | None = THINK
    facts: SourceFacts = field(default_factory=SourceFacts)
    no_answers: Collection[str] = NO_ANSWERS
    replies: bool = False
    report: ImportReport = field(default_factory=ImportReport)

    def samples(self, name: str, rows: Sequence[SampleRow]) -> ProblemSamples:
        """Return the samples of one problem, and add them to the self.report.

        Raises:
            ConfigError: a sample number occurs twice, or rows differ in prompt, reference, tests or group.
        """
        rows = [row for row in rows if not row.copy_in or row.copy_in in self.facts.with_repeats]
        check_unique(name, rows)
        rows = _sort_rows(rows)
        prompt, reference, tests, group, written_tests = (_common(name, rows, meaning) for meaning in _OF_PROBLEM)
        if self.programs is None and (tests or written_tests):
            note = "problems have tests, which were not run: name a file of verdicts by programs (--programs)"
            self.report.notes[note] += 1
        has_tests = tests is not None or written_tests is not None
        programs = self.programs if has_tests else None  # the runner, if the answers are programs
        self.report.ran = self.report.ran or (programs is not None and bool(tests or written_tests))
        if programs is None and tests is None:
            rows = [self._read_reply(row) for row in rows] if self.replies else rows
            answers, classes = self._answers(rows, reference)
        else:
            answers = self._drop_literals([_program(row) for row in rows], rows, None)
            classes = _program_classes(answers)
        problem = Problem(name if prompt is None else prompt, answer=reference, id=name, task=None)
        if programs is not None and written_tests is not None:
            rows = [
                _run_written(programs, row, answer, written_tests) for row, answer in zip(rows, answers, strict=True)
            ]
        if tests is None:
            task_verdicts = judge_answers(answers, classes, self.task, problem)
        else:
            task_verdicts = _run_programs(programs if tests else None, answers, tests, rows[0].place)
        task_verdicts = [
            None if row.text is None and row.answer is None else verdict
            for row, verdict in zip(rows, task_verdicts, strict=True)
        ]
        self._compare(rows, answers, reference, task_verdicts)
        drawn = self._draw(rows, answers, classes, task_verdicts)
        _add(self.report, drawn)
        return ProblemSamples(
            problem=problem,
            drawn=drawn,
            group=group,
            texts=tuple(row.text for row in rows),
            tests=tests or None,
            prompt_tokens=0 if prompt is None else self._count(prompt),
            estimated=any(row.tokens is None and (self.count is None or row.text is None) for row in rows),
        )

    def _draw(
        self,
        rows: Sequence[SampleRow],
        answers: _Answers,
        classes: Sequence[int | None],
        task_verdicts: Sequence[bool | None],
    ) -> tuple[RecordedSample, ...]:
        """Return the samples of rows, with the answers that count, their classes, and the verdicts of the task.

        Raises:
            ConfigError: a row refers to a later sample, or shares more tokens than it has.
        """
        tokens = [self._tokens(row) for row in rows]
        _check_places(rows, tokens)
        equals = earlier_equals([row.text for row in rows])
        is_given = self.verdicts == "given"
        parts = zip(rows, answers, classes, task_verdicts, tokens, equals, strict=True)
        return tuple(
            RecordedSample(
                answer=answer,
                answer_class=answer_class,
                right=row.correct if verdict is None or (is_given and row.correct is not None) else verdict,
                status="truncated" if row.truncated else "finished",
                tokens=num_tokens,
                verifier_tokens=row.verifier_tokens,
                like=row.like,
                shared=row.shared,
                same=row.same if row.text is None else first_equal,
                scores=row.scores,
                steps=row.steps,
                outcomes=row.outcomes,
                given=row.correct,
                usd=row.usd,
            )
            for row, answer, answer_class, verdict, num_tokens, first_equal in parts
        )

    def _count(self, text: str) -> int:
        """Return the tokens of a text, counted or estimated."""
        if self.count is not None:
            return self.count(text)
        return math.ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)

    def _read(self, row: SampleRow) -> _Reading:
        """Return the answers of a row.

        The source's answer counts, unless it is the whole text. Otherwise the task extracts the answer. Where the
        task finds no answer, an answer that is the whole text counts if its filter or column extracts elsewhere.
        """
        given = None if row.answer is None else join_surrogates(row.answer) or None
        if row.text is None:
            return _Reading(given, None, is_compared=False)
        extracted = self._extract(self._response(row.text))
        stated = row.compared if row.answer is None else row.answer
        if stated is not None and not is_response(stated, row.text):
            if row.answer is not None:
                return _Reading(given, extracted, is_compared=True)
            return _Reading(extracted, join_surrogates(stated) or None, is_compared=True)
        if row.answer is None:
            return _Reading(extracted, None, is_compared=False)
        if extracted is None and row.extractor in self.facts.extracting:
            return _Reading(given, None, is_compared=False)
        self.report.counts[UNFILTERED] += 1
        return _Reading(extracted, None, is_compared=False)

    def _read_reply(self, row: SampleRow) -> SampleRow:
        """Return a row whose answer without a text, if it is a whole reply, is its text."""
        if row.text is not None or row.answer is None or not _REPLY.search(row.answer):
            return row
        self.report.counts[UNFILTERED] += 1
        return dataclasses.replace(row, text=row.answer, answer=None)

    def _answers(self, rows: Sequence[SampleRow], reference: str | None) -> tuple[list[str | None], list[int | None]]:
        """Return the answer of each row and its class, and compare the source's answers with those of the task."""
        readings = [self._read(row) for row in rows]
        answers = self._drop_literals([reading.answer for reading in readings], rows, reference)
        others = self._drop_literals([reading.other for reading in readings], rows, reference, is_told=False)
        classes = _classes([*answers, *others], self.task)
        answer_classes, other_classes = classes[: len(rows)], classes[len(rows) :]
        for i, (row, reading) in enumerate(zip(rows, readings, strict=True)):
            self.report.compared += reading.is_compared
            if not reading.is_compared or answer_classes[i] == other_classes[i]:
                continue
            self.report.unlike += 1
            if len(self.report.unlikenesses) < _MOST_UNLIKE:
                pair, counting = (answers[i], others[i]), "the task's"
                if row.answer is not None:
                    pair, counting = pair[::-1], "the source's"
                task_answer, given_answer = map(quote, pair)
                self.report.unlikenesses.append(
                    f"{row.place}: the task extracts {task_answer}, the source has {given_answer}; {counting} counts"
                )
        return answers, answer_classes

    def _drop_literals(
        self, answers: _Answers, rows: Sequence[SampleRow], reference: str | None, *, is_told: bool = True
    ) -> list[str | None]:
        """Return answers, with None where a literal, or under multiple choice a text without a letter, stands for none.

        Args:
            answers: The answer of each row.
            rows: The rows of a problem.
            reference: The reference of the problem, which is an answer.
            is_told: Whether literals and words are added to the self.report.
        """
        stated: list[str | None] = []
        is_choice = self.task.name.startswith("multiple_choice") and (reference is None or self._has_letter(reference))
        for answer, row in zip(answers, rows, strict=True):
            literal = fold_literal(answer or "")
            is_none = literal in self.no_answers or (is_choice and not self._has_letter(answer or ""))
            is_none = is_none and not row.correct and literal != fold_literal(reference or "")
            if is_told and answer is not None and is_none:
                self.report.stand_ins[answer.strip()] += 1
            elif is_told and self.task.name == "math" and _WORD.fullmatch(literal):
                self.report.words[(answer or "").strip(_AROUND)] += 1
            stated.append(None if is_none else answer)
        return stated

    def _has_letter(self, answer: str) -> bool:
        """Return whether an answer states a choice."""
        return bool(_LETTER.fullmatch(self.task.canonical(answer))) or self.task.extract(answer) is not None

    def _extract(self, text: str) -> str | None:
        answer = self.task.extract(text)
        patch = _PATCH.search(text) if answer is None and self.task.name == "patch" else None
        answer = answer if patch is None else patch[0]  # a text that is a patch, without an agent's messages
        return None if answer is None else join_surrogates(answer)

    def _response(self, text: str) -> str:
        """Return the text after the thought; "" where the text ends within its thought."""
        if self.marks is None:
            unmarked_text = without_marks(text)
            self.report.counts[UNMARKED] += unmarked_text != text
            return unmarked_text
        response = self.marks.response(text)
        self.report.counts[THINKING] += bool(text.strip()) and not response.strip()
        return response

    def _compare(
        self,
        rows: Sequence[SampleRow],
        answers: Sequence[str | None],
        reference: str | None,
        task_verdicts: Sequence[bool | None],
    ) -> None:
        """Add to the report where the source's verdicts differ from the task's, or among equal answers."""
        words = {False: "wrong", True: "right"}
        for row, answer, is_right in zip(rows, answers, task_verdicts, strict=True):
            if is_right is None or row.correct is None:
                continue
            self.report.judged += 1
            self.report.right["by the task"] += is_right
            self.report.right["by the source"] += row.correct
            self.report.right["by both"] += is_right and row.correct
            if is_right == row.correct:
                continue
            self.report.differ += 1
            if len(self.report.differences) < _MOST_NAMED:
                self.report.differences.append(
                    f"{row.place}: the answer {quote(answer)} is {words[is_right]} by the reference "
                    f"{quote(reference)}, but {words[row.correct]} by the source"
                )
        stated = {(answer, row.correct) for row, answer in zip(rows, answers, strict=True)}
        given = [(answer, correct) for answer, correct in stated if answer is not None and correct is not None]
        self.report.counts[DISPUTED] += any((answer, not correct) in stated for answer, correct in given)

    def _tokens(self, row: SampleRow) -> int:
        """Return the tokens of a sample: given, else counted, else estimated. The report notes which."""
        if row.tokens is not None:
            self.report.tokens["given"] += 1
            return row.tokens
        if row.text is not None and self.count is not None:
            self.report.tokens["counted"] += 1
            return self.count(row.text)
        self.report.tokens["estimated"] += 1
        return self.task.typical_tokens("solve") if row.text is None else self._count(row.text)


def _program(row: SampleRow) -> str | None:
    """Return the program of a sample: the given answer, else the program in its text."""
    if row.answer:
        return row.answer
    return None if row.text is None else program_in(row.text) or None


def _run_programs(
    programs: ProgramVerdicts | None, answers: Sequence[str | None], tests: str, place: str
) -> Sequence[bool | None]:
    """Return whether each answer, a program, passes the tests; None: no programs are run.

    Raises:
        ConfigError: the tests are no Python, or test nothing; the error has the place of the problem.
    """
    if programs is None:
        return [None] * len(answers)
    try:
        return [answer is not None and programs.passes(answer, tests) for answer in answers]
    except VerifierError as failure:
        raise ConfigError(f"{place}: {failure.cause}", hint=failure.hint) from failure


def _run_written(
    programs: ProgramVerdicts, row: SampleRow, program: str | None, written_tests: Sequence[str]
) -> SampleRow:
    """Return a row with the outcomes of written tests as steps of their role. Without a program, all outcomes are 0.

    Raises:
        ConfigError: the row has scores of the role of written tests.
    """
    if WRITTEN in row.scores:
        raise ConfigError(
            f"{row.place}: it has scores of the role {WRITTEN!r}, which is that of its written tests",
            hint="name the scores otherwise",
        )
    count = len(written_tests)
    outcomes = (0.0,) * count if program is None else programs.outcomes(program, written_tests)
    scores, steps = {**row.scores, WRITTEN: sum(outcomes) / count}, {**row.steps, WRITTEN: outcomes}
    return dataclasses.replace(row, scores=scores, steps=steps)


def _program_classes(programs: Sequence[str | None]) -> list[int | None]:
    """Return the class of each program, numbered by first appearance. Equal texts are one class."""
    classes: dict[str, int] = {}
    return [None if program is None else classes.setdefault(program, len(classes)) for program in programs]


def _sort_rows(rows: Sequence[SampleRow]) -> Sequence[SampleRow]:
    """Return rows by their sample number, if all have a whole number, else in the order of their source."""
    if all(row.sample is not None and row.sample.isdecimal() for row in rows):
        return sorted(rows, key=lambda row: int(row.sample or 0))
    return rows


def _common(name: str, rows: Sequence[SampleRow], field_name: str) -> Any:
    """Return the field that the rows of a problem have in common; None: no row has the field.

    Raises:
        ConfigError: two rows differ in the field.
    """
    first_row: SampleRow | None = None
    for row in rows:
        value = getattr(row, field_name)
        if value is None:
            continue
        if first_row is None:
            first_row = row
        elif value != getattr(first_row, field_name):
            first_value = getattr(first_row, field_name)
            raise ConfigError(
                f"{row.place}: the {field_name} of problem {name!r} is {quote(value)}, but {quote(first_value)} in "
                f"{first_row.place}",
                hint="give different problems different ids",
            )
    return None if first_row is None else getattr(first_row, field_name)


def _check_places(rows: Sequence[SampleRow], tokens: Sequence[int]) -> None:
    """Refuse samples that refer to a later sample, or share more tokens than they have.

    Raises:
        ConfigError: there is such a sample.
    """
    for i, row in enumerate(rows):
        for name, earlier in (("like", row.like), ("same", row.same)):
            if earlier is not None and earlier >= i:
                raise ConfigError(
                    f"{row.place}: its {name} is {earlier}, but must be the place of an earlier sample, below {i}"
                )
        most_shared = 0 if row.like is None else tokens[i]
        if row.shared > most_shared:
            raise ConfigError(
                f"{row.place}: its shared is {row.shared}, but it has {tokens[i]} tokens and like is {row.like}"
            )


def _classes(answers: Sequence[str | None], task: Task) -> list[int | None]:
    """Return the class of each answer, numbered by first appearance; None: there is no answer."""
    sorter = Answers(task)
    different_answers = [answer for answer in dict.fromkeys(answers) if answer is not None]
    answer_classes = LOOP.run(sorter.classes(different_answers))
    class_of: Mapping[str, int] = dict(zip(different_answers, answer_classes, strict=True))
    return [None if answer is None else class_of[answer] for answer in answers]


def _add(report: ImportReport, drawn: Sequence[RecordedSample]) -> None:
    """Add the samples of a problem to the counts of a report."""
    report.problems += 1
    report.samples += len(drawn)
    report.sizes[len(drawn)] += 1
    report.counts[REPEATED] += sum(sample.same is not None for sample in drawn)
    report.counts[SILENT] += sum(sample.answer is None for sample in drawn)
    report.counts[UNJUDGED] += all(sample.right is None for sample in drawn)
