"""Ends of rows and searches: a step, the solution's end, a number of tokens, or a stop rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from typing import Any, Final, Literal

from tts.backends.base import StopCondition
from tts.budget.account import Exhausted
from tts.checks import check_int, check_number, check_text
from tts.errors import BudgetExceeded, ConfigError, quote
from tts.tasks.base import Task
from tts.thoughts import ThoughtMarks
from tts.verifiers.base import Judgement


class Until(Enum):
    """An end of a row in `Search.expand`: the next step boundary, or the end of the solution."""

    STEP = "step"
    END = "end"


@dataclass(frozen=True, slots=True)
class Tokens:
    r"""An end of a row in `Search.expand`: after `count` tokens.

    Args:
        count: The number of tokens, at least 1.

    Raises:
        ConfigError: `count` is out of its range.

    Example:
        >>> import tts
        >>> class Begun(tts.Strategy):
        ...     async def run(self, search):
        ...         rows = await search.expand([search.root], n=2, until=tts.Tokens(5))
        ...         return await search.complete(rows[0])
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=Begun()).candidates[0].trajectory.steps
        ('3 + 4 = 7', '\n7 - 2 = 5\nA: 5')
    """

    count: int

    def __post_init__(self) -> None:
        check_int("Tokens", self.count, 1, optional=False)


MOST_TOKENS = 1 << 40  # tokens of a row without a cap


@dataclass(frozen=True, slots=True)
class Thought(Tokens):
    r"""An end of a row in `Search.expand`: after the mark that ends its thought, or after `count` tokens.

    Args:
        count: The most tokens, at least 1.

    Raises:
        ConfigError: `count` is out of its range.

    Example:
        >>> import tts
        >>> class Brief(tts.Strategy):
        ...     async def run(self, search):
        ...         [[thought]] = await search.expand([search.root], until=tts.Thought(40))
        ...         return await search.complete([thought])
        >>> tts.solve("3 + 4 - 2", 400, model="toy-thinking", strategy=Brief()).candidates[0].trajectory.steps
        ('<think>\n3 + 4 = 8\n8 - 2 = 6\nWait\n3 + 4 = 7\n7 - 2 = 6\n</think>', '\nA: 6')
    """


@dataclass(frozen=True, slots=True)
class Share:
    """An end of a row in `Search.expand`: after a part of the expected length of a solution.

    The part is above 0 and at most 1.
    """

    part: float

    def __post_init__(self) -> None:
        check_number("Share", self.part, 1e-6, 1, optional=False)


@dataclass(frozen=True, slots=True)
class Stops:
    r"""An end of a row in `Search.expand`: after the first of these texts, which stays in the row.

    A row without any of these texts ends with the solution.

    Args:
        texts: The texts, at least one.

    Raises:
        ConfigError: `texts` is not a tuple of texts, or is empty.

    Example:
        >>> import tts
        >>> class Halves(tts.Strategy):
        ...     async def run(self, search):
        ...         rows = await search.expand([search.root], until=tts.Stops((" = ",)))
        ...         return await search.complete(rows[0])
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=Halves()).candidates[0].trajectory.steps
        ('3 + 4 = ', '7\n7 - 2 = 5\nA: 5')
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        texts: Any = self.texts
        if not isinstance(texts, tuple) or not texts:
            raise ConfigError(
                f"Stops is {quote(texts)}, but must be a tuple of texts", hint="for example Stops(('\\n```\\n',))"
            )
        for text in texts:
            check_text("a text of Stops", text)


STEP = Until.STEP
r"""To the end of the next step.

Example:
    >>> import tts
    >>> class Steps(tts.Strategy):
    ...     async def run(self, search):
    ...         [[first]] = await search.expand([search.root], until=tts.STEP)
    ...         [[whole]] = await search.expand([first], until=tts.END)
    ...         return [search.finish(whole)]
    >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=Steps()).candidates[0].trajectory.steps
    ('3 + 4 = 7\n', '7 - 2 = 5\nA: 5')
"""

END = Until.END
"""To the end of the solution.

Example:
    >>> import tts
    >>> class Whole(tts.Strategy):
    ...     async def run(self, search):
    ...         rows = await search.expand([search.root], n=3, until=tts.END)
    ...         return [search.finish(t) for t in rows[0]]
    >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=Whole()).usage.samples
    3
"""


def stop_of(until: Until | Tokens | Stops, marks: ThoughtMarks, task: Task) -> StopCondition:
    """Return the stop condition of rows with an end, besides their lengths. The task never sees a thought.

    Args:
        until: The end of each row.
        marks: The marks of the thoughts that the rows' paths may begin with.
        task: The task.
    """
    if isinstance(until, Thought):
        return StopCondition((marks.close.strip(),), at_step=True)
    texts = until.texts if isinstance(until, Stops) else ()
    return StopCondition(
        (*task.step_stop, *texts),
        at_step=until is STEP or bool(texts),
        finished=lambda text: task.is_finished(marks.response(text)),
        at=texts or None,
    )


@dataclass(frozen=True, slots=True)
class StopDecision:
    """The decision of a stop rule to end the search.

    Args:
        reason: The reason, shown as `Solution.stopped_by`.
        answer: The answer to return, whatever the selection chooses; None: the selection's answer.
        used: The slice of the candidates that the selection may use.

    Example:
        >>> import tts
        >>> tts.StopDecision("agreed", answer="5").reason
        'agreed'
    """

    reason: str
    answer: str | None = None
    used: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True, slots=True)
class Level:
    """One division of a search's further work among its paths, by particles or by a tree of steps.

    Args:
        kind: "resampled": ancestors were drawn. "carried": the particles went on with their weights. "ended": all paths
            have stopped. "split": each path got a number of continuations that its score fixes.
        sweep: The chain and the sweep that the level belongs to.
        nodes: The paths, by their last nodes; a path with copies is listed once for each copy.
        log_weights: The natural log-weight of each path. For particles: since the last resampling. For split paths: the
            logarithm of the path's share.
        temperature: The temperature of the weights, above 0.
        ancestors: The place in `nodes` of each path that went on, in order; empty for the kinds "ended" and "split".
        counts: The number of continuations of each split path. Counts take little space, however wide the search is.
        is_fixed: Whether the law of the weights is known, whatever other paths did.
    """

    kind: Literal["resampled", "carried", "ended", "split"]
    sweep: tuple[int, int]
    nodes: tuple[int, ...]
    log_weights: tuple[float, ...]
    temperature: float = 1.0
    ancestors: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    is_fixed: bool = True

    def parents(self) -> Iterator[int]:
        """Yield the place in `nodes` of each path that went on; a split path once for each continuation."""
        yield from self.ancestors
        for place, count in enumerate(self.counts):
            yield from repeat(place, count)


@dataclass(slots=True)
class Notes:
    """A search's notes for the solution and its trace.

    Attributes:
        warnings: The warnings of the solution, each once.
        reasons: The reasons of decisions, for the trace.
        timed: Whether a decision depended on elapsed time.
        timed_out: Whether the `seconds` limit cut a call short.
        stop: The decision of the stop rule, once it has stopped the search.
        levels: The divisions of the search's work among its paths, in order, where its method divides by weights.
    """

    warnings: list[str] = field(default_factory=list[str])
    reasons: list[str] = field(default_factory=list[str])
    timed: bool = False
    timed_out: bool = False
    stop: StopDecision | None = None
    levels: list[Level] = field(default_factory=list[Level])

    def warn(self, line: str, *, timed: bool = False) -> None:
        """Add a line to the solution's warnings, once.

        Args:
            line: The line.
            timed: Whether the warning depends on elapsed time.
        """
        self.timed = self.timed or timed
        if line not in self.warnings:
            self.warnings.append(line)


@dataclass(slots=True)
class CallNotes:
    """What verifiers' calls leave beside their scores and costs.

    Attributes:
        unknown: The counts of texts that could not be read, by what and kind (see `Calls.note_unread`).
        judgements: The prompts to models, with the replies.
        failures: The number of replies and scores in which a model or its server failed, by kind.
        repeats: Those of them that were repeated with success, by kind.
        causes: The cause of the first failure of each kind.
    """

    unknown: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    judgements: list[Judgement] = field(default_factory=list[Judgement])
    failures: Counter[str] = field(default_factory=Counter[str])
    repeats: Counter[str] = field(default_factory=Counter[str])
    causes: dict[str, str] = field(default_factory=dict[str, str])

    def note_failures(self, kind: str, cause: str, number: int) -> None:
        """Count failures of a kind."""
        self.failures[kind] += number
        self.causes.setdefault(kind, cause)


ROWS_FAILED: Final = "every row failed"


class SearchEnded(Exception):
    """The search is over.

    Args:
        reason: The reason of the end.
        stop: The decision of the stop rule, if a stop rule ended the search.

    Attributes:
        before_choice: The same end without the limit to chosen candidates (see `restrict_candidates`); None: no
            strategy chose candidates.
    """

    def __init__(self, reason: str, stop: StopDecision | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stop = stop
        self.before_choice: SearchEnded | None = None

    def restrict_candidates(self, used: slice) -> SearchEnded:
        """Return the same end with a limit: the selection may use only the candidates of the slice `used`.

        An end by a stop rule stays as it is.
        """
        if self.stop is not None:
            return self
        restricted_end = SearchEnded(self.reason, StopDecision(self.reason, used=used))
        restricted_end.before_choice = self
        return restricted_end

    @property
    def is_failure(self) -> bool:
        """Whether every row failed, time after time."""
        return self.stop is None and self.reason == ROWS_FAILED

    @property
    def out_of_budget(self) -> bool:
        """Whether a limit other than time ended the search, and no stop rule."""
        return self.stop is None and self.reason.startswith("budget") and self.reason != "budget: seconds"


def end_of(shortage: Exhausted, *, has_candidates: bool) -> SearchEnded | BudgetExceeded:
    """Return the end of a search for which a limit cannot pay.

    A search that runs inside a call of its own account has no result to give, so it fails.

    Args:
        shortage: What cannot be paid.
        has_candidates: Whether the search has a result all the same.
    """
    if has_candidates or not shortage.enclosing:
        return SearchEnded(f"budget: {shortage.unit}")
    return BudgetExceeded(
        f"this search runs inside a call of {shortage.enclosing}, which holds the {shortage.unit} that it waits for",
        hint="give the inner search a budget of its own, or the outer one a smaller budget",
    )
