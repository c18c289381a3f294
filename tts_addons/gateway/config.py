"""The configuration of a gateway: one YAML file. Unknown keys are refused with the nearest name.

    models:
      pocket:                       # the name that clients use
        model: pocket               # as `--model` takes it; by default the name
        strategy: best_of_n | weighted
        budget: 2000
        presets:
          vote: {strategy: best_of_n(n=8) | majority, budget: 1000}
    keys: keys.txt
    store: searches.sqlite
    accounts:
      project: {budget: {usd: 100}, hours: 720, request: {usd: 0.05}, keys: [anna, bert]}
    limits: {tokens: 20000, searches: 256}

A preset is offered to clients as the model `pocket:vote`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from tts._common.sections import Section
from tts._common.yaml_text import read_yaml
from tts.backends.base import Sampling
from tts.budget.budget import Budget, check_units
from tts.budget.units import WHOLE_UNITS
from tts.checks import read_text
from tts.errors import ConfigError, quote, unknown_name
from tts.experiments.study.config import ModelConfig
from tts.search.plan import parse

KEPT_BYTES = 1 << 25  # of the searches of one key, and of its responses
_NAME = re.compile(r"[\w./-]+")


def budget_of(given: float | Mapping[str, float | None]) -> Budget:
    """Return the budget of a number of tokens, or of limits by unit.

    Raises:
        ConfigError: a unit is unknown, or a limit is not valid.
    """
    if not isinstance(given, Mapping):
        return Budget.of(given)
    check_units(given)
    return Budget(**given)  # pyright: ignore[reportArgumentType]


def merge_limits(*budgets: float | Mapping[str, float | None] | None) -> dict[str, float]:
    """Return limits by unit. Each later budget replaces the units that it limits."""
    merged: dict[str, float] = {}
    for given in budgets:
        limits = given if isinstance(given, Mapping) else {"tokens": given}
        merged |= {unit: limit for unit, limit in limits.items() if limit is not None}
    return merged


# tokens, or limits by unit, as users write them; checked by `Budget`
BudgetGiven = Annotated[
    int | dict[str, int | float | None], BeforeValidator(lambda given: (budget_of(given), given)[1])
]


StrategyText = Annotated[str, AfterValidator(lambda given: str(parse(given)))]
Temperature = Annotated[float, AfterValidator(lambda given: Sampling(temperature=given).temperature)]


class Preset(Section):
    """A named strategy and budget of a model.

    What the preset leaves out is as the model has it.

    Args:
        strategy: The strategy, as `--strategy` takes it.
        budget: Tokens, or limits by unit; other units are limited as the model has it.
        verifier: The verifier, as `--verifier` takes it.
        temperature: The temperature of its rows.
        description: One line for people.
        risk: The share of given answers that may be wrong. An answer that is not sure enough is withheld; None: every
            answer is given.
        calibration: The file of `tts calibrate` for this preset; it is needed with a risk.
        escalate: Further presets and models, asked in turn where this preset is not sure enough. Presets of the same
            model are named alone, all others by their names for clients.
    """

    strategy: StrategyText | None = None
    budget: BudgetGiven | None = None
    verifier: str | None = None
    temperature: Temperature | None = None
    description: str = ""
    risk: float | None = Field(default=None, gt=0, lt=1)
    calibration: str | None = None
    escalate: list[str] = Field(default_factory=list[str])

    @model_validator(mode="after")
    def _calibrate(self) -> Preset:
        if (self.risk is None) != (self.calibration is None):
            missing = "risk" if self.risk is None else "calibration"
            raise ConfigError(
                f"{missing} is missing, but a preset has both or neither of risk and calibration", hint="tts calibrate"
            )
        if self.escalate and self.risk is None:
            raise ConfigError(
                f"escalate is {quote(self.escalate)}, but without a risk no answer is passed on", hint="give risk"
            )
        return self


class Fusion(Section):
    """Several models that write, and a model that fuses their texts.

    Args:
        models: The models that write, by their names for clients; two at least.
        judge: The model that reads all their solutions and writes the answer.
        n: The solutions of each model.
    """

    models: list[str] = Field(min_length=2)
    judge: str
    n: int = Field(default=1, ge=1)

    @property
    def strategy(self) -> str:
        """The strategy. The judge is its policy, and the other models have roles by their names."""
        return f"archon(n={self.n}, writers={self.models!r}, layers=['generate', 'fuse'], aggregator='policy')"


class GatewayModel(ModelConfig):
    """A model that is offered.

    The keys are those of a study's model (model, url, backend, options, verifiers, sampling, settings), and the
    following.

    Args:
        strategy: The strategy where a request names none; None: `auto`.
        budget: The budget where a request names none; None: a budget that pays each answer of the strategy in full.
        presets: The presets by name.
        description: One line for people.
        fusion: Models of this gateway that write and fuse together, in place of a model of its own; None: the entry is
            one model.
        url: The servers of one model; a search goes to the one with the fewest searches in flight.
    """

    strategy: StrategyText | None = None
    budget: BudgetGiven | None = None
    presets: dict[str, Preset] = Field(default_factory=dict[str, Preset])
    description: str = ""
    fusion: Fusion | None = None

    @field_validator("presets")
    @classmethod
    def _names(cls, given: dict[str, Preset]) -> dict[str, Preset]:
        for name in given:
            check_name("name of a preset", name)
        return given


class GatewayLimits(Section):
    """What an operator allows.

    Args:
        tokens: The most tokens of a request's budget; a request that limits no tokens gets this limit too.
        seconds: The most seconds of a request's search, or of a model alone; None: no limit.
        usd: The most dollars of a request; every model needs prices. None: no limit.
        client_tokens: The most tokens that one client may spend in `client_hours`; None: no limit.
        client_hours: The hours for which a client's tokens count.
        searches: The most searches at once.
        queue: The most requests that wait behind the searches; further ones are refused with 429. As many further
            places are for clients without requests in the queue.
        n: The most choices of a reply.
        width: The largest whole number in the strategy of a request, except for lengths in tokens.
        body_bytes: The most bytes of a request's body.
        image_bytes: The most bytes of a picture.
        image_hosts: The hosts whose pictures a model's server may fetch, by https; none by default.
        body_seconds: The seconds in which a body must have arrived.
        messages: The most messages of a request's history.
        characters: The most characters of a request's texts.
        connections: The most connections at once, and never more than three quarters of the files that the process may
            open.
        address_connections: The most connections of one address, this machine's included, and never more than half of
            all. Beyond this, a new connection replaces the one that has waited longest for a request, or is refused
            with 503.
        head_seconds: The seconds in which the line and the headers of a request must have arrived.
        read_seconds: The seconds for which a client may leave a reply unread.
    """

    tokens: int = Field(default=100_000, ge=1)
    seconds: float | None = Field(default=None, gt=0)
    usd: float | None = Field(default=None, gt=0)
    client_tokens: int | None = Field(default=None, ge=1)
    client_hours: float = Field(default=24, gt=0)
    searches: int = Field(default=256, ge=1)
    queue: int = Field(default=1024, ge=0)
    n: int = Field(default=16, ge=1)
    width: int = Field(default=1024, ge=1)
    body_bytes: int = Field(default=10_000_000, ge=1)
    image_bytes: int = Field(default=5_000_000, ge=1)
    image_hosts: list[str] = Field(default_factory=list[str])
    body_seconds: float = Field(default=60.0, gt=0)
    messages: int = Field(default=1000, ge=1)
    characters: int = Field(default=2_000_000, ge=1)
    connections: int = Field(default=4096, ge=2)
    address_connections: int = Field(default=2048, ge=1)
    head_seconds: float = Field(default=10.0, gt=0)
    read_seconds: float = Field(default=60.0, gt=0)

    @property
    def request(self) -> dict[str, float]:
        """The limits of each request, by unit."""
        limits = {"tokens": self.tokens, "seconds": self.seconds, "usd": self.usd}
        return {unit: limit for unit, limit in limits.items() if limit is not None}


class GatewayAccount(Section):
    """What requests may spend together in a period.

    An account with the name of a key is what that key may spend.

    Args:
        budget: Tokens, or limits by unit; `seconds` are those of its searches, added up.
        hours: The hours of a period, after which the whole budget is available again; None: the only period has no end.
        request: The most that one request may take, by unit; it takes this amount of a unit that neither the request
            nor its model limits. Every unit of the account needs an amount, except those of `limits`, as `tokens`.
        keys: The names of further keys, whose requests may name the account in `tts.account`.
    """

    budget: BudgetGiven
    hours: float | None = Field(default=None, gt=0)
    request: dict[str, int | float] = Field(default_factory=dict[str, int | float])
    keys: list[str] = Field(default_factory=list[str])


class GatewayConfig(Section):
    """What a gateway offers, to whom, and within which limits.

    Args:
        models: The models by the name that clients use.
        efforts: The tokens of the budget for each `reasoning_effort`, up to `limits.tokens`.
        verifiers: The verifiers that a request may name, in these words, beside those of its model.
        keys: The file of clients' keys, "NAME KEY" a line; None: anyone who reaches the server may use it.
        accounts: What requests may spend together, by the account's name, beside `limits.client_tokens` of each key;
            they need a store.
        operators: The names of `keys` that see the counts of all clients in `/metrics`; others see their own.
        hosts: The names by which requests may address the server, beside its own address and this machine's names.
        origins: The origins of web pages that may call it, such as "https://chat.example.org"; none by default.
        store: The file of finished searches and their traces; None: the last ones, in memory.
        kept: The most searches of each key in the store, and its most responses; its oldest are dropped.
        kept_bytes: The most bytes of each key's searches, packed, and of its responses. All keys together have at most
            16 times as many.
        limits: What an operator allows.
        ping_s: The seconds between keep-alive comments of a stream.
        linger_s: The seconds for which a search goes on after its client has left, where its request has an
            idempotency key.
        telemetry: Whether OpenTelemetry spans are made.
        access_log: Whether each request is a line on standard error, in all workers.
    """

    models: dict[str, GatewayModel]
    efforts: dict[str, int] = Field(default={"minimal": 500, "low": 1000, "medium": 4000, "high": 16000})
    verifiers: list[str] = Field(
        default=["none", "process", "probe", "confidence", "self_evaluation", "judge", "rules"]
    )
    keys: str | None = None
    accounts: dict[str, GatewayAccount] = Field(default_factory=dict[str, GatewayAccount])
    operators: list[str] = Field(default_factory=list[str])
    hosts: list[str] = Field(default_factory=list[str])
    origins: list[str] = Field(default_factory=list[str])
    store: str | None = None
    kept: int = Field(default=1000, ge=1)
    kept_bytes: int = Field(default=KEPT_BYTES, ge=1)
    limits: GatewayLimits = GatewayLimits()
    ping_s: float = Field(default=10.0, gt=0)
    linger_s: float = Field(default=1.5, ge=0)
    telemetry: bool = False
    access_log: bool = False

    @model_validator(mode="before")
    @classmethod
    def _own_names(cls, given: Any) -> Any:
        """Use the name of an entry as its `model`, where neither `model`, `url` nor `backend` is given."""
        models: Any = given.get("models") if isinstance(given, dict) else None
        if not isinstance(models, dict):
            return given
        entries = {name: _with_own_name(name, _as_fusion(name, entry)) for name, entry in models.items()}
        return {**given, "models": entries}

    @model_validator(mode="after")
    def _fits(self) -> GatewayConfig:
        """Refuse settings that are invalid by themselves or do not fit each other."""
        if not self.models:
            raise ConfigError(
                "models is empty, but a gateway needs at least one", hint="for example models: {pocket: {}}"
            )
        for model_name, model in self.models.items():
            check_name("name of a model", model_name)
            of_presets = {f"{model_name}:{name}": preset.budget for name, preset in model.presets.items()}
            budgets = {model_name: model.budget, **of_presets}  # by the name that requests use
            for offer_name, budget in budgets.items():
                own_limits = merge_limits(budget)
                for unit, limit in self.limits.request.items():
                    if own_limits.get(unit, 0) > limit:
                        raise ConfigError(
                            f"the budget of {offer_name} is {quote(budget)}, but limits.{unit} is {limit:g}",
                            hint=f"raise limits.{unit}",
                        )
        _check_efforts(self.efforts)
        _check_fusions(self)
        _check_chains(self)
        for account_name, account in self.accounts.items():
            _check_account(account_name, account, self.limits)
        if self.accounts and self.store is None:
            raise ConfigError(
                "accounts are given, but there is no store, so that a restart would forget what was spent",
                hint="name a file as the store, for example store: searches.sqlite",
            )
        return self


def _with_own_name(name: Any, entry: Any) -> Any:
    """Return the settings of a model, with its name as its `model` where nothing else says what runs."""
    if entry is None:
        return {"model": name}
    if isinstance(entry, dict) and not {"model", "url", "backend"} & entry.keys():
        return {"model": name, **entry}
    return entry


def _as_fusion(name: Any, given: Any) -> Any:
    """Return the settings of a model; a fusion gets its judge as the model, and a strategy.

    Raises:
        ConfigError: A fusion has a model, a server or a strategy of its own.
    """
    fusion: Any = given.get("fusion") if isinstance(given, dict) else None
    if not isinstance(fusion, dict):
        return given
    settings = Fusion.of(fusion, f"the fusion of {name}")
    own_keys = {"model", "url", "backend", "strategy"} & given.keys()
    if own_keys:
        raise ConfigError(
            f"{min(own_keys)} of {name} is given beside its fusion, which has models and a strategy",
            hint="leave it out",
        )
    return {"model": settings.judge, "strategy": settings.strategy, **given}


def _check_fusions(config: GatewayConfig) -> None:
    """Refuse a fusion of models that are not offered, or are fusions themselves."""
    plain = [name for name, model in config.models.items() if model.fusion is None]
    for model in config.models.values():
        for member in () if model.fusion is None else (*model.fusion.models, model.fusion.judge):
            if member not in plain:
                raise unknown_name("model of a fusion", member, plain)


def chain_of(config: GatewayConfig, model: str, preset: str) -> list[str]:
    """Return the names of the links of a preset's chain, the preset first, as clients write them.

    Raises:
        ConfigError: A link is unknown.
    """
    known: list[str] = []
    for model_name, settings in config.models.items():
        known += [model_name, *(f"{model_name}:{preset_name}" for preset_name in settings.presets)]
    links = [f"{model}:{preset}"]
    for name in config.models[model].presets[preset].escalate:
        link = f"{model}:{name}" if name in config.models[model].presets else name
        if link not in known:
            raise unknown_name(f"model in escalate of {model}:{preset}", name, [*config.models[model].presets, *known])
        links.append(link)
    return links


def _check_efforts(efforts: Mapping[str, int]) -> None:
    """Refuse an effort without tokens, or one whose name means no effort."""
    for effort, tokens in efforts.items():
        if effort in ("", "none"):
            raise ConfigError(
                f"a key of efforts is {quote(effort)}, but such a request names no effort", hint="leave it out"
            )
        if tokens < 1:
            raise ConfigError(f"efforts.{effort} is {tokens}, but must be tokens of at least 1")


def _check_chains(config: GatewayConfig) -> None:
    """Check the chain of each preset with a risk."""
    for name, model in config.models.items():
        for preset in model.presets:
            _check_chain(config, name, preset)


def _check_chain(config: GatewayConfig, model: str, preset: str) -> None:
    """Refuse a chain that cannot be calibrated, or whose budgets together pass the operator's limit."""
    if config.models[model].presets[preset].risk is None:
        return
    links, total = chain_of(config, model, preset), 0.0
    for place, link in enumerate(links):
        link_model_name, _, link_preset_name = link.partition(":")
        link_model = config.models[link_model_name]
        settings = link_model.presets[link_preset_name] if link_preset_name else Preset()
        budget = merge_limits(link_model.budget, settings.budget)
        strategy = settings.strategy if settings.strategy is not None else link_model.strategy
        if not budget or strategy is None:
            missing = "strategy" if budget else "budget"
            raise ConfigError(
                f"{model}:{preset} has a risk, but {link} has no {missing} of its own to calibrate",
                hint=f"give {missing}",
            )
        if place and settings.risk is not None:
            raise ConfigError(
                f"{model}:{preset} escalates to {link}, which has a risk of its own; a chain has one",
                hint="leave one out",
            )
        total += budget_of(budget).limits.get("tokens", config.limits.tokens)
    if total > config.limits.tokens:
        raise ConfigError(
            f"the budgets of {', '.join(links)} are {total:g} tokens together, but limits.tokens is "
            f"{config.limits.tokens}",
            hint="raise limits.tokens",
        )


def _check_account(name: str, account: GatewayAccount, limits: GatewayLimits) -> None:
    """Refuse an account whose limits do not fit the limits of its requests."""
    check_name("name of an account", name)
    account_limits = budget_of(account.budget).limits
    request_limits = budget_of(account.request).limits if account.request else {}
    for unit, request_limit in request_limits.items():
        if request_limit > account_limits.get(unit, request_limit):
            reason = f"has {account_limits[unit]:g}"
            raise ConfigError(f"accounts.{name}.request.{unit} is {request_limit:g}, but the account's budget {reason}")
    for unit, limit in account_limits.items():
        if unit not in limits.request and unit not in request_limits:
            example = max(1, int(limit / 100)) if unit in WHOLE_UNITS else limit / 100
            raise ConfigError(
                f"accounts.{name} limits {unit}, but does not say how much a request takes that names none",
                hint=f"for example request: {{{unit}: {example:g}}}",
            )


def check_name(what: str, name: str) -> None:
    """Refuse a name with characters that `MODEL:PRESET` does not allow.

    Raises:
        ConfigError: the name has other characters than letters, digits and "_./-".
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{what} is {name!r}, but may have letters, digits and _ . / - alone")


def read_config(path: str | Path) -> GatewayConfig:
    """Return the configuration in a YAML file; relative paths in it begin in the file's folder.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, or a value is not valid.
    """
    path = Path(path)
    text = read_text("the configuration", path, "give the path of a YAML file")
    try:
        data = read_yaml(text, "configuration of a gateway", extra="serve")
        if not isinstance(data, dict):
            raise ConfigError("a configuration is a mapping of keys to values, such as models: {pocket: {}}")
        for name in ("keys", "store"):
            if isinstance(data.get(name), str):
                data[name] = str(path.parent / data[name])
        _place_calibrations(data, path.parent)
        return gateway_config(data)
    except ConfigError as failure:
        raise ConfigError(f"{path}: {failure.cause}", hint=failure.hint) from None


def _place_calibrations(data: dict[str, Any], folder: Path) -> None:
    """Let the relative paths of calibrations in plain values begin in a folder."""
    models: Any = data.get("models")
    if not isinstance(models, dict):
        return
    for model in models.values():
        presets: Any = model.get("presets") if isinstance(model, dict) else None
        if not isinstance(presets, dict):
            continue
        for preset in presets.values():
            if isinstance(preset, dict) and isinstance(preset.get("calibration"), str):
                preset["calibration"] = str(folder / preset["calibration"])


def gateway_config(data: Mapping[str, Any]) -> GatewayConfig:
    """Return the configuration that plain values describe.

    Raises:
        ConfigError: a key is unknown (the hint has the nearest), or a value is not valid.
    """
    return GatewayConfig.of(dict(data))
