"""Rows of one request on a server, and the paths that they continue."""

from __future__ import annotations

from dataclasses import dataclass, field

from tts.backends.base import SampleRequest, Sampling, TaskRows
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import ServerError
from tts.errors import CapabilityError
from tts.types import Prompt

_MOST_ROWS = 32  # rows of one call with `n`


@dataclass(frozen=True, slots=True, eq=False)
class ServerHandle:
    """A path on a server, as token ids or as text.

    Args:
        prompt: The prompt.
        ids: The tokens of prompt and path, where the server takes token ids; () elsewhere.
        text: The text after the prompt, where the server takes texts.
        carry: The text that opens the continuation: the rest of the last token after a step's end, or a withheld end
            that may begin the key.
        refusals: Refusals of rows of the path, by the parameters of sampling, which no other try would change.
    """

    prompt: Prompt
    ids: tuple[int, ...]
    text: str
    carry: str
    refusals: dict[Sampling, ServerError] = field(default_factory=dict[Sampling, ServerError])

    @property
    def whole_text(self) -> str:
        """The text that is sent after the prompt, where paths are texts."""
        return self.text + self.carry


class ServerRows(TaskRows):
    """Rows that calls write; a cancelled call closes its connection, which stops the server."""

    __slots__ = ()

    def read(self, prompt: int, cached: int | None) -> None:
        """Count the input tokens of a call.

        Args:
            prompt: All input tokens of the call.
            cached: The input tokens that were reused; None: not known.
        """
        num_reused = cached or 0
        self.readings = (self.readings or 0) + 1  # one for all rows of the call
        self.prompt_tokens += prompt - num_reused
        self.counters.prompt_tokens += prompt - num_reused
        self.counters.reused_tokens += num_reused
        if cached is None or self.reused_tokens is None:
            self.reused_tokens = None
        else:
            self.reused_tokens += cached


@dataclass(frozen=True, slots=True)
class LostTries:
    """Earlier tries of a row that failed.

    Args:
        tries: The number of tries.
        tokens: The tokens that are charged for the tries.
        error: The last error.
        wait_s: The seconds to wait before the next try.
    """

    tries: int = 0
    tokens: int = 0
    error: str = ""
    wait_s: float = 0.0


def check_sampling(sampling: Sampling, capabilities: Capabilities) -> None:
    """Refuse parameters that a server does not obey.

    Raises:
        CapabilityError: The server does not obey a parameter.
    """
    if (sampling.top_k or sampling.min_p) and not capabilities.filters:
        raise CapabilityError(
            f"top_k is {sampling.top_k} and min_p is {sampling.min_p:g}, but {capabilities.root} does not obey them",
            hint="leave them out, or use top_p",
        )
    cause = f"temperature is {sampling.temperature:g} and top_p is {sampling.top_p:g}, but {capabilities.root} takes"
    has_temperature, has_top_p = sampling.temperature != 1, sampling.top_p != 1
    is_temperature_refused = has_temperature and not capabilities.tempers
    is_top_p_refused = has_top_p and not capabilities.cuts
    if is_temperature_refused or is_top_p_refused:
        fixed_names: list[str] = []  # parameters that the server takes at 1 alone
        if not capabilities.tempers:
            fixed_names.append("temperature")
        if not capabilities.cuts:
            fixed_names.append("top_p")
        cure = " and ".join(f"{name}=1" for name in fixed_names)
        raise CapabilityError(f"{cause} 1 alone for {' and '.join(fixed_names)}", hint=f"ask for {cure}")
    if has_temperature and has_top_p and not capabilities.both:
        raise CapabilityError(f"{cause} only one of them", hint="leave one of them at 1")


def tempering(sampling: Sampling, capabilities: Capabilities) -> dict[str, float]:
    """Return the members of a request for its temperature and top_p, as far as a server takes them.

    A value of 1 is sent, too, since servers may have other defaults. Where a request may have only one of the two, a
    top_p of 1 is left out; otherwise the temperature.
    """
    members = {}
    if capabilities.tempers:
        members["temperature"] = sampling.temperature
    if capabilities.cuts:
        members["top_p"] = sampling.top_p
    if len(members) == 2 and not capabilities.both:
        del members["temperature" if sampling.top_p != 1 else "top_p"]
    return members


def row_groups(request: SampleRequest, capabilities: Capabilities) -> list[tuple[int, ...]]:
    """Return the groups of rows that share a call, as indexes.

    Rows without seeds and with equal caps share a call. Each greedy row has a call of its own, since servers refuse
    calls for several greedy rows.
    """
    if capabilities.seeds or not capabilities.n or not request.sampling.temperature:
        return [(index,) for index in range(len(request.rows))]
    by_cap: dict[int, list[int]] = {}
    for index, row in enumerate(request.rows):
        by_cap.setdefault(row.max_tokens, []).append(index)
    starts = [(indexes, start) for indexes in by_cap.values() for start in range(0, len(indexes), _MOST_ROWS)]
    return [tuple(indexes[start : start + _MOST_ROWS]) for indexes, start in starts]
