"""What clients may name as a model.

They may name each model of the configuration, and each of its presets as `MODEL:PRESET`.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tts.backends.base import Backend, Sampling
from tts.backends.loading.expected import expecting
from tts.errors import ConfigError, unknown_name
from tts.models.record import ModelRecord
from tts.solver.checks import LOG, check_setup
from tts.solver.model_cache import ModelCache, loaded_records, make_verifiers, resolve
from tts.solver.solver import Solver
from tts.tasks.base import Task
from tts.verifiers.compatibility import RATED
from tts_addons.gateway.config import GatewayConfig, GatewayModel, Preset, budget_of, chain_of, merge_limits
from tts_addons.gateway.failures import ApiError

_ANY_PROBLEM = "1 + 1"  # which no check of a preset reads
_REST_S, _LONGEST_REST_S = 2.0, 60.0  # seconds of rest after the first failure, and the longest rest


@dataclass(frozen=True, slots=True)
class Offer:
    """The model and preset that a name stands for.

    Args:
        name: The name that clients use.
        model: The name of the model.
        preset: The preset as configured; a model's own name has a preset without settings.
        settings: The settings of the model.
    """

    name: str
    model: str
    preset: Preset
    settings: GatewayModel

    @property
    def limits(self) -> dict[str, float]:
        """The limits of its own budget by unit: those of the model, and in their place those of the preset."""
        return merge_limits(self.settings.budget, self.preset.budget)


class ModelServers:
    """The servers that run one model, and how many searches each has.

    For each server there is one set of the model's records by role.

    A server that fails rests: for two seconds at first, twice as long after each further failure, a minute at most.

    Args:
        records: The sets of records; at least one.
        clock: The clock, in seconds.
    """

    def __init__(self, records: list[dict[str, ModelRecord]], clock: Callable[[], float] = time.monotonic) -> None:
        self.records, self._clock = records, clock
        self._busy: Counter[int] = Counter()
        self._failures: Counter[int] = Counter()  # in a row
        self._rests_until: dict[int, float] = {}

    @contextmanager
    def borrow(self, *, chats: bool = False) -> Generator[ServerLoan]:
        """Yield the server with the fewest searches among those that do not rest.

        If all servers rest, it is the one whose rest ends first. During the block the server has one more search.

        Args:
            chats: Whether the policy writes by chats, because tools or pictures need them.
        """
        now = self._clock()

        def end_of_rest_and_searches(place: int) -> tuple[float, int]:
            return max(now, self._rests_until.get(place, now)), self._busy[place]

        place = min(range(len(self.records)), key=end_of_rest_and_searches)
        records = chat_records(self.records[place]) if chats else self.records[place]
        self._busy[place] += 1
        try:
            yield ServerLoan(place, records)
        finally:
            self._busy[place] -= 1

    def report(self, place: int, *, failed: bool) -> None:
        """Note how a search on a server ended: its failure begins a rest, any other end ends the rest."""
        if failed:
            self._failures[place] += 1
            rest_s = _REST_S * 2 ** (self._failures[place] - 1)
            self._rests_until[place] = self._clock() + min(_LONGEST_REST_S, rest_s)
        else:
            self._failures.pop(place, None)
            self._rests_until.pop(place, None)

    @property
    def awake(self) -> int:
        """The number of servers that do not rest."""
        now = self._clock()
        return sum(self._rests_until.get(place, now) <= now for place in range(len(self.records)))


@dataclass(frozen=True, slots=True)
class ServerLoan:
    """A server that a search runs on.

    Args:
        place: The place of the server among those of its model.
        records: Its records by role.
    """

    place: int
    records: Mapping[str, ModelRecord]


def chat_records(records: Mapping[str, ModelRecord]) -> Mapping[str, ModelRecord]:
    """Return the records of a model on a server that is called by chats."""
    policy = records["policy"]
    other_options = [(name, value) for name, value in policy.options if name != "mode"]
    options = (*other_options, ("mode", "chat"))
    return {**records, "policy": dataclasses.replace(policy, options=options)}


class Offers:
    """The models of a gateway by the names that clients use.

    Args:
        config: The configuration of the gateway.
        cache: Where loaded models stay.
        records: Records of models, by name, in place of those that the configuration names.

    Raises:
        ConfigError: a model is unknown.
    """

    def __init__(self, config: GatewayConfig, cache: ModelCache, records: Mapping[str, ModelRecord]) -> None:
        self._config, self.cache = config, cache
        self.servers: dict[str, ModelServers] = {}
        self.by_name: dict[str, Offer] = {}
        for name, model in config.models.items():
            is_given = name in records
            self.servers[name] = (
                ModelServers([{"policy": records[name]}]) if is_given else _servers(model, config.models)
            )
            own_preset = Preset(description=model.description)
            self.by_name[name] = Offer(name=name, model=name, preset=own_preset, settings=model)
            for preset_name, preset in model.presets.items():
                offer_name = f"{name}:{preset_name}"
                self.by_name[offer_name] = Offer(name=offer_name, model=name, preset=preset, settings=model)

    def get(self, name: str) -> Offer:
        """Return the offer that a name stands for.

        Raises:
            ApiError: 404 with the nearest names.
        """
        offer = self.by_name.get(name)
        if offer is None:
            raise ApiError(
                404, str(unknown_name("model", name[:200], self.by_name)), param="model", code="model_not_found"
            )
        return offer

    def links(self, offer: Offer) -> list[str]:
        """Return the links of a chain by their names for clients: the preset, then its escalations."""
        preset = offer.name.partition(":")[2]
        return chain_of(self._config, offer.model, preset) if preset else [offer.name]

    def policy(self, offer: Offer) -> ModelRecord:
        """Return the record of the policy on a model's first server."""
        return self.servers[offer.model].records[0]["policy"]

    def task(self, offer: Offer) -> Task:
        """Return the task of a model."""
        return self.cache.task(self.servers[offer.model].records[0]["policy"].task)

    def backends(self, offer: Offer) -> Mapping[str, Backend]:
        """Return the backends of a model by role, on its first server."""
        return self.cache.backends(self.servers[offer.model].records[0])

    def load(self) -> None:
        """Load every model now, and check each preset.

        Raises:
            ConfigError: A model cannot be loaded, or a preset cannot run, such as one that chooses by scores without a
                verifier.
        """
        by_role = [records for servers in self.servers.values() for records in servers.records]
        all_records = [record for records in by_role for record in records.values()]
        of_verifiers = [record for offer in self.by_name.values() for record in _verifier_records(offer)]
        with expecting([*all_records, *of_verifiers]):
            for record in all_records:
                self.cache.backend(record)
            for offer in self.by_name.values():
                self._check(offer)

    def _check(self, offer: Offer) -> None:
        """Refuse a model or preset that could serve no request.

        Raises:
            ConfigError: The settings do not fit together, or cannot run.
        """
        preset, model = offer.preset, offer.settings
        strategy = preset.strategy if preset.strategy is not None else model.strategy
        draws: dict[str, Any] = dict(model.sampling)
        if preset.temperature is not None:
            draws["temperature"] = preset.temperature
        try:
            sampling = Sampling(**draws)
            solver = Solver(self.servers[offer.model].records[0], _verifier(offer), sampling=sampling, keep=self.cache)
            budget = budget_of({**self._config.limits.request, **offer.limits})
            setup = solver.prepare(_ANY_PROBLEM, budget, strategy=strategy).setup
            check_setup(setup, budget.limits)
        except ConfigError as failure:
            raise ConfigError(f"no request to {offer.name} could run: {failure.cause}", hint=failure.hint) from None
        for name, account in self._config.accounts.items():
            units = RATED & {*merge_limits(account.budget), *account.request}
            try:
                check_setup(setup, {**budget.limits, **dict.fromkeys(units, 1)})
            except ConfigError as failure:
                cause = f"accounts.{name} could pay for no request to {offer.name}: {failure.cause}"
                raise ConfigError(cause, hint=failure.hint) from None
        for note in setup.notes:
            LOG.warning(note)


def _verifier(offer: Offer) -> Any:
    """Return the verifier of an offer, its preset's or else its model's; None: none is named."""
    return offer.settings.verifiers if offer.preset.verifier is None else offer.preset.verifier


def _verifier_records(offer: Offer) -> Sequence[ModelRecord]:
    """Return the records of the models that an offer's verifiers load; a wrong verifier is refused with the offer."""
    try:
        return loaded_records({}, make_verifiers(_verifier(offer)) or {})
    except ConfigError:
        return ()


def _servers(model: GatewayModel, models: Mapping[str, GatewayModel]) -> ModelServers:
    """Return the servers of a model; a fusion has the first server of each of its models."""
    if model.fusion is not None:
        roles = {"policy": model.fusion.judge, **{name: name for name in model.fusion.models}}
        return ModelServers(
            [{role: _servers(models[name], models).records[0]["policy"] for role, name in roles.items()}]
        )
    record_sets: list[dict[str, ModelRecord]] = []
    for url in model.url or [None]:
        resolved = {role: resolve(record, model.backend, url) for role, record in model.records().items()}
        record_sets.append({role: record for role, record in resolved.items() if isinstance(record, ModelRecord)})
    return ModelServers(record_sets)
