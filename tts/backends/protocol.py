"""What the search uses of a backend: its required members, and questions about any backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Caps, Counters, Extension, Reply, RowSet, SampleRequest
from tts.backends.metadata import ValueHeadMetadata, capability_hint, metadata_of
from tts.backends.prompt_logprobs import PromptLogprobs, check_top
from tts.backends.text.tokenized_text import TokenizedText
from tts.budget.budget import Rates
from tts.errors import CapabilityError
from tts.types import Prompt


@runtime_checkable
class BackendProtocol(Protocol):
    """The required members of a backend. Authors subclass `tts.backends.base.Backend`, which documents and implements them."""

    @property
    def name(self) -> str:
        """Its name in results and errors."""
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
        """Start the rows of one request, and return at once.

        It is a plain method, called in the thread of the event loop. Each row is resolved once, in that thread, before the return or
        later. Code in another thread calls `loop.call_soon_threadsafe(rows.resolve, index, sample)`.

        The i-th token of a row, from 0, is drawn by inverse CDF from `tts.randomness.uniform(row.stream, row.position + i, row.word)`.
        Then results do not depend on the batch or the order of work, and `Caps.streams` may be True. A row generates at most
        `row.max_tokens`, where it ends with the finish "length". It also ends where `request.stop` says.

        `Reply.computed`, `RowSet.prompt_tokens` and `Sample.num_tokens` are charged to the problem. `counters` has the same tokens,
        summed over all calls, so every method that computes adds to it. Only tests and benchmarks read `counters`.
        """
        ...

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append forced text to each handle."""
        ...

    async def score(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probability of each token of a text after its handle, untempered; the state is dropped."""
        ...

    async def next_logprobs(self, handles: Sequence[Any], texts: Sequence[str], tokens: Sequence[str]) -> list[Reply[NDArray[np.float64]]]:
        """Return the log-probabilities, untempered, that each of `tokens` comes next after handle and text.

        Raises:
            ConfigError: one of `tokens` is not exactly one token.
        """
        ...

    async def value(self, handles: Sequence[Any], head: str) -> list[Reply[NDArray[np.float64]]]:
        """Return a head's readings at each step boundary of the paths after the prompt."""
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


class ReadsPrompts(BackendProtocol, Protocol):
    """A backend with `Caps.prompt_logprobs`."""

    async def prompt_logprobs(self, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
        """Return the log-probabilities of all tokens of prompts."""
        ...


async def prompt_logprobs(backend: BackendProtocol, prompts: Sequence[Prompt], top: int = 0) -> list[Reply[PromptLogprobs]]:
    """Return the log-probabilities of all tokens of prompts, in order, with the input tokens that each cost.

    A `TokenizedText` is read as its tokens. Values depend on the prompt alone. Nothing stays open, and no room is needed for an answer.
    Where a backend computes a common beginning of prompts once, the first prompt is charged for it, and the others reuse it.

    Args:
        top: most likely tokens to return for each place, from 0 to 20.

    Raises:
        CapabilityError: the backend cannot. ConfigError: `top` is out of range, or a prompt has no token, or one that the model lacks.
        PromptTooLong: a prompt passes the context. In each case nothing has been computed.
    """
    require(backend, ("prompt_logprobs",), "reading the log-probabilities of a prompt")
    return await cast("ReadsPrompts", backend).prompt_logprobs(prompts, check_top(top))


def require(backend: BackendProtocol, capabilities: Sequence[str], needed_by: str) -> None:
    """Raise CapabilityError where a backend lacks a capability; the hint names those that have it."""
    for name in capabilities:
        if getattr(backend.caps, name) in ("absent", False):
            raise CapabilityError(
                f"{needed_by} needs the capability {name!r}, which the backend {backend.name!r} lacks",
                hint=capability_hint(backend.name, metadata_of(backend), name),
            )


def value_head_metadata(backend: BackendProtocol, head: str, needed_by: str) -> ValueHeadMetadata | None:
    """Return what a backend states about a value head; None where it does not list its heads.

    Raises:
        CapabilityError: it lists its heads, and this is none of them.
    """
    known = metadata_of(backend).value_heads
    if known is None:
        return None
    if head not in known:
        raise CapabilityError(
            f"{needed_by} needs the value head {head!r}, but the model on the backend {backend.name!r} has {', '.join(known) or 'none'}",
            hint="name the head's file, or a process model, in the model's record",
        )
    return known[head]


def counts_texts(backend: BackendProtocol) -> bool:
    """Whether `text_bound` is exact."""
    return metadata_of(backend).count_text is not None


def text_bound(backend: BackendProtocol, text: str) -> int:
    """Return the most tokens that a text can be after a path: exact where the backend's metadata has `count_text`.

    Elsewhere neither the count of the text as a prompt nor its bytes bound every tokenizer alone.
    """
    if not text and not isinstance(text, TokenizedText):
        return 0
    count_text = metadata_of(backend).count_text
    return max(backend.count(text), len(text.encode())) if count_text is None else count_text(text)
