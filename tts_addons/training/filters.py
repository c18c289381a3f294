"""Which samples of a search become rows, and whether each counts as good."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Annotated, Literal

from tts.checks import Count, check_parameters, choice, number
from tts.errors import ConfigError
from tts_addons.training.records import PathSample, SearchRows


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The samples that become rows.

    Args:
        keep: "good" samples, the "best" one of each search, from which its answer was taken, right or wrong, "all", or
            "auto": good ones for trl-sft and chat, else all.
        judge: The judge of what is good: the "verdict" of the task on the answer, or the verifier's "score".
        threshold: The lowest score of a good sample or step with the judge "score", in the verifier's range.
        per_problem: The most rows of one problem; None: no limit.
        distinct: Whether of samples of one problem with equal texts only the first is kept.
        balanced: Whether each answer of a search has at most as many samples as its rarest one. Samples without an
            answer are left out. A limit of `per_problem` takes the answers in turn.
        margin: The least difference of the scores in a pair; None: pairs need no scores.
        thoughts: Whether a thought is kept in texts ("keep"), left out ("drop"), or kept and masked ("mask", of the
            form tokens alone).
        verifier: The role whose scores are read; None: the first that scored.

    Raises:
        ConfigError: A value is of no use.

    Example:
        >>> import tts
        >>> from tts_addons.training.filters import Filters
        >>> Filters(per_problem=2, distinct=True).judge
        'verdict'
    """

    keep: Annotated[str, choice("auto", "good", "best", "all")] = "auto"
    judge: Annotated[str, choice("verdict", "score")] = "verdict"
    threshold: Annotated[float, number()] = 0.5
    per_problem: Count | None = None
    distinct: bool = False
    balanced: bool = False
    margin: Annotated[float, number(0)] | None = None
    thoughts: Annotated[str, choice("keep", "drop", "mask")] = "keep"
    verifier: str | None = None

    def __post_init__(self) -> None:
        check_parameters(self)

    def is_good(self, sample: PathSample) -> bool | None:
        """Return whether a sample is good; None: its judge does not know."""
        if self.judge == "verdict":
            return sample.right
        return None if sample.score is None else sample.score >= self.threshold

    @property
    def unknown(self) -> str:
        """The name of samples that the judge does not know."""
        return "samples without a verdict" if self.judge == "verdict" else "samples without a score"


LeftOut = Counter[str]


@dataclass(slots=True)
class Sieve:
    """Applies filters to one search after another, and counts what is left out, by reason.

    Args:
        filters: The filters.
        keep: The samples that are kept where the filters do not say.
        wrong: The rows so far that show a sample as good whose answer is known to be wrong.
    """

    filters: Filters
    keep: Literal["good", "best", "all"]
    left_out: LeftOut = field(default_factory=LeftOut)
    wrong: int = 0
    _rows: Counter[str] = field(default_factory=Counter[str])
    _texts: set[bytes] = field(default_factory=set[bytes])

    def samples(self, record: SearchRows) -> list[PathSample]:
        """Return the samples of a search that are kept, in draw order; balanced answers take turns."""
        kept = list(self._keep_samples(record))
        return self._balance_answers(kept) if self.filters.balanced else kept

    def admit(self, record: SearchRows, good: PathSample | None = None) -> bool:
        """Return whether the problem of a search may have one more row, and count the row if so.

        Args:
            record: The search.
            good: The sample that the row shows as good; None: none.
        """
        if self.filters.per_problem is not None and self._rows[record.problem] >= self.filters.per_problem:
            self.left_out["rows beyond the most of their problem"] += 1
            return False
        self._rows[record.problem] += 1
        self.wrong += good is not None and good.right is False
        return True

    def admit_problem(self, record: SearchRows) -> bool:
        """Return whether a problem has no row yet, and count its row if so."""
        if self._rows[record.problem]:
            return False
        self._rows[record.problem] += 1
        return True

    def _keep_samples(self, record: SearchRows) -> Iterator[PathSample]:
        """Yield the samples that pass the filters `keep` and `distinct`, and count all others by reason."""
        keep = self.keep if self.filters.keep == "auto" else self.filters.keep
        for sample in record.samples:
            is_good = self.filters.is_good(sample) if keep == "good" else True
            if is_good is None:
                self.left_out[self.filters.unknown] += 1
            elif not is_good:
                self.left_out["samples that are not good"] += 1
            elif keep == "best" and not sample.is_best:
                self.left_out["samples that are not the best of their search"] += 1
            elif self.filters.distinct and self._is_known(record.problem, sample.text):
                self.left_out["samples with the text of another"] += 1
            else:
                yield sample

    def _is_known(self, problem: str, text: str) -> bool:
        digest = hashlib.sha256(f"{problem}\0{text}".encode("utf-8", "surrogatepass")).digest()[:12]
        if digest in self._texts:
            return True
        self._texts.add(digest)
        return False

    def _balance_answers(self, samples: Sequence[PathSample]) -> list[PathSample]:
        """Return as many samples of each answer as the rarest answer has.

        The answers take turns, so that a limit of rows takes equally many of each.
        """
        by_answer = defaultdict[str, list[PathSample]](list)
        for sample in samples:
            if sample.answer is not None:
                by_answer[sample.answer].append(sample)
        balanced = list(chain.from_iterable(zip(*by_answer.values(), strict=False)))  # ends with the rarest answer
        self.left_out["samples beyond the balance of answers"] += len(samples) - len(balanced)
        return balanced


def check_filters(filters: Filters, form: str, used: Collection[str], *, masks: bool) -> None:
    """Refuse a filter that a form would ignore, or cannot follow.

    Args:
        filters: The filters.
        form: The name of the form.
        used: The names of the filters that the form uses.
        masks: Whether rows of the form have masks of tokens.

    Raises:
        ConfigError: A filter would be ignored, or cannot be followed.
    """
    for field_ in fields(filters):
        if getattr(filters, field_.name) != field_.default and field_.name not in used:
            raise ConfigError(
                f"{field_.name} was given, but the form {form} does not use it",
                hint=f"it uses {', '.join(sorted(used)) or 'none'}",
            )
    if filters.threshold != Filters().threshold and filters.judge != "score":
        raise ConfigError("threshold was given, but verdicts have none", hint="add judge='score'")
    if filters.thoughts == "mask" and not masks:
        raise ConfigError(
            f"thoughts is 'mask', but the form {form} has no masks", hint="use the form tokens, or thoughts='drop'"
        )
    if filters.thoughts == "drop" and masks:
        raise ConfigError(
            f"thoughts is 'drop', but log-probabilities of the form {form} hold after the thought alone",
            hint="use thoughts='mask'",
        )
