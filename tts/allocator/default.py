"""What is run where no strategy was named: `auto`, if a performance model is there to go by; else best-of-N, and it is said.

The performance model says the selection too, where none was named: that of its first curve, which reached most for its cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tts.allocator import shipped
from tts.allocator.auto import Auto
from tts.search.plan import Plan, parse
from tts.search.protocols import SelectionProtocol

_FALLBACK = {True: "best_of_n | weighted", False: "best_of_n | majority"}  # by whether there is a verifier


def chosen(plan: Plan | None, model: str, task: str, verifiers: Mapping[str, str]) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a run, and notes on how it came about.

    Args:
        plan: as given; None: there was none. model: the policy's name. task: the task's. verifiers: by role, as `shipped.described`.

    Raises:
        ConfigError: a performance model cannot be read, or `Auto.check`.
    """
    if plan is None and shipped.fitting(model, task, verifiers) is None:
        plan = parse(_FALLBACK["main" in verifiers])
        return plan, (f"no strategy was given, and no performance model of {model!r} is there to choose one: {plan} was used",)
    plan = Plan.of(Auto()) if plan is None else plan
    if not isinstance(plan.strategy, Auto):
        return plan, ()
    auto, selection, notes = _with_model(plan.strategy, plan.selection, model, task, verifiers)
    asked = () if selection is None else selection.verifiers
    if auto.verifier is None and asked and "main" not in (*asked, *auto.verifiers):  # scores that are not asked for are not read
        auto = dataclasses.replace(auto, verifier=asked[0])
    auto.check(selection or auto.default_selection(verified=bool(verifiers)), verifiers)
    return dataclasses.replace(plan, strategy=auto, selection=selection), notes


def _with_model(
    auto: Auto, selection: SelectionProtocol | None, model: str, task: str, verifiers: Mapping[str, str]
) -> tuple[Auto, SelectionProtocol | None, tuple[str, ...]]:
    """Return `auto` with a performance model, where there is one, the selection, and notes on them."""
    if auto.model is None:
        if (name := shipped.fitting(model, task, verifiers)) is None:
            why = "auto has no performance model: it goes by votes, under a broad population of problems, and draws plain samples"
            return auto, selection, (why,)
        auto = dataclasses.replace(auto, model=name)
    known = shipped.load(str(auto.model))
    if why := known.fits(model, task, verifiers):
        return auto, selection, (f"the performance model {auto.model!r} is of something else: {why}",)
    return auto, selection or parse(next(iter(known.curves))).selection, ()
