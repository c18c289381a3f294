"""Plans: a strategy with its stop rule and its selection, the tables of their names, and the text form.

    best_of_n(n=64) | unanimous(window=8) | weighted

is one strategy, then at most one stop rule and one selection, joined by `|`. Parameters are named and literal. A part that is not
registered is named by its place: `package.module:name(parameter=value)`. `str` of a parsed plan is the same text, without parameters
that have their default values.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

from tts.checks import check_async, check_complete, check_plain, lacking
from tts.errors import ConfigError, TTSError, shown, unknown_name
from tts.registry import ClassName, Registry
from tts.search.ends import StopRuleProtocol
from tts.search.protocols import SelectionProtocol, StrategyProtocol
from tts.text_form import EVERYTHING, Scope, calls_in, made_of, state_of, text_of

STRATEGIES = Registry(
    "strategy",
    "tts.strategies",
    {
        "ab_mcts": "tts.search.strategies.ab_mcts:AbMcts",
        "a_star": "tts.search.strategies.a_star:AStar",
        "adaptive": "tts.search.strategies.adaptive:Adaptive",
        "answer_convergence": "tts.search.strategies.answer_convergence:AnswerConvergence",
        "archon": "tts.search.strategies.archon:Archon",
        "auto": "tts.allocator.auto:Auto",
        "beam": "tts.search.strategies.beam:Beam",
        "best_of_n": "tts.search.strategies.best_of_n:BestOfN",
        "budget_forcing": "tts.search.strategies.budget_forcing:BudgetForcing",
        "cascade": "tts.search.strategies.cascade:Cascade",
        "deepconf_online": "tts.search.strategies.deepconf_online:DeepConfidenceOnline",
        "dvts": "tts.search.strategies.dvts:Dvts",
        "early_pruning": "tts.search.strategies.early_pruning:EarlyPruning",
        "entropic_particle_filter": "tts.search.strategies.entropic_particle_filter:EntropicParticleFilter",
        "entropy_switching": "tts.search.strategies.entropy_switching:EntropySwitching",
        "ets": "tts.search.strategies.ets:Ets",
        "fractured": "tts.search.strategies.fractured:Fractured",
        "forest_of_thought": "tts.search.strategies.forest_of_thought:ForestOfThought",
        "guided_by_gut": "tts.search.strategies.guided_by_gut:GuidedByGut",
        "mcts": "tts.search.strategies.mcts:Mcts",
        "pacore": "tts.search.strategies.pacore:PaCoRe",
        "mind_evolution": "tts.search.strategies.mind_evolution:MindEvolution",
        "mixture_of_agents": "tts.search.strategies.mixture_of_agents:MixtureOfAgents",
        "mur": "tts.search.strategies.mur:Mur",
        "parallel_tempering": "tts.search.strategies.parallel_tempering:ParallelTempering",
        "particle_filter": "tts.search.strategies.particle_filter:ParticleFilter",
        "particle_gibbs": "tts.search.strategies.particle_gibbs:ParticleGibbs",
        "phi_decoding": "tts.search.strategies.phi_decoding:PhiDecoding",
        "program_aided": "tts.search.strategies.program_aided:ProgramAided",
        "power_sampling": "tts.search.strategies.power_sampling:PowerSampling",
        "rebase": "tts.search.strategies.rebase:Rebase",
        "recursive_self_aggregation": "tts.search.strategies.recursive_self_aggregation:RecursiveSelfAggregation",
        "self_consistency": "tts.search.strategies.best_of_n:self_consistency",
        "self_refine": "tts.search.strategies.self_refine:SelfRefine",
        "self_verification": "tts.search.strategies.self_verification:SelfVerification",
        "semantic_entropy": "tts.search.strategies.semantic_entropy:SemanticEntropy",
        "sequential_revision": "tts.search.strategies.sequential_revision:SequentialRevision",
        "single": "tts.search.strategies.single:Single",
        "spec_reason": "tts.search.strategies.spec_reason:SpecReason",
        "tree_of_thoughts": "tts.search.strategies.tree_of_thoughts:TreeOfThoughts",
    },
)


STOP_RULES = Registry(
    "stop rule",
    "tts.stop_rules",
    {
        "cges": "tts.search.stop_rules.cges:CGES",
        "entropy": "tts.search.stop_rules.entropy:Entropy",
        "in_a_row": "tts.search.stop_rules.in_a_row:InARow",
        "mixture_sprt": "tts.search.stop_rules.mixture_sprt:MixtureSPRT",
        "never": "tts.search.stop_rules.never:Never",
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
        "hierarchical": "tts.search.selections.hierarchical:Hierarchical",
        "knockout": "tts.search.selections.knockout:Knockout",
        "league": "tts.search.selections.league:League",
        "majority": "tts.search.selections.majority:Majority",
        "majority_of_bests": "tts.search.selections.majority_of_bests:MajorityOfBests",
        "medoid": "tts.search.selections.medoid:Medoid",
        "pairwise": "tts.search.selections.pairwise:Pairwise",
        "rpc": "tts.search.selections.rpc:Rpc",
        "selective": "tts.search.selections.selective:Selective",
        "weighted": "tts.search.selections.weighted:Weighted",
    },
)


class Named:
    """Gives a part its text form: its name, and the parameters that differ from their defaults.

    Parts that are no dataclasses are equal where their classes and what they hold are.

    Attributes:
        registered_as: its name in a registry, where it is in one.
    """

    __slots__ = ()
    registered_as: str = cast("str", ClassName())

    def __str__(self) -> str:
        return text_of(self, _TABLES)

    def __or__(self, other: Any) -> Plan:
        return Plan.of(self) | other

    def __eq__(self, other: object) -> bool:
        return state_of(self) == state_of(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self))


_TABLES = (STRATEGIES, STOP_RULES, SELECTIONS)


def written(part: Any) -> str:
    """Return the text form of a part, of which not every one is a `Named`."""
    return str(part) if type(part).__str__ is not object.__str__ else text_of(part, _TABLES)


@dataclass(frozen=True, slots=True)
class Plan:
    """A strategy with its stop rule and its selection.

    Args:
        strategy: what draws the candidates.
        stopping: when to stop before the budget does; None: never.
        selection: how candidates become an answer; None: the strategy's default.

    Example:
        >>> import tts
        >>> plan = tts.Plan(tts.BestOfN(n=8), tts.Unanimous(window=3), tts.Majority())
        >>> str(plan)
        'best_of_n(n=8) | unanimous(window=3) | majority'
        >>> plan == tts.parse("best_of_n(n=8) | unanimous(window=3) | majority")
        True
    """

    strategy: StrategyProtocol
    stopping: StopRuleProtocol | None = None
    selection: SelectionProtocol | None = None

    @classmethod
    def of(cls, part: Any, name: str = "") -> Plan:
        """Return a plan as it is, and a strategy, or the class of one, as a plan with defaults.

        Args:
            name: of the part in a text, for messages.

        Raises:
            ConfigError: it is neither; what an attempt at a strategy lacks is named.
        """
        part = _made(part)
        if isinstance(part, Plan):
            return part
        if isinstance(part, StrategyProtocol):
            check_async(part, "run")
            return cls(part)
        _refuse_attempt(part, StrategyProtocol, "run", "strategy")
        lacks = f": it lacks {', '.join(lacking(part, StrategyProtocol))}" if name else ""
        raise ConfigError(
            f"the strategy is {_named(part, name)}, but must begin with a strategy{lacks}", hint="for example best_of_n(n=8) | majority"
        )

    def __or__(self, part: Any) -> Plan:
        return self.with_part(part)

    def with_part(self, part: Any, name: str = "") -> Plan:
        """Return the plan with a stop rule or a selection, or the class of one; `name`: see `of`.

        Raises:
            ConfigError: it is neither, or the plan has one already.
        """
        part = _made(part)
        if isinstance(part, StrategyProtocol | Plan):
            raise ConfigError(f"{name or str(part)!r} is a strategy, but only the first part may be one")
        if isinstance(part, StopRuleProtocol):
            if self.stopping is not None:
                raise ConfigError(f"the strategy has two stop rules, {self.stopping} and {part}, but may have one")
            check_plain(part, "should_stop")
            return dataclasses.replace(self, stopping=part)
        if isinstance(part, SelectionProtocol):
            if self.selection is not None:
                raise ConfigError(f"the strategy has two selections, {self.selection} and {part}, but may have one")
            check_async(part, "select")
            return dataclasses.replace(self, selection=part)
        _refuse_attempt(part, StopRuleProtocol, "should_stop", "stop rule")
        _refuse_attempt(part, SelectionProtocol, "select", "selection")
        raise ConfigError(
            f"{_named(part, name)} is neither a stop rule nor a selection: it has no should_stop and no select",
            hint="write STRATEGY | STOP RULE | SELECTION",
        )

    def __str__(self) -> str:
        return " | ".join(written(part) for part in (self.strategy, self.stopping, self.selection) if part is not None)


def _named(part: Any, name: str) -> str:
    return f"{name!r} (a {type(part).__name__})" if name else shown(part)


def _refuse_attempt(part: Any, protocol: type, verb: str, kind: str) -> None:
    """Raise ConfigError where an object has a protocol's verb, but not all of its members."""
    missing = lacking(part, protocol)
    if missing and verb not in missing:
        raise ConfigError(
            f"{type(part).__name__} has {verb}, but is no {kind}: it lacks {', '.join(missing)}",
            hint=f"subclass tts.{protocol.__name__.removesuffix('Protocol')}, which has defaults for them",
        )


def _made(part: Any) -> Any:
    """Return an object as it is, and a class as an object with every parameter at its default."""
    if not isinstance(part, type):
        return part
    check_complete(part)
    try:
        return made_of(part)
    except TypeError as failure:
        raise ConfigError(f"{part.__name__} cannot be made without parameters: {failure}", hint="give an object, not its class") from None


def parse(text: str, scope: Scope = EVERYTHING) -> Plan:
    """Return the plan that a text writes; a line break counts as a space.

    Args:
        text: The text form of a plan.
        scope: What the text may name. Texts from requests and files that others wrote need a narrower one than the default.

    Raises:
        ConfigError: The text is malformed, a name is unknown (the nearest are named) or outside of the scope, or a parameter is
            unknown, given twice or out of range. Where it is not the beginning that is wrong, the position is shown.

    Example:
        >>> import tts
        >>> tts.parse("best_of_n(n=8) | majority").strategy
        BestOfN(n=8, temperature=None, effort=None, writer='policy')
        >>> tts.parse("best_of_n(n=0)")
        Traceback (most recent call last):
          ...
        tts.errors.ConfigError: n is 0, but must be a whole number of at least 1
    """
    first, *later = calls_in(text)
    if (place := _table_of(first.name, scope)) in (STOP_RULES, SELECTIONS):
        raise ConfigError(
            f"the text begins with {first.name!r}, a {place.kind}, but must begin with a strategy",
            hint=f"for example best_of_n(n=8) | {first.name}",
        )
    plan = Plan.of(first.make(STRATEGIES, scope), first.name)
    for call in later:
        name = call.name
        table = _PLACES if ":" in name else _table_of(name, scope)
        if table is STRATEGIES:
            raise call.malformed(f"{name!r} is a strategy, but only the first part may be one")
        if table is None:
            known = [*scope.names(STOP_RULES), *scope.names(SELECTIONS)]
            raise call.placed(unknown_name("stop rule or selection", name, known))
        made = call.make(table, scope)
        try:
            plan = plan.with_part(made, name)
        except ConfigError as failure:
            raise call.placed(failure) from None
    return plan


def stored_text(plan: Plan, *, equal: bool = False) -> str:
    """Return the text of a plan, by which results are stored and run again.

    Args:
        equal: whether the plan that it gives must be equal, as for objects that were made in Python.

    Raises:
        ConfigError: the text does not give the plan again.
    """
    text = str(plan)
    try:
        again = parse(text)
    except TTSError:
        again = None
    if str(again) != text or (equal and again != plan):
        raise ConfigError(
            f"the strategy is {text}, but its text must be read back as the same strategy: results are stored by it",
            hint="make each part of your own a frozen dataclass at the top of a module, with literal parameters",
        )
    return text


def _table_of(name: str, scope: Scope) -> Registry | None:
    """Return the first table that has a name; our own names come before all of other packages."""
    ours = (table for table in _TABLES if name in table.entries)
    return next(ours, None) or next((table for table in _TABLES if name in scope.names(table)), None)


_PLACES = Registry("stop rule or selection", "tts.places", {})
