"""From the body of a chat request to an `Order`: presets, budgets, and every field honoured, refused or reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from tts.backends.base import Sampling
from tts.budget.budget import Budget
from tts.errors import ConfigError, shown, unknown_name
from tts.registry import EVERYTHING, Registry, Scope, calls_in
from tts.scopes import RegisteredNames
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.strategies.single import Single
from tts.serve.chat_body import ChatBody, texts_of
from tts.serve.config import EFFORTS, budget_of
from tts.serve.failures import api_error, refused
from tts.serve.gateway import Gateway, within
from tts.serve.offers import Offer
from tts.serve.request_task import request_task, tools_of
from tts.serve.searches import Order
from tts.tasks.base import Task
from tts.tasks.json import JsonTask
from tts.tasks.schemas.limits import SchemaLimits
from tts.types import Message, Problem
from tts.verifiers.compatibility import RATED, check_rates

T = TypeVar("T")
# Fields without effect on an answer are ignored, as by other servers.
_IDLE = {"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "service_tier", "prediction"}
_NEUTRAL = {  # fields that cannot be honoured, with the values at which they request nothing
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "web_search_options": (None,),
}
_MOST_STOPS = 4  # as the API has it
RUNS_PROGRAMS = frozenset({"program_aided"})  # parts of ours that run what a model wrote, or read files
# Whole numbers that count tokens or characters, which a request may set up to `limits.tokens`. All others are widths.
_LENGTHS = frozenset({"block", "characters", "foresight", "horizon", "length", "max_tokens", "thought_tokens", "tokens"})


@dataclass(frozen=True, slots=True)
class RequestScope(RegisteredNames):
    """What the strategy of a request may name: parts of this library, with parameters that reach nothing outside of the search.

    Parts of other packages, parts that run programs, embedders and sandboxes are the operator's. A request may write such a call only
    as a preset of its model writes it.

    Args:
        width: The largest whole number that a request may give, except for lengths.
        tokens: The largest whole number for a length.
        presets: The calls in the operator's own strategies for the model, by name and parameters.
    """

    width: int
    tokens: int
    presets: frozenset[tuple[str, str]] = frozenset()

    def names(self, table: Registry) -> list[str]:
        """Return the names of a registry that a request may write; installed packages are not looked at."""
        return sorted({*table.entries} - RUNS_PROGRAMS)

    def check(self, table: Registry, name: str, parameters: dict[str, Any]) -> None:
        """Raise ConfigError unless a request may write this call.

        Args:
            table: The registry of the kind of part that is called.
            name: The name of the part.
            parameters: The literal values of its parameters.

        Raises:
            ConfigError: A request may not name this part, or not with this value.
        """
        if _call_key(name, parameters) in self.presets:
            return
        super(RequestScope, self).check(table, name, parameters)
        if name in RUNS_PROGRAMS:
            raise ConfigError(f"the {table.kind} {name!r} is not offered by this server", hint="it is the operator's to name, in a preset")
        if name not in table.entries:
            raise unknown_name(table.kind, name, self.names(table))
        for parameter, value in parameters.items():
            most = self.tokens if parameter in _LENGTHS else self.width
            if any(abs(number) > most for number in _numbers(value)):
                raise ConfigError(f"{parameter} of the {table.kind} {name} is {shown(value)}, but this server takes at most {most}")

    @property
    def cure(self) -> str:
        """The hint of an error."""
        return "places, files, urls, sandboxes and embedders are the operator's to name, in a preset"

    @property
    def safe_texts(self) -> Mapping[str, tuple[str, ...]]:
        """The texts that are open to parameters outside of `OPEN_TEXTS`: none."""
        return {}


def _call_key(name: str, parameters: dict[str, Any]) -> tuple[str, str]:
    return name, repr(sorted(parameters.items()))


def _numbers(value: Any) -> Iterable[int]:
    """Yield the whole numbers in a value."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, int):
        yield value


def order_of(body: ChatBody, gateway: Gateway) -> Order:
    """Return the order of a chat request.

    Raises:
        ApiError: 400, a field is not valid or cannot be honoured; 404, the model is unknown. Nothing is spent.
    """
    offer, notes = gateway.offers.get(body.model), checked_fields(body.unknown)
    options, limits = body.tts, gateway.config.limits
    messages = texts_of(body.messages, limits)
    body.check_choices(limits)
    strategy = _named_strategy(gateway, offer, None if options is None else options.strategy)
    sampling, more = _sampling(body, offer, strategy)
    seed = options.seed if options is not None and options.seed is not None else body.seed
    return Order(
        offer=offer,
        problem=Problem(_prompt(messages)),
        budget=_budget(body, gateway, offer),
        seed=gateway.seeds() if seed is None else seed,
        strategy=strategy,
        verifier=_verifier(body, gateway, offer),
        task=_task(body, gateway, offer),
        sampling=sampling,
        choices=body.choices,
        notes=(*notes, *more),
        keep_trace=options is None or options.trace,
    )


def _prompt(messages: tuple[Message, ...]) -> str | tuple[Message, ...]:
    """Return messages as they are, and a single question as its text: the same problem as that of `tts solve`."""
    return messages[0].content if len(messages) == 1 and messages[0].role == "user" else messages


def checked_fields(unknown: Mapping[str, Any]) -> tuple[str, ...]:
    """Refuse fields that ask for what the gateway cannot do; report those that it does not know."""
    for name, value in unknown.items():
        if name in _NEUTRAL and value not in _NEUTRAL[name]:
            raise refused(name, f"{name} is {shown(value)}, but searches cannot honour it; leave it out", "unsupported")
    others = [name for name in unknown if name not in _IDLE and name not in _NEUTRAL]
    return tuple(f"the field {shown(name)} is not known here and had no effect" for name in others)


def _named_strategy(gateway: Gateway, offer: Offer, given: str | None) -> Plan | None:
    if given is None:
        own = offer.preset.strategy if offer.preset.strategy is not None else offer.settings.strategy
        return None if own is None else plan_of(own)
    return of_field("tts.strategy", lambda: plan_of(given, _request_scope(gateway, offer)))


def _request_scope(gateway: Gateway, offer: Offer) -> RequestScope:
    limits, settings = gateway.config.limits, offer.settings
    texts = (settings.strategy, *(preset.strategy for preset in settings.presets.values()))
    calls = (call for text in texts if text is not None for call in calls_in(text))
    return RequestScope(limits.width, limits.tokens, frozenset(_call_key(call.name, call.parameters()) for call in calls))


@lru_cache(maxsize=256)
def plan_of(text: str, scope: Scope = EVERYTHING) -> Plan:
    """Return `parse` of a text; plans are frozen, and requests repeat them."""
    return parse(text, scope)


def _verifier(body: ChatBody, gateway: Gateway, offer: Offer) -> str | None:
    given = None if body.tts is None else body.tts.verifier
    if given is None:
        return offer.preset.verifier
    own = {
        *gateway.config.verifiers,
        *(offer.settings.verifiers or {}).values(),
        *([offer.preset.verifier] if offer.preset.verifier else []),
    }
    if given not in own:
        raise refused("tts.verifier", str(unknown_name("verifier", given, own)))
    return given


def _task(body: ChatBody, gateway: Gateway, offer: Offer) -> Task | None:
    """Return the model's task, or JSON where that is asked for, with the stop texts and tools of the request; None: the model's alone."""
    stops = body.stops(_MOST_STOPS)
    limits = SchemaLimits()
    inner: Any = of_field("response_format", lambda: _json_task(body.response_format, limits))
    parallel = body.parallel_tool_calls is not False
    tools = of_field("tools", lambda: tools_of(body.tools or (), body.tool_choice, parallel=parallel, limits=limits))
    if not stops and tools is None:
        return inner
    return request_task(gateway.offers.task(offer) if inner is None else inner, stops, tools)


def _json_task(given: dict[str, Any] | None, limits: SchemaLimits) -> JsonTask | None:
    """Return the task of a `response_format`; None for free text."""
    kind = None if given is None else given.get("type")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return JsonTask()
    schema: Any = (
        given.get("json_schema", {}).get("schema") if kind == "json_schema" and isinstance(given.get("json_schema"), dict) else None
    )
    if not isinstance(schema, dict):
        raise ConfigError(
            f"response_format is {shown(given)}, but must be text, json_object, or json_schema with a schema",
            hint='{"type": "json_schema", "json_schema": {"name": "…", "schema": {…}}}',
        )
    return JsonTask(schema=limits.schema(schema))


def _budget(body: ChatBody, gateway: Gateway, offer: Offer) -> Budget:
    """Return the budget: of `tts`, else of the effort, else of the preset, else of the model; with the operator's limits."""
    limits, options = gateway.config.limits, body.tts
    param, given = "model", offer.preset.budget if offer.preset.budget is not None else offer.settings.budget
    if body.reasoning_effort not in (None, "none"):
        param = "reasoning_effort"
        effort = body.reasoning_effort
        if effort not in gateway.config.efforts:
            raise refused(param, str(unknown_name(param, str(effort), [*EFFORTS])))
        given = min(gateway.config.efforts[effort], limits.tokens)
    if options is not None and options.budget is not None:
        param, given = "tts.budget", options.budget

    def made() -> Budget:
        budget = within(budget_of(given), limits.tokens, limits.seconds)
        if not RATED.isdisjoint(budget.limits):
            check_rates(budget.limits, {role: (one.name, one.rates) for role, one in gateway.offers.backends(offer).items()}, {})
        return budget

    return of_field(param, made)


def _sampling(body: ChatBody, offer: Offer, strategy: Plan | None) -> tuple[Sampling, tuple[str, ...]]:
    """Return how rows are drawn, and what is reported of it.

    Temperature 0 would make all samples of a search equal. So only a strategy of one sample uses it; any other keeps its own.
    """
    given: dict[str, Any] = dict(offer.settings.sampling)
    if offer.preset.temperature is not None:
        given["temperature"] = offer.preset.temperature
    notes: tuple[str, ...] = ()
    if body.temperature == 0 and not (strategy is not None and isinstance(strategy.strategy, Single)):
        kept = Sampling(**given).temperature
        notes = (f"temperature 0 would draw equal samples: the strategy's own temperature, {kept:g}, ruled them",)
    elif body.temperature is not None:
        given["temperature"] = body.temperature
    if body.top_p is not None:
        given["top_p"] = body.top_p
    if (most := body.max_completion_tokens or body.max_tokens) is not None:
        given["max_tokens"] = most
    return of_field("max_tokens", lambda: Sampling(**given)), notes


def of_field(param: str, make: Callable[[], T]) -> T:
    """Return the value that is made from a field.

    Raises:
        ApiError: 400 with the field, where it is not valid.
    """
    try:
        return make()
    except ConfigError as failure:
        raise api_error(failure, param) from None
