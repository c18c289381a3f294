"""Models, verifiers and tasks that are made once and kept, and the event loop that they live in."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from tts import tasks
from tts._core.threads import run_after_fork
from tts.backends import BACKENDS
from tts.backends.base import Backend
from tts.backends.function import FunctionBackend, WriteFunction
from tts.backends.metadata import metadata_of
from tts.checks import check_part
from tts.errors import CapabilityError, ConfigError, quote, unknown_name
from tts.models import registry
from tts.models.registry import ModelRecord
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.solver.event_loop import LoopThread
from tts.tasks.base import Task
from tts.verifiers.base import Verifier, traits_of
from tts.verifiers.compatibility import check_fit
from tts.verifiers.making import VerifierLike, make_verifier

LOOP = LoopThread()
DEFAULT_MODEL = "pocket"
NO_VERIFIERS: Final = "none"  # the text for it
Model = str | ModelRecord | Backend | WriteFunction
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def resolve(model: Model, name: str | None, url: str | None) -> Backend | ModelRecord:
    """Return a backend as it is, a function as a backend, and any other model as the record that loads it.

    Args:
        model: A backend, a function, a record, or the name of a model.
        name: The name of the backend that runs a model given by name or record; None: the record's backend.
        url: The url of the server that runs the model; None: the model's own.

    Raises:
        ConfigError: the model is unknown, writes nothing, or is no model at all; or `name` is no text.
    """
    given_name: Any = name
    if not isinstance(given_name, str | None):
        hint = "give a function or a backend as the model, in `models` of a Solver"
        raise ConfigError(f"backend is {quote(given_name)}, but must be the name of a backend", hint=hint)
    if isinstance(model, str | ModelRecord):
        function = _function_at(name)
        if name is not None and function is not None:
            return _function_model(model, name, function, url)
        record = registry.resolve(model, url) if isinstance(model, str) else model
        if record.readout:
            raise ConfigError(
                f"the model is {record.name!r}, a process model, but it scores steps and writes nothing",
                hint="name the policy whose record serves it, such as 'pocket'",
            )
        if name is not None or url is not None:
            backend = name or registry.SERVER
            record = dataclasses.replace(record, backend=backend, url=record.url if url is None else url)
        return _with_name(record)
    candidate: Any = model
    if not isinstance(candidate, type):  # a class itself would pass the checks for its objects
        if isinstance(candidate, Backend):
            check_part(candidate, Backend, "the backend", "open")
            return candidate
        if callable(candidate):
            return FunctionBackend(cast("WriteFunction", candidate))
    hint = "make an object of the class" if isinstance(candidate, type) else f"for example {registry.names()[0]!r}"
    if hasattr(candidate, "sample"):
        hint = f"write class {type(candidate).__name__}(tts.Backend)"
    raise ConfigError(f"the model is {candidate!r}, but must be a name, a record, a backend or a function", hint=hint)


def _function_at(name: str | None) -> WriteFunction | None:
    """Return the function that writes text at a place, "module:name"; None: the name is another one."""
    if name is None or ":" not in name:
        return None
    backend = BACKENDS.get(name)
    return None if isinstance(backend, type) else backend


def _function_model(
    model: str | ModelRecord, name: str, function: WriteFunction, url: str | None
) -> Backend | ModelRecord:
    """Return the model that a function stands for: the function itself, as a backend.

    Raises:
        ConfigError: another model, or a server, is given beside the function.
    """
    if isinstance(model, ModelRecord) and model.name == name and url is None:
        return model  # the record of a study, which names the function alone
    if url is None and model == DEFAULT_MODEL:
        return FunctionBackend(function)
    model_name = model if isinstance(model, str) else model.name
    conflict = f"model is {model_name!r}" if url is None else f"url is {url!r}"
    raise ConfigError(
        f"{conflict}, but the backend {name!r} is a function, which stands for a model", hint="give one of them"
    )


def with_prices(model: Backend | ModelRecord, **prices: str | None) -> Backend | ModelRecord:
    """Return a model with prices in its record; a price of None changes nothing.

    Args:
        model: A result of `resolve`.
        prices: Prices by field of a record, each with a number of tokens, such as "0.15/M".

    Raises:
        ConfigError: a price has no number of tokens, or the model is a backend or a function, which has no record.
    """
    given_prices = {name: price for name, price in prices.items() if price is not None}
    if not given_prices:
        return model
    if not isinstance(model, ModelRecord):
        name, price = next(iter(given_prices.items()))
        raise ConfigError(
            f"{name} is {quote(price)}, but the model is a backend or a function, which has no record to price",
            hint="name the model, with url= for a server, or set the prices of the backend's own record",
        )
    return registry.with_settings(model, given_prices)


def _with_name(record: ModelRecord) -> ModelRecord:
    """Return a record with a name: its own, or that of the only model on its server.

    Raises:
        ConfigError: the server has several models or none, cannot be reached, or cannot list its models.
    """
    if record.name:
        return record
    if record.backend != registry.SERVER:
        raise ConfigError(
            f"the model is not named, but the backend {record.backend!r} needs a name", hint="give model="
        )
    from tts.backends.openai.access import ServerAccess

    return dataclasses.replace(record, name=ServerAccess.of(record).only_model())


class ModelCache:
    """Models by record and tasks by name, each made once across threads and kept until `close`.

    Caller-supplied backends are not cached or closed. A forked child starts with an empty cache: inherited models may
    be in the middle of work that no thread of the child will finish.
    """

    def __init__(self) -> None:
        self._backends: Once[ModelRecord, Backend] = Once()
        self._tasks: Once[str, Task] = Once()
        self._given: dict[ModelRecord, Backend] = {}
        _CACHES.add(self)

    def give(self, backend: Backend) -> ModelRecord:
        """Return a record that stands for a caller's backend, which is not closed here."""
        record = ModelRecord(
            name=backend.name, backend=backend.name, task=metadata_of(backend).task or "text", context=backend.context
        )
        self._given[record] = backend
        return record

    def task(self, name: str) -> Task:
        """Return the task of a name.

        Raises:
            ConfigError: there is no task of that name.
        """
        return self._tasks.get(name, tasks.get)

    def backend(self, record: ModelRecord, probe_s: float | None = None) -> Backend:
        """Return the backend that runs a model, loaded in this thread if it is not loaded yet.

        Args:
            record: The record of the model.
            probe_s: Most seconds of a probe of its server; None: as its record has it.

        Raises:
            ConfigError: the backend is unknown, or the model cannot be loaded.
        """
        if record in self._given:
            return self._given[record]
        return self._backends.get(record, partial(run_after_fork, partial(_load, probe_s=probe_s)))

    def backends(
        self, models: Mapping[str, Backend | ModelRecord], probe_s: float | None = None
    ) -> Mapping[str, Backend]:
        """Return the backends of models (see `resolve`) by role; `probe_s`: as in `backend`."""
        by_role = {
            role: self.backend(model, probe_s) if isinstance(model, ModelRecord) else model
            for role, model in models.items()
        }
        return _BackendsByRole(by_role)

    def close(self) -> None:
        """Free every model and task; they are made anew at their next use.

        Raises:
            ConfigError: the caller is in the loop's thread (`LoopThread.refuse_inside`).
        """
        LOOP.refuse_inside()
        for task in self._tasks.take():
            task.close()
        backends = self._backends.take()
        if backends:
            LOOP.run(_close(backends))

    def reset_in_child(self) -> None:
        """Start anew, in a forked child.

        The parent's models stay in memory, which is shared: to free them could touch a device.
        """
        _PARENTS.append((self._backends, self._tasks))
        self._backends, self._tasks = Once(), Once()


class _BackendsByRole(dict[str, Backend]):
    """Backends by role.

    The roles that a strategy writes with show only when it runs. A role without a model is refused then.
    """

    def __missing__(self, role: str) -> Backend:
        raise ConfigError(
            f"the role {role!r} has no model; those that have one: {', '.join(self)}",
            hint=f"Solver(models={{'policy': …, {role!r}: …}})",
        )


class Once(Generic[Key, Value]):
    """Values by key, each made once.

    A thread waits for a value that is being made. A value that could not be made is tried again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Key, threading.Lock] = {}
        self._made: dict[Key, Value] = {}

    def get(self, key: Key, make: Callable[[Key], Value]) -> Value:
        """Return the value of a key; it is made at the first use."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            value = self._made.get(key)
            if value is None:
                value = self._made[key] = make(key)
            return value

    def take(self) -> list[Value]:
        """Return all values and forget them."""
        values, self._made = self._made, {}
        return list(values.values())


def _load(record: ModelRecord, probe_s: float | None = None) -> Backend:
    kind = BACKENDS.get(record.backend)
    if not isinstance(kind, type):  # a function that writes text, named by its place
        return _check_backend(FunctionBackend(kind), record)
    load: Any = getattr(kind, "from_record", None)
    if load is None:
        raise ConfigError(
            f"the backend {record.backend!r} is the class {kind.__name__}, which is no backend: it has no from_record",
            hint="name a subclass of tts.Backend that defines it, or a function that writes text",
        )
    options = dict(record.options)
    if probe_s is not None and record.backend == registry.SERVER:
        options["probe_s"] = min(probe_s, float(options.get("probe_s", probe_s)))
    if not options:
        return _check_backend(load(record), record)
    try:
        return _check_backend(load(record, **options), record)
    except TypeError as failure:
        unknown_option = _unknown_option(load, record)
        if unknown_option is not None:
            raise unknown_option from None
        options_text = ", ".join(f"{name}={value!r}" for name, value in record.options)
        raise ConfigError(
            f"the backend {record.backend!r} does not take the options {options_text}: {failure}"
        ) from failure


def _unknown_option(load: Callable[..., Any], record: ModelRecord) -> ConfigError | None:
    """Return the error for an option that a backend does not have.

    None: all options are known, or the backend does not say which options it takes.
    """
    parameters = inspect.signature(load).parameters
    known = set(parameters) - {"record"}
    if not known or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    unknown = [name for name, _ in record.options if name not in known]
    if not unknown:
        return None
    fields = {field.name for field in dataclasses.fields(ModelRecord)}
    return unknown_name(f"option of the backend {record.backend!r}", unknown[0], {*known, *fields})


def _check_backend(backend: Any, record: ModelRecord) -> Backend:
    """Return the backend of a record, after a check.

    Raises:
        ConfigError: The object is no backend, or it has no prices where its record has them.
    """
    check_part(backend, Backend, f"what {record.backend}.from_record returned", "open")
    for name in ("usd_in", "usd_out"):
        price = getattr(record, name)
        if price is not None and getattr(backend.rates, name) is None:
            raise ConfigError(
                f"{name} is {price} a million tokens, but the model {backend.name!r} takes no prices",
                hint=f"leave {name} out",
            )
    return backend


async def _close(backends: Sequence[Backend]) -> None:
    ends = await asyncio.gather(*(backend.close() for backend in backends), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end


_CACHES: weakref.WeakSet[ModelCache] = weakref.WeakSet()
_PARENTS: list[Any] = []


def _note_fork() -> None:
    for cache in list(_CACHES):
        cache.reset_in_child()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_note_fork)


class VerifierRoles:
    """The verifiers of a solver, with every parameter that their model's record gives.

    Args:
        given: The given by role; None: the one that the policy's record names, if any, as "main".
        models: The models by role, each a backend of the caller's or the record of one.
        backends: The backends of these models.

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
        self._is_from_record = given is None  # whether the verifiers are those that the model's record names
        self._by_task: dict[str, Mapping[str, Verifier]] = {}  # the verifiers that the record names for single tasks
        if given is None:
            record = policy if isinstance(policy, ModelRecord) else None
            verifier_name = own_verifier(record)
            given = {"main": make_verifier(verifier_name)} if verifier_name else {}
            task_verifiers = () if record is None else record.task_verifiers
            for task, verifier in task_verifiers:
                self._by_task[task] = {"main": _fill_verifier(make_verifier(verifier), models, backends)}
        self._verifiers = {role: _fill_verifier(verifier, models, backends) for role, verifier in given.items()}

    def fitting(
        self, task: Task, backends: Mapping[str, Backend], plan: Plan | None
    ) -> tuple[Mapping[str, Verifier], tuple[str, ...]]:
        """Return the verifiers of a run by role, and the notes for its solution.

        A verifier that the model's record names is left out where it cannot score the task on the backend.

        Args:
            task: The task of the run.
            backends: The backends, by role.
            plan: The plan of the run; None: a plan is chosen later.
        """
        if not self._is_from_record:
            return self._verifiers, ()
        own_verifiers = self._by_task.get(task.name, self._verifiers)
        try:
            for verifier in own_verifiers.values():
                check_fit(verifier, backends[verifier.model], task)
        except CapabilityError as refusal:
            if plan is None or plan.selection is None:
                would_be_used = True
            else:
                would_be_used = any("main" in needs_of(part).verifiers for part in (plan.strategy, plan.selection))
            note = f"the model's own verifier was left out: {refusal.cause}"
            return {}, (note,) if would_be_used else ()
        return own_verifiers, ()


def own_verifier(record: ModelRecord | None, task: str = "") -> str:
    """Return the verifier that a model's record names for a task; "": the record names none."""
    return "" if record is None else dict(record.task_verifiers).get(task, record.verifier)


def loaded_records(
    models: Mapping[str, Backend | ModelRecord], verifiers: Mapping[str, Verifier] | None
) -> list[ModelRecord]:
    """Return the records of all models that a solver loads, those of its verifiers included.

    Args:
        models: The models by role.
        verifiers: The verifiers by role; None: the one that the policy's record names.
    """
    records = [model for model in models.values() if isinstance(model, ModelRecord)]
    own_name = own_verifier(records[0]) if records and verifiers is None else ""
    chosen = [make_verifier(own_name)] if own_name else list((verifiers or {}).values())
    own_models = [traits_of(verifier).own_model for verifier in chosen]
    return records + [model.loads() for model in own_models if model is not None and model.loads is not None]


def make_verifiers(given: Mapping[str, VerifierLike] | VerifierLike | None) -> dict[str, Verifier] | None:
    """Return verifiers by role; None where `given` is None.

    A single verifier has the role "main", and "none" stands for no role.

    Raises:
        ConfigError: a value is no verifier, or the name of a verifier is unknown.
    """
    if given is None:
        return None
    if isinstance(given, str) and given.strip() == NO_VERIFIERS:
        return {}
    by_role: Mapping[str, VerifierLike] = given if isinstance(given, Mapping) else {"main": given}
    return {role: make_verifier(verifier) for role, verifier in by_role.items()}


def _fill_verifier(
    verifier: Verifier, models: Mapping[str, Backend | ModelRecord], backends: Mapping[str, Backend]
) -> Verifier:
    filled = traits_of(verifier).filled
    if filled is None or verifier.model not in models:  # a run refuses a role that is missing
        return verifier
    model = models[verifier.model]
    return filled(model if isinstance(model, ModelRecord) else None, backends[verifier.model])
