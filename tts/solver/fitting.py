"""Checks, before anything is spent, that strategy and selection fit model, task and verifiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tts.backends.metadata import metadata_of
from tts.backends.protocol import BackendProtocol, require
from tts.errors import CapabilityError, ConfigError
from tts.search.ends import GoesByScores
from tts.search.families import RunSetting, has_prompt, lacking, nearest
from tts.search.plan import Plan
from tts.search.protocols import (
    AsksEffort,
    ChecksTask,
    ComparesModels,
    GoesByPairs,
    HoldsPairs,
    LimitsThoughts,
    SelectionProtocol,
    ShowsSolutions,
    StrategyProtocol,
    UsesMachine,
    UsesModels,
)
from tts.tasks.base import TaskProtocol
from tts.verifiers.base import VerifierProtocol, traits_of


def check_strategy(strategy: StrategyProtocol, policy: BackendProtocol, task: TaskProtocol, roles: Sequence[str]) -> None:
    """Refuse a strategy that cannot run; the hint names the nearest one that can.

    Args:
        roles: of the verifiers.

    Raises:
        CapabilityError: the backend, or this machine, lacks what it needs. ConfigError: the task lacks a prompt that it needs, or no
            verifier has its role. MissingDependency: what it needs of this machine is not installed.
    """
    shows_tokens = metadata_of(policy).text_of is not None
    setting = RunSetting(caps=policy.caps, shows_tokens=shows_tokens, task=task, roles=roles)
    if not lacking(strategy, setting):
        if isinstance(strategy, ChecksTask):
            strategy.check_task(task)
        if isinstance(strategy, UsesMachine):
            strategy.check_machine()
        return
    cure = f"the nearest strategy that can run here is {nearest(strategy, setting)}"
    try:
        require(policy, strategy.needs, f"the strategy {strategy}")
    except CapabilityError as refusal:
        raise CapabilityError(refusal.cause, hint="; ".join(filter(None, (refusal.hint, cure)))) from None
    if "token_ids" in strategy.needs and not shows_tokens:
        raise CapabilityError(
            f"the strategy {strategy} forks at a token, but the backend {policy.name!r} does not show the text of single tokens", hint=cure
        )
    for kind in strategy.prompts if isinstance(strategy, ShowsSolutions) else ():
        if not has_prompt(task, kind):
            revises = "give prompt='revise', or " if kind == "fuse" and has_prompt(task, "revise") else ""
            raise ConfigError(
                f"the strategy {strategy} takes the prompt {kind!r}, which the task {task.name!r} lacks",
                hint=f"{revises}{cure}",
            )
    for role in strategy.verifiers:
        if role not in roles:
            raise ConfigError(
                f"the strategy {strategy} scores with the role {role!r}, but no verifier has it", hint=f"give a verifier, or {cure}"
            )


def check_models(strategy: StrategyProtocol, backends: Mapping[str, BackendProtocol], limits: Mapping[str, float]) -> None:
    """Refuse a strategy whose models beside the policy are missing, lack what it uses of them, or cannot be compared under the budget.

    Raises:
        ConfigError: a role has no model, or the budget does not limit the unit in which models are compared.
        CapabilityError: its model lacks what is used.
    """
    for role, needs in (strategy.needs_of_models if isinstance(strategy, UsesModels) else {}).items():
        if role not in backends:
            raise ConfigError(
                f"the strategy {strategy} writes with the role {role!r}, but no model has it; those that have one: {', '.join(backends)}",
                hint=f"Solver(models={{'policy': …, {role!r}: …}})",
            )
        require(backends[role], needs, f"the strategy {strategy}, of the role {role!r},")
    unit = strategy.compares_in if isinstance(strategy, ComparesModels) else None
    if unit is not None and unit not in limits:
        raise ConfigError(
            f"the strategy {strategy} compares models by their cost in {unit}, but the budget limits {', '.join(limits)}",
            hint=f"give {unit}=…, or fit its performance model again, with tts fit --unit",
        )


def check_compares(selection: SelectionProtocol, verifiers: Mapping[str, VerifierProtocol]) -> None:
    """Raise ConfigError where a selection compares candidates by a verifier that cannot."""
    if isinstance(selection, GoesByPairs) and traits_of(judge := verifiers[selection.judge]).comparison is None:
        raise ConfigError(
            f"the selection {selection} compares candidates, but the verifier {judge.name!r} cannot",
            hint="give one that can, such as verifier='judge', or another selection",
        )


def compared_by(plan: Plan, selection: SelectionProtocol) -> dict[str, int]:
    """Return the comparisons that are held for with every row, by role, where neither strategy nor stop rule scores by it."""
    if not isinstance(selection, HoldsPairs):
        return {}
    scored = [*plan.strategy.verifiers, *([plan.stopping.verifier] if isinstance(plan.stopping, GoesByScores) else [])]
    return {} if selection.judge in scored else {selection.judge: selection.pairs_each}


def check_thoughts(strategy: StrategyProtocol, limits: Mapping[str, float], policy: BackendProtocol) -> None:
    """Refuse an effort that the backend does not take, and a thinking budget that leaves nothing for a response.

    Raises:
        CapabilityError, ConfigError: so it is.
    """
    if isinstance(strategy, AsksEffort) and strategy.effort:
        require(policy, ["efforts"], f"the strategy {strategy}")
    if not isinstance(strategy, LimitsThoughts):
        return
    for unit in ("tokens", "generated_tokens"):
        if strategy.thought_tokens >= (limit := limits.get(unit, math.inf)):
            raise ConfigError(
                f"thought_tokens is {strategy.thought_tokens}, but must be below the budget of {limit:g} {unit}, "
                "which pays the response too",
                hint=f"for example thought_tokens={max(1, int(limit) // 2)}",
            )
