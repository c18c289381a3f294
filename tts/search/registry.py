"""Names and objects: what can be written in a strategy's text, and back.

    best_of_n(n=64) | unanimous(window=8) | weighted

is one strategy, then at most one stop rule and one selection, joined by `|`; parameters are named and literal. `str` of the
parsed plan is the same text, less parameters that are at their defaults.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from tts.errors import ConfigError, unknown_name
from tts.plugins import Table
from tts.search.base import Plan

STRATEGIES = Table(
    "strategy",
    "tts.strategies",
    {
        "a_star": "tts.search.a_star:AStar",
        "adaptive": "tts.search.adaptive:Adaptive",
        "answer_convergence": "tts.search.answer_convergence:AnswerConvergence",
        "auto": "tts.allocator.auto:Auto",
        "beam": "tts.search.beam:Beam",
        "best_of_n": "tts.search.best_of_n:BestOfN",
        "deepconf_online": "tts.search.deep_confidence_online:DeepConfidenceOnline",
        "dvts": "tts.search.dvts:Dvts",
        "early_pruning": "tts.search.early_pruning:EarlyPruning",
        "entropic_particle_filter": "tts.search.entropic_particle_filter:EntropicParticleFilter",
        "ets": "tts.search.ets:Ets",
        "mcts": "tts.search.mcts:Mcts",
        "parallel_tempering": "tts.search.parallel_tempering:ParallelTempering",
        "particle_filter": "tts.search.particle_filter:ParticleFilter",
        "particle_gibbs": "tts.search.particle_gibbs:ParticleGibbs",
        "rebase": "tts.search.rebase:Rebase",
        "self_consistency": "tts.search.best_of_n:self_consistency",
        "semantic_entropy": "tts.search.semantic_entropy:SemanticEntropy",
        "sequential_revision": "tts.search.sequential_revision:SequentialRevision",
        "single": "tts.search.single:Single",
    },
)
STOP_RULES = Table(
    "stop rule",
    "tts.stop_rules",
    {
        "entropy": "tts.search.stopping:Entropy",
        "in_a_row": "tts.search.stopping:InARow",
        "never": "tts.search.stopping:Never",
        "posterior": "tts.search.stopping:Posterior",
        "score_threshold": "tts.search.stopping:ScoreThreshold",
        "unanimous": "tts.search.stopping:Unanimous",
    },
)
EMBEDDERS = Table(
    "embedder",
    "tts.embedders",
    {"ngrams": "tts.search.embedding:HashedNgrams", "sentences": "tts.search.embedding:Sentences"},
)
SELECTIONS = Table(
    "selection",
    "tts.selections",
    {
        "best": "tts.search.selection:Best",
        "best_of_majority": "tts.search.selection:BestOfMajority",
        "borda": "tts.search.borda:Borda",
        "deepconf": "tts.search.deep_confidence:DeepConfidence",
        "hierarchical": "tts.search.selection:Hierarchical",
        "majority": "tts.search.selection:Majority",
        "pairwise": "tts.search.pairwise:Pairwise",
        "rpc": "tts.search.perplexity_consistency:Rpc",
        "selective": "tts.search.selective:Selective",
        "weighted": "tts.search.selection:Weighted",
    },
)


def parse(text: str) -> Plan:
    """Return the plan that a text writes; a line break counts as a space.

    Raises:
        ConfigError: the text is malformed, a name is unknown (the nearest are named), or a parameter is unknown, given twice or
            out of range. Where it is not the beginning that is wrong, the position is shown.
    """
    text = text.strip()
    parts = _parts(text)
    plan = Plan.of(_make(STRATEGIES, parts[0], text))
    for part in parts[1:]:
        name = _name(part, text)
        table = _table_of(name)
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


def parse_call(table: Table, text: str) -> Any:
    """Return the object that "name" or "name(parameter=value, …)" writes, from any table.

    Raises:
        ConfigError: as `parse`.
    """
    text = text.strip()
    parts = _parts(text)
    if len(parts) > 1:
        raise _malformed(text, parts[1], f"a {table.kind} is one name, without |")
    return _make(table, parts[0], text)


def _table_of(name: str) -> Table | None:
    """Return the first table that has a name; our own names come before all of other packages."""
    tables = (STRATEGIES, STOP_RULES, SELECTIONS)
    ours = [table for table in tables if name in table.entries]
    return next(iter(ours or [table for table in tables if name in table]), None)


def _parts(text: str) -> list[ast.expr]:
    try:
        node = ast.parse(text.translate(_ONE_LINE), mode="eval").body
    except SyntaxError as failure:
        raise _at(text, min(max(0, (failure.offset or 1) - 1), len(text)), "it cannot be read here") from None
    except (ValueError, MemoryError, RecursionError):
        raise ConfigError(f"the text {text[:60]!r} cannot be read", hint=_FORM) from None
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
    return called.id


def _make(table: Table, node: ast.expr, text: str) -> Any:
    name = _name(node, text)
    try:
        made = table.get(name)
    except ConfigError as failure:
        raise _placed(failure, text, node) from None
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
    return ConfigError(f"the text {text!r} is malformed at character {column + 1} ({text[column : column + 12]!r}): {why}", hint=_FORM)


def _placed(failure: ConfigError, text: str, node: ast.expr | ast.keyword) -> ConfigError:
    """Return an error with the position it is about; what begins the text needs none."""
    column = _column(text, node)
    return ConfigError(f"{failure.cause} (character {column + 1} of {text!r})", hint=failure.hint) if column else failure


def _column(text: str, node: ast.expr | ast.keyword) -> int:
    """Return the characters before a node: the parser counts bytes."""
    return len(text.encode()[: node.col_offset].decode())
