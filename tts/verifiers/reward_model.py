"""A reward model that somebody serves, and what one search has shown it so far.

Two ways to serve one: a backend with handles in this process, where every step is read once (here), and a server over HTTP, which
is sent whole paths (`tts.verifiers.pooling`). Both are shown the same tokens and read at the same positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tts.backends.base import Backend, Counters, Reply, require
from tts.backends.facts import Spelled, counts_texts, text_bound
from tts.budget import Rates
from tts.errors import CapabilityError
from tts.verifiers.base import Calls
from tts.verifiers.reward_head import HeadWeights, activated, among
from tts.verifiers.reward_reader import Ids, Reader, Reading
from tts.verifiers.reward_record import Head


class Session(Protocol):
    """What a reward model has been shown of one problem."""

    def cost(self, reading: Reading) -> tuple[int, int]:
        """Return what reading a path would compute by itself: tokens of the problem, and tokens behind it."""
        ...

    async def scores(self, readings: Sequence[Reading], calls: Calls) -> list[tuple[float, ...]]:
        """Return the score at each position that is read, of each path: its `pieces` in order; NaN where it is unknown."""
        ...


class ServedModel(Protocol):
    """A reward model that can be asked.

    Attributes:
        reader: its record, bound to its tokenizer. rates: of a token. counters: its own count of what it computed.
        incremental: whether it keeps what it has read; else every score computes its whole path.
    """

    reader: Reader
    rates: Rates
    incremental: bool

    @property
    def counters(self) -> Counters:
        """Everything it computed so far."""
        ...

    def session(self) -> Session:
        """Return a session that has been shown nothing."""
        ...


class HandleModel:
    """A reward model on a backend with handles: after one more step, that step's tokens are computed and no others.

    Args:
        reader: of its record, with the backend's context as its limit. backend: that runs it. head: of records that have one.

    Raises:
        CapabilityError: the backend cannot be shown tokens as they are, or lacks what the record's readout needs.
    """

    incremental = True

    def __init__(self, reader: Reader, backend: Backend, head: HeadWeights | None = None) -> None:
        what = f"the reward model {reader.record.name!r}"
        require(backend, ("extend", "fork", "next_logprobs" if head is None else "hidden"), what)
        probe = Spelled.of((0,) * 7)
        if not counts_texts(backend) or text_bound(backend, probe) != 7 or backend.count(probe) != 7:
            raise CapabilityError(
                f"{what} must be shown exact tokens, but the backend {backend.name!r} takes texts only",
                hint="serve it on engine or transformers",
            )
        self.reader = reader
        self.backend = backend
        self.rates = backend.rates
        self.head = head

    @property
    def counters(self) -> Counters:
        """Those of the backend."""
        return self.backend.counters

    def session(self) -> HandleSession:
        """Return a session that has been shown nothing."""
        return HandleSession(self)

    async def read(self, handles: Sequence[Any]) -> list[Reply[float]]:
        """Return the scores at the last tokens of some states."""
        readout = self.reader.record.readout
        if isinstance(readout, Head):
            assert self.head is not None, "a record with a head is served with its weights"
            states = await self.backend.hidden(handles)
            return [_with(activated(self.head(reply.value), readout), reply) for reply in states]
        labels = [Spelled.of((label,)) for label in self.reader.labels]
        laws = await self.backend.next_logprobs(handles, [""] * len(handles), labels)
        return [_with(among(reply.value), reply) for reply in laws]


@dataclasses.dataclass(slots=True, eq=False)
class _Node:
    """A prefix that ends where a step is read: its state, what was shown behind it, and its score once it is known."""

    handle: Any
    below: dict[Ids, _Node] = dataclasses.field(default_factory=dict)
    score: float | None = None


class HandleSession:
    """The prefixes that one search has shown a reward model, as a tree; its states are given up with it."""

    def __init__(self, model: HandleModel) -> None:
        self._model = model
        self._roots: dict[Ids, _Node] = {}

    def cost(self, reading: Reading) -> tuple[int, int]:
        """Return what reading a path would compute: tokens of the problem, and tokens behind it, that were not shown yet."""
        node = self._roots.get(reading.ids[: reading.prompt])
        prompt = reading.prompt if node is None else 0
        new = 0
        for piece in reading.pieces:
            node = None if node is None else node.below.get(piece)
            new += len(piece) if node is None else 0
        return prompt, new

    async def scores(self, readings: Sequence[Reading], calls: Calls) -> list[tuple[float, ...]]:
        """Return the score at each position that is read, of each path; all paths are read together, a piece of each at a time."""
        await self._open(list(dict.fromkeys(r.ids[: r.prompt] for r in readings if r.pieces)), calls)
        chains: list[list[_Node]] = [[] for _ in readings]
        for depth in range(max((len(r.pieces) for r in readings), default=0)):
            late = [(i, r.pieces[depth]) for i, r in enumerate(readings) if depth < len(r.pieces)]
            above = {i: chains[i][-1] if chains[i] else self._roots[readings[i].ids[: readings[i].prompt]] for i, _ in late}
            await self._extend([(above[i], piece) for i, piece in late], calls)
            for i, piece in late:
                chains[i].append(above[i].below[piece])
        await self._score([node for chain in chains for node in chain], calls)
        return [tuple(np.nan if node.score is None else node.score for node in chain) for chain in chains]

    async def _open(self, prompts: Sequence[Ids], calls: Calls) -> None:
        new = [ids for ids in prompts if ids not in self._roots]
        if new:
            replies = await self._model.backend.open([Spelled.of(ids) for ids in new])
            handles = calls.charge([dataclasses.replace(reply, prompt=reply.computed) for reply in replies])
            self._roots.update({ids: _Node(handle) for ids, handle in zip(new, handles, strict=True)})

    async def _extend(self, pairs: Sequence[tuple[_Node, Ids]], calls: Calls) -> None:
        new = list({(id(above), piece): (above, piece) for above, piece in pairs if piece not in above.below}.values())
        if new:
            replies = await self._model.backend.extend([above.handle for above, _ in new], [Spelled.of(piece) for _, piece in new])
            for (above, piece), extension in zip(new, calls.charge(replies), strict=True):
                above.below[piece] = _Node(extension.handle)

    async def _score(self, nodes: Sequence[_Node], calls: Calls) -> None:
        new = [node for node in dict.fromkeys(nodes) if node.score is None]
        if new:
            for node, score in zip(new, calls.charge(await self._model.read([node.handle for node in new])), strict=True):
                node.score = score


def _with(score: float, reply: Reply[Any]) -> Reply[float]:
    return Reply(score, reply.computed, reply.reused, reply.seconds, reply.prompt)
