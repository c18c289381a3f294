"""Names of 0.2 that are changed or gone.

Their use raises an error of one line that says what to use now.

A default that has changed warns instead, where a text relies on it.

A value is the full name of the successor, several joined by " and ", or "removed: " with the reason.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_DRAFTS = "removed: drafts made searches of many rows no faster"

# strategies, whose modules stood in one folder, by the room that each is in now
_ROOMS: dict[str, tuple[str, ...]] = {
    "samples": (
        "adaptive",
        "answer_convergence",
        "best_of_n",
        "early_pruning",
        "lookahead_power_sampling",
        "parallel_probe",
        "power_sampling",
        "self_verification",
        "single",
    ),
    "models": ("cascade",),
    "guided": ("diverse_beam", "guided_by_gut", "mur", "phi_decoding"),
    "revision": ("ab_mcts", "semantic_entropy", "sequential_revision"),
    "trees": ("a_star", "beam", "dvts", "ets", "mcts", "rebase"),
    "particles": ("entropic_particle_filter", "parallel_tempering", "particle_filter", "particle_gibbs"),
    "community": (
        "budget_forcing",
        "deepconf_online",
        "entropy_switching",
        "mixture_of_agents",
        "pacore",
        "program_aided",
        "recursive_self_aggregation",
        "self_refine",
        "spec_reason",
        "tree_of_thoughts",
    ),
}
# modules, by their full names
MODULES: dict[str, str] = {
    "tts.backends.engine.drafts": _DRAFTS,
    "tts.backends.protocol": "tts.backends.base and tts.backends.capabilities",
    "tts.budget.meter": "tts.budget.account and tts.budget.budget",
    "tts.search.accounting": "tts.search.costs and tts.budget.account",
    "tts.experiments.verifier_report.thresholds": "tts.experiments.calibration",
    "tts.search.asked_of_search": "removed: a part states its needs itself, by the method needs",
    "tts.search.protocols": "tts.search.parts and tts.search.needs",
    "tts.search.state": "tts.search.search",
    "tts.search.fallback": "tts.search.search",
    "tts.search.metered_calls": "tts.search.scoring",
    "tts.search.forks": "tts.search.prompts",
    "tts.search.votes": "tts.search.answers",
    "tts.search.row_batch": "tts.search.rows",
    "tts.search.row_queue": "tts.search.queue",
    "tts.search.row_sizes": "tts.search.waves",
    "tts.solver.last_resort": "tts.search.search",
    "tts.solver.part_results": "tts.solver.outcome",
    "tts.places": "tts.registry",
    "tts.text_form": "tts.registry",
    "tts.search.tables": "tts.search.parts",
    "tts.solver.fitting": "tts.solver.problem_run",
    "tts.solver.watching": "tts.solver.telemetry",
    "tts.solver.verifier_roles": "tts.solver.model_cache",
    "tts.moved": "removed: import paths of 0.1 ended with 0.2",
    **{
        f"tts.search.strategies.{name}": f"tts.search.strategies.{room}.{name}"
        for room, names in _ROOMS.items()
        for name in names
    },
}
# public names of packages that load theirs on first use, by their full names
NAMES: dict[str, str] = {
    "tts.budget.Meter": "tts.budget.Account",
    "tts.budget.Grant": "tts.budget.Lease",
    "tts.tasks.TaskProtocol": "tts.tasks.base.Task",
    "tts.tasks.base.TaskProtocol": "tts.tasks.base.Task",
    "tts.tasks.base.KeyedTaskProtocol": "tts.tasks.base.Task",
    "tts.verifiers.base.VerifierProtocol": "tts.verifiers.base.Verifier",
    "tts.search.ends.StopRuleProtocol": "tts.search.parts.StopRule",
    "tts.search.plan.StrategyProtocol": "tts.search.parts.Strategy",
    "tts.checks.above": "tts.checks.number_above",
    "tts.checks.checked_prompt": "tts.checks.check_prompt",
    "tts.checks.known": "tts.checks.member",
    "tts.tasks.base.keyed": "tts.tasks.base.keyed_task",
    "tts.tasks.base.split_at": "tts.tasks.base.split_after",
    "tts.search.search.SearchState": "tts.search.search.Search",
    "tts.search.search.state_of": "removed: a search is one class, tts.Search, and shows its parts itself",
}
# defaults of parts that have another value now, as "part.parameter": what it was, and what it is
DEFAULTS: dict[str, tuple[str, str]] = {
    "a_star.goals": ("None", "1, which ends the search at its first solution"),
    "deepconf.keep": ("10", "None, which keeps a tenth, and five candidates at least"),
    "mind_evolution.orphans": ("0", "1/6"),
    "mixture_sprt.beta": ("0.94994", "0.05"),
    "mixture_sprt.prior": ("1e6", "1"),
    "self_verification.law": ("[1, 0.39]", "None, which verifies nothing without `verifications`"),
    "sprt.beta": ("0.949976", "0.05"),
    "sprt.share": ("0.5001", "0.75"),
    "best_of_majority.alpha": ("0.2", "None, which is max(0.03, 3/N)"),
    "self_refine.stop": ("'nothing is wrong'", "None, which reads the verdict at the end of a critique"),
}
# members of classes, by the full name of the class
MEMBERS: dict[str, dict[str, str]] = {
    "tts.allocator.allocate.Allocator": {"adapted": "adapt"},
    "tts.allocator.difficulty.Population": {
        "checked": "verdict_likelihood",
        "voted": "vote_likelihood",
        "fitted": "fit",
        "of_rates": "from_rates",
    },
    "tts.allocator.gauges.Gauge": {"fitted": "fit"},
    "tts.allocator.gauges.PromptProbe": {"fitted": "fit"},
    "tts.allocator.length_forecast.LengthForecast": {"fitted": "fit"},
    "tts.budget.account.Account": {"paid": "spending", "reserved": "reservation", "unspent": "remainder"},
    "tts.budget.budget.RowCost": {"of": "bound", "of_each": "bounds"},
    "tts.experiments.analysis.performance_fit.PerformanceData": {"fitted": "fit"},
    "tts.experiments.api.Study": {"stored": "from_store"},
    "tts.experiments.store.store.Store": {"forget_failed": "forget_failures", "traced": "cells_with_trace"},
    "tts.search.scoring.MeteredCalls": {"failed": "note_failures", "unread": "note_unread"},
    "tts.search.stop_rules.reasc.ReASC": {"calibrated": "calibrate"},
    "tts.solver.solver.Solver": {"prepared": "prepare"},
    "tts.statistics.scaling.CoverageLaw": {"at": "predict"},
    "tts.statistics.scaling.Saturation": {"at": "predict"},
    "tts.thoughts.ThoughtMarks": {"behind": "continue_prompt", "settled": "split_settled_text"},
    "tts.types.Message": {"and_then": "append"},
    "tts.types.Problem": {"stripped": "without_answer"},
}
# members of a search
SEARCH: dict[str, str] = {
    "Search.spent": "Search.account.spent",
    "Search.kv_cost": "Search.tree.distinct_tokens",
    "Search.step_scores": "Search.scoring.scores_of",
}
# options of models, as "backend.option"
OPTIONS: dict[str, str] = {"engine.drafts": _DRAFTS}


def successor(name: str) -> str | None:
    """Return what a full name of 0.2 is now, in one line; None: it is in no table."""
    now = (MODULES | NAMES | SEARCH | OPTIONS).get(name)
    if now is None:
        return None
    return f"{name} was {now}" if now.startswith("removed: ") else f"{name} is {now} since 0.3"


class ChangedDefault(FutureWarning):
    """A text leaves a parameter at its default, which was another value in 0.2.

    The line says which parameter, and how to keep the old value.
    """


def warn_of_defaults(name: str, given: Collection[str]) -> None:
    """Warn where a text names a part with some parameters, and leaves one out whose default has changed.

    A bare name gets no warning, because it asks for the defaults, whatever they are.
    """
    for key, (old_value, new_value) in DEFAULTS.items():
        part, _, parameter = key.partition(".")
        if part == name and given and parameter not in given:
            line = (
                f"{name} has {parameter}={new_value} by default since 0.3; "
                f"write {parameter}={old_value} for what it was"
            )
            warnings.warn(ChangedDefault(line), stacklevel=4)


def refuse_old_names(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module, which says what to use in place of its names of 0.2."""

    def refuse(name: str) -> NoReturn:
        line = successor(f"{module}.{name}")
        if line:
            raise ImportError(line)  # `from module import name` would hide an AttributeError and its line
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse


class _OldMember:
    """The place of a member that has another name now: its use raises the line that says so."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(self.line)


def refuse_old_members(kind: type[T]) -> type[T]:
    """Refuse the members that a class had in 0.2 under other names, in one line; return the class."""
    for old, now in MEMBERS[f"{kind.__module__}.{kind.__qualname__}"].items():
        setattr(kind, old, _OldMember(f"{kind.__name__}.{old} is {kind.__name__}.{now} since 0.3"))
    return kind


class _Finder:
    """Asked after all other finders, which have not found the module."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> None:
        del path, target
        if (line := successor(fullname)) is not None:
            raise ImportError(line, name=fullname)


def install() -> None:
    """Refuse imports of the names in the tables."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
