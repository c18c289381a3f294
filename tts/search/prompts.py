"""Prefill-only calls of one search, and the handles of trajectories.

These calls read prompts, forced texts, next-token probabilities and hidden states.

A trajectory is continued by its own handle on the model that wrote it, and as text on any other model. A fork inside of
a node, at a token or before a text, divides the node there. Later draws branch off after the first part.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts._common.blame import Blame
from tts.backends.base import TEMPLATE_TOKENS, Backend, Extension, Reply
from tts.backends.capabilities import count_tokens, text_bound
from tts.backends.finite import clean_law
from tts.backends.metadata import metadata_of
from tts.backends.reads import read
from tts.backends.text.tokenized_text import TokenizedText
from tts.budget.ledger import Amounts, sum_known
from tts.errors import EngineError, PromptTooLong, quote
from tts.search.context import SearchContext
from tts.types import Prompt, Trajectory

Charge = Callable[[Sequence[Reply[Any]]], object]


@dataclass(frozen=True, slots=True)
class Opened:
    """A prompt that was read, and perhaps a path after the prompt.

    Args:
        handle: The handle on the backend.
        tokens: The tokens of the prompt.
        path: The tokens of the path; None: there is no path, or its tokens are not known.
    """

    handle: Any
    tokens: int
    path: int | None = None


class Prompts:
    """Opens prompts and reads texts after trajectories, on the models of one search, and books the cost.

    Args:
        context: What the parts of the search share.
    """

    def __init__(self, context: SearchContext) -> None:
        self._backends = context.backends
        self._costs = context.costs
        self._tree = context.tree
        self._clock = context.clock
        self._foreign_handles: dict[tuple[int, str], Any] = {}  # by (node, role): handles on other models
        self._prompt_bounds: dict[tuple[int, str], int] = {}  # by (root, role)
        # by (node, role), for ended paths that were read anew: the tokens beyond those of the path's nodes
        self._reopened_tokens: dict[tuple[int, str], int] = {}

    def remember(self, root: Trajectory, prompt: Prompt) -> None:
        """Note the prompt of a root, so that another model can open it too."""
        self._tree.asked[root.node] = prompt

    async def read(self, model: str, prompt: Prompt, path: str = "", charge: Charge | None = None) -> Opened:
        """Open a prompt, with the text of a path after the prompt.

        Args:
            model: The role of the model.
            prompt: The prompt to open.
            path: The text after the prompt; "": none.
            charge: A function that charges the replies; None: the call takes a lease of its own.

        Raises:
            PromptTooLong: the prompt leaves no room in the context. Exhausted: the budget cannot pay the reading.
        """
        backend = self._backends[model]
        tokens = count_tokens(backend, prompt)
        if backend.context is not None and tokens >= backend.context:
            raise PromptTooLong(
                f"the prompt has {tokens} tokens, but the model's context (on the backend {backend.name!r}) holds "
                f"{backend.context}",
                hint="shorten the problem, or choose a model with a longer context",
            )
        cost = backend.rates.costs(computed=tokens + text_bound(backend, path), reused=tokens)
        handles: list[Any] = []  # handles to release if a call or its booking fails
        try:
            async with self._reading("open", model, 1, cost, charge) as replies:
                (opened,) = _one_each(
                    await read(backend, backend.open([prompt]), replies, opens=True), 1, backend, "open"
                )
                handles = [opened.value]
                path_tokens = None
                if path:
                    (extended,) = _one_each(
                        await read(backend, backend.extend(handles, [path]), replies), 1, backend, "extend"
                    )
                    self._release(model, handles)
                    handles = [extended.value.handle]
                    path_tokens = len(extended.value.token_ids) or None
        except BaseException:
            self._release(model, handles)
            raise
        return Opened(handles[0], tokens, path_tokens)

    @asynccontextmanager
    async def _reading(
        self,
        kind: str,
        model: str,
        rows: int,
        amounts: Amounts,
        charge: Charge | None = None,
        *,
        samples: int = 0,
        verifier: bool = False,
    ) -> AsyncGenerator[list[Reply[Any]]]:
        """Yield a list for the replies of a call that only reads. Replies in the list are paid even if the call fails.

        Args:
            kind: The kind of the call, for the ledger.
            model: The role that reads.
            rows: The number of sequences in the call.
            amounts: The most that the call may cost, by unit.
            charge: A function that gets the replies, in place of a lease.
            samples: The samples that the call costs.
            verifier: Whether the tokens are booked as verifier tokens.
        """
        replies: list[Reply[Any]] = []
        if charge is not None:
            try:
                yield replies
            finally:
                charge(replies)
            return
        rates = self._backends[model].rates
        with await self._costs.account.lease_in_turn(amounts, kind=kind, model=model, rows=rows, rates=rates) as lease:
            started = self._clock()
            try:
                yield replies
            finally:
                lease.spend(**_counts(replies, samples=samples, seconds=self._clock() - started, verifier=verifier))

    def recomputation(self, ts: Sequence[Trajectory], model: str) -> int:
        """Return the most tokens that a row after one of `ts` computes again.

        The number is 0 where forks are native: the backend then keeps the state of a path.
        """
        backend = self._backends[model]
        if backend.caps.fork == "native":
            return 0
        return max(self._prompt_bound(t.root.node, model) + len(t.full_text.encode()) for t in ts)

    def _prompt_bound(self, root: int, model: str) -> int:
        """Return the most tokens of a root's prompt on a model: what its backend counts, and at least the bytes."""
        if (root, model) not in self._prompt_bounds:
            backend, prompt = self._backends[model], self._tree.asked[root]
            prompt_text = prompt if isinstance(prompt, str) else "".join(message.content for message in prompt)
            template_tokens = max(TEMPLATE_TOKENS, metadata_of(backend).template_tokens)
            bound = max(count_tokens(backend, prompt), len(prompt_text.encode()) + template_tokens)
            self._prompt_bounds[root, model] = bound
        return self._prompt_bounds[root, model]

    async def handles(self, ts: Sequence[Trajectory], model: str, charge: Charge | None = None) -> list[Any]:
        """Return the handles of trajectories on a model.

        The model reads the texts of paths that another model wrote, and of paths whose handle was released.

        Args:
            ts: The trajectories.
            model: The role of the model.
            charge: As in `read`, for paths of other models. A released path of this model is always booked as "open".

        Raises:
            Exhausted: the budget cannot pay reading a path.
        """
        handles: list[Any] = []
        for t in ts:
            if t.model == model and t.node in self._tree.held:
                handles.append(self._tree.held[t.node].handle)
                continue
            if (t.node, model) not in self._foreign_handles:
                self._foreign_handles[t.node, model] = await self._open_path(t, model, charge)
            handles.append(self._foreign_handles[t.node, model])
        return handles

    async def _open_path(self, t: Trajectory, model: str, charge: Charge | None) -> Any:
        """Return a new handle of a path on a model: from the nearest ancestor that the model holds, or from the prompt.

        Args:
            t: The path.
            model: The role of the model.
            charge: As in `handles`. With a charge the whole path is read.
        """
        is_foreign = t.model != model
        nearest = self._nearest(t, model) if is_foreign and charge is None else None
        if nearest is not None:
            ancestor, ancestor_handle = nearest
            return await self._append_text(ancestor, ancestor_handle, t, model)
        prompt = self._tree.asked[t.root.node]
        opened = await self.read(model, prompt, t.full_text, charge if is_foreign else None)
        return opened.handle

    def unopened_tokens(self, t: Trajectory, model: str) -> int:
        """Return the most tokens that a verifier's model reads to open a path; 0 if the path is open already."""
        if t.model == model or (t.node, model) in self._foreign_handles:
            return 0
        backend = self._backends[model]
        return count_tokens(backend, self._tree.asked[t.root.node]) + text_bound(backend, t.full_text)

    def _nearest(self, t: Trajectory, model: str) -> tuple[Trajectory, Any] | None:
        """Return the nearest ancestor that a model holds, with its handle.

        None is returned where the model holds no ancestor, or where the path has no text after the ancestor.
        """
        for node in reversed(t.path[:-1]):
            if node.model == model and node.node in self._tree.held:
                handle = self._tree.held[node.node].handle
            else:
                handle = self._foreign_handles.get((node.node, model))
            if handle is not None:
                has_later_text = len(node.full_text) < len(t.full_text)
                return (node, handle) if has_later_text else None
        return None

    async def _append_text(self, ancestor: Trajectory, handle: Any, t: Trajectory, model: str) -> Any:
        """Return a model's handle of a path: the handle of an ancestor, with the rest of the path's text appended.

        Raises:
            Exhausted: the budget cannot pay reading the text.
        """
        backend = self._backends[model]
        text = t.full_text.removeprefix(ancestor.full_text)
        _size, cost = self._cost(backend, [ancestor], text)
        async with self._reading("extend", model, 1, cost) as replies:
            (reply,) = _one_each(await read(backend, backend.extend([handle], [text]), replies), 1, backend, "extend")
        return reply.value.handle

    async def read_again(self, t: Trajectory, model: str) -> Opened:
        """Open a path anew, without ends of sequence.

        The model reads the path's tokens where they spell the path's text, else the text.

        Raises:
            Exhausted: the budget cannot pay reading the path.
        """
        return await self.read(model, self._tree.asked[t.root.node], self.spell(t, model))

    def spell(self, t: Trajectory, model: str) -> str:
        """Return the text of a path, together with its tokens (a `TokenizedText`) where they spell the text.

        The tokens are without ends of sequence. They are known where this model wrote all pieces of the path.
        """
        text_of = metadata_of(self._backends[model]).text_of
        pieces = t.path[1:]
        if text_of is None or not all(piece.token_ids and piece.model == model for piece in pieces):
            return t.full_text
        ids: list[int] = []
        for piece in pieces:
            without_last = piece.token_ids[:-1]
            has_end_token = piece.status == "finished" and text_of(piece.text, without_last) == text_of(
                piece.text, piece.token_ids
            )
            ids += without_last if has_end_token else piece.token_ids
        if text_of(t.full_text, ids) != t.full_text:
            return t.full_text
        spelled = TokenizedText(t.full_text)
        spelled.ids = tuple(ids)
        return spelled

    async def reopen(self, ts: Sequence[Trajectory], model: str) -> list[int | None]:
        """Read anew those of the paths that an end of sequence ended, so that they can go on.

        Returns:
            The tokens of each path beyond those of its nodes; None for paths that were not read anew.

        Raises:
            Exhausted: the budget cannot pay reading a path.
        """
        extra_tokens: list[int | None] = []
        for t in ts:
            was_reopened = (t.node, model) in self._reopened_tokens
            if t.status == "finished" and not was_reopened and not self._is_open(t, model):
                opened = await self.read_again(t, model)
                stale_handle = self._foreign_handles.pop((t.node, model), None)
                self._foreign_handles[t.node, model] = opened.handle
                if stale_handle is not None:
                    self._release(model, [stale_handle])
                self._reopened_tokens[t.node, model] = 0 if opened.path is None else opened.path - t.num_tokens
            extra_tokens.append(self._reopened_tokens.get((t.node, model)))
        return extra_tokens

    def _is_open(self, t: Trajectory, model: str) -> bool:
        """Whether a path's held state has no end of sequence, because a predicate of the task ended the path."""
        spelled = self.spell(t, model)
        spelled_tokens = len(spelled.ids) if isinstance(spelled, TokenizedText) else 0
        return t.model == model and t.node in self._tree.held and spelled_tokens == t.num_tokens

    def release(self, ts: Iterable[Trajectory]) -> None:
        """Release every handle of some nodes."""
        freed_handles: dict[str, list[object]] = {}  # by role
        for t in ts:
            if t.handle is not None and self._tree.release(t):
                freed_handles.setdefault(t.model, []).append(t.handle)
            if not self._foreign_handles:
                continue
            for model in self._backends:
                self._reopened_tokens.pop((t.node, model), None)
                foreign_handle = self._foreign_handles.pop((t.node, model), None)
                if foreign_handle is not None:
                    freed_handles.setdefault(model, []).append(foreign_handle)
        self._release_each(freed_handles)

    def release_all(self) -> None:
        """Release every handle of the search."""
        held = self._tree.held
        only_foreign = [self._tree.nodes[node] for node, _model in self._foreign_handles if node not in held]
        self.release([*held.values(), *only_foreign])

    def _release_each(self, handles_by_model: Mapping[str, Sequence[object]]) -> None:
        """Release handles on several models. A failed release does not keep the other releases from running."""
        with ExitStack() as releases:
            for model, handles in handles_by_model.items():
                releases.callback(self._release, model, handles)

    def _release(self, model: str, handles: Sequence[object]) -> None:
        with Blame(f"the backend {self._backends[model].name!r}", EngineError):
            self._backends[model].release(handles)

    async def extend(self, ts: Sequence[Trajectory], text: str, model: str, samples: int) -> list[Extension]:
        """Append a text to each trajectory.

        Finished trajectories must be read anew before (see `reopen`).

        Args:
            ts: The trajectories.
            text: The text to append.
            model: The role of the model.
            samples: The samples that the branches cost.

        Raises:
            Exhausted: the budget cannot pay reading the text.
        """
        backend = self._backends[model]
        extra_tokens = sum(max(0, self._reopened_tokens.get((t.node, model), 0)) for t in ts)
        _size, cost = self._cost(backend, ts, text, extra_tokens)
        async with self._reading("extend", model, len(ts), {"samples": samples, **cost}, samples=samples) as replies:
            handles: list[Any] = []
            for t in ts:
                if (t.node, model) in self._reopened_tokens:
                    handles.append(self._foreign_handles[t.node, model])
                else:
                    handles += await self.handles([t], model)
            extensions = _one_each(
                await read(backend, backend.extend(handles, [text] * len(ts)), replies), len(ts), backend, "extend"
            )
        return [reply.value for reply in extensions]

    async def ask(self, ts: Sequence[Trajectory], text: str, tokens: Sequence[str], model: str) -> NDArray[np.float64]:
        """Return the probability of each token after a text that is appended to each trajectory.

        The text is charged as verifier tokens.

        Args:
            ts: The trajectories.
            text: The text to append.
            tokens: The tokens, as texts.
            model: The role of the model.

        Returns:
            The probabilities, [trajectories, tokens].

        Raises:
            Exhausted: the budget cannot pay reading the text.
        """
        backend = self._backends[model]
        size, cost = self._cost(backend, ts, text)
        amounts = {"tokens": size, "verifier_tokens": size, "verifier_calls": len(ts), **cost}
        async with self._reading("ask", model, len(ts), amounts, verifier=True) as replies:
            handles = await self.handles(ts, model)
            await read(backend, backend.next_logprobs(handles, [text] * len(ts), tokens), replies)
        logprobs = clean_law([reply.value for reply in replies]).reshape(len(ts), len(tokens))
        return np.exp(np.where(np.isnan(logprobs), -np.inf, logprobs))

    async def hidden(self, ts: Sequence[Trajectory]) -> NDArray[np.float64]:
        """Return the policy's last hidden state at the end of each path: [trajectories, width].

        Raises:
            Exhausted: the budget cannot pay the call.
        """
        backend = self._backends["policy"]
        _size, cost = self._cost(backend, ts, "")
        async with self._reading("hidden", "policy", len(ts), cost) as replies:
            await read(backend, backend.hidden(await self.handles(ts, "policy")), replies)
        return np.array([reply.value for reply in replies], dtype=np.float64)

    def _cost(self, backend: Backend, ts: Sequence[Trajectory], text: str, more: int = 0) -> tuple[int, dict[str, int]]:
        """Return the most tokens that reading a text after each path computes, and the cost of reading by unit.

        Args:
            backend: The backend that reads.
            ts: The paths.
            text: The text after each path.
            more: The tokens of the paths beyond those of their nodes.
        """
        size = text_bound(backend, text) * len(ts)
        path_tokens = sum(map(self._tree.path_tokens, ts)) + more
        return size, backend.rates.costs(computed=size, reused=path_tokens)


def _one_each(replies: Any, count: int, backend: Backend, call: str) -> list[Reply[Any]]:
    """Return the replies of a backend, once they are checked: one `Reply` for each of `count` inputs.

    Raises:
        EngineError: the replies are anything else.
    """
    if (
        not isinstance(replies, list | tuple)
        or len(replies) != count
        or not all(isinstance(reply, Reply) for reply in replies)
    ):
        rule = f"a list with a Reply for each of {count}"
        raise EngineError(f"the backend {backend.name!r} returned {quote(replies)} from {call}, but must return {rule}")
    return list(replies)


def _counts(
    replies: Sequence[Reply[Any]], *, seconds: float, samples: int = 0, verifier: bool = False
) -> dict[str, Any]:
    """Return the cost of a call that only reads, by the fields of a ledger's row.

    Args:
        replies: The replies of the backend.
        seconds: The seconds of the call.
        samples: The samples that the call costs.
        verifier: Whether the tokens are booked as verifier tokens.
    """
    computed = sum(reply.computed for reply in replies)
    reused = sum_known([reply.reused for reply in replies])
    work = sum(reply.seconds for reply in replies)
    counts: dict[str, Any] = {"prompt_tokens": computed, "reused_tokens": reused, "samples": samples}
    if verifier:
        counts = {"verifier_tokens": computed, "verifier_reused_tokens": reused or 0, "verifier_calls": len(replies)}
    return {**counts, "seconds": seconds, "work_seconds": work}


def content_of(prompt: Prompt) -> tuple[str, ...]:
    """Return the address of a caller's own prompt. No prompt of a task has the same address."""
    if isinstance(prompt, str):
        return ("\0text", prompt)
    return ("\0messages", *(text for turn in prompt for text in (turn.role, turn.content)))
