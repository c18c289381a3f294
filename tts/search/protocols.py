"""What a strategy and a selection are to a search; `tts.search.parts` has the classes to subclass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from tts.types import Candidate

if TYPE_CHECKING:
    from tts.search.algorithms.embedding import Embedder
    from tts.search.search import Search
    from tts.tasks.base import TaskProtocol


@dataclass(frozen=True, slots=True)
class Selected:
    """What a selection chose.

    Args:
        answers: the chosen answers, best first, as their first candidate wrote them; empty when none was extracted.
        ranked: the candidates, best first, with their weights and scores filled in.
        confidence: the winner's share of the weight of all candidates, those without an answer included; NaN without candidates.
        abstained: why no answer is chosen although there are some; "" where that is not so.

    Example:
        >>> import tts
        >>> chosen = tts.Selected(answers=("5",), ranked=(), confidence=0.75)
        >>> chosen.answers, chosen.confidence
        (('5',), 0.75)
    """

    answers: tuple[str, ...]
    ranked: tuple[Candidate, ...]
    confidence: float
    abstained: str = ""


@runtime_checkable
class StrategyProtocol(Protocol):
    """How compute is spent on one problem: a frozen dataclass of its own parameters, written against `Search`."""

    @property
    def registered_as(self) -> str:
        """Its name in text forms: as registered, else its place, "module:Class"."""
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

    def default_selection(self, *, verified: bool) -> SelectionProtocol:
        """Return the selection that fits this strategy where the caller names none; `verified`: whether there is a verifier."""
        ...


@runtime_checkable
class SelectionProtocol(Protocol):
    """How candidates become an answer."""

    @property
    def registered_as(self) -> str:
        """Its name in text forms: as registered, else its place, "module:Class"."""
        ...

    @property
    def verifiers(self) -> tuple[str, ...]:
        """The roles it may score with; their worst case is reserved with every row."""
        ...

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Return whether it may ever score a candidate; what was reserved for the score is free again where it may not.

        Args:
            agreeing: earlier candidates of the same answer that were not truncated.
        """
        ...

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose; a truncated candidate counts only if it has an answer."""
        ...


@runtime_checkable
class GivesScores(Protocol):
    """A strategy that gives its candidates scores of its own, `Search.finish(t, scores=…)`, so that no verifier need have their roles."""

    @property
    def gives_scores(self) -> tuple[str, ...]:
        """The roles of these scores."""
        ...


@runtime_checkable
class UsesModels(Protocol):
    """A strategy that writes or asks with models beside the policy."""

    @property
    def needs_of_models(self) -> Mapping[str, tuple[str, ...]]:
        """The capabilities that it uses of the model of each role."""
        ...


@runtime_checkable
class ComparesModels(Protocol):
    """A strategy that chooses models by what they cost."""

    @property
    def compares_in(self) -> str | None:
        """The unit of budgets in which it compares their costs; None: it chooses none."""
        ...


@runtime_checkable
class AsksEffort(Protocol):
    """A strategy that may ask a served model to think long or short, in the server's own word."""

    @property
    def effort(self) -> str | None:
        """See `Sampling.effort`; None: it does not ask."""
        ...


@runtime_checkable
class ShowsSolutions(Protocol):
    """A strategy that takes other prompts than "solve". A task without these prompts is refused before anything is spent."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """The kinds of prompts that the task must have, such as "fuse"."""
        ...


@runtime_checkable
class ChecksTask(Protocol):
    """A strategy that needs more of the task than prompts. A task without that is refused before anything is spent."""

    def check_task(self, task: TaskProtocol) -> None:
        """Raise ConfigError where the task lacks what the strategy needs of it."""
        ...


@runtime_checkable
class UsesMachine(Protocol):
    """A strategy that needs something of this machine, such as a sandbox; where it lacks that, it is refused before anything is spent."""

    def check_machine(self) -> None:
        """Raise CapabilityError or MissingDependency where it cannot run here."""
        ...


@runtime_checkable
class LimitsThoughts(Protocol):
    """A strategy that gives the thoughts of a model a budget of their own."""

    @property
    def thought_tokens(self) -> int:
        """Most tokens of a thought."""
        ...


@runtime_checkable
class ScoresAll(Protocol):
    """A selection that states whether it scores every candidate that it may score. If so, the scores may be computed before `select`."""

    @property
    def scores_all(self) -> bool:
        """Whether it scores every candidate for which `may_score` is true."""
        ...


@runtime_checkable
class GoesByVectors(Protocol):
    """A selection that compares the vectors of texts."""

    @property
    def embeds_by(self) -> Embedder | None:
        """The embedder; None: the solver's."""
        ...


@runtime_checkable
class GoesByPairs(Protocol):
    """A selection that compares candidates in pairs.

    Its verifier must have the trait `Traits.comparison`. This is checked before anything is spent.
    """

    @property
    def judge(self) -> str:
        """Role of the verifier that compares."""
        ...


@runtime_checkable
class HoldsPairs(GoesByPairs, Protocol):
    """A selection that compares candidates in pairs, for which comparisons are held with every row."""

    @property
    def pairs_each(self) -> int:
        """The most comparisons for each candidate."""
        ...
