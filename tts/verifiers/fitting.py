"""Whether a verifier fits the model that it asks and the task: found out before anything is spent."""

from __future__ import annotations

from tts.backends.base import Backend, require
from tts.backends.facts import ValueFacts, value_facts
from tts.budget import Rates
from tts.errors import CapabilityError
from tts.tasks.base import Task
from tts.verifiers.base import ReadsHead, Verifier


def check_fit(verifier: Verifier, backend: Backend, task: Task) -> None:
    """Refuse a verifier that cannot score solutions of a task on a backend.

    Raises:
        CapabilityError: the backend lacks what it needs or the value head that it reads; the head is read at other steps than the
            task's, or by a model of its own although the verifier states that it computes nothing.
    """
    require(backend, verifier.needs, f"the verifier {verifier.name!r}")
    facts = _facts(verifier, backend)
    if facts is None or not isinstance(verifier, ReadsHead):
        return
    if facts.step != task.step_stop:
        raise CapabilityError(
            f"the verifier {verifier.name!r} is read where steps end in {_listed(facts.step)}, but those of the task {task.name!r} end in "
            f"{_listed(task.step_stop)}",
            hint="choose the model's own task, or another verifier",
        )
    if facts.own_model and not verifier.bound(0, 1):
        raise CapabilityError(
            f"the verifier {verifier.name!r} reads a head on the policy's states, but {verifier.head!r} is a process model",
            hint=f"ask for it with process(head={verifier.head!r})",
        )


def token_rates(verifier: Verifier, backend: Backend) -> Rates:
    """Return what a token costs that a verifier computes: those of a process model are its own."""
    facts = _facts(verifier, backend)
    return backend.rates if facts is None else facts.rates


def _facts(verifier: Verifier, backend: Backend) -> ValueFacts | None:
    if not isinstance(verifier, ReadsHead):
        return None
    return value_facts(backend, verifier.head, f"the verifier {verifier.name!r}")


def _listed(texts: tuple[str, ...]) -> str:
    return " or ".join(map(repr, texts)) or "nothing"
