"""Base classes for parts of one's own. One method is enough for each: `run`, `should_stop`, `select`.

    class Two(tts.Strategy):
        async def run(self, search):
            return await search.complete([search.root], n=2)

    tts.solve(problem, budget, strategy=Two())

A part with parameters is a frozen dataclass: its fields are the parameters of its text form. An object that has all members of the
protocol (`tts.search.protocols`) is accepted without the base class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self, cast

from tts.errors import ConfigError
from tts.search.asked_of_search import asked_by
from tts.search.plan import SELECTIONS, Named

if TYPE_CHECKING:
    from tts.search.ends import StopDecision
    from tts.search.protocols import Selected, SelectionProtocol
    from tts.search.search import Search
    from tts.types import Candidate

# a method of `Search` -> the capability of the backend that it takes
_CAPABILITIES = {"rollout": "steps", "extend": "extend", "fork": "token_ids", "ask": "next_logprobs", "hidden": "hidden"}


class _Needs:
    """The capabilities that a strategy's own methods ask for, read from their code."""

    def __get__(self, part: object, owner: type) -> tuple[str, ...]:
        asked = asked_by(owner)
        stepwise = "expand" in asked.members and ("STEP" in asked.names or not asked.names & {"END", "Tokens", "Thought", "Stops"})
        return tuple(
            dict.fromkeys((["steps"] if stepwise else []) + [_CAPABILITIES[name] for name in sorted(asked.members & _CAPABILITIES.keys())])
        )


class _Roles:
    """The role that a part scores with: its parameter `verifier` where it has one, else "main" where its own methods score."""

    def __get__(self, part: object, owner: type) -> tuple[str, ...]:
        if isinstance(role := getattr(owner if part is None else part, "verifier", None), str):
            return (role,)
        return ("main",) if asked_by(owner).members & {"score", "step_scores"} else ()


class Strategy(Named, ABC):
    """An algorithm that spends the budget of one problem. A subclass defines `run`; the rest has defaults.

    Attributes:
        registered_as: its name in text forms; by default its place, "module:Class".
        needs: capabilities (`Caps`) that the policy's backend must have. A backend that lacks one is refused before anything is spent.
            The default is read from calls in its methods: "steps" for `expand` by steps or `rollout`, "extend", "token_ids" for `fork`,
            "next_logprobs" for `ask`, "hidden".
        verifiers: roles of the verifiers that it uses during the search; the cost of a score is reserved with every row. The default is
            its parameter `verifier`. Without that, it is "main" if its methods call `score` or `step_scores`, otherwise none.
        gives_scores: roles under which it scores candidates itself, by `search.finish(t, scores=…)`. No verifier may have such a role.
            Selections by score may name it.
        sized_by_budget: parameters that may be None, which means as many as the budget pays.
        always_votes: whether the default selection is `majority` also with a verifier.

    The defaults of `needs` and `verifiers` are read from the code of the class, its bases and mixins. Calls count on a parameter that is
    named `search` or annotated `Search`, and on the parameter of `run`. Set both attributes if functions outside of the class call the
    search.

    Example:
        >>> import tts
        >>> class Two(tts.Strategy):
        ...     async def run(self, search):
        ...         return await search.complete([search.root], n=2)
        >>> found = tts.solve("3 + 4 - 2", 400, model="toy", strategy=Two())
        >>> found.answer, found.usage.samples
        ('5', 2)
    """

    __slots__ = ()
    needs: tuple[str, ...] = cast("tuple[str, ...]", _Needs())
    verifiers: tuple[str, ...] = cast("tuple[str, ...]", _Roles())
    gives_scores: tuple[str, ...] = ()
    sized_by_budget: ClassVar[tuple[str, ...]] = ("n",)
    always_votes: ClassVar[bool] = False

    @abstractmethod
    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search, and return the candidates to choose from: usually `search.candidates`."""
        ...

    def size(self, units: int | None) -> Self:
        """Return the strategy with parameters left None filled in from what the budget pays.

        The default returns the strategy itself: a parameter left None means as many as the budget pays.

        Args:
            units: plain samples of typical length that the budget pays; None: the budget does not bound them.

        Raises:
            ConfigError: neither the parameters nor the budget bound the search.
        """
        if units is None and any(getattr(self, name, 1) is None for name in self.sized_by_budget):
            sizes = " or ".join(self.sized_by_budget)
            raise ConfigError(
                f"{self.registered_as} has no {sizes} and the budget does not bound it",
                hint=f"give {sizes}, or a limit on tokens, samples or seconds",
            )
        return self

    def default_selection(self, *, verified: bool) -> SelectionProtocol:
        """Return the selection if the caller names none: `weighted` with a verifier, otherwise `majority`."""
        return SELECTIONS.get("weighted" if verified and not self.always_votes else "majority")()


class StopRule(Named, ABC):
    """A rule that ends a search before its budget is used up. A subclass defines `should_stop`.

    Example:
        >>> import tts
        >>> class Third(tts.StopRule):
        ...     def should_stop(self, candidates):
        ...         return tts.StopDecision("third") if len(candidates) == 3 else None
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=tts.BestOfN(n=8) | Third() | tts.Majority()).stopped_by
        'third'
    """

    __slots__ = ()

    @abstractmethod
    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a decision on the candidates so far, in index order. It must depend on these alone. None: continue."""
        ...


class Selection(Named, ABC):
    """A method to choose an answer from candidates. A subclass defines `select`; the rest has defaults.

    Attributes:
        registered_as: its name in text forms; by default its place, "module:Class".
        verifiers: roles of the verifiers that it may use; their worst-case cost is reserved with every row. Default: as for
            `Strategy.verifiers`.
        scores_all: whether it scores every candidate that it may score; such scores may be computed before it runs.

    Example:
        >>> import tts
        >>> class First(tts.Selection):
        ...     async def select(self, candidates, search):
        ...         return tts.Selected((candidates[0].answer,), tuple(candidates), 1 / len(candidates))
        >>> found = tts.solve("3 + 4 - 2", 400, model="toy", strategy=tts.BestOfN(n=4) | First())
        >>> found.answer, found.confidence
        ('5', 0.25)
    """

    __slots__ = ()
    verifiers: tuple[str, ...] = cast("tuple[str, ...]", _Roles())
    scores_all: bool = False

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Return whether it may ever score a candidate. If not, the amount reserved for the score is freed.

        Args:
            agreeing: earlier candidates of the same answer that were not truncated.
        """
        del candidate, agreeing
        return bool(self.verifiers)

    @abstractmethod
    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose. A truncated candidate counts only if it has an answer."""
        ...
