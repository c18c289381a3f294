"""What is run where no strategy was named: `auto`, if a performance model is there to go by; else best-of-N, and it is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tts.allocator import shipped
from tts.allocator.auto import Auto
from tts.search.base import Plan
from tts.search.registry import parse

_FALLBACK = {True: "best_of_n | weighted", False: "best_of_n | majority"}  # by whether there is a verifier


def chosen(plan: Plan | None, model: str, task: str, verifiers: Mapping[str, str]) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a run, and notes on how it came about.

    Args:
        plan: as given; None: there was none. model: the policy's name. task: the task's. verifiers: by role, as `shipped.described`.

    Raises:
        ConfigError: a performance model cannot be read.
    """
    if plan is None:
        if name := shipped.fitting(model, task, verifiers):
            return Plan.of(Auto(model=name)), ()
        plan = parse(_FALLBACK["main" in verifiers])
        return plan, (f"no strategy was given, and no performance model of {model!r} is there to choose one: {plan} was used",)
    if not isinstance(plan.strategy, Auto):
        return plan, ()
    if given := plan.strategy.model:
        why = shipped.load(given).fits(model, task, verifiers)
        return plan, (f"the performance model {given!r} is of something else: {why}",) if why else ()
    if name := shipped.fitting(model, task, verifiers):
        return dataclasses.replace(plan, strategy=dataclasses.replace(plan.strategy, model=name)), ()
    return plan, ("auto has no performance model: it goes by votes, under a broad population of problems, and draws plain samples",)
