"""Plans: a strategy with its stop rule and its selection, the tables of their names, and the text form.

    best_of_n(n=64) | unanimous(window=8) | weighted

is one strategy, then at most one stop rule and one selection, joined by `|`. Parameters are named and literal. A part that is not
registered is named by its place: `package.module:name(parameter=value)`. `str` of a parsed plan is the same text, without parameters
that have their default values.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import sys
from dataclasses import dataclass
from typing import Any, cast

from tts.checks import check_complete, lacking
from tts.errors import ConfigError, shown, unknown_name
from tts.registry import ClassName, Registry
from tts.search.ends import StopRuleProtocol
from tts.search.protocols import SelectionProtocol, StrategyProtocol

STRATEGIES = Registry(
    "strategy",
    "tts.strategies",
    {
        "a_star": "tts.search.strategies.a_star:AStar",
        "adaptive": "tts.search.strategies.adaptive:Adaptive",
        "answer_convergence": "tts.search.strategies.answer_convergence:AnswerConvergence",
        "auto": "tts.allocator.auto:Auto",
        "beam": "tts.search.strategies.beam:Beam",
        "best_of_n": "tts.search.strategies.best_of_n:BestOfN",
        "deepconf_online": "tts.search.strategies.deepconf_online:DeepConfidenceOnline",
        "dvts": "tts.search.strategies.dvts:Dvts",
        "early_pruning": "tts.search.strategies.early_pruning:EarlyPruning",
        "entropic_particle_filter": "tts.search.strategies.entropic_particle_filter:EntropicParticleFilter",
        "ets": "tts.search.strategies.ets:Ets",
        "mcts": "tts.search.strategies.mcts:Mcts",
        "parallel_tempering": "tts.search.strategies.parallel_tempering:ParallelTempering",
        "particle_filter": "tts.search.strategies.particle_filter:ParticleFilter",
        "particle_gibbs": "tts.search.strategies.particle_gibbs:ParticleGibbs",
        "rebase": "tts.search.strategies.rebase:Rebase",
        "self_consistency": "tts.search.strategies.best_of_n:self_consistency",
        "semantic_entropy": "tts.search.strategies.semantic_entropy:SemanticEntropy",
        "sequential_revision": "tts.search.strategies.sequential_revision:SequentialRevision",
        "single": "tts.search.strategies.single:Single",
    },
)


STOP_RULES = Registry(
    "stop rule",
    "tts.stop_rules",
    {
        "entropy": "tts.search.stop_rules.entropy:Entropy",
        "in_a_row": "tts.search.stop_rules.in_a_row:InARow",
        "never": "tts.search.stop_rules.never:Never",
        "posterior": "tts.search.stop_rules.posterior:Posterior",
        "score_threshold": "tts.search.stop_rules.score_threshold:ScoreThreshold",
        "unanimous": "tts.search.stop_rules.unanimous:Unanimous",
    },
)


EMBEDDERS = Registry(
    "embedder",
    "tts.embedders",
    {"ngrams": "tts.search.algorithms.embedding:HashedNgrams", "sentences": "tts.search.algorithms.embedding:Sentences"},
)


SELECTIONS = Registry(
    "selection",
    "tts.selections",
    {
        "best": "tts.search.selections.best:Best",
        "best_of_majority": "tts.search.selections.best_of_majority:BestOfMajority",
        "borda": "tts.search.selections.borda:Borda",
        "deepconf": "tts.search.selections.deepconf:DeepConfidence",
        "hierarchical": "tts.search.selections.hierarchical:Hierarchical",
        "majority": "tts.search.selections.majority:Majority",
        "pairwise": "tts.search.selections.pairwise:Pairwise",
        "rpc": "tts.search.selections.rpc:Rpc",
        "selective": "tts.search.selections.selective:Selective",
        "weighted": "tts.search.selections.weighted:Weighted",
    },
)


class Named:
    """Gives a part its text form: its name, and the parameters that differ from their defaults.

    Attributes:
        registered_as: its name in a registry, where it is in one.
    """

    __slots__ = ()
    registered_as: str = cast("str", ClassName())

    def __str__(self) -> str:
        pairs: list[str] = []
        for f in dataclasses.fields(self) if dataclasses.is_dataclass(self) else ():
            value = getattr(self, f.name)
            if f.init and value != _default(f):
                pairs.append(f"{f.name}={value!r}")
        name = _written_as(type(self))
        return f"{name}({', '.join(pairs)})" if pairs else name

    def __or__(self, other: Any) -> Plan:
        return Plan.of(self) | other


@functools.lru_cache(maxsize=256)
def _written_as(part: type[Named]) -> str:
    """Return the name that a text form has for a part: as registered, else its place, "module:Class", where it can be imported."""
    own = part.__dict__.get("registered_as")
    if own is not None and any(own in table for table in (STRATEGIES, STOP_RULES, SELECTIONS)):
        return own
    if part.__module__ != "__main__" and getattr(sys.modules.get(part.__module__), part.__qualname__, None) is part:
        return f"{part.__module__}:{part.__qualname__}"
    return part.registered_as


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


@dataclass(frozen=True, slots=True)
class Plan:
    """A strategy with its stop rule and its selection; None stands for the default."""

    strategy: StrategyProtocol
    stopping: StopRuleProtocol | None = None
    selection: SelectionProtocol | None = None

    @classmethod
    def of(cls, part: Any) -> Plan:
        """Return a plan as it is, and a strategy, or the class of one, as a plan with defaults.

        Raises:
            ConfigError: it is neither; what an attempt at a strategy lacks is named.
        """
        part = _made(part)
        if isinstance(part, Plan):
            return part
        if isinstance(part, StrategyProtocol):
            return cls(part)
        _refuse_attempt(part, StrategyProtocol, "run", "strategy")
        raise ConfigError(f"the strategy is {shown(part)}, but must begin with a strategy", hint="for example best_of_n(n=8) | majority")

    def __or__(self, part: Any) -> Plan:
        part = _made(part)
        if isinstance(part, StopRuleProtocol):
            if self.stopping is not None:
                raise ConfigError(f"the strategy has two stop rules, {self.stopping} and {part}, but may have one")
            return dataclasses.replace(self, stopping=part)
        if isinstance(part, SelectionProtocol):
            if self.selection is not None:
                raise ConfigError(f"the strategy has two selections, {self.selection} and {part}, but may have one")
            return dataclasses.replace(self, selection=part)
        _refuse_attempt(part, StopRuleProtocol, "should_stop", "stop rule")
        _refuse_attempt(part, SelectionProtocol, "select", "selection")
        raise ConfigError(f"{shown(part)} is neither a stop rule nor a selection", hint="write STRATEGY | STOP RULE | SELECTION")

    def __str__(self) -> str:
        return " | ".join(str(part) for part in (self.strategy, self.stopping, self.selection) if part is not None)


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
        return part()
    except TypeError as failure:
        raise ConfigError(f"{part.__name__} cannot be made without parameters: {failure}", hint="give an object, not its class") from None


def parse(text: str) -> Plan:
    """Return the plan that a text writes; a line break counts as a space.

    Raises:
        ConfigError: the text is malformed, a name is unknown (the nearest are named), or a parameter is unknown, given twice or
            out of range. Where it is not the beginning that is wrong, the position is shown.
    """
    text = _shielded(text.strip())
    parts = _parts(text)
    plan = Plan.of(_make(STRATEGIES, parts[0], text))
    for part in parts[1:]:
        name = _name(part, text)
        table = _PLACES if ":" in name else _table_of(name)
        if table is STRATEGIES:
            raise _malformed(text, part, f"{name!r} is a strategy, but only the first part may be one")
        if table is None:
            unknown = unknown_name("stop rule or selection", name, [*STOP_RULES.names(), *SELECTIONS.names()])
            raise _placed(unknown, text, part)
        made = _make(table, part, text)
        try:
            plan = plan | made
        except ConfigError as failure:
            raise _placed(failure, text, part) from None
    return plan


def parse_call(table: Registry, text: str) -> Any:
    """Return the object that "name" or "name(parameter=value, …)" writes, from any table.

    Raises:
        ConfigError: as `parse`.
    """
    text = _shielded(text.strip())
    parts = _parts(text)
    if len(parts) > 1:
        raise _malformed(text, parts[1], f"a {table.kind} is one name, without |")
    return _make(table, parts[0], text)


def _table_of(name: str) -> Registry | None:
    """Return the first table that has a name; our own names come before all of other packages."""
    tables = (STRATEGIES, STOP_RULES, SELECTIONS)
    ours = [table for table in tables if name in table.entries]
    return next(iter(ours or [table for table in tables if name in table]), None)


def _shielded(text: str) -> str:
    """Return a text with every "package.module:name" outside of quotes as one identifier of the same length, which Python can parse."""
    return _PLACE.sub(lambda found: found[0].translate(_SHIELD) if found["place"] else found[0], text)


def _unshielded(text: str) -> str:
    return text.translate(_UNSHIELD)


_PLACE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?P<place>\b[^\W\d][\w.]*:[^\W\d]\w*)""")
_SHIELD = str.maketrans(".:", "ǀǃ")  # letters, to Python
_UNSHIELD = str.maketrans("ǀǃ", ".:")
_PLACES = Registry("stop rule or selection", "tts.places", {})


def _parts(text: str) -> list[ast.expr]:
    try:
        node = ast.parse(text.translate(_ONE_LINE), mode="eval").body
    except SyntaxError as failure:
        raise _at(text, min(max(0, (failure.offset or 1) - 1), len(text)), "it cannot be read here") from None
    except (ValueError, MemoryError, RecursionError):
        raise ConfigError(f"the text {_unshielded(text[:60])!r} cannot be read", hint=_FORM) from None
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


_FORM = "write NAME(parameter=value) | STOP RULE | SELECTION, for example best_of_n(n=8) | majority"


_ONE_LINE = str.maketrans("\r\n", "  ")  # positions stay what they are


def _name(node: ast.expr, text: str) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    if not isinstance(called, ast.Name):
        raise _malformed(text, node, "a name belongs here")
    return _unshielded(called.id)


def _make(table: Registry, node: ast.expr, text: str) -> Any:
    name = _name(node, text)
    try:
        made = table.get(name)
    except ConfigError as failure:
        raise _placed(failure, text, node) from None
    check_complete(made)
    parameters = _parameters(node, text) if isinstance(node, ast.Call) else {}
    known = [p.name for p in inspect.signature(made).parameters.values()]
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        if not known:
            raise _malformed(text, keyword, f"the {table.kind} {name} takes no parameters")
        if keyword.arg not in known:
            raise _placed(unknown_name(f"parameter of the {table.kind} {name}", str(keyword.arg), known), text, keyword)
    try:
        return made(**parameters)
    except ConfigError:
        raise
    except (TypeError, ValueError) as failure:
        raise ConfigError(f"the {table.kind} {name} cannot be made with these parameters: {failure}") from failure


def _parameters(call: ast.Call, text: str) -> dict[str, Any]:
    """Return the parameters of a call: named, each once, their values literal."""
    parameters: dict[str, Any] = {}
    if call.args:
        raise _malformed(text, call.args[0], "parameters are named: write name=value")
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _malformed(text, keyword.value, "parameters are named: write name=value")
        if keyword.arg in parameters:
            raise _malformed(text, keyword, f"the parameter {keyword.arg} is given twice")
        try:
            parameters[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            raise _malformed(text, keyword.value, f"the value of {keyword.arg} must be a number, a quoted text or None") from None
    return parameters


def _malformed(text: str, node: ast.expr | ast.keyword, why: str) -> ConfigError:
    return _at(text, _column(text, node), why)


def _at(text: str, column: int, why: str) -> ConfigError:
    text = _unshielded(text)
    return ConfigError(f"the text {text!r} is malformed at character {column + 1} ({text[column : column + 12]!r}): {why}", hint=_FORM)


def _placed(failure: ConfigError, text: str, node: ast.expr | ast.keyword) -> ConfigError:
    """Return an error with the position it is about; what begins the text needs none."""
    column, text = _column(text, node), _unshielded(text)
    return ConfigError(f"{failure.cause} (character {column + 1} of {text!r})", hint=failure.hint) if column else failure


def _column(text: str, node: ast.expr | ast.keyword) -> int:
    """Return the characters before a node: the parser counts bytes."""
    return len(text.encode()[: node.col_offset].decode())
