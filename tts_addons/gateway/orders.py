"""From a request to an `Order`: presets, budgets, and every field honoured, refused or reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from tts._common.scopes import RegisteredNames
from tts.backends.base import SAMPLING_CAPABILITIES, Backend, OpenTemperature, Sampling
from tts.backends.metadata import Tokenizer, metadata_of
from tts.backends.openai.backend import OpenAIBackend
from tts.budget.budget import Budget
from tts.errors import ConfigError, quote, unknown_name
from tts.registry import EVERYTHING, Registry, Scope, calls_in
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.search.plan import parse
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.search.strategies.samples.single import Single
from tts.tasks.base import Task
from tts.tasks.json import JsonTask
from tts.tasks.schemas.limits import SchemaLimits
from tts.tasks.text import TextTask
from tts.types import Message, Problem, pictures_in
from tts.verifiers.compatibility import RATED, check_rates
from tts_addons.gateway.config import GatewayLimits, budget_of, merge_limits
from tts_addons.gateway.failures import api_error, refuse_field
from tts_addons.gateway.gateway import Gateway, limit_budget
from tts_addons.gateway.offers import Offer
from tts_addons.gateway.request_task import RequestTask, request_task, tools_of
from tts_addons.gateway.risk.chains import calibrated_request
from tts_addons.gateway.searches import Order
from tts_addons.gateway.spending.defaults import default_budget
from tts_addons.gateway.wire.request import SearchRequest, stop_texts

T = TypeVar("T")
_MOST_STOPS = 16
_STEPWISE = frozenset({"steps", "extend", "score", "next_logprobs", "value", "hidden"})  # capabilities that chats lack
RUNS_PROGRAMS = frozenset({"program_aided"})  # parts of this library that run what a model wrote, or read files
# parameters of sampling that a server may lack, each with the field of its probed capabilities
_OF_SERVERS = {"top_p": "cuts", "top_k": "filters", "min_p": "filters"}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # the words that clients send by default
# Whole numbers that count tokens or characters, which a request may set up to `limits.tokens`. All others are widths.
_LENGTHS = frozenset(
    {"block", "characters", "foresight", "horizon", "length", "max_tokens", "thought_tokens", "tokens"}
)


@dataclass(frozen=True, slots=True)
class RequestScope(RegisteredNames):
    """What the strategy of a request may name.

    A request may name parts of this library, with parameters that reach nothing outside of the search. Parts of other
    packages, parts that run programs, embedders and sandboxes are the operator's. A request may write a call of these
    only as a preset of its model writes it.

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
            raise ConfigError(
                f"the {table.kind} {name!r} is not offered by this server",
                hint="it is the operator's to name, in a preset",
            )
        if name not in table.entries:
            raise unknown_name(table.kind, name, self.names(table))
        for parameter, value in parameters.items():
            limit = self.tokens if parameter in _LENGTHS else self.width
            if any(abs(number) > limit for number in _numbers(value)):
                raise ConfigError(
                    f"{parameter} of the {table.kind} {name} is {quote(value)}, but this server takes at most {limit}"
                )

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


def order_of(request: SearchRequest, gateway: Gateway) -> Order:
    """Return the order of a request.

    Raises:
        ApiError: 400, a field is not valid or cannot be honoured; 404, the model is unknown. Nothing is spent.
    """
    offer = gateway.offers.get(request.model)
    if offer.preset.risk is None or gateway.chains is None:
        return _single_order(request, gateway)
    request = calibrated_request(request)
    order = _single_order(request, gateway, widens=False)
    links: list[Order] = []
    for name in gateway.offers.links(offer):
        link = _single_order(dataclasses.replace(request, model=name), gateway, widens=False)
        links.append(dataclasses.replace(link, seed=order.seed, notes=()))
    order = dataclasses.replace(order, links=tuple(links), budget=_total(links))
    gateway.chains.check(order)
    return order


def _total(links: Sequence[Order]) -> Budget:
    """Return the sum of budgets, in the units that all limit."""
    limits = [link.budget.limits for link in links]
    units = [unit for unit in limits[0] if all(unit in one for one in limits)]
    return budget_of({unit: sum(one[unit] for one in limits) for unit in units})


def _single_order(request: SearchRequest, gateway: Gateway, *, widens: bool = True) -> Order:
    """Return the order of a request for one model.

    Args:
        request: The request.
        gateway: The gateway.
        widens: Whether a plan of one sample draws as many samples as answers are asked for.
    """
    offer, limits, options = gateway.offers.get(request.model), gateway.config.limits, request.options
    choices = options.n or request.choices
    check_choices(choices, limits, request.name_of("n"))
    strategy = _name_strategy(gateway, offer, options.strategy)
    task = _task(request, gateway, offer)
    used_task = gateway.offers.task(offer) if task is None else task
    # the default plan draws a single sample only for free text without a verifier
    is_free_text = isinstance(used_task, TextTask) and not _has_verifier(request, gateway, offer)
    is_single = is_free_text if strategy is None else isinstance(strategy.strategy, Single)
    sampling, notes = _sampling(request, gateway, offer, is_single=is_single)
    if widens and choices > 1 and is_single:
        strategy = _widen(strategy, choices)
    budget, budget_notes = _budget(request, gateway, offer, strategy)
    seed = options.seed if options.seed is not None else request.seed
    problem = Problem(_prompt(request.messages))
    _check_problem(request, used_task, problem)
    return Order(
        offer=offer,
        problem=problem,
        request=request,
        budget=budget,
        seed=gateway.seeds() if seed is None else seed,
        strategy=strategy,
        verifier=_verifier(request, gateway, offer),
        task=task,
        sampling=sampling,
        choices=choices,
        chats=_needs_chats(request, gateway, offer, strategy, task),
        tokenizer=_tokenizer(request, gateway, offer),
        notes=(*request.notes, *notes, *budget_notes),
        keep_trace=options.trace,
    )


def check_choices(choices: int, limits: GatewayLimits, field: str) -> None:
    """Refuse more choices than the server gives.

    Raises:
        ApiError: 400, with the field.
    """
    if choices > limits.n:
        raise refuse_field(field, f"is {choices}, but this server gives at most {limits.n} choices; ask for fewer")


def _widen(plan: Plan | None, choices: int) -> Plan:
    """Return a plan that draws one sample for each answer, in place of a plan that draws a single sample.

    Args:
        plan: The plan of `single`; None: the default plan.
        choices: The number of answers that the request asks for.
    """
    if plan is None or not isinstance(plan.strategy, Single):
        return Plan.of(BestOfN(n=choices))
    return dataclasses.replace(plan, strategy=BestOfN(n=choices, temperature=plan.strategy.temperature))


def _has_verifier(request: SearchRequest, gateway: Gateway, offer: Offer) -> bool:
    """Return whether a verifier scores the answers.

    The verifier may be that of the request, the preset, the model's settings or the model's record.
    """
    verifier = _verifier(request, gateway, offer)
    if verifier is not None:
        return verifier != "none"
    record = gateway.offers.policy(offer)
    return bool(offer.settings.verifiers or record.verifier or record.task_verifiers)


def _check_problem(request: SearchRequest, task: Task, problem: Problem) -> None:
    """Refuse a problem that the model's task cannot read, such as a conversation for a model of sums.

    Raises:
        ApiError: 400, with the field of the history.
    """
    try:
        task.prompt(problem)
    except ConfigError as failure:
        cure = "ask another model; GET /v1/models lists those of this server"
        raise api_error(ConfigError(failure.cause, hint=cure), request.name_of("messages")) from None


def _needs_chats(
    request: SearchRequest, gateway: Gateway, offer: Offer, strategy: Plan | None, task: Task | None
) -> bool:
    """Return whether a server must be called by chats for this request, though otherwise it is not.

    It must where the server takes the request's tools or pictures only in chats. A strategy that writes step by step
    gets tools as text instead. Pictures have no such form.

    Raises:
        ApiError: 400, the model takes no pictures.
    """
    has_pictures = bool(pictures_in(request.messages))
    has_tools = isinstance(task, RequestTask) and task.tools is not None
    if not has_pictures and not has_tools:
        return False
    policy = gateway.offers.backends(offer)["policy"]
    capabilities = policy.capabilities if isinstance(policy, OpenAIBackend) else None
    if has_pictures and (capabilities is None or not capabilities.pictures):
        fault = f"has a picture, but the model {offer.model!r} reads text alone; leave it out"
        raise refuse_field(request.name_of("messages"), fault, "unsupported")
    if capabilities is None or capabilities.chats or not (has_pictures or capabilities.tools):
        return False
    return has_pictures or strategy is None or _STEPWISE.isdisjoint(needs_of(strategy.strategy).capabilities)


def _tokenizer(request: SearchRequest, gateway: Gateway, offer: Offer) -> Tokenizer | None:
    """Return the tokenizer that gives the texts of tokens; None: no log-probabilities are wanted.

    Raises:
        ApiError: 400, the model gives no log-probabilities, its tokenizer is not known, or another model may answer.
    """
    if not request.logprobs:
        return None
    policy = gateway.offers.backends(offer)["policy"]
    tokenizer = metadata_of(policy).tokenizer
    if offer.settings.fusion is not None or offer.preset.risk is not None:
        reason = "may answer by several models"
    elif not policy.caps.logprobs or not policy.caps.token_ids:
        reason = "gives no log-probabilities of tokens"
    elif tokenizer is None:
        reason = "has no tokenizer here"
    else:
        return tokenizer
    fault = f"asks for log-probabilities, but the model {offer.name!r} {reason}; leave it out"
    raise refuse_field(request.name_of("logprobs"), fault, "unsupported")


def _prompt(messages: tuple[Message, ...]) -> str | tuple[Message, ...]:
    """Return messages as they are, and a single question as its text.

    The text makes the same problem as `tts solve`.
    """
    first, *others = messages
    return first.content if not others and first.role == "user" and not first.parts else messages


def _name_strategy(gateway: Gateway, offer: Offer, text: str | None) -> Plan | None:
    if text is None:
        own_strategy = offer.preset.strategy if offer.preset.strategy is not None else offer.settings.strategy
        return None if own_strategy is None else plan_of(own_strategy)
    return read_field("tts.strategy", lambda: plan_of(text, _request_scope(gateway, offer)))


def _request_scope(gateway: Gateway, offer: Offer) -> RequestScope:
    limits, settings = gateway.config.limits, offer.settings
    texts = (settings.strategy, *(preset.strategy for preset in settings.presets.values()))
    calls = (call for text in texts if text is not None for call in calls_in(text))
    return RequestScope(
        limits.width, limits.tokens, frozenset(_call_key(call.name, call.parameters()) for call in calls)
    )


@lru_cache(maxsize=256)
def plan_of(text: str, scope: Scope = EVERYTHING) -> Plan:
    """Return `parse` of a text; plans are frozen, and requests repeat them."""
    return parse(text, scope)


def _verifier(request: SearchRequest, gateway: Gateway, offer: Offer) -> str | None:
    """Return the verifier of the request or the preset, as text; None: that of the model.

    Raises:
        ApiError: 400, the request names a verifier that is not allowed.
    """
    name = request.options.verifier
    if name is None:
        return offer.preset.verifier
    allowed = {*gateway.config.verifiers, *(offer.settings.verifiers or {}).values()}
    if offer.preset.verifier:
        allowed.add(offer.preset.verifier)
    if name not in allowed:
        raise api_error(unknown_name("verifier", name, allowed), "tts.verifier")
    return name


def _task(request: SearchRequest, gateway: Gateway, offer: Offer) -> Task | None:
    """Return the task of a request; None: the model's own task, unchanged.

    If the request gives a form of the answer, a task of JSON replaces the model's task. The stop texts and tools of the
    request are added.
    """
    stops = request.stops if request.options.stop is None else stop_texts(request.options.stop, "tts.stop", _MOST_STOPS)
    limits, field = SchemaLimits(), request.name_of("response_format")
    json_task: Any = read_field(field, lambda: _json_task(request.form, field, limits))
    if request.options.vote is not None:
        if json_task is None:
            raise refuse_field("tts.vote", f"needs {field} with a JSON schema")
        json_task = read_field("tts.vote", lambda: dataclasses.replace(json_task, vote=request.options.vote))
    offered_tools, choice = request.tools, request.tool_choice
    tools = read_field("tools", lambda: tools_of(offered_tools, choice, parallel=request.parallel, limits=limits))
    if not stops and tools is None:
        return json_task
    return request_task(gateway.offers.task(offer) if json_task is None else json_task, stops, tools)


def _json_task(form: Mapping[str, Any] | None, field: str, limits: SchemaLimits) -> JsonTask | None:
    """Return the task of a form of answers; None for free text."""
    kind = None if form is None else form.get("type")
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        return JsonTask(schema=limits.schema({"type": "object"}))
    described: Any = form.get("json_schema") if kind == "json_schema" else None
    schema: Any = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise ConfigError(
            f"{field} is {quote(form)}, but must be text, json_object, or json_schema with a schema",
            hint='{"type": "json_schema", "json_schema": {"name": "…", "schema": {…}}}',
        )
    return JsonTask(schema=limits.schema(schema))


def _budget(
    request: SearchRequest, gateway: Gateway, offer: Offer, strategy: Plan | None
) -> tuple[Budget, tuple[str, ...]]:
    """Return the budget, with the operator's limits, and notes on it.

    The first of these that limits a unit counts: the budget in `tts`, or else the tokens for thoughts or the effort;
    the budget of the preset; that of the model. If none is given, the budget pays each answer of the strategy in full.
    """
    limits, notes = gateway.config.limits, tuple[str, ...]()
    field = "model"  # the field that an error names
    amount: float | None = None  # tokens
    if request.effort in gateway.config.efforts:
        field = request.name_of("reasoning_effort")
        amount = min(gateway.config.efforts[request.effort], limits.tokens)
    if request.thinking_tokens is not None:
        field = request.name_of("budget")
        wanted_tokens = request.thinking_tokens + (request.max_tokens or 0)
        amount = min(wanted_tokens, limits.tokens)
        if wanted_tokens > limits.tokens:
            notes = (f"{field} was clipped to limits.tokens, {limits.tokens}",)
    if request.options.budget is not None:
        field, amount = "tts.budget", None
    own_limits = merge_limits(offer.limits, amount, request.options.budget)

    def make_budget() -> Budget:
        if not own_limits:
            policy = gateway.offers.policy(offer)
            budget = default_budget(offer.settings, policy, strategy, request.max_tokens, limits)
        else:
            budget = budget_of(own_limits)
        budget = limit_budget(budget, limits.request)
        if not RATED.isdisjoint(budget.limits):
            backends = gateway.offers.backends(offer)
            names_and_rates = {role: (backend.name, backend.rates) for role, backend in backends.items()}
            check_rates(budget.limits, names_and_rates, {})
        return budget

    return read_field(field, make_budget), notes


def _sampling(
    request: SearchRequest, gateway: Gateway, offer: Offer, *, is_single: bool
) -> tuple[Sampling, tuple[str, ...]]:
    """Return the sampling of rows, and notes on it.

    Temperature 0 would make all samples of a search equal. So only a strategy of one sample takes this temperature. Any
    other strategy keeps its own.
    """
    parameters: dict[str, Any] = dict(offer.settings.sampling)
    if offer.preset.temperature is not None:
        parameters["temperature"] = offer.preset.temperature
    notes: tuple[str, ...] = ()
    if request.temperature == 0 and not is_single:
        own = Sampling(**parameters).temperature
        takes = gateway.offers.backends(offer)["policy"].caps.tempers
        kept = f", {own:g}," if takes or not isinstance(own, OpenTemperature) else ""
        notes = (f"temperature 0 would draw equal samples: the strategy's own temperature{kept} ruled them",)
    elif request.temperature is not None:
        parameters["temperature"] = request.temperature
    check_draws(request.draws, gateway, offer)
    parameters |= request.draws
    effort, effort_notes = _effort(request, gateway, offer)
    if effort:
        parameters["effort"] = effort
    notes += effort_notes
    if not request.thinks and all(backend.caps.thought_switch for backend in _writers(gateway, offer)):
        parameters["thought_tokens"] = 0
    elif not request.thinks:
        notes += (f"thoughts were not switched off: the model {offer.model!r} has no switch for them",)
    max_tokens = request.max_tokens
    if max_tokens is not None:
        limit, field = gateway.config.limits.tokens, request.name_of("max_tokens")
        parameters["max_tokens"] = min(max_tokens, limit)
        if max_tokens > limit:
            notes += (f"{field} is {max_tokens}, but was clipped to limits.tokens, {limit}",)
    return read_field(request.name_of("max_tokens"), lambda: Sampling(**parameters)), notes


def check_draws(draws: Mapping[str, Any], gateway: Gateway, offer: Offer) -> None:
    """Refuse parameters of sampling that the model's server ignores.

    Args:
        draws: The parameters by name, as requests have them.
        gateway: The gateway.
        offer: The model.

    Raises:
        ApiError: 400, with the field.
    """
    defaults = Sampling()
    for name, value in draws.items():
        if value == getattr(defaults, name):
            continue
        for backend in _writers(gateway, offer):
            capability = SAMPLING_CAPABILITIES.get(name)
            obeys = capability is None or getattr(backend.caps, capability)
            if isinstance(backend, OpenAIBackend) and name in _OF_SERVERS:
                obeys = getattr(backend.capabilities, _OF_SERVERS[name])
            if not obeys:
                fault = f"is {quote(value)}, but the model {offer.model!r} does not take it; leave it out"
                raise refuse_field(name, fault, "unsupported")


def _effort(request: SearchRequest, gateway: Gateway, offer: Offer) -> tuple[str, tuple[str, ...]]:
    """Return the effort for the model's server, "" if it takes none, and notes on the effort.

    A note reports a word that clients send by default, if neither the gateway nor the server knows it.

    Raises:
        ApiError: 400, neither the gateway nor the server knows the word.
    """
    effort, known = request.effort, gateway.config.efforts
    if not effort:
        return "", ()
    if all(backend.caps.efforts for backend in _writers(gateway, offer)):
        return effort, ()
    if effort in known or effort == "none":
        return "", ()
    field = request.name_of("reasoning_effort")
    if effort in _EFFORTS:
        return "", (f"{field} {quote(effort)} is no effort of this server and had no effect",)
    names = ", ".join(dict.fromkeys((*known, *_EFFORTS)))
    raise refuse_field(
        field, f"is {quote(effort)}, but the model {offer.model!r} knows no such effort; it takes {names}"
    )


def _writers(gateway: Gateway, offer: Offer) -> list[Backend]:
    """Return the backends of the models that write."""
    backends, fusion = gateway.offers.backends(offer), offer.settings.fusion
    return [backends[role] for role in ("policy", *(() if fusion is None else fusion.models))]


def read_field(param: str, make: Callable[[], T]) -> T:
    """Return the value that is made from a field.

    Raises:
        ApiError: 400 with the field, whose value is not valid.
    """
    try:
        return make()
    except ConfigError as failure:
        raise api_error(failure, param) from None
