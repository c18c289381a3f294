"""Checks, before anything is spent, that strategy and selection fit model, task and verifiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tts.backends.base import Backend
from tts.backends.capabilities import require
from tts.backends.metadata import metadata_of
from tts.errors import CapabilityError, ConfigError
from tts.search.families import RunSetting, has_prompt, lacking, nearest
from tts.search.needs import needs_of
from tts.search.parts import Plan, Selection, Strategy
from tts.tasks.base import Task
from tts.types import Problem, pictures_in
from tts.verifiers.base import Verifier, traits_of
from tts.verifiers.compatibility import RATED


def check_strategy(strategy: Strategy, policy: Backend, task: Task, roles: Sequence[str]) -> None:
    """Refuse a strategy that cannot run; the hint names the nearest one that can.

    Args:
        roles: of the verifiers.

    Raises:
        CapabilityError: the backend, or this machine, lacks what it needs. ConfigError: the task lacks a prompt that it needs, or no
            verifier has its role. MissingDependency: what it needs of this machine is not installed.
    """
    shows_tokens = metadata_of(policy).text_of is not None
    setting = RunSetting(caps=policy.caps, shows_tokens=shows_tokens, task=task, roles=roles)
    needs = needs_of(strategy)
    if not lacking(strategy, setting):
        if needs.task is not None:
            needs.task(task)
        if needs.machine is not None:
            needs.machine()
        return
    cure = f"the nearest strategy that can run here is {nearest(strategy, setting)}"
    try:
        require(policy, needs.capabilities, f"the strategy {strategy}")
    except CapabilityError as refusal:
        raise CapabilityError(refusal.cause, hint="; ".join(filter(None, (refusal.hint, cure)))) from None
    if "token_ids" in needs.capabilities and not shows_tokens:
        raise CapabilityError(
            f"the strategy {strategy} forks at a token, but the backend {policy.name!r} does not show the text of single tokens", hint=cure
        )
    for kind in needs.prompts:
        if not has_prompt(task, kind):
            revises = "give prompt='revise', or " if kind == "fuse" and has_prompt(task, "revise") else ""
            raise ConfigError(
                f"the strategy {strategy} takes the prompt {kind!r}, which the task {task.name!r} lacks",
                hint=f"{revises}{cure}",
            )
    for role in needs.verifiers:
        if role not in roles:
            raise ConfigError(
                f"the strategy {strategy} scores with the role {role!r}, but no verifier has it", hint=f"give a verifier, or {cure}"
            )


def check_models(strategy: Strategy, backends: Mapping[str, Backend], limits: Mapping[str, float]) -> None:
    """Refuse a strategy whose models beside the policy are missing, lack what it uses of them, or cannot be compared under the budget.

    Raises:
        ConfigError: a role has no model, or the budget does not limit the unit in which models are compared.
        CapabilityError: its model lacks what is used.
    """
    needs = needs_of(strategy)
    for role, used in needs.models.items():
        if role not in backends:
            raise ConfigError(
                f"the strategy {strategy} writes with the role {role!r}, but no model has it; those that have one: {', '.join(backends)}",
                hint=f"Solver(models={{'policy': …, {role!r}: …}})",
            )
        require(backends[role], used, f"the strategy {strategy}, of the role {role!r},")
    if needs.unit is not None and needs.unit not in limits:
        raise ConfigError(
            f"the strategy {strategy} compares models by their cost in {needs.unit}, but the budget limits {', '.join(limits)}",
            hint=f"give {needs.unit}=…, or fit its performance model again, with tts fit --unit",
        )


def check_pictures(problem: Problem, backends: Mapping[str, Backend], limits: Mapping[str, float]) -> None:
    """Refuse pictures where a model takes none, or where their input tokens count and are not known.

    Args:
        problem: The problem.
        backends: The backends by role.
        limits: The limits of the budget.

    Raises:
        CapabilityError: a model takes no pictures.
        ConfigError: a limit counts input tokens, and the tokens of a picture are not known.
    """
    if not pictures_in(problem.prompt):
        return
    for role, backend in backends.items():
        if not backend.caps.pictures:
            raise CapabilityError(
                f"the prompt has a picture, but the model of the role {role!r} on the backend {backend.name!r} reads text alone",
                hint="use a model on a server that takes pictures by chats (tts doctor --url; --model-option mode=chat), or leave them out",
            )
        if RATED & limits.keys() and metadata_of(backend).picture_tokens is None:
            raise ConfigError(
                f"the budget limits {', '.join(sorted(RATED & limits.keys()))}, but the tokens of a picture are not known",
                hint="give the model's record tokens_per_image, or limit other units",
            )


def check_compares(selection: Selection, verifiers: Mapping[str, Verifier]) -> None:
    """Raise ConfigError where a selection compares candidates by a verifier that cannot."""
    needs = needs_of(selection)
    for role in needs.pairs:
        traits = traits_of(verifiers[role])
        if traits.comparison is None or (needs.lists and traits.choice is None):
            raise ConfigError(
                f"the selection {selection} compares candidates, but the verifier {verifiers[role].name!r} cannot",
                hint="give one that can, such as verifier='judge', or another selection",
            )


def compared_by(plan: Plan, selection: Selection) -> dict[str, int]:
    """Return the comparisons that are held for with every row, by role, where neither strategy nor stop rule scores by it."""
    scored = [role for part in (plan.strategy, plan.stopping) if part is not None for role in needs_of(part).verifiers]
    return {role: most for role, most in needs_of(selection).pairs.items() if most and role not in scored}


def check_thoughts(strategy: Strategy, limits: Mapping[str, float]) -> None:
    """Raise ConfigError where a budget of thoughts leaves nothing for a response."""
    if (thought_tokens := needs_of(strategy).thought_tokens) is None:
        return
    for unit in ("tokens", "generated_tokens"):
        if thought_tokens >= (limit := limits.get(unit, math.inf)):
            raise ConfigError(
                f"thought_tokens is {thought_tokens}, but must be below the budget of {limit:g} {unit}, which pays the response too",
                hint=f"for example thought_tokens={max(1, int(limit) // 2)}",
            )
