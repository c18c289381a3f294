"""The choice of a plan where no strategy was named.

It is `auto` by a performance model where there is one, else a plan by votes or scores.

Free text without a verifier gets one sample: votes on it mean nothing. It is greedy, unless the caller named a
temperature or the model takes one alone. Where no selection was named, it is that
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

_GREEDY, _SAMPLED = "single(temperature=0)", "single"
_MORE = (
    "no strategy was given, so one {kind} is drawn: votes on free text mean nothing. More samples are worth it with a "
    "verifier (verifier='judge'), with a task whose answers can be compared (task='math', 'json', 'choice'), or with "
    "best_of_n | medoid"
)
_IDLE = (
    "auto writes nothing with the models of the roles {roles}: what a model is worth is known from a performance "
    "model that names it "
    "(tts fit), and the strategy cascade uses thresholds of yours"
)
_REPEATS = (
    "the performance model {name!r} does not say how many wrong answers a problem has, so votes count them as never "
    "given twice, beside the lure: fit it again (tts fit) with more samples of each problem"
)


def choose_plan(
    plan: Plan | None,
    model: str,
    task: str,
    verifiers: Mapping[str, str],
    others: Mapping[str, str],
    asked: Collection[str],
    *,
    greedy: bool = True,
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a run, and notes on how the plan was made.

    Args:
        plan: The plan as the caller gave it; None: there was none.
        model: The name of the policy.
        task: The name of the task.
        verifiers: The verifiers by role, as `describe_verifier` writes them.
        others: Names of the models beside the policy, by role.
        asked: The roles of models that verifiers call.
        greedy: Whether a single sample of free text is greedy.

    Raises:
        ConfigError: a performance model cannot be read, or the scores of a verifier would not be used (`Auto.check`).
    """
    is_free_text = task.partition("(")[0] == "text" and not verifiers
    if plan is None and is_free_text and shipped.fitting(model, task, verifiers) is None:
        return parse(_GREEDY if greedy else _SAMPLED), (_MORE.format(kind="greedy sample" if greedy else "sample"),)
    run_plan = Plan.of(Auto()) if plan is None else plan
    if not isinstance(run_plan.strategy, Auto):
        return run_plan, ()
    auto, selection, notes = _with_model(run_plan.strategy, run_plan.selection, model, task, verifiers, others)
    idle_roles = [role for role in others if role not in needs_of(auto).models and role not in asked]
    if idle_roles:
        notes = (*notes, _IDLE.format(roles=", ".join(map(repr, idle_roles))))
    roles = () if selection is None else needs_of(selection).verifiers
    # where nothing needs the scores of "main", `auto` reads those of the selection
    if auto.verifier is None and roles and "main" not in (*roles, *needs_of(auto).verifiers):
        auto = dataclasses.replace(auto, verifier=roles[0])
    auto.check(selection or auto.default_selection(verified=bool(verifiers)), verifiers)
    # who named no strategy is not warned of how the default works
    return dataclasses.replace(run_plan, strategy=auto, selection=selection), () if plan is None else notes


def _with_model(
    auto: Auto,
    selection: Selection | None,
    model: str,
    task: str,
    verifiers: Mapping[str, str],
    others: Mapping[str, str],
) -> tuple[Auto, Selection | None, tuple[str, ...]]:
    """Return `auto` with a performance model, if there is one, the selection, and notes on both."""
    if auto.division == "blend_asc":
        return auto, selection, ()
    if auto.model is None:
        name = shipped.fitting(model, task, verifiers, others)
        if name is None:
            note = "auto has no performance model here: it draws plain samples, as if wrong answers never repeat"
            return auto, selection, (note,)
        auto = dataclasses.replace(auto, model=name)
    known = shipped.load(str(auto.model))
    misfit = known.fits(model, task, verifiers, others)
    if misfit:
        return auto, selection, (f"the performance model {auto.model!r} is of something else: {misfit}",)
    first_text = next(iter(known.curves))
    notes = (_REPEATS.format(name=auto.model),) if known.population.others is None and not verifiers else ()
    return auto, selection or parse(first_text).selection, notes
