"""The verifiers of a solver: those that were given, or the one that its policy's record names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tts.backends.base import Backend
from tts.errors import CapabilityError
from tts.models.registry import ModelRecord
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.tasks.base import Task
from tts.verifiers.base import Verifier, traits_of
from tts.verifiers.compatibility import check_fit
from tts.verifiers.making import VerifierLike, make_verifier

NO_VERIFIERS: Final = "none"  # the text for it


class VerifierRoles:
    """The verifiers of a solver, with every parameter that their model's record gives.

    Args:
        given: by role; None: the one that the policy's record names, if any, as "main".
        models: by role, each a backend of the caller's or the record of one. backends: of these models.

    Raises:
        ConfigError: a parameter that was left out stands in no record.
    """

    def __init__(
        self,
        given: Mapping[str, Verifier] | None,
        models: Mapping[str, Backend | ModelRecord],
        backends: Mapping[str, Backend],
    ) -> None:
        policy = models["policy"]
        self._own = given is None
        self._of_tasks: dict[str, Mapping[str, Verifier]] = {}
        if given is None:
            record = policy if isinstance(policy, ModelRecord) else None
            named = own_verifier(record)
            given = {"main": make_verifier(named)} if named else {}
            for task, verifier in () if record is None else record.task_verifiers:
                self._of_tasks[task] = {"main": _filled(make_verifier(verifier), models, backends)}
        self._verifiers = {role: _filled(verifier, models, backends) for role, verifier in given.items()}

    def fitting(self, task: Task, backends: Mapping[str, Backend], plan: Plan | None) -> tuple[Mapping[str, Verifier], tuple[str, ...]]:
        """Return the verifiers of a run, and notes: the record's own one is left out where it cannot score a task on the backend.

        Args:
            plan: of the run; None: it is yet to be chosen.
        """
        if not self._own:
            return self._verifiers, ()
        own = self._of_tasks.get(task.name, self._verifiers)
        try:
            for verifier in own.values():
                check_fit(verifier, backends[verifier.model], task)
        except CapabilityError as why:
            parts = () if plan is None else (plan.strategy, plan.selection)
            asked = plan is None or plan.selection is None or any("main" in needs_of(part).verifiers for part in parts)
            return {}, (f"the model's own verifier was left out: {why.cause}",) if asked else ()
        return own, ()


def own_verifier(record: ModelRecord | None, task: str = "") -> str:
    """Return what scores a model's solutions of a task where the caller names nothing; "": nothing does."""
    return "" if record is None else dict(record.task_verifiers).get(task, record.verifier)


def made(given: Mapping[str, VerifierLike] | VerifierLike | None) -> dict[str, Verifier] | None:
    """Return verifiers by role; a single one is "main", and "none" stands for no role; None: nothing was given.

    Raises:
        ConfigError: one is no verifier, or its name is unknown.
    """
    if given is None:
        return None
    if isinstance(given, str) and given.strip() == NO_VERIFIERS:
        return {}
    named: Mapping[str, VerifierLike] = given if isinstance(given, Mapping) else {"main": given}
    return {role: make_verifier(verifier) for role, verifier in named.items()}


def _filled(verifier: Verifier, models: Mapping[str, Backend | ModelRecord], backends: Mapping[str, Backend]) -> Verifier:
    filled = traits_of(verifier).filled
    if filled is None or verifier.model not in models:  # a run refuses a role that is missing
        return verifier
    model = models[verifier.model]
    return filled(model if isinstance(model, ModelRecord) else None, backends[verifier.model])
