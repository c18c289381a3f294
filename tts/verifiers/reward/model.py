"""Running reward models, and their state in one search.

A model runs on a backend with handles in this process, or on a server or vLLM. The first reads every step once
(`HandleModel`), the second whole trajectories (`tts.verifiers.reward.pooling`). Both get the same tokens and are read
at the same positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

import numpy as np

from tts.backends.base import Backend, Counters, Reply
from tts.backends.capabilities import counts_texts, require, text_bound
from tts.backends.reads import read
from tts.backends.text.tokenized_text import TokenizedText
from tts.budget.budget import Rates
from tts.errors import CapabilityError
from tts.verifiers.base import Calls
from tts.verifiers.reward.head import HeadWeights, activate, first_label_probability
from tts.verifiers.reward.record import Head
from tts.verifiers.reward.renderer import Ids, RenderedSolution, SolutionRenderer


class Session(Protocol):
    """The state of a reward model in the search of one problem."""

    def cost(self, solution: RenderedSolution) -> tuple[int, int]:
        """Return the tokens that scoring one solution alone computes: of the problem, and after it."""
        ...

    async def scores(self, solutions: Sequence[RenderedSolution], calls: Calls) -> list[tuple[float, ...]]:
        """Return for each solution the score at the end of each of its `pieces`, in order; NaN where unknown."""
        ...


class ServedModel(Protocol):
    """A running reward model.

    Attributes:
        renderer: Its record, bound to its tokenizer.
        rates: Cost of a token.
        counters: Its own count of computed tokens.
    """

    renderer: SolutionRenderer
    rates: Rates

    @property
    def counters(self) -> Counters:
        """Everything that it has computed so far."""
        ...

    def session(self) -> Session:
        """Return an empty session."""
        ...


class HandleModel:
    """A reward model on a backend with handles; it computes only the tokens of steps that it has not read.

    Args:
        renderer: The renderer of its record, limited to the backend's context.
        backend: The backend that runs the model.
        head: The head for records that have one.

    Raises:
        CapabilityError: the backend does not take exact tokens, or lacks a capability that the record's readout needs.
    """

    def __init__(self, renderer: SolutionRenderer, backend: Backend, head: HeadWeights | None = None) -> None:
        label = f"the reward model {renderer.record.name!r}"
        require(backend, ("extend", "fork", "next_logprobs" if head is None else "hidden"), label)
        seven_tokens = TokenizedText.of((0,) * 7)
        takes_tokens = (
            counts_texts(backend) and text_bound(backend, seven_tokens) == 7 and backend.count(seven_tokens) == 7
        )
        if not takes_tokens:
            raise CapabilityError(
                f"{label} must be shown exact tokens, but the backend {backend.name!r} takes texts only",
                hint="serve it on engine or transformers",
            )
        self.renderer = renderer
        self.backend = backend
        self.rates = backend.rates
        self.head = head

    @property
    def counters(self) -> Counters:
        """The counters of the backend."""
        return self.backend.counters

    def session(self) -> HandleSession:
        """Return an empty session."""
        return HandleSession(self)

    async def read(self, handles: Sequence[Any]) -> list[Reply[Any]]:
        """Return the scores at the last tokens of handles."""
        readout = self.renderer.record.readout
        if isinstance(readout, Head):
            assert self.head is not None, "a record with a head is served with its weights"
            states = await self.backend.hidden(handles)
            return [dataclasses.replace(reply, value=activate(self.head(reply.value), readout)) for reply in states]
        labels = [TokenizedText.of((label,)) for label in self.renderer.labels]
        logprobs = await self.backend.next_logprobs(handles, [""] * len(handles), labels)
        return [dataclasses.replace(reply, value=first_label_probability(reply.value)) for reply in logprobs]


@dataclasses.dataclass(slots=True, eq=False)
class _Node:
    """A prefix that ends where a step is read.

    It has a handle, the prefixes that continue it by one piece, and its score once known.
    """

    handle: Any
    children: dict[Ids, _Node] = dataclasses.field(default_factory=dict)
    score: float | None = None


class HandleSession:
    """The tree of prefixes that a reward model has read in one search; the handles are freed with it."""

    def __init__(self, model: HandleModel) -> None:
        self._model = model
        self._roots: dict[Ids, _Node] = {}

    def cost(self, solution: RenderedSolution) -> tuple[int, int]:
        """Return the tokens of a solution that were not read yet: of the problem, and after it."""
        node = self._roots.get(solution.ids[: solution.prompt])
        num_prompt = solution.prompt if node is None else 0
        num_new = 0
        for piece in solution.pieces:
            node = None if node is None else node.children.get(piece)
            if node is None:
                num_new += len(piece)
        return num_prompt, num_new

    async def scores(self, solutions: Sequence[RenderedSolution], calls: Calls) -> list[tuple[float, ...]]:
        """Return the scores of each solution.

        All solutions are read in one batch, one piece of each at a time.
        """
        prompts = [solution.ids[: solution.prompt] for solution in solutions]
        await self._open([ids for ids, solution in zip(prompts, solutions, strict=True) if solution.pieces], calls)
        chains: list[list[_Node]] = [[] for _ in solutions]  # for each solution the nodes of its pieces
        for depth in range(max((len(solution.pieces) for solution in solutions), default=0)):
            parents_and_pieces: dict[int, tuple[_Node, Ids]] = {}  # by index of the solution
            for i, solution in enumerate(solutions):
                if depth < len(solution.pieces):
                    parent = chains[i][-1] if chains[i] else self._roots[prompts[i]]
                    parents_and_pieces[i] = (parent, solution.pieces[depth])
            await self._extend(list(parents_and_pieces.values()), calls)
            for i, (parent, piece) in parents_and_pieces.items():
                chains[i].append(parent.children[piece])
        await self._score([node for chain in chains for node in chain], calls)
        return [tuple(np.nan if node.score is None else node.score for node in chain) for chain in chains]

    async def _open(self, prompts: Sequence[Ids], calls: Calls) -> None:
        """Read the prompts that were not read yet, each once."""
        unread_prompts = [ids for ids in dict.fromkeys(prompts) if ids not in self._roots]
        if unread_prompts:
            texts = [TokenizedText.of(ids) for ids in unread_prompts]
            handles = await self._read(self._model.backend.open(texts), calls, prompt=True)
            self._roots.update({ids: _Node(handle) for ids, handle in zip(unread_prompts, handles, strict=True)})

    async def _extend(self, pairs: Sequence[tuple[_Node, Ids]], calls: Calls) -> None:
        """Read the pieces after nodes that were not read there yet, each once."""
        unread_pairs = {(id(parent), piece): (parent, piece) for parent, piece in pairs if piece not in parent.children}
        if unread_pairs:
            parents = [parent for parent, _piece in unread_pairs.values()]
            pieces = [piece for _parent, piece in unread_pairs.values()]
            call = self._model.backend.extend(
                [parent.handle for parent in parents], [TokenizedText.of(piece) for piece in pieces]
            )
            extensions = await self._read(call, calls)
            for parent, piece, extension in zip(parents, pieces, extensions, strict=True):
                parent.children[piece] = _Node(extension.handle)

    async def _score(self, nodes: Sequence[_Node], calls: Calls) -> None:
        """Read the scores of nodes that have none yet."""
        unscored = [node for node in dict.fromkeys(nodes) if node.score is None]
        if unscored:
            scores = await self._read(self._model.read([node.handle for node in unscored]), calls)
            for node, score in zip(unscored, scores, strict=True):
                node.score = score

    async def _read(self, call: Awaitable[Any], calls: Calls, *, prompt: bool = False) -> list[Any]:
        """Await a call of the backend that only reads, charge its tokens, and return its values.

        The tokens are charged also where the search is cancelled meanwhile, and as prompt tokens with `prompt`.
        """
        replies: list[Reply[Any]] = []
        try:
            await read(self._model.backend, call, replies, opens=prompt)
        finally:
            if prompt:
                replies = [dataclasses.replace(reply, prompt=reply.computed) for reply in replies]
            values = calls.charge(replies)
        return values
