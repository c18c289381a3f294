"""Parts of a plan: names, base classes, and the plan that joins one part of each kind.

There are base classes for strategies, stop rules and selections.

    class Two(tts.Strategy):
        async def run(self, search):
            return await search.complete([search.root], n=2)

    tts.solve(problem, budget, strategy=Two())

Each kind needs one method: `run`, `should_stop` or `select`. A part with parameters is a frozen dataclass whose fields
are the parameters of its text form. `as_strategy` makes a strategy from a function. `needs` declares the resources of a
part (`tts.search.needs`).
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from tts.checks import check_complete, check_parameters, check_part
from tts.errors import ConfigError, quote
from tts.registry import ClassName, Registry, make_default, remember, state_of, text_of
from tts.search.needs import Needs, needs_of_parameters
from tts.types import Candidate

if TYPE_CHECKING:
    from tts.search.ends import StopDecision
    from tts.search.search import Search

STRATEGIES = Registry(
    "strategy",
    "tts.strategies",
    {
        "ab_mcts": "tts.search.strategies.revision.ab_mcts:AbMcts",
        "a_star": "tts.search.strategies.trees.a_star:AStar",
        "adaptive": "tts.search.strategies.samples.adaptive:Adaptive",
        "answer_convergence": "tts.search.strategies.samples.answer_convergence:AnswerConvergence",
        "archon": "tts_addons.zoo.archon:Archon",
        "auto": "tts.allocator.auto:Auto",
        "beam": "tts.search.strategies.trees.beam:Beam",
        "best_of_n": "tts.search.strategies.samples.best_of_n:BestOfN",
        "budget_forcing": "tts.search.strategies.community.budget_forcing:BudgetForcing",
        "cascade": "tts.search.strategies.models.cascade:Cascade",
        "deepconf_online": "tts.search.strategies.community.deepconf_online:DeepConfidenceOnline",
        "diverse_beam": "tts_addons.zoo.diverse_beam:DiverseBeam",
        "dvts": "tts.search.strategies.trees.dvts:Dvts",
        "early_pruning": "tts.search.strategies.samples.early_pruning:EarlyPruning",
        "entropic_particle_filter": "tts_addons.zoo.entropic_particle_filter:EntropicParticleFilter",
        "entropy_switching": "tts_addons.zoo.entropy_switching:EntropySwitching",
        "ets": "tts.search.strategies.trees.ets:Ets",
        "fractured": "tts_addons.zoo.fractured:Fractured",
        "forest_of_thought": "tts_addons.zoo.forest_of_thought:ForestOfThought",
        "guided_by_gut": "tts_addons.zoo.guided_by_gut:GuidedByGut",
        "lookahead_power_sampling": "tts_addons.zoo.lookahead_power_sampling:LookaheadPowerSampling",
        "mcts": "tts.search.strategies.trees.mcts:Mcts",
        "pacore": "tts.search.strategies.community.pacore:PaCoRe",
        "mind_evolution": "tts_addons.zoo.mind_evolution:MindEvolution",
        "mixture_of_agents": "tts.search.strategies.community.mixture_of_agents:MixtureOfAgents",
        "mur": "tts.search.strategies.guided.mur:Mur",
        "parallel_probe": "tts_addons.zoo.parallel_probe:ParallelProbe",
        "parallel_tempering": "tts.search.strategies.particles.parallel_tempering:ParallelTempering",
        "particle_filter": "tts.search.strategies.particles.particle_filter:ParticleFilter",
        "particle_gibbs": "tts.search.strategies.particles.particle_gibbs:ParticleGibbs",
        "phi_decoding": "tts_addons.zoo.phi_decoding:PhiDecoding",
        "program_aided": "tts_addons.code.program_aided:ProgramAided",
        "power_sampling": "tts_addons.zoo.power_sampling:PowerSampling",
        "power_smc": "tts.search.strategies.particles.power_smc:PowerSmc",
        "rebase": "tts.search.strategies.trees.rebase:Rebase",
        "recursive_self_aggregation": "tts.search.strategies.community.recursive_self_aggregation:RecursiveSelfAggregation",  # noqa: E501
        "self_consistency": "tts.search.strategies.samples.best_of_n:self_consistency",
        "self_refine": "tts.search.strategies.community.self_refine:SelfRefine",
        "self_verification": "tts.search.strategies.samples.self_verification:SelfVerification",
        "semantic_entropy": "tts_addons.zoo.semantic_entropy:SemanticEntropy",
        "sequential_revision": "tts.search.strategies.revision.sequential_revision:SequentialRevision",
        "single": "tts.search.strategies.samples.single:Single",
        "spec_reason": "tts.search.strategies.community.spec_reason:SpecReason",
        "tree_of_thoughts": "tts_addons.zoo.tree_of_thoughts:TreeOfThoughts",
    },
)


STOP_RULES = Registry(
    "stop rule",
    "tts.stop_rules",
    {
        "cges": "tts.search.stop_rules.cges:CGES",
        "entropy": "tts.search.stop_rules.entropy:Entropy",
        "first_finish": "tts.search.stop_rules.first_finish:FirstFinish",
        "in_a_row": "tts.search.stop_rules.in_a_row:InARow",
        "mixture_sprt": "tts.search.stop_rules.mixture_sprt:MixtureSPRT",
        "never": "tts.search.stop_rules.never:Never",
        "pandora": "tts.search.stop_rules.pandora:Pandora",
        "posterior": "tts.search.stop_rules.posterior:Posterior",
        "reasc": "tts.search.stop_rules.reasc:ReASC",
        "score_threshold": "tts.search.stop_rules.score_threshold:ScoreThreshold",
        "sprt": "tts.search.stop_rules.sprt:SPRT",
        "unanimous": "tts.search.stop_rules.unanimous:Unanimous",
    },
)


EMBEDDERS = Registry(
    "embedder",
    "tts.embedders",
    {
        "endpoint": "tts.search.algorithms.embedding_endpoint:Endpoint",
        "ngrams": "tts.search.algorithms.embedding:HashedNgrams",
        "sentences": "tts.search.algorithms.embedding:Sentences",
    },
)


SELECTIONS = Registry(
    "selection",
    "tts.selections",
    {
        "best": "tts.search.selections.best:Best",
        "best_of_majority": "tts.search.selections.best_of_majority:BestOfMajority",
        "borda": "tts.search.selections.borda:Borda",
        "codet": "tts.search.selections.codet:CodeT",
        "deepconf": "tts.search.selections.deepconf:DeepConfidence",
        "genselect": "tts.search.selections.genselect:GenSelect",
        "hierarchical": "tts.search.selections.hierarchical:Hierarchical",
        "knockout": "tts.search.selections.knockout:Knockout",
        "last_finish": "tts.search.selections.last_finish:LastFinish",
        "league": "tts.search.selections.league:League",
        "majority": "tts.search.selections.majority:Majority",
        "majority_of_bests": "tts.search.selections.majority_of_bests:MajorityOfBests",
        "medoid": "tts.search.selections.medoid:Medoid",
        "pairwise": "tts.search.selections.pairwise:Pairwise",
        "pessimistic": "tts.search.selections.pessimistic:Pessimistic",
        "pivot": "tts.search.selections.pivot:Pivot",
        "rpc": "tts.search.selections.rpc:Rpc",
        "selective": "tts.search.selections.selective:Selective",
        "shortest": "tts.search.selections.shortest:Shortest",
        "swiss": "tts.search.selections.swiss:Swiss",
        "weighted": "tts.search.selections.weighted:Weighted",
    },
)


@dataclass(frozen=True, slots=True)
class Selected:
    """The choice of a selection.

    Args:
        answers: The chosen answers, best first, as their first candidate wrote them; empty if no candidate has one.
        ranked: The candidates, best first, with their weights and scores filled in.
        confidence: The winner's share of the weight of all candidates, also those without an answer; NaN without
            candidates.
        abstained: The reason why no answer is chosen although there are answers; "" if one is chosen.

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


class Named:
    """Gives a part its text form: its name, and the parameters that differ from their defaults.

    Parts that are no dataclasses are equal if their classes and their states are equal.

    Attributes:
        registered_as: The part's name in a registry, where a registry has the part.
    """

    __slots__ = ()
    registered_as: str = cast("str", ClassName())

    def __post_init__(self) -> None:
        """Check the parameters by the rules in their annotations. Dataclasses call this method."""
        check_parameters(self)

    def __str__(self) -> str:
        return text_of(self, _TABLES)

    def __or__(self, other: Any) -> Plan:
        return Plan.of(self) | other

    def __eq__(self, other: object) -> bool:
        return state_of(self) == state_of(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self))


_TABLES = (STRATEGIES, STOP_RULES, SELECTIONS)


class Strategy(Named, ABC):
    """An algorithm that spends the budget of one problem. A subclass defines `run`; the rest has defaults.

    Attributes:
        registered_as: The strategy's name in text forms; by default its place, "module:Class".
        sized_by_budget: The parameters that may be None. None means as many as the budget pays.
        always_votes: Whether the default selection is `majority` also with a verifier.
        divides_total: Whether the strategy is `auto`, which divides a total among problems.

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
    sized_by_budget: ClassVar[tuple[str, ...]] = ("n",)
    always_votes: ClassVar[bool] = False
    divides_total: ClassVar[bool] = False

    @abstractmethod
    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search, and return the candidates to choose from: usually `search.candidates`."""
        ...

    def needs(self) -> Needs:
        """Return the needs of the strategy beside plain samples.

        A run that lacks a declared need is refused before anything is spent. Other needs are refused when they are
        first used. By default the only declared need is the verifier of the parameter `verifier`.
        """
        return needs_of_parameters(self)

    def size(self, units: int | None) -> Self:
        """Return the strategy with its None parameters filled in from the size of the budget.

        The default returns the strategy itself: a parameter of None means as many as the budget pays.

        Args:
            units: The number of plain samples of typical length that the budget pays; None: no limit bounds the number.

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

    def default_selection(self, *, verified: bool) -> Selection:
        """Return the selection for callers that name no selection.

        With a verifier this is `weighted`. Without a verifier, or where the strategy always votes, it is `majority`.
        """
        name = "weighted" if verified and not self.always_votes else "majority"
        return SELECTIONS.get(name)()


@dataclass(frozen=True)
class StrategyOfFunction(Strategy):
    """A function as a strategy; see `as_strategy`."""

    function: Callable[[Search], Awaitable[Sequence[Candidate] | None]]
    declared: Needs

    def __call__(self) -> Self:
        """Return the strategy itself, because the place of a decorated function names this object."""
        return self

    def needs(self) -> Needs:
        """Return the needs that were declared."""
        return self.declared

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Return the candidates of the function; the candidates of the search if the function returns none."""
        return await self.function(search) or search.candidates


def as_strategy(
    function: Callable[[Search], Awaitable[Sequence[Candidate] | None]], needs: Needs | None = None
) -> Strategy:
    """Return a strategy that calls an async function of a search.

    Args:
        function: A function like `Strategy.run`. If the function returns nothing, `search.candidates` are used.
        needs: The function's needs beside plain samples; None: no needs.

    Raises:
        ConfigError: `function` is not an async function.

    Example:
        >>> import tts
        >>> @tts.as_strategy
        ... async def two(search):
        ...     return await search.complete([search.root], n=2)
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=two).usage.samples
        2
    """
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"function is {quote(function)}, but must be an async function of a search", hint="write async def"
        )
    strategy = StrategyOfFunction(function, Needs() if needs is None else needs)
    remember(strategy, f"{function.__module__}:{function.__qualname__}", {})
    return strategy


class StopRule(Named, ABC):
    """A rule that ends a search before its budget is used up. A subclass defines `should_stop`.

    Attributes:
        order: The order in which whole solutions become candidates. "drawn": by their index. "finished": by their
            tokens, then by their index. Under "finished" all begin at once, and open solutions are written to one
            length, piece by piece.

    Example:
        >>> import tts
        >>> class Third(tts.StopRule):
        ...     def should_stop(self, candidates):
        ...         return tts.StopDecision("third") if len(candidates) == 3 else None
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=tts.BestOfN(n=8) | Third() | tts.Majority()).stopped_by
        'third'
    """

    __slots__ = ()
    order: ClassVar[Literal["drawn", "finished"]] = "drawn"

    def needs(self) -> Needs:
        """Return the needs of the rule: the verifier that scores candidates before `should_stop`.

        By default the parameters `verifier` and `aggregate` name the verifier and its aggregate.
        """
        return Needs() if getattr(self, "aggregate", None) is None else needs_of_parameters(self)

    @abstractmethod
    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return the decision to end the search after the candidates so far; None: continue.

        The candidates are in the rule's order. The decision must depend on these candidates alone.
        """
        ...


class Selection(Named, ABC):
    """A method to choose an answer from candidates. A subclass defines `select`; the rest has defaults.

    Attributes:
        registered_as: The selection's name in text forms; by default its place, "module:Class".

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

    def needs(self) -> Needs:
        """Return the needs of the selection. The worst case of its scores is reserved with every row.

        By default the only declared need is the verifier of the parameter `verifier`. Other needs are refused when they
        are first used.
        """
        return needs_of_parameters(self)

    def may_score(self, candidate: Candidate, agreeing: int) -> bool:
        """Return whether the selection's verifiers may ever score a candidate.

        If False, the reserve for the candidate's score is freed.

        Args:
            candidate: The candidate.
            agreeing: The number of earlier candidates with the same answer that were not truncated.
        """
        del candidate, agreeing
        return True

    @abstractmethod
    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose among candidates. A truncated candidate counts only if it has an answer."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A strategy with its stop rule and its selection.

    Args:
        strategy: The strategy, which draws the candidates.
        stopping: The stop rule, which may end the search before the budget does; None: never.
        selection: The selection, which chooses the answer; None: the strategy's default.

    Example:
        >>> import tts
        >>> plan = tts.Plan(tts.BestOfN(n=8), tts.Unanimous(window=3), tts.Majority())
        >>> str(plan)
        'best_of_n(n=8) | unanimous(window=3) | majority'
        >>> plan == tts.parse("best_of_n(n=8) | unanimous(window=3) | majority")
        True
    """

    strategy: Strategy
    stopping: StopRule | None = None
    selection: Selection | None = None

    def __post_init__(self) -> None:
        check_part(self.strategy, Strategy, "the strategy", "run")
        if self.stopping is not None:
            check_part(self.stopping, StopRule, "the stop rule")
        if self.selection is not None:
            check_part(self.selection, Selection, "the selection", "select")

    @classmethod
    def of(cls, part: Any, name: str = "") -> Plan:
        """Return a plan as it is; or a plan of a strategy, without a stop rule and with the default selection.

        Args:
            part: A plan, a strategy, or the class of a strategy.
            name: The name of the part in a text, for messages.

        Raises:
            ConfigError: the part is no plan, no strategy, and no class of a strategy.
        """
        part = _make_part(part)
        if isinstance(part, Plan):
            return part
        if isinstance(part, Strategy):
            return cls(part)
        _refuse_attempt(part, Strategy, "run")
        is_function = inspect.isfunction(part)
        raise ConfigError(
            f"the strategy is {_name(part, name)}, but must begin with a strategy",
            hint="write tts.as_strategy(FUNCTION)" if is_function else "for example best_of_n(n=8) | majority",
        )

    def __or__(self, part: Any) -> Plan:
        return self.with_part(part)

    def with_part(self, part: Any, name: str = "") -> Plan:
        """Return the plan with a stop rule or selection added.

        Args:
            part: The stop rule or selection, or the class of such a part.
            name: The name of the part in a text, for messages.

        Raises:
            ConfigError: the part is neither a stop rule nor a selection, or the plan has such a part already.
        """
        part = _make_part(part)
        if isinstance(part, Strategy | Plan):
            raise ConfigError(f"{name or str(part)!r} is a strategy, but only the first part may be one")
        if isinstance(part, StopRule):
            if self.stopping is not None:
                raise ConfigError(f"the strategy has two stop rules, {self.stopping} and {part}, but may have one")
            return dataclasses.replace(self, stopping=part)
        if isinstance(part, Selection):
            if self.selection is not None:
                raise ConfigError(f"the strategy has two selections, {self.selection} and {part}, but may have one")
            return dataclasses.replace(self, selection=part)
        _refuse_attempt(part, StopRule, "should_stop")
        _refuse_attempt(part, Selection, "select")
        raise ConfigError(
            f"{_name(part, name)} is neither a stop rule nor a selection: it has no should_stop and no select",
            hint="write STRATEGY | STOP RULE | SELECTION",
        )

    def __str__(self) -> str:
        return " | ".join(str(part) for part in (self.strategy, self.stopping, self.selection) if part is not None)


def _name(part: Any, name: str) -> str:
    return f"{name!r} (a {type(part).__name__})" if name else quote(part)


def _refuse_attempt(part: Any, base: type, verb: str) -> None:
    """Raise ConfigError if an object has the method of a base class, but not the base class itself."""
    if getattr(part, verb, None) is not None:
        kind = type(part).__name__
        raise ConfigError(
            f"{kind} has {verb}, but is no tts.{base.__name__}",
            hint=f"write class {kind}(tts.{base.__name__}): the rest has defaults",
        )


def _make_part(part: Any) -> Any:
    """Return an object as it is, and for a class an object with every parameter at its default."""
    if not isinstance(part, type):
        return part
    check_complete(part)
    try:
        return make_default(part)
    except TypeError as failure:
        raise ConfigError(
            f"{part.__name__} cannot be made without parameters: {failure}", hint="give an object, not its class"
        ) from None
