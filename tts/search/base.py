"""The three seams of a search: exploring (a strategy), stopping (a rule), choosing (a selection); and how they are written.

`best_of_n(n=64) | unanimous(window=8) | weighted` is a `Plan`; its text form parses back to equal objects
(`tts.search.registry.parse`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from tts.backends.base import Sampling
from tts.errors import ConfigError
from tts.types import Candidate

if TYPE_CHECKING:
    from tts.search.search import Search


class Until(Enum):
    """Where `Search.expand` ends a row: at the next step boundary, or at the end of the solution."""

    STEP = "step"
    END = "end"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where `Search.expand` ends a row: after so many tokens."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"Tokens is {self.count}, but must be at least 1")


STEP, END = Until.STEP, Until.END


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop rule's verdict.

    Args:
        reason: shown as `Solution.stopped_by`.
        answer: the answer to return whatever the selection says; None: let the selection choose.
        used: the candidates the selection may use.
    """

    reason: str
    answer: str | None = None
    used: slice = field(default_factory=lambda: slice(None))


class SearchEnded(Exception):
    """The search is over: `reason` says why; `stop` is the stop rule's verdict where it was one."""

    def __init__(self, reason: str, stop: Stop | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Selected:
    """What a selection chose.

    Args:
        answers: the chosen answers, best first, as their first candidate wrote them; empty when none was extracted.
        ranked: the candidates, best first, with their weights and scores filled in.
        confidence: the winner's share of the weight of all candidates, those without an answer included; NaN without candidates.
    """

    answers: tuple[str, ...]
    ranked: tuple[Candidate, ...]
    confidence: float


class Named:
    """Gives a frozen dataclass its text form: its name in the table, and the parameters that differ from their defaults."""

    __slots__ = ()
    registered_as = ""

    def __str__(self) -> str:
        pairs: list[str] = []
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.init and value != _default(f):
                pairs.append(f"{f.name}={value!r}")
        return f"{self.registered_as}({', '.join(pairs)})" if pairs else self.registered_as

    def __or__(self, other: Any) -> Plan:
        return Plan.of(self) | other


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


@runtime_checkable
class Strategy(Protocol):
    """How compute is spent on one problem: a frozen dataclass of its own parameters, written against `Search`."""

    @property
    def registered_as(self) -> str:
        """Its name in the table."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """The capabilities of the policy's backend that it uses."""
        ...

    @property
    def verifiers(self) -> tuple[str, ...]:
        """The roles it scores with while it searches, whose cost is reserved with every row."""
        ...

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search, and return the candidates to choose from."""
        ...

    def size(self, units: int | None) -> Self:
        """Fill parameters left None from what the budget pays.

        Args:
            units: plain samples of typical length that the budget pays; None: the budget does not bound them.

        Raises:
            ConfigError: neither the parameters nor the budget bound the search.
        """
        ...

    def default_selection(self, *, verified: bool) -> Selection:
        """Return the selection that fits this strategy where the caller names none; `verified`: whether there is a verifier."""
        ...


@runtime_checkable
class StopRule(Protocol):
    """When to stop early. Asked on the candidates in index order, as soon as all before are finished."""

    @property
    def registered_as(self) -> str:
        """Its name in the table."""
        ...

    def should_stop(self, candidates: Sequence[Candidate]) -> Stop | None:
        """Return a verdict on the candidates so far; it must not depend on anything else."""
        ...


@runtime_checkable
class Selection(Protocol):
    """How candidates become an answer."""

    @property
    def registered_as(self) -> str:
        """Its name in the table."""
        ...

    @property
    def verifiers(self) -> tuple[str, ...]:
        """The roles it may score with; their worst case is reserved with every row."""
        ...

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Return whether it may ever ask about a candidate; what was reserved for its score is free again where it may not.

        Args:
            agreeing: earlier candidates of the same answer that were not truncated.
        """
        ...

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose; a truncated candidate counts only if it has an answer."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A strategy with its stop rule and its selection; None stands for the default."""

    strategy: Strategy
    stopping: StopRule | None = None
    selection: Selection | None = None

    @classmethod
    def of(cls, part: Any) -> Plan:
        """Return a plan as it is, and a strategy as a plan with defaults.

        Raises:
            ConfigError: it is neither.
        """
        if isinstance(part, Plan):
            return part
        if isinstance(part, Strategy):
            return cls(part)
        raise ConfigError(f"the strategy is {part!r}, but must begin with a strategy", hint="for example best_of_n(n=8) | majority")

    def __or__(self, part: Any) -> Plan:
        if isinstance(part, type):
            part = part()
        if isinstance(part, StopRule):
            if self.stopping is not None:
                raise ConfigError(f"the strategy has two stop rules, {self.stopping} and {part}, but may have one")
            return dataclasses.replace(self, stopping=part)
        if isinstance(part, Selection):
            if self.selection is not None:
                raise ConfigError(f"the strategy has two selections, {self.selection} and {part}, but may have one")
            return dataclasses.replace(self, selection=part)
        raise ConfigError(f"{part!r} is neither a stop rule nor a selection", hint="write STRATEGY | STOP RULE | SELECTION")

    def __str__(self) -> str:
        return " | ".join(str(part) for part in (self.strategy, self.stopping, self.selection) if part is not None)


def check_temperature(value: Any) -> None:
    """Raise ConfigError where a strategy's temperature (None is let through: the run's) is none that a model can be sampled at."""
    if value is not None:
        Sampling(temperature=value)


def at_least(name: str, value: float | None, least: float) -> None:
    """Raise ConfigError where a parameter (None is let through) is below its least value."""
    if value is not None and not value >= least:
        raise ConfigError(f"{name} is {value}, but must be at least {least}")


def whole(name: str, value: Any, least: int) -> None:
    """Raise ConfigError where a parameter (None is let through) is not a whole number of at least `least`."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least {least}")
    at_least(name, value, least)
