"""Ends of rows and searches: at a step, a solution's end, a number of tokens, or by a stop rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

from tts.checks import check_int, check_number, check_text
from tts.errors import ConfigError, quote
from tts.renamed import refuse_old_names


class Until(Enum):
    """Where `Search.expand` ends a row: at the next step boundary, or at the end of the solution."""

    STEP = "step"
    END = "end"


@dataclass(frozen=True, slots=True)
class Tokens:
    r"""Where `Search.expand` ends a row: after `count` tokens.

    Args:
        count: Tokens, at least 1.

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


MOST_TOKENS = 1 << 40  # of a row without a cap


@dataclass(frozen=True, slots=True)
class Thought(Tokens):
    r"""Where `Search.expand` ends a row: after the mark that ends its thought, or after `count` tokens.

    Args:
        count: Most tokens, at least 1.

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

    Without one of them the row ends with the solution.

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
        given: Any = self.texts
        if not isinstance(given, tuple) or not given:
            raise ConfigError(
                f"Stops is {quote(given)}, but must be a tuple of texts", hint="for example Stops(('\\n```\\n',))"
            )
        for text in given:
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


@dataclass(frozen=True, slots=True)
class StopDecision:
    """The decision of a stop rule to end the search.

    Args:
        reason: Shown as `Solution.stopped_by`.
        answer: The answer to return, whatever the selection chooses; None: that of the selection.
        used: The candidates the selection may use.

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
    """How a search divided what it writes among its paths, once.

    Args:
        kind: "resampled": ancestors were drawn; "carried": the particles went on with their weights; "ended": all have
            stopped; "split": each path got a number of continuations that its score fixes.
        sweep: The chain and the sweep that it belongs to.
        nodes: The paths, by their last nodes; copies are listed as often as there are.
        log_weights: One a path, natural: of particles since the last resampling; of split paths the log-share of each.
        temperature: The temperature of the weights, above 0.
        ancestors: The place in `nodes` of each path that went on, in order; empty at the end, and of split paths.
        counts: The number of continuations of each split path. They are not written out: a search may be as wide as its
            caller likes.
        is_fixed: Whether the law that the weights stand for does not depend on how long other paths took.
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
        """Yield the place in `nodes` of each path that went on.

        The places of split paths come in the order of these paths.
        """
        yield from self.ancestors
        for place, count in enumerate(self.counts):
            yield from repeat(place, count)


@dataclass(slots=True)
class Notes:
    """What a search tells the solution and its trace.

    Attributes:
        warnings: Lines for the solution, each once.
        reasons: Reasons of decisions, for the trace.
        timed: Whether a decision depended on elapsed time.
        timed_out: Whether the `seconds` limit cut a call short.
        stop: The decision of the stop rule, once it has stopped the search.
        levels: How the search divided what it writes, in order, where its method does so by weights.
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
            timed: Whether it depends on elapsed time.
        """
        self.timed = self.timed or timed
        if line not in self.warnings:
            self.warnings.append(line)


class SearchEnded(Exception):
    """The search is over.

    Args:
        reason: Why.
        stop: The decision of the stop rule, if a stop rule ended the search.

    Attributes:
        before_choice: The end without the candidates that a strategy chose (`restrict_candidates`); None: no strategy
            chose any.
    """

    def __init__(self, reason: str, stop: StopDecision | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stop = stop
        self.before_choice: SearchEnded | None = None

    def restrict_candidates(self, used: slice) -> SearchEnded:
        """Return this end, after which the selection may use only these candidates.

        The end by a stop rule stays as it is.
        """
        if self.stop is not None:
            return self
        chosen = SearchEnded(self.reason, StopDecision(self.reason, used=used))
        chosen.before_choice = self
        return chosen

    @property
    def out_of_budget(self) -> bool:
        """Whether a limit ended it other than time, and no stop rule."""
        return self.stop is None and self.reason.startswith("budget") and self.reason != "budget: seconds"


if not TYPE_CHECKING:
    __getattr__ = refuse_old_names(__name__)
