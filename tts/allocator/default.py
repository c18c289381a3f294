"""The choice of a plan where no strategy was named.

It is `auto` by a performance model where there is one, else a plan by votes or scores.

Free text without a verifier gets one greedy sample: votes on it mean nothing. Where no selection was named, it is that
of the performance model's first curve, which reached most for its cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from tts.allocator import shipped
from tts.allocator.auto import Auto
from tts.search.needs import needs_of
from tts.search.parts import Plan, Selection
from tts.search.plan import parse

_FREE_TEXT = "single(temperature=0)"
_MORE = (
    "no strategy was given, so one greedy sample is drawn: votes on free text mean nothing. More samples are worth it "
    "with a verifier "
    "(verifier='judge'), with a task whose answers can be compared (task='math', 'json', 'choice'), or with best_of_n "
    "| medoid"
)
_IDLE = (
    "auto writes nothing with the models of the roles {roles}: what a model is worth is known from a performance "
    "model that names it "
    "(tts fit), and the strategy cascade uses thresholds of yours"
)


def choose_plan(
    plan: Plan | None,
    model: str,
    task: str,
    verifiers: Mapping[str, str],
    others: Mapping[str, str],
    asked: Collection[str],
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a run, and notes on how it came about.

    Args:
        plan: The plan as the caller gave it; None: there was none.
        model: The policy's name.
        task: The task's.
        verifiers: The verifiers by role, as `shipped.describe_verifier`.
        others: Names of the models beside the policy, by role.
        asked: The roles of models that verifiers call.

    Raises:
        ConfigError: a performance model cannot be read, or `Auto.check`.
    """
    if plan is None and task == "text" and not verifiers and shipped.fitting(model, task, verifiers) is None:
        return parse(_FREE_TEXT), (_MORE,)
    named, plan = plan is not None, Plan.of(Auto()) if plan is None else plan
    if not isinstance(plan.strategy, Auto):
        return plan, ()
    auto, selection, notes = _with_model(plan.strategy, plan.selection, model, task, verifiers, others)
    if idle := [role for role in others if role not in needs_of(auto).models and role not in asked]:
        notes = (*notes, _IDLE.format(roles=", ".join(map(repr, idle))))
    roles = () if selection is None else needs_of(selection).verifiers
    # scores that are not needed are not read
    if auto.verifier is None and roles and "main" not in (*roles, *needs_of(auto).verifiers):
        auto = dataclasses.replace(auto, verifier=roles[0])
    notes = notes if named else ()  # where no strategy was named, how it works is no warning
    auto.check(selection or auto.default_selection(verified=bool(verifiers)), verifiers)
    return dataclasses.replace(plan, strategy=auto, selection=selection), notes


def _with_model(
    auto: Auto,
    selection: Selection | None,
    model: str,
    task: str,
    verifiers: Mapping[str, str],
    others: Mapping[str, str],
) -> tuple[Auto, Selection | None, tuple[str, ...]]:
    """Return `auto` with a performance model, where there is one, the selection, and notes on them."""
    if auto.model is None:
        if (name := shipped.fitting(model, task, verifiers, others)) is None:
            why = (
                "auto has no performance model: votes decide, under a broad population of problems, and draws plain "
                "samples"
            )
            return auto, selection, (why,)
        auto = dataclasses.replace(auto, model=name)
    known = shipped.load(str(auto.model))
    if why := known.fits(model, task, verifiers, others):
        return auto, selection, (f"the performance model {auto.model!r} is of something else: {why}",)
    return auto, selection or parse(next(iter(known.curves))).selection, ()
