"""The interface of backends: they open prompts, continue them, and report exactly what they computed.

    class Coin(tts.Backend):
        caps = Caps(streams=True, usage=True)

        async def open(self, prompts):
            return [Reply(prompt, self.count(prompt)) for prompt in prompts]

        def sample(self, request):
            rows = RowSet(request)
            for index, row in enumerate(request.rows):
                side = int(2 * uniform(row.stream, row.position, row.word))  # from tts.randomness
                rows.resolve(index, Sample(f"A: {side}", (), (), "eos", request.handle, num_tokens=1))
            return rows

A *handle* is an immutable state to continue and fork any number of times until it is released; here, the prompt.
`sample` is not async. `Backend.sample` has the rules for streams, threads and counts.
"""

# ruff: noqa: ARG002, ARG003 - a method that refuses uses none of its arguments

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tts._common.characters import join_surrogates
from tts.backends.finite import clean_logprobs, clean_spreads
from tts.backends.metadata import BackendMetadata, capability_hint
from tts.backends.prompt_logprobs import PromptLogprobs, Top
from tts.budget.budget import Rates
from tts.errors import CapabilityError, ConfigError, EngineError, quote
from tts.models.registry import ModelRecord
from tts.randomness import MAIN_WORD
from tts.registry import ClassName
from tts.thoughts import THINK, ThoughtMarks
from tts.types import Prompt, Spread, prompt_text

Support = Literal["native", "emulated", "absent"]
Finish = Literal["eos", "stop", "answer", "length", "cancelled", "error"]
T = TypeVar("T")
_LARGE = 2**63  # above every whole number of a search
TEMPLATE_TOKENS = 64  # tokens that a chat template is assumed to add to a prompt's text


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Capabilities of a backend.

    "emulated" means the same result for more tokens. "absent" means that a call is refused before anything is spent.

    Args:
        steps: Stopping at a step boundary and continuing from there.
        extend: Appending forced text.
        fork: Continuing one handle several times without computing it again.
        value: A value or reward head on a handle.
        score: Log-probabilities of given text.
        next_logprobs: Log-probabilities of given next tokens.
        hidden: Last hidden states.
        prompt_logprobs: Log-probabilities of every token of a prompt.
        logprobs: Log-probabilities of sampled tokens.
        token_ids: Whether samples carry token ids.
        spreads: `Spread` of each token's distribution, which takes all logits.
        tops: `Spread.top` of each token's distribution, which takes the most likely tokens alone.
        top_texts: Whether `Sample.tops` are given: the most likely tokens at each place, by their texts.
        sampling_logprobs: Log-probabilities of sampled tokens under the law that drew them.
        streams: Whether rows obey their streams; if not, solutions are not reproducible.
        stop_predicate: Whether a row ends where `StopCondition.finished` returns True.
        thoughts: Whether the model thinks, with known marks (`BackendMetadata.thoughts`).
        efforts: Whether `Sampling.effort` is obeyed.
        penalties: Whether `Sampling.presence_penalty` and `Sampling.frequency_penalty` are obeyed.
        biases: Whether `Sampling.logit_bias` is obeyed.
        thought_limits: Whether a `Sampling.thought_tokens` of at least 1 is obeyed.
        thought_switch: Whether a `Sampling.thought_tokens` of 0 is obeyed.
        pictures: Whether prompts may have pictures.
        tempers: Whether a temperature other than 1 is obeyed.
        usage: Whether token counts are exact; if not, the backend reports upper bounds in `Sample.num_tokens`, and sets
            `estimated`.

    Example:
        >>> import tts
        >>> caps = tts.Caps(steps="native", logprobs=True)
        >>> caps.steps, caps.extend, caps.logprobs
        ('native', 'absent', True)
    """

    steps: Support = "absent"
    extend: Support = "absent"
    fork: Support = "absent"
    score: Support = "absent"
    next_logprobs: Support = "absent"
    hidden: Support = "absent"
    value: Support = "absent"
    prompt_logprobs: Support = "absent"
    logprobs: bool = False
    spreads: bool = False
    tops: bool = False
    top_texts: bool = False
    sampling_logprobs: bool = False
    token_ids: bool = False
    streams: bool = False
    stop_predicate: bool = False
    thoughts: bool = False
    efforts: bool = False
    penalties: bool = False
    biases: bool = False
    thought_limits: bool = False
    thought_switch: bool = False
    pictures: bool = False
    tempers: bool = True
    usage: bool = False


CAPABILITIES = tuple(f.name for f in dataclasses.fields(Caps))  # the names that `require` takes


# Parameters of sampling that not all backends obey, by the capability that each needs.
SAMPLING_CAPABILITIES: Final[Mapping[str, str]] = {
    "effort": "efforts",
    "presence_penalty": "penalties",
    "frequency_penalty": "penalties",
    "logit_bias": "biases",
}


class OpenTemperature(float):
    """A temperature that nobody named: where a server takes 1 alone, it is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn from the model's distribution.

    Args:
        temperature: 0 is greedy (the lowest id among equals); at most 100. Where none is named, it is 0.8, or 1 where
            the model's server takes 1 alone.
        top_p: Nucleus mass in (0, 1]; 1 is off.
        top_k: Most likely tokens kept; 0 is off.
        min_p: Least probability relative to the most likely token, in [0, 1); 0 is off.
        max_tokens: Cap on one row; None: the rest of the model's context.
        effort: How long a model thinks, in a server's own word such as "low"; "": the server's default. Only with
            `Caps.efforts`.
        presence_penalty: The amount that the logit of each token loses if the token was written before, from -2 to 2.
            Only with `Caps.penalties`.
        frequency_penalty: The amount that a token's logit loses each time that the token was written before, from -2
            to 2. Only with `Caps.penalties`.
        logit_bias: The numbers from -100 to 100 that are added to logits, by token ids of the server's vocabulary: a
            mapping, or pairs. The field keeps pairs in the order of the ids. Only with `Caps.biases`.
        thought_tokens: The most tokens of a thought, by a field of the server's own; 0: no thought; None: no such
            limit. Limits need `Caps.thought_limits`, and 0 needs `Caps.thought_switch`.

    Raises:
        ConfigError: A value is out of its range.

    Example:
        >>> import tts
        >>> greedy = tts.Sampling(temperature=0, max_tokens=40)
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy="single", sampling=greedy).answer
        '5'
    """

    temperature: float = OpenTemperature(0.8)
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = None
    effort: str = ""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    thought_tokens: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, lambda value: 0 <= value <= 100, "a number between 0 and 100")
        _check("top_p", self.top_p, lambda value: 0 < value <= 1, "a number above 0 and at most 1")
        _check(
            "top_k",
            self.top_k,
            lambda value: 0 <= value < _LARGE and value == int(value),
            "a whole number of at least 0",
        )
        _check("min_p", self.min_p, lambda value: 0 <= value < 1, "a number of at least 0 and below 1")
        if self.max_tokens is not None:
            rule = "a whole number of at least 1, or None"
            _check("max_tokens", self.max_tokens, lambda value: 1 <= value < _LARGE and value == int(value), rule)
        for name in ("presence_penalty", "frequency_penalty"):
            _check(name, getattr(self, name), lambda value: -2 <= value <= 2, "a number from -2 to 2")
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        if self.thought_tokens is not None:
            rule = "a whole number of at least 0, or None"
            _check(
                "thought_tokens", self.thought_tokens, lambda value: 0 <= value < _LARGE and value == int(value), rule
            )

    @property
    def needs(self) -> dict[str, str]:
        """The capability that each given parameter needs, by the parameter's name.

        Parameters that every backend obeys are left out.
        """
        capabilities = {name: capability for name, capability in SAMPLING_CAPABILITIES.items() if getattr(self, name)}
        if self.thought_tokens is not None:
            capabilities["thought_tokens"] = "thought_limits" if self.thought_tokens else "thought_switch"
        return capabilities

    def members(self) -> dict[str, Any]:
        """Return the parameters by name, as stored results have them.

        A parameter that not all backends obey is included only if it is given. The effort is always included.
        """
        optional = {*SAMPLING_CAPABILITIES, "thought_tokens"}
        omitted = optional - {"effort", *self.needs}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in omitted}

    @property
    def changes_logits(self) -> bool:
        """Whether penalties or biases change the logits."""
        return bool(self.presence_penalty or self.frequency_penalty or self.logit_bias)


def _biases(biases: Any) -> tuple[tuple[int, float], ...]:
    """Return biases as pairs in the order of the ids.

    Raises:
        ConfigError: The biases are neither a mapping nor pairs, or an id or a bias is out of its range.
    """
    try:
        pairs = dict(biases).items()
    except (TypeError, ValueError):
        raise ConfigError(
            f"logit_bias is {quote(biases)}, but must be biases by token id", hint="for example {50256: -100}"
        ) from None
    id_rule = "a token id, a whole number of at least 0"
    for token, bias in pairs:
        _check("a key of logit_bias", token, lambda value: 0 <= value < _LARGE and isinstance(value, int), id_rule)
        _check(f"logit_bias[{token}]", bias, lambda value: -100 <= value <= 100, "a number from -100 to 100")
    return tuple(sorted(pairs))


def sampling_with(sampling: Sampling, **changes: float | str | None) -> Sampling:
    """Return sampling parameters with changes; a change of None is ignored."""
    values: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(sampling, **values) if values else sampling


def _check(name: str, value: object, valid: Callable[[float], bool], rule: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not valid(value):
        raise ConfigError(f"{name} is {value!r}, but must be {rule}")


@dataclass(frozen=True, slots=True)
class StopCondition:
    """Where a row ends, besides its end of sequence and its cap.

    A step boundary is the end of a `step` text, which is searched in the text since the last boundary. A row that ends
    at a boundary is cut there. Further characters of the row's last token begin its continuation.

    Args:
        step: Texts that end a step.
        at_step: Whether the row ends at the first boundary.
        finished: Called at each boundary with the text of the whole path; True ends the row ("answer").
        at: The texts of `step` at which the row ends, with `at_step`; None: all of them.
    """

    step: tuple[str, ...] = ()
    at_step: bool = False
    finished: Callable[[str], bool] | None = None
    at: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One continuation to draw: a stream, the position of its first token, its cap, and its draws' word."""

    stream: int
    position: int
    max_tokens: int
    word: int = MAIN_WORD


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Rows that continue one handle.

    Args:
        text: The text of the path, after the prompt.
        spreads: Whether `Sample.spreads` are wanted.
        sampling_logprobs: Whether `Sample.sampling_logprobs` are wanted.
        tops: Whether `Sample.tops` are wanted.
        rereads: Whether a row whose reply broke may read its input again within its grant; grants of flops and usd
            cover one reading.
        limited: Whether tokens, or costs that follow from tokens, are limited.
        expected: The tokens of the search's longest solution so far, else those that the task's solutions mostly have.
        lease: The flops, dollars and requests that each row may spend, in whole units, where rows are programs
            (`BackendMetadata.programs`).
    """

    handle: Any
    rows: tuple[Row, ...]
    sampling: Sampling
    stop: StopCondition
    text: str = ""
    spreads: bool = False
    rereads: bool = True
    sampling_logprobs: bool = False
    tops: bool = False
    limited: bool = True
    expected: int = 4096
    lease: Mapping[str, int] = field(default_factory=dict[str, int])

    def unseen_cost(self, grant: int, longest: int = 0) -> int:
        """Return the tokens that are charged, as an estimate, for a row that was cut unseen.

        Where tokens are limited, the cost is the whole grant, so that the limit holds. Else it is the longest row.

        Args:
            grant: The most tokens that the row may have taken.
            longest: The tokens of the longest row that the backend has reported; 0: none was reported.
        """
        return grant if self.limited else min(grant, longest or self.expected)


@dataclass(frozen=True, slots=True)
class Sample:
    """One row's continuation.

    Args:
        text: The new text, up to the step boundary at which the row ended.
        token_ids: All new tokens, an end of sequence included.
        logprobs: Log-probabilities under the untempered law, one a token (some servers show none for an end of
            sequence); empty without `caps.logprobs`.
        finish: Why the row ended: "eos", "stop" (a step boundary), "answer" (`StopCondition.finished`), "length",
            "cancelled", "error".
        handle: The state after the row; None for "error" and "cancelled".
        num_tokens: Tokens generated, which are charged.
        estimated: Whether `num_tokens` is an upper bound.
        error: The kind of the error, or "kind: cause", where `finish` is "error".
        seconds: Model time of this row.
        spreads: The spread of each token's distribution, with `caps.tops` and where requested, or empty.
        sampling_logprobs: Log-probabilities under the law that drew the tokens, with temperature and filters. One a
            token, with `caps.sampling_logprobs` and where requested, or empty.
        lost_tokens: The tokens among `num_tokens` of earlier replies that broke, which are not part of the path.
        retry_s: The seconds after which the server of a failed row asked to be called again; 0: it named no time.
        tops: The most likely tokens at each place, one tuple a token, with `caps.top_texts` and where requested, or
            empty.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    handle: Any
    num_tokens: int
    estimated: bool = False
    error: str = ""
    seconds: float = 0.0
    spreads: tuple[Spread, ...] = ()
    lost_tokens: int = 0
    sampling_logprobs: tuple[float, ...] = ()
    retry_s: float = 0.0
    tops: tuple[tuple[Top, ...], ...] = ()

    @classmethod
    def empty(cls, finish: Finish, num_tokens: int = 0, *, handle: Any = None, **others: Any) -> Sample:
        """Return the sample of a row that brings no text; `others` are further fields."""
        return cls("", (), (), finish, handle, num_tokens, **others)


def whole_count(name: str, value: Any, most: int | None = None) -> int:
    """Return a count that a backend has reported, as an `int`.

    Args:
        name: The name of the count, for the error.
        value: The reported count.
        most: The greatest count that is possible; None: any.

    Raises:
        EngineError: The value is no whole number of at least 0, or is above `most`.
    """
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_whole and 0 <= value <= (value if most is None else most):
        return int(value)
    rule = "a whole number of at least 0" if most is None else f"a whole number from 0 to {most}"
    raise EngineError(f"the backend reports {name} = {quote(value)}, but must report {rule}", kind="BadReply")


def model_seconds(value: Any) -> float:
    """Return the seconds that a backend has reported.

    Raises:
        EngineError: The value is no finite number of at least 0.
    """
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    rule = "a finite number of at least 0"
    raise EngineError(f"the backend reports seconds = {quote(value)}, but must report {rule}", kind="BadReply")


def _is_clean(sample: Sample, most: int) -> bool:
    """Whether `RowSet.resolve` has nothing to change of a sample of at most `most` tokens, which is the usual case."""
    return (
        type(sample.num_tokens) is int
        and 0 <= sample.num_tokens <= most
        and type(sample.lost_tokens) is int
        and not sample.lost_tokens
        and type(sample.seconds) is float
        and 0 <= sample.seconds < math.inf
        and sample.text.isascii()
        and not (sample.error or sample.spreads or sample.sampling_logprobs)
        and (not sample.logprobs or clean_logprobs(sample.logprobs) is sample.logprobs)
    )


@dataclass(slots=True)
class Counters:
    """A backend's own count of all tokens that it computed.

    `prompt_tokens` includes tokens of scoring. `generated_tokens` includes tokens of cancelled rows.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0


class Draft(NamedTuple):
    """The output so far of a row under way: text, number of tokens, and marks of a thought in the text."""

    text: str
    tokens: int
    marks: ThoughtMarks = THINK


class RowSet:
    """The rows of one request, resolved one by one by the backend and awaited one by one by the search.

    Both sides run in the thread of one event loop. `prompt_tokens` and `reused_tokens` are the input tokens that the
    request computed and reused. Both counts are final when every row is resolved. A count that is no whole number of at
    least 0 raises an EngineError where it is set.

    Attributes:
        readings: The number of times that both counts have the input; None: once for each row.
        requests: The requests to a model that these rows are, or that their programs made.
    """

    __slots__ = (
        "_drafts",
        "_failure",
        "_prompt_tokens",
        "_reused_tokens",
        "_unresolved",
        "_waiter",
        "cancelled",
        "readings",
        "request",
        "requests",
        "samples",
    )

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.samples: list[Sample | None] = [None] * len(request.rows)
        self.cancelled = False
        self.readings: int | None = None
        self.requests = 1
        self._prompt_tokens = 0
        self._reused_tokens: int | None = 0
        self._unresolved = len(request.rows)
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._drafts: dict[int, Callable[[], Draft]] = {}

    @property
    def prompt_tokens(self) -> int:
        """The input tokens that the request computed."""
        return self._prompt_tokens

    @prompt_tokens.setter
    def prompt_tokens(self, count: int) -> None:
        self._prompt_tokens = whole_count("prompt_tokens", count)

    @property
    def reused_tokens(self) -> int | None:
        """The input tokens that the request reused; None: not known."""
        return self._reused_tokens

    @reused_tokens.setter
    def reused_tokens(self, count: int | None) -> None:
        self._reused_tokens = None if count is None else whole_count("reused_tokens", count)

    def show_draft(self, index: int, draft: Callable[[], Draft]) -> None:
        """Register the draft of a row under way (called by a backend that can show drafts).

        Args:
            index: The index of the row in the request.
            draft: A function that returns the row's output so far. Any thread may call the function at any moment.
        """
        self._drafts[index] = draft

    def draft(self, index: int) -> Draft | None:
        """Return a row's output so far; None: the row is resolved, or the backend shows no drafts."""
        read_draft = self._drafts.get(index)
        return None if read_draft is None or self.samples[index] is not None else read_draft()

    def resolve(self, index: int, sample: Sample) -> None:
        """Resolve a row, once (called by the backend).

        Lone surrogates in the sample's texts are replaced. Log-probabilities pass `clean_logprobs`, and spreads pass
        `clean_spreads`, so that every reader gets finite numbers, or none. A sample with an impossible count or time
        fails; its cost is estimated (`SampleRequest.unseen_cost`).
        """
        if self.samples[index] is not None:
            raise AssertionError(f"row {index} was resolved twice")
        most = self.request.rows[index].max_tokens
        if not _is_clean(sample, most):
            sample = self._clean(sample, most)
        self.samples[index] = sample
        self._unresolved -= 1
        self._wake()

    def _clean(self, sample: Sample, most: int) -> Sample:
        """Return a sample of at most `most` tokens with whole texts and finite numbers; see `resolve`."""
        try:
            num_tokens = whole_count("num_tokens", sample.num_tokens, most)
            lost_tokens = whole_count("lost_tokens", sample.lost_tokens, num_tokens)
            seconds = model_seconds(sample.seconds)
        except EngineError as failure:
            num_tokens, lost_tokens, seconds = self.request.unseen_cost(most), 0, 0.0
            error = f"{failure.kind}: {failure}"
            sample = Sample.empty("error", num_tokens, handle=sample.handle, estimated=True, error=error)
        cleaned = {
            "text": join_surrogates(sample.text),
            "error": join_surrogates(sample.error),
            "logprobs": clean_logprobs(sample.logprobs),
            "spreads": clean_spreads(sample.spreads),
            "sampling_logprobs": clean_logprobs(sample.sampling_logprobs),
            "num_tokens": num_tokens,
            "lost_tokens": lost_tokens,
            "seconds": seconds,
        }
        changes = {name: value for name, value in cleaned.items() if getattr(sample, name) is not value}
        return dataclasses.replace(sample, **changes) if changes else sample

    def fail(self, failure: Exception) -> None:
        """Fail every unresolved row (called by the backend)."""
        self._failure = failure
        self._wake()

    def cancel(self) -> None:
        """Request that unresolved rows stop at the next step.

        The backend resolves these rows as "cancelled", with their cost.
        """
        self.cancelled = True

    async def row(self, index: int) -> Sample:
        """Wait for a row and return it.

        Raises:
            Exception: The backend's failure, mostly an EngineError.
        """
        while (sample := self.samples[index]) is None:
            await self.change()
        return sample

    @property
    def done(self) -> bool:
        """Whether every row is resolved or has failed."""
        return not self._unresolved or self._failure is not None

    async def drain(self) -> None:
        """Wait until `done`."""
        while not self.done:
            await self.change()

    def change(self) -> asyncio.Future[None]:
        """Return a future that is done when another row is resolved. Only one caller may wait at a time.

        Rows count from this call on, also those that end before the caller begins to wait.

        Raises:
            Exception: The backend's failure.
        """
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class TaskRows(RowSet):
    """Rows that are written by tasks of their own.

    The tasks are cancelled as soon as the rows are cancelled or have failed.

    Attributes:
        counters: The counters of the backend, to which generated tokens are added.
        context: The context of the search, in which the rows run, whichever row's end starts them.
        tasks: The tasks to cancel; the backend adds and removes them.
    """

    __slots__ = ("context", "counters", "tasks")

    def __init__(self, request: SampleRequest, counters: Counters) -> None:
        super().__init__(request)
        self.counters = counters
        self.context = contextvars.copy_context()
        self.tasks: set[asyncio.Task[Any]] = set()

    def waits(self, index: int) -> bool:
        """Whether a row is still to be resolved."""
        return not self.done and self.samples[index] is None

    def settle(self, index: int, sample: Sample) -> None:
        """Resolve a row and count its tokens, unless it was resolved before or all rows have failed."""
        if self.waits(index):
            self.resolve(index, sample)
            self.counters.generated_tokens += sample.num_tokens

    def end_task(self, index: int, task: asyncio.Task[Any]) -> None:
        """Resolve the row of a task that ended without doing so, for which the search would wait for ever."""
        if self.waits(index):
            failure = None if task.cancelled() else task.exception()
            error = "its task was cancelled" if failure is None else f"{type(failure).__name__}: {failure}"
            cost = self.request.unseen_cost(self.request.rows[index].max_tokens)
            self.settle(index, Sample.empty("error", cost, estimated=True, error=error))

    def cancel(self) -> None:
        """Cancel the tasks at once."""
        super().cancel()
        self._stop()

    def fail(self, failure: Exception) -> None:
        """Fail every unresolved row, and cancel the tasks."""
        super().fail(failure)
        self._stop()

    def _stop(self) -> None:
        for task in self.tasks:
            if task is not asyncio.current_task():
                task.cancel()


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The answer to one item of a call: its value and its cost.

    Args:
        value: The value of the item.
        computed: The input tokens that the call computed.
        reused: The input tokens that the call reused; None: not known.
        seconds: The model seconds of the item.
        prompt: The computed tokens of a prompt that a process model had to read before the path.

    Raises:
        EngineError: A count is no whole number of at least 0, or `seconds` is no finite number of at least 0.
    """

    value: T
    computed: int
    reused: int | None = 0
    seconds: float = 0.0
    prompt: int = 0

    def __post_init__(self) -> None:
        for name in ("computed", "reused", "prompt"):
            count = getattr(self, name)
            if type(count) is not int or count < 0:
                object.__setattr__(self, name, None if name == "reused" and count is None else whole_count(name, count))
        model_seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class Extension:
    """The result of appending forced text: a new handle and the tokens appended."""

    handle: Any
    token_ids: tuple[int, ...]


class Backend:
    """Base class of backends.

    A subclass states its capabilities in `caps`, and implements the methods of these capabilities.

    A first backend implements `open` and `sample`. Every other method refuses calls with a CapabilityError until it is
    overridden. A handle is the state after a prompt or a path. By default a handle is an immutable value: `fork`
    returns the same handle, and `release` does nothing. Calls take and return sequences, and their items fail
    independently.

    Attributes:
        name: The name in results and errors; by default the class's name in snake case.
        identity: The facts that results depend on (weights, precision, kind of device); by default the class's name in
            snake case.
        caps: The capabilities of the backend.
        context: Most tokens of prompt and path together; None: no limit.
        rates: The rates of tokens.
        kv_bytes_per_token: The size of one token's state; None: the backend keeps no state.
        metadata: Optional facts about the model (`BackendMetadata`).
        counters: Tokens computed so far; the backend's methods add to these counts.

    Example:
        >>> import tts
        >>> class Echo(tts.Backend):
        ...     caps = tts.Caps(usage=True)
        >>> Echo().name, Echo().identity, Echo().caps.steps
        ('echo', 'echo', 'absent')
    """

    name: str = cast("str", ClassName())
    identity: str = cast("str", ClassName())
    caps: Caps = Caps()
    context: int | None = None
    rates: Rates = Rates()
    kv_bytes_per_token: int | None = None
    metadata: BackendMetadata = BackendMetadata()
    counters: Counters = cast("Counters", cached_property(lambda _: Counters()))

    @classmethod
    def from_record(cls, record: ModelRecord, *args: Any, **options: Any) -> Any:
        """Make the backend from a model's record and its options, for models that are given by name.

        Raises:
            ConfigError: The model cannot be loaded, or an option is not valid.
        """
        raise ConfigError(
            f"{cls.__name__} cannot be made from a model's record, here of {record.name!r}",
            hint=f"define the class method {cls.__name__}.from_record(record), or give an object of the class",
        )

    def count(self, prompt: Prompt) -> int:
        """Return the number of tokens that a prompt renders to; by default its words. Nothing is computed."""
        return max(1, len(prompt_text(prompt).split()))

    def check_sampling(self, sampling: Sampling) -> None:
        """Raise CapabilityError where a value is not obeyed that `caps` do not state; by default all are."""

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Render and read prompts; the values are handles."""
        raise self._refusal("open")

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request, and return at once.

        The method is not async, and is called in the thread of the event loop. Each row is resolved once, before the
        return or later, in the same thread. Code in another thread calls
        `loop.call_soon_threadsafe(rows.resolve, index, sample)`.

        The i-th token of a row, from 0, is drawn by inverse CDF from
        `tts.randomness.uniform(row.stream, row.position + i, row.word)`. Then results do not depend on the batch or the
        order of work, and `Caps.streams` may be True. After `row.max_tokens` tokens a row ends with the finish
        "length". A row also ends where `request.stop` says.

        `Reply.computed`, `RowSet.prompt_tokens` and `Sample.num_tokens` are charged to the problem. `counters` has the
        same tokens, summed over all calls: every method that computes adds its tokens there. Only tests and benchmarks
        read `counters`.
        """
        raise self._refusal("sample")

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append forced text to each handle."""
        raise self._refusal("extend")

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probability of each token of a text after its handle, without temperature.

        The state after the text is dropped.
        """
        raise self._refusal("score")

    async def next_logprobs(
        self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]
    ) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probability of each next token after a handle and its text, without temperature.

        Args:
            handles: The handles.
            texts: The text after each handle.
            tokens: The next tokens, as texts.

        Raises:
            ConfigError: A text in `tokens` is not exactly one token of the model.
        """
        raise self._refusal("next_logprobs")

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return the values of a head at each step boundary of the paths, after the prompt."""
        raise self._refusal("value")

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Return the last layer's hidden state at the last token of each handle."""
        raise self._refusal("hidden")

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return the log-probabilities of all tokens of prompts.

        See `tts.backends.capabilities.prompt_logprobs`.
        """
        raise self._refusal("prompt_logprobs")

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return handles of the same state, each of which is released by itself; nothing is computed."""
        if self.caps.fork == "absent":
            raise self._refusal("fork")
        return [handle] * count

    def release(self, handles: Sequence[Any]) -> None:
        """Release handles; their state may be dropped. Releasing a handle twice has no effect."""

    async def close(self) -> None:
        """Free everything."""

    def _refusal(self, method: str) -> CapabilityError:
        """Return the error of a method that is not implemented."""
        class_name = type(self).__name__
        support: Support | None = getattr(self.caps, method, None)
        if support == "absent":
            return CapabilityError(
                f"{class_name} has no capability {method!r}", hint=capability_hint(self.name, self.metadata, method)
            )
        if support is None:
            reason = "every backend needs it"
            hint = f"define {class_name}.{method}"
        else:
            reason = f"its caps say {method}={support!r}"
            hint = f"define {class_name}.{method}, or leave {method} out of its caps"
        return CapabilityError(f"{class_name} does not implement {method}, but {reason}", hint=hint)
