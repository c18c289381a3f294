"""The three seams of a search: exploring (a strategy), stopping (a rule), choosing (a selection); and how they are written.

`best_of_n(n=64) | unanimous(window=8) | weighted` is a `Plan`; its text form parses back to equal objects
(`tts.search.registry.parse`).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from tts.backends.base import Sampling
from tts.errors import ConfigError, shown
from tts.types import Candidate, Message, Problem

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
        whole("Tokens", self.count, 1, optional=False)


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
        abstained: why no answer is chosen although there are some; "" where that is not so.
    """

    answers: tuple[str, ...]
    ranked: tuple[Candidate, ...]
    confidence: float
    abstained: str = ""


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
class GoesByScores(Protocol):
    """A stop rule that reads `Candidate.scores`: candidates are scored by its role, where that can be paid, before it is asked."""

    @property
    def verifier(self) -> str:
        """The role."""
        ...

    @property
    def aggregate(self) -> str:
        """Step scores to one."""
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


@runtime_checkable
class ScoresAll(Protocol):
    """A selection that may say that it scores every candidate which it may score: those scores may be made before it asks."""

    @property
    def scores_all(self) -> bool:
        """Whether it does."""
        ...


@runtime_checkable
class GoesByPairs(Protocol):
    """A selection that compares candidates two by two; that its verifier can (`Compares`) is checked before anything is spent."""

    @property
    def judge(self) -> str:
        """The role that compares."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A strategy with its stop rule and its selection; None stands for the default."""

    strategy: Strategy
    stopping: StopRule | None = None
    selection: Selection | None = None

    @classmethod
    def of(cls, part: Any) -> Plan:
        """Return a plan as it is, and a strategy, or the class of one, as a plan with defaults.

        Raises:
            ConfigError: it is neither; what an attempt at a strategy lacks is named.
        """
        part = _made(part)
        if isinstance(part, Plan):
            return part
        if isinstance(part, Strategy):
            return cls(part)
        _refuse_attempt(part, Strategy, "run", "strategy")
        raise ConfigError(f"the strategy is {shown(part)}, but must begin with a strategy", hint="for example best_of_n(n=8) | majority")

    def __or__(self, part: Any) -> Plan:
        part = _made(part)
        if isinstance(part, StopRule):
            if self.stopping is not None:
                raise ConfigError(f"the strategy has two stop rules, {self.stopping} and {part}, but may have one")
            return dataclasses.replace(self, stopping=part)
        if isinstance(part, Selection):
            if self.selection is not None:
                raise ConfigError(f"the strategy has two selections, {self.selection} and {part}, but may have one")
            return dataclasses.replace(self, selection=part)
        _refuse_attempt(part, StopRule, "should_stop", "stop rule")
        _refuse_attempt(part, Selection, "select", "selection")
        raise ConfigError(f"{shown(part)} is neither a stop rule nor a selection", hint="write STRATEGY | STOP RULE | SELECTION")

    def __str__(self) -> str:
        return " | ".join(str(part) for part in (self.strategy, self.stopping, self.selection) if part is not None)


def lacking(part: Any, protocol: type) -> list[str]:
    """Return the names of a protocol's members that an object does not have."""
    members = {name for name in (*dir(protocol), *protocol.__annotations__) if not name.startswith("_")}
    absent = object()
    return sorted(name for name in members if inspect.getattr_static(part, name, absent) is absent)


def _refuse_attempt(part: Any, protocol: type, verb: str, kind: str) -> None:
    """Raise ConfigError where an object has a protocol's verb, but not all of its members."""
    missing = lacking(part, protocol)
    if missing and verb not in missing:
        raise ConfigError(
            f"{type(part).__name__} has {verb}, but is no {kind}: it lacks {', '.join(missing)}",
            hint=f"give it all members of tts.search.base.{protocol.__name__}",
        )


def _made(part: Any) -> Any:
    """Return an object as it is, and a class as an object with every parameter at its default."""
    if not isinstance(part, type):
        return part
    try:
        return part()
    except TypeError as failure:
        raise ConfigError(f"{part.__name__} cannot be made without parameters: {failure}", hint="give an object, not its class") from None


_LARGE = 2**63  # what no count and no other number of a search reaches


def check_temperature(value: Any) -> None:
    """Raise ConfigError where a strategy's temperature (None is let through: the run's) is none that a model can be sampled at."""
    number("temperature", value)
    if value is not None:
        Sampling(temperature=value)


def whole(name: str, value: Any, least: int, *, optional: bool = True) -> None:
    """Raise ConfigError where a parameter is not a whole number of at least `least`; `optional`: None is let through."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _refused(name, value, f"a whole number of at least {least}")
    if value >= _LARGE:
        raise _refused(name, value, "below 2**63")


def number(name: str, value: Any, least: float | None = None, most: float | None = None, *, optional: bool = True) -> None:
    """Raise ConfigError where a parameter is not a finite number from `least` to `most`; `optional`: None is let through."""
    if value is None and optional:
        return
    rule = "a number" if least is None else f"a number of at least {least}" if most is None else f"a number between {least} and {most}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGE:
        raise _refused(name, value, rule)
    if (least is not None and value < least) or (most is not None and value > most):
        raise _refused(name, value, rule)


def nonempty_text(name: str, value: Any) -> None:
    """Raise ConfigError where a parameter is not a text, or is empty."""
    if not isinstance(value, str) or not value:
        raise _refused(name, value, "a text that is not empty")


def _refused(name: str, value: Any, rule: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{name} is {shown(value)}, but must be {rule}", hint=hint)


def check_bounded(name: str, sizes: str, units: int | None) -> int:
    """Return the samples that the budget pays, where a strategy's sizes are left to it.

    Raises:
        ConfigError: no limit bounds them.
    """
    if units is None:
        raise ConfigError(
            f"{name} has no {sizes} and the budget does not bound it", hint=f"give {sizes}, or a limit on tokens, samples or seconds"
        )
    return units


def check_problem(problem: Problem) -> None:
    """Refuse a problem that no prompt can be made from: `tts.types` imports nothing of ours, so `Problem` itself cannot.

    Raises:
        ConfigError: the prompt is neither text nor messages of text, or another field is not of its type.
    """
    prompt: Any = problem.prompt
    if not isinstance(prompt, str | tuple):
        raise _refused("the problem", prompt, "text or a list of chat messages", _MESSAGES)
    for turn in () if isinstance(prompt, str) else prompt:
        parts: tuple[Any, ...] = (turn.role, turn.content) if isinstance(turn, Message) else (None,)
        if not all(isinstance(part, str) for part in parts):
            raise _refused("a message of the problem", turn, "a role and a content, both text", _MESSAGES)
    for part in (prompt,) if isinstance(prompt, str) else (part for turn in prompt for part in (turn.role, turn.content)):
        if _HALF.search(part):
            raise _refused(
                "the problem", part, "text that can be written", "it holds half of a character (a lone surrogate): decode it anew"
            )
    for name, example in (("answer", "7"), ("id", "train/12"), ("task", "math")):
        value = getattr(problem, name)
        if not isinstance(value, str | None):
            raise _refused(f"the {name} of the problem", value, "text or None", f"for example Problem('3 + 4', {name}={example!r})")
    metadata: Any = problem.metadata
    if not isinstance(metadata, Mapping):
        raise _refused("the metadata of the problem", metadata, "a mapping", "for example {'level': 3}")


_HALF = re.compile("[\ud800-\udfff]")
_MESSAGES = 'a message is {"role": "user", "content": "…"}'
