"""Whether a verifier fits the model that it asks and the task: found out before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence

from tts.backends.base import Backend, require
from tts.backends.facts import ValueFacts, value_facts
from tts.budget import Rates
from tts.errors import CapabilityError
from tts.tasks.base import Task
from tts.verifiers.base import Composed, OwnModel, ReadsHead, Verifier


def check_fit(verifier: Verifier, backend: Backend, task: Task) -> None:
    """Refuse a verifier that cannot score solutions of a task on a backend.

    Raises:
        CapabilityError: the backend lacks what it needs or the value head that it reads; the head is read at other steps than the
            task's, or by a model of its own although the verifier states that it computes nothing.
    """
    for member in verifier.members if isinstance(verifier, Composed) else ():
        check_fit(member, backend, task)
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
    """Return what a token costs that a verifier computes: those of a process model, or of a model of the verifier's, are its own.

    Of one that is made of others it is what bounds all of theirs; each is booked at its own (`Calls.part`).
    """
    if isinstance(verifier, Composed):
        return _dearest([token_rates(member, backend) for member in verifier.members])
    if isinstance(verifier, OwnModel):
        return verifier.rates
    facts = _facts(verifier, backend)
    return backend.rates if facts is None else facts.rates


def _dearest(rates: Sequence[Rates]) -> Rates:
    def most(name: str) -> int | None:
        known = [getattr(one, name) for one in rates]
        return None if not known or None in known else max(known)

    read_again = [one.usd_in if one.usd_reused is None else one.usd_reused for one in rates]
    reused = None if None in read_again else max((amount for amount in read_again if amount is not None), default=None)
    return Rates(most("flops"), most("usd_in"), reused, most("usd_out"))


def own_rates(verifier: Verifier) -> list[Rates]:
    """Return what the tokens of models cost that are a verifier's own (see `OwnModel`), those of its members included."""
    members = verifier.members if isinstance(verifier, Composed) else ()
    own = [verifier.rates] if isinstance(verifier, OwnModel) else []
    return own + [rates for member in members for rates in own_rates(member)]


def _facts(verifier: Verifier, backend: Backend) -> ValueFacts | None:
    if not isinstance(verifier, ReadsHead):
        return None
    return value_facts(backend, verifier.head, f"the verifier {verifier.name!r}")


def _listed(texts: tuple[str, ...]) -> str:
    return " or ".join(map(repr, texts)) or "nothing"
