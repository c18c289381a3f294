"""What a backend is: something that opens prompts, continues them, and says exactly what it computed.

A *handle* is an immutable state that can be continued and forked any number of times, until it is released. A request of
several rows is one call; its rows resolve one by one in a `RowSet`. Every row brings its own stream and position: a backend
draws token number `position` of a row from `tts.randomness.uniform(stream, position, word)` by inverse CDF, so that results
depend neither on the batch nor on the order of work.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tts.budget import Rates
from tts.errors import CapabilityError, ConfigError
from tts.randomness import MAIN_WORD
from tts.types import Prompt, Spread

Support = Literal["native", "emulated", "absent"]
Finish = Literal["eos", "stop", "answer", "length", "cancelled", "error"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a backend can do. "emulated" gives the same result for more tokens; "absent" is refused before anything is spent.

    Args:
        steps: stopping at a step boundary and continuing from there. extend: appending forced text.
        fork: continuing one handle several times without computing it again. value: a value or reward head on a handle.
        score: log-probabilities of given text. next_logprobs: of given next tokens. hidden: last hidden states.
        logprobs: log-probabilities of sampled tokens. token_ids: whether samples carry token ids.
        spreads: how spread the law of each token was (`Spread`), which takes the whole law. tops: `Spread.top` of it at least.
        streams: whether rows obey their streams: False makes a solution not reproducible.
        stop_predicate: whether a row ends where `Stop.finished` says so.
        usage: whether token counts are reported; else a row is charged what its text can be at most.
    """

    steps: Support = "absent"
    extend: Support = "absent"
    fork: Support = "absent"
    score: Support = "absent"
    next_logprobs: Support = "absent"
    hidden: Support = "absent"
    value: Support = "absent"
    logprobs: bool = False
    spreads: bool = False
    tops: bool = False
    token_ids: bool = False
    streams: bool = False
    stop_predicate: bool = False
    usage: bool = False


_LARGE = 2**62  # what no count of tokens reaches

# Tokens that a chat template may add to a prompt's text, where a backend counts for us.
TEMPLATE_TOKENS = 64

# Capabilities that `require` may be asked for.
CAPABILITIES = tuple(f.name for f in dataclasses.fields(Caps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn from the model's law.

    Args:
        temperature: 0 is greedy (the lowest id among equals); at most 100.
        top_p: nucleus mass in (0, 1]; 1 is off. top_k: most likely tokens kept; 0 is off.
        min_p: least probability relative to the most likely token, in [0, 1); 0 is off.
        max_tokens: cap on one row; None: what the model's context leaves.

    Raises:
        ConfigError: a value is out of its range.
    """

    temperature: float = 0.8
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, lambda value: 0 <= value <= 100, "a number between 0 and 100")
        _check("top_p", self.top_p, lambda value: 0 < value <= 1, "a number above 0 and at most 1")
        _check("top_k", self.top_k, lambda value: 0 <= value < _LARGE and value == int(value), "a whole number of at least 0")
        _check("min_p", self.min_p, lambda value: 0 <= value < 1, "a number of at least 0 and below 1")
        if self.max_tokens is not None:
            _check(
                "max_tokens",
                self.max_tokens,
                lambda value: 1 <= value < _LARGE and value == int(value),
                "a whole number of at least 1, or None",
            )


def _check(name: str, value: object, valid: Callable[[float], bool], rule: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not valid(value):
        raise ConfigError(f"{name} is {value!r}, but must be {rule}")


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a row ends besides its end of sequence and its cap.

    A step boundary is the end of a `step` text, looked for in the text since the last boundary. The row's text is cut there;
    characters of the last token beyond it belong to the row's continuation.

    Args:
        step: texts that end a step. at_step: whether the row ends at the first boundary.
        finished: asked at each boundary with the whole path's text; True ends the row ("answer").
    """

    step: tuple[str, ...] = ()
    at_step: bool = False
    finished: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One continuation to draw: its stream, the position of its first token, its cap, and the word of its draws."""

    stream: int
    position: int
    max_tokens: int
    word: int = MAIN_WORD


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Rows that continue one handle.

    Args:
        text: the path's so far, after the prompt. spreads: whether `Sample.spreads` are wanted.
        rereads: whether a row whose reply broke may read its input again, within its grant; flops and usd were granted one reading.
    """

    handle: Any
    rows: tuple[Row, ...]
    sampling: Sampling
    stop: Stop
    text: str = ""
    spreads: bool = False
    rereads: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """One row's continuation.

    Args:
        text: the new text, up to the step boundary it ended at. token_ids: all new tokens, an end of sequence included.
        logprobs: of the untempered law, one a token (some servers show none of an end of sequence), or empty, without `caps.logprobs`.
        finish: why it ended: "eos", "stop" (a step boundary), "answer" (`Stop.finished`), "length", "cancelled", "error".
        handle: the state behind it; None for "error" and "cancelled".
        num_tokens: tokens generated, what is charged. estimated: whether that number is a bound, for want of a report.
        error: what failed, where `finish` is "error": its kind, or "kind: cause".
        seconds: model time of this row.
        spreads: one a token, with `caps.tops` and where they were asked for, or empty.
        lost_tokens: of `num_tokens`, those of replies that broke before this one, which are no part of the path.
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


class RowSet:
    """The rows of one request, resolved one by one by the backend and awaited one by one by the search.

    Both sides run in one event loop's thread. `prompt_tokens` and `reused_tokens` are what the request computed and reused of
    its input; they are final when every row is resolved.
    """

    __slots__ = ("_failure", "_unresolved", "_waiter", "cancelled", "prompt_tokens", "request", "reused_tokens", "samples")

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.samples: list[Sample | None] = [None] * len(request.rows)
        self.cancelled = False
        self.prompt_tokens = 0
        self.reused_tokens: int | None = 0
        self._unresolved = len(request.rows)
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    def resolve(self, index: int, sample: Sample) -> None:
        """Deliver a row (the backend's side); a row is resolved once."""
        if self.samples[index] is not None:
            raise AssertionError(f"row {index} was resolved twice")
        self.samples[index] = sample
        self._unresolved -= 1
        self._wake()

    def fail(self, failure: Exception) -> None:
        """Fail every row that is not resolved yet (the backend's side): the whole call broke."""
        self._failure = failure
        self._wake()

    def cancel(self) -> None:
        """Ask that unresolved rows stop at the next step; they still resolve, as "cancelled", with what they cost."""
        self.cancelled = True

    async def row(self, index: int) -> Sample:
        """Return a row when it is resolved.

        Raises:
            EngineError: or whatever the backend failed with.
        """
        while (sample := self.samples[index]) is None:
            await self._wait()
        return sample

    @property
    def done(self) -> bool:
        """Whether every row is resolved, or none will be any more because the whole call broke."""
        return not self._unresolved or self._failure is not None

    async def drain(self) -> None:
        """Return when `done`."""
        while not self.done:
            await self._wait()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The answer to one item of a call: its value, input tokens computed and reused, and model seconds.

    `prompt`: how many of the computed tokens are a prompt's that a process model read before it could read the path.
    """

    value: T
    computed: int
    reused: int | None = 0
    seconds: float = 0.0
    prompt: int = 0


@dataclass(frozen=True, slots=True)
class Extension:
    """What forced text became: a new handle and the tokens appended."""

    handle: Any
    token_ids: tuple[int, ...]


@dataclass(slots=True)
class Counters:
    """A backend's own count of everything it computed since it was made; a test holds the ledgers equal to it.

    `prompt_tokens` are computed input tokens of every kind, those of scoring included; `generated_tokens` include cancelled rows.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0


@runtime_checkable
class Backend(Protocol):
    """A model that can be asked. Plural in, plural out; one item that fails is no reason for the others to."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        ...

    @property
    def caps(self) -> Caps:
        """What it can do."""
        ...

    @property
    def context(self) -> int | None:
        """The most tokens of prompt and path together; None: no limit."""
        ...

    @property
    def rates(self) -> Rates:
        """What its tokens cost."""
        ...

    @property
    def kv_bytes_per_token(self) -> int | None:
        """The size of one token's state; None where there is none."""
        ...

    @property
    def counters(self) -> Counters:
        """Everything it computed so far."""
        ...

    @property
    def identity(self) -> str:
        """What results depend on: weights, precision, kind of device."""
        ...

    def count(self, prompt: Prompt) -> int:
        """Return the number of tokens a prompt renders to; nothing is computed."""
        ...

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Render and read prompts; the values are handles."""
        ...

    def sample(self, request: SampleRequest) -> RowSet:
        """Start the rows of one request."""
        ...

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append forced text to each handle."""
        ...

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probability of each token of a text behind its handle, untempered; the state is dropped."""
        ...

    async def next_logprobs(self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probabilities, untempered, that each of `tokens` comes next behind handle and text.

        Raises:
            ConfigError: one of `tokens` is not exactly one token.
        """
        ...

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return a head's readings at each step boundary of the paths behind the prompt."""
        ...

    async def hidden(self, handles: Sequence[Any]) -> list[Reply[NDArray[np.float32]]]:
        """Return the last layer's hidden state at the last token of each handle."""
        ...

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return handles of the same state that are released separately; nothing is computed."""
        ...

    def release(self, handles: Sequence[Any]) -> None:
        """Give up handles; their state may be dropped. Releasing one twice does nothing."""
        ...

    async def close(self) -> None:
        """Free everything."""
        ...


def require(backend: Backend, capabilities: Sequence[str], needed_by: str) -> None:
    """Raise CapabilityError where a backend lacks a capability; the hint names those that have it."""
    for name in capabilities:
        if getattr(backend.caps, name) in ("absent", False):
            told: Callable[[str], str] | None = getattr(backend, "lacking", None)
            hint = _hint(backend.name, name) if told is None else told(name)
            raise CapabilityError(f"{needed_by} needs the capability {name!r}, which the backend {backend.name!r} lacks", hint=hint)


def _hint(backend: str, capability: str) -> str:
    have = _having(capability)
    if backend in have:  # but not with this model
        return "it has it for models whose record names a process model or value heads"
    return f"backends that have it: {', '.join(have) or 'none that is installed'}"


def _having(capability: str) -> list[str]:
    """Return the names of the backends in the table that have a capability and can be imported here."""
    from tts.backends import BACKENDS

    names: list[str] = []
    for name in BACKENDS.names():
        try:
            caps = BACKENDS.get(name).caps
        except ImportError:
            continue
        if getattr(caps, capability) not in ("absent", False):
            names.append(name)
    return names
