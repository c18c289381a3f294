"""Which verifiers a solver asks: those that were given, or the one that its policy's record names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from tts.backends.base import Backend
from tts.errors import CapabilityError, ConfigError, shown
from tts.models.registry import ModelRecord
from tts.search.base import Plan, lacking
from tts.search.registry import parse_call
from tts.tasks.base import Task
from tts.verifiers import VERIFIERS
from tts.verifiers.base import FromRecord, Verifier
from tts.verifiers.callable import CallableVerifier, ScoreFunction
from tts.verifiers.fitting import check_fit

VerifierLike = str | Verifier | ScoreFunction
NO_VERIFIERS: Final = "none"  # the text for it


class Scorers:
    """The verifiers of a solver, with every parameter that their model's record gives.

    Args:
        given: by role; None: the one that the policy's record names, if any, as "main".
        models: by role, each a backend of the caller's or the record of one. backends: of these models.

    Raises:
        ConfigError: a parameter that was left out stands in no record.
    """

    def __init__(
        self, given: Mapping[str, Verifier] | None, models: Mapping[str, Backend | ModelRecord], backends: Mapping[str, Backend]
    ) -> None:
        policy = models["policy"]
        self._own = given is None
        if given is None:
            named = policy.verifier if isinstance(policy, ModelRecord) else ""
            given = {"main": _made(named)} if named else {}
        self._verifiers = {role: _filled(verifier, models, backends) for role, verifier in given.items()}

    def fitting(self, task: Task, backends: Mapping[str, Backend], plan: Plan | None) -> tuple[Mapping[str, Verifier], tuple[str, ...]]:
        """Return the verifiers of a run, and notes: the record's own one is left out where it cannot score a task on the backend.

        Args:
            plan: of the run; None: it is yet to be chosen.
        """
        if not self._own:
            return self._verifiers, ()
        try:
            for verifier in self._verifiers.values():
                check_fit(verifier, backends[verifier.model], task)
        except CapabilityError as why:
            asked = plan is None or plan.selection is None or "main" in (*plan.strategy.verifiers, *plan.selection.verifiers)
            return {}, (f"the model's own verifier was left out: {why.cause}",) if asked else ()
        return self._verifiers, ()


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
    return {role: _made(verifier) for role, verifier in named.items()}


def _filled(verifier: Verifier, models: Mapping[str, Backend | ModelRecord], backends: Mapping[str, Backend]) -> Verifier:
    if not isinstance(verifier, FromRecord) or verifier.model not in models:  # a role that is missing is refused by a run
        return verifier
    model = models[verifier.model]
    return verifier.filled(model if isinstance(model, ModelRecord) else None, backends[verifier.model])


def _made(given: Any) -> Verifier:
    if isinstance(given, str):
        made = parse_call(VERIFIERS, given)
        if missing := lacking(made, Verifier):
            raise ConfigError(f"the verifier {given!r} lacks {', '.join(missing)}", hint="see tts.verifiers.base.Verifier")
        return made
    if not isinstance(given, type):  # a class may look like its objects
        if isinstance(given, Verifier):
            return given
        if callable(given):
            return CallableVerifier(cast("ScoreFunction", given))
    raise ConfigError(
        f"the verifier is {shown(given)}, but must be a name, a verifier or a function",
        hint="make an object of the class" if isinstance(given, type) else "for example a function of (problem, text)",
    )
