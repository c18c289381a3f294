"""Checks that a verifier fits its backend and the task, and the rates of its tokens.

Nothing is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tts.backends.base import Backend
from tts.backends.capabilities import counts_texts, require, text_bound, value_head_metadata
from tts.backends.metadata import ValueHeadMetadata
from tts.budget.budget import Rates
from tts.errors import CapabilityError, ConfigError, quote
from tts.tasks.base import Task
from tts.verifiers.base import Verifier, members_of, stated_bound, traits_of

GIVE_VERIFIER = (
    "give a verifier: verifier='judge' or a function in Python, --verifier judge in commands, verifiers: "
    "judge in studies"
)


def check_fit(verifier: Verifier, backend: Backend, task: Task) -> None:
    """Refuse a verifier that cannot score solutions of a task on a backend.

    Raises:
        CapabilityError: the backend lacks a capability in `needs`, or the value head. Or the head is read at other
            places than the ends of the task's steps. Or the head is a process model, which computes tokens, but the
            verifier states a bound of 0.
    """
    for member in members_of(verifier):
        check_fit(member, backend, task)
    require(backend, verifier.needs, f"the verifier {verifier.name!r}")
    head, metadata = _head(verifier, backend)
    if metadata is None:
        return
    if metadata.step != task.step_stop:
        raise CapabilityError(
            f"the verifier {verifier.name!r} is read where steps end in {_list(metadata.step)}, "
            f"but those of the task {task.name!r} end in {_list(task.step_stop)}",
            hint="choose the model's own task, or another verifier",
        )
    if metadata.own_model and not stated_bound(verifier, 0, 1):
        raise CapabilityError(
            f"the verifier {verifier.name!r} reads a head on the policy's states, but {head!r} is a process model",
            hint=f"ask for it with process(head={head!r})",
        )


def check_one_token(backend: Backend, name: str, word: str, hint: str) -> None:
    """Raise ConfigError unless the word of the parameter `name` is exactly one token of a model.

    A model whose backend does not count texts passes.
    """
    size = text_bound(backend, word)
    if size != 1 and counts_texts(backend):
        raise ConfigError(
            f"{name} is {quote(word)}, which is {size} tokens to this model, but must be exactly one", hint=hint
        )


def token_rates(verifier: Verifier, backend: Backend) -> Rates:
    """Return the rates of a verifier's tokens.

    The rates are those of the verifier's own model, else of its process model, else of the backend.

    For a composition, each rate is the highest among its members; the tokens of each member are booked at its rates
    (`Calls.part`).
    """
    members = members_of(verifier)
    if members:
        return _dearest([token_rates(member, backend) for member in members])
    own_model = traits_of(verifier).own_model
    if own_model is not None:
        return own_model.rates
    _head_name, metadata = _head(verifier, backend)
    return backend.rates if metadata is None else metadata.rates


def _dearest(rates: Sequence[Rates]) -> Rates:
    """Return the highest of each rate; a rate that is missing anywhere is None."""

    def highest(amounts: Sequence[Any]) -> Any:
        return None if not amounts or None in amounts else max(amounts)

    return Rates(
        flops=highest([rate.flops for rate in rates]),
        usd_in=highest([rate.usd_in for rate in rates]),
        usd_reused=highest([rate.usd_in if rate.usd_reused is None else rate.usd_reused for rate in rates]),
        usd_out=highest([rate.usd_out for rate in rates]),
    )


def own_rates(verifier: Verifier) -> list[Rates]:
    """Return the rates of a verifier's own models (see `OwnModel`), its members' included."""
    own_model = traits_of(verifier).own_model
    rates = [] if own_model is None else [own_model.rates]
    for member in members_of(verifier):
        rates += own_rates(member)
    return rates


def _head(verifier: Verifier, backend: Backend) -> tuple[str | None, ValueHeadMetadata | None]:
    """Return the name of the value head that a verifier reads, and the backend's metadata for it.

    Each is None where it is absent.
    """
    head = traits_of(verifier).head
    if head is None:
        return None, None
    return head, value_head_metadata(backend, head, f"the verifier {verifier.name!r}")


def _list(texts: tuple[str, ...]) -> str:
    return " or ".join(map(repr, texts)) or "nothing"


_RATES = {"flops": "parameters=8B", "usd": "usd_in=0.15/M and usd_out=0.60/M"}
RATED = frozenset(_RATES)  # units of a budget that need rates of models


def check_rates(
    limits: Mapping[str, float], models: Mapping[str, tuple[str, Rates]], verifiers: Mapping[str, Verifier]
) -> None:
    """Raise ConfigError where a budget limits FLOPs or dollars and a model has no rate for them.

    The model may be a verifier's own model.

    Args:
        limits: The limits of the budget.
        models: Name of the backend and rates, by role.
        verifiers: The verifiers, by role.
    """
    for unit, attributes in (("flops", ("flops",)), ("usd", ("usd_in", "usd_out"))):
        if unit not in limits:
            continue
        for role, (name, rates) in models.items():
            if any(getattr(rates, attribute) is None for attribute in attributes):
                is_argument = unit == "usd" and role == "policy"
                in_python = ', or in Python by solve(…, usd_in="0.15/M", usd_out="0.60/M")' if is_argument else ""
                raise ConfigError(
                    f"the budget limits {unit}, but the record of the model {role!r} ({name}) has no rate for it",
                    hint=f"limit tokens, or give {_RATES[unit]} in the model's record: as keys of the model in a YAML "
                    f"file, or by --model-option{in_python}",
                )
        for role, verifier in verifiers.items():
            model_rates = own_rates(verifier)
            if any(getattr(rates, attribute) is None for rates in model_rates for attribute in attributes):
                raise ConfigError(
                    f"the budget limits {unit}, but a model of the verifier {role!r} ({verifier.name}) has no rate "
                    "for it",
                    hint="limit tokens, or name the model's parameters in its record; it has no prices",
                )


def proves(verifier: Verifier) -> bool:
    """Whether a verifier's greatest score means a right answer, as of an oracle or by `Traits.proves`."""
    return verifier.oracle or traits_of(verifier).proves
