"""Rows of one request on a server, and the paths that they continue."""

from __future__ import annotations

from dataclasses import dataclass

from tts.backends.base import SampleRequest, Sampling, TaskRows
from tts.backends.openai.capabilities import Capabilities
from tts.errors import CapabilityError
from tts.types import Prompt

_MOST_ROWS = 32  # of one call with `n`


@dataclass(frozen=True, slots=True, eq=False)
class ServerHandle:
    """A path: its tokens, prompt included, where the server takes them; else its text after the prompt.

    Args:
        carry: Text that opens the continuation: of the last token beyond a step's end, or what may be the begin of a
            key.
    """

    prompt: Prompt
    ids: tuple[int, ...]
    text: str
    carry: str

    @property
    def whole_text(self) -> str:
        """What is sent after the prompt, where paths are texts."""
        return self.text + self.carry


class ServerRows(TaskRows):
    """Rows that calls write; a cancelled call closes its connection, which stops the server."""

    __slots__ = ()

    def read(self, prompt: int, cached: int | None) -> None:
        """Count the input tokens of a call, of which `cached` were reused; None: not known."""
        self.prompt_tokens += prompt - (cached or 0)
        self.counters.prompt_tokens += prompt - (cached or 0)
        self.counters.reused_tokens += cached or 0
        self.reused_tokens = None if cached is None or self.reused_tokens is None else self.reused_tokens + cached


@dataclass(frozen=True, slots=True)
class LostTries:
    """Earlier tries of a row that failed.

    They are their number, the tokens charged for them, the last error, and the wait before the next try.
    """

    tries: int = 0
    tokens: int = 0
    error: str = ""
    wait_s: float = 0.0


def check_sampling(sampling: Sampling, capabilities: Capabilities) -> None:
    """Refuse parameters that a server does not obey.

    Raises:
        CapabilityError: it does not.
    """
    if (sampling.top_k or sampling.min_p) and not capabilities.filters:
        raise CapabilityError(
            f"top_k is {sampling.top_k} and min_p is {sampling.min_p:g}, but {capabilities.root} does not obey them",
            hint="leave them out, or use top_p",
        )
    given = f"temperature is {sampling.temperature:g} and top_p is {sampling.top_p:g}, but {capabilities.root} takes"
    tempered, cut = sampling.temperature != 1, sampling.top_p != 1
    if (tempered and not capabilities.tempers) or (cut and not capabilities.cuts):
        alone = " and ".join(
            name for name, takes in (("temperature", capabilities.tempers), ("top_p", capabilities.cuts)) if not takes
        )
        raise CapabilityError(f"{given} 1 alone for {alone}", hint=f"ask for {alone.replace(' and ', '=1 and ')}=1")
    if tempered and cut and not capabilities.both:
        raise CapabilityError(f"{given} only one of them", hint="leave one of them at 1")


def tempering(sampling: Sampling, capabilities: Capabilities) -> dict[str, float]:
    """Return the members of a request for its temperature and top_p, as far as a server takes them.

    A value of 1 is sent where it can be, for servers may have other defaults; where only one of both may be sent, it is
    left out.
    """
    found = {}
    if capabilities.tempers:
        found["temperature"] = sampling.temperature
    if capabilities.cuts:
        found["top_p"] = sampling.top_p
    if len(found) == 2 and not capabilities.both:
        del found["temperature" if sampling.top_p != 1 else "top_p"]
    return found


def current(request: SampleRequest, capabilities: Capabilities) -> ServerHandle:
    """Return the path of a request as a server takes it that was probed again since the path began.

    Raises:
        CapabilityError: it takes token ids now, which the path does not have.
    """
    handle: ServerHandle = request.handle
    if capabilities.token_ids and not handle.ids:
        raise CapabilityError(
            f"{capabilities.root} takes token ids now, and did not when the search began", hint="begin it again"
        )
    return (
        ServerHandle(handle.prompt, (), request.text, handle.carry)
        if handle.ids and not capabilities.token_ids
        else handle
    )


def row_groups(request: SampleRequest, capabilities: Capabilities) -> list[tuple[int, ...]]:
    """Return which rows share a call: those with one cap, where rows have no seeds.

    Greedy rows share none, since servers refuse that.
    """
    if capabilities.seeds or not capabilities.n or not request.sampling.temperature:
        return [(index,) for index in range(len(request.rows))]
    by_cap: dict[int, list[int]] = {}
    for index, row in enumerate(request.rows):
        by_cap.setdefault(row.max_tokens, []).append(index)
    return [tuple(some[i : i + _MOST_ROWS]) for some in by_cap.values() for i in range(0, len(some), _MOST_ROWS)]
