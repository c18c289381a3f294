"""The needs of strategies in a setting, and substitutes for strategies that cannot run.

`tts.solver.settings` makes a setting from words such as "engine no-verifier pocket".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tts.backends.base import Caps
from tts.errors import ConfigError, MissingDependency
from tts.search.needs import needs_of
from tts.search.parts import STRATEGIES, Plan, Strategy
from tts.tasks.base import Task

# Strategies by family, the simplest first. A strategy that cannot run is replaced from its own family, else the first.
FAMILIES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "samples beside each other": ("best_of_n", "self_consistency", "adaptive", "auto", "single"),
        "samples that end early": (
            "early_pruning",
            "deepconf_online",
            "answer_convergence",
            "fractured",
            "parallel_probe",
        ),
        "thoughts of a set length": ("budget_forcing",),
        "models of several prices": ("cascade",),
        "solutions that the model verifies": ("self_verification",),
        "samples of a sharpened law": ("power_smc", "power_sampling", "lookahead_power_sampling"),
        "steps guided by log-probabilities": ("mur", "guided_by_gut", "phi_decoding", "diverse_beam"),
        "steps by two models": ("entropy_switching", "spec_reason"),
        "solutions that see earlier ones": (
            "sequential_revision",
            "semantic_entropy",
            "recursive_self_aggregation",
            "pacore",
            "mixture_of_agents",
            "archon",
            "self_refine",
            "ab_mcts",
            "mind_evolution",
        ),
        "solutions that run programs": ("program_aided",),
        "trees of steps": ("beam", "dvts", "rebase", "ets", "a_star", "mcts"),
        "steps that the model values in words": ("tree_of_thoughts", "forest_of_thought"),
        "particles": ("particle_filter", "entropic_particle_filter", "particle_gibbs", "parallel_tempering"),
    }
)


# strategies whose gain was not measured
COMMUNITY: Final = frozenset(
    (
        "archon", "budget_forcing", "cascade", "deepconf_online", "entropy_switching", "forest_of_thought", "fractured",
        "mind_evolution", "mixture_of_agents", "pacore", "program_aided", "recursive_self_aggregation", "self_refine",
        "spec_reason", "tree_of_thoughts",
    )
)  # fmt: skip


# Strategies by evidence, best first: the mean difference to weighted best-of-N under the three budgets of
# docs/results/claims.md (of `auto`: claims_auto.md), with the learnt verifier, in points. docs/choose.md shows them.
EVIDENCE: Mapping[str, float] = MappingProxyType(
    {"auto": 7.0, "a_star": 4.5, "rebase": 2.0, "ets": 1.0, "beam": 0.7, "particle_filter": 0.2, "best_of_n": 0.0}
)


def sort_by_evidence(names: Iterable[str]) -> list[str]:
    """Return strategies with the best evidence first; those that were not measured are last."""
    order = {name: place for place, name in enumerate(EVIDENCE)}
    return sorted(names, key=lambda name: (order.get(name, len(order) + (name in COMMUNITY)), name))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetting:
    """The setting in which a strategy is to run.

    Args:
        caps: The capabilities of the policy's backend.
        shows_tokens: Whether the text of single tokens is known, as forks at a token need.
        task: The task; None: a task with every prompt.
        roles: The roles of the verifiers; None: all roles.
    """

    caps: Caps
    shows_tokens: bool = True
    task: Task | None = None
    roles: Sequence[str] | None = None


def lacking(strategy: Strategy, setting: RunSetting) -> list[str]:
    """Return the needs of a strategy that a setting lacks, in words; empty if the strategy can run."""
    needs = needs_of(strategy)
    missing = needs.missing(setting.caps)
    if "token_ids" in needs.capabilities and not missing and not setting.shows_tokens:
        missing.append("the text of single tokens")
    missing += [f"the prompt {kind!r}" for kind in needs.prompts if not has_prompt(setting.task, kind)]
    if setting.roles is not None:
        missing += [f"a verifier {role!r}" for role in needs.verifiers if role not in setting.roles]
    return missing


def has_prompt(task: Task | None, kind: str) -> bool:
    """Whether a task has a kind of prompt. The task None has every kind."""
    try:
        return task is None or bool(task.typical_tokens(kind))
    except ConfigError:
        return False


def nearest(strategy: Strategy, setting: RunSetting) -> str:
    """Return the name of a strategy that can run in place of a strategy that cannot.

    The strategy is of the same family, else of the first family. Some strategy of the first family can always run.
    """
    families = list(FAMILIES.values())
    same_family = [name for names in families if strategy.registered_as in names for name in names]
    for name in (*same_family, *families[0]):
        try:
            default_strategy = Plan.of(STRATEGIES.get(name)()).strategy
        except MissingDependency:  # of an add-on that is not installed
            continue
        if not lacking(default_strategy, setting):
            return name
    raise AssertionError("some strategy of the first family can always run")
