"""Forks inside of a node, which is divided at a token or before a text."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tts.backends.base import Backend
from tts.backends.capabilities import require
from tts.backends.metadata import BackendMetadata, metadata_of
from tts.checks import check_int
from tts.errors import CapabilityError, ConfigError, quote
from tts.search.prompts import Prompts
from tts.search.tree import Tree
from tts.types import Trajectory


@dataclass(frozen=True, slots=True)
class Fork:
    """The place where a node is divided into a first part and a rest.

    Args:
        at: The number of tokens of the first part.
        head: The text of the first part.
        aligned: Whether the tokens of the first part spell its text.
    """

    at: int
    head: str
    aligned: bool = True


def check_fork(t: Trajectory, at: int | str, backend: Backend, tree: Tree) -> Fork:
    """Return the place where a node is divided.

    Args:
        t: The path to the node.
        at: A number of tokens after which the node is divided; or a text, before whose last occurrence it is divided.
        backend: The backend of the node's model.
        tree: The tree of the node.

    Raises:
        CapabilityError: the backend cannot append text, or does not show the text of single tokens.
        ConfigError: the node has no such place, or the place lies inside of a character.
    """
    require(backend, ["extend"] if isinstance(at, str) else ["token_ids", "extend"], "a fork inside of a node")
    text_of = metadata_of(backend).text_of
    if text_of is None and not isinstance(at, str):
        raise CapabilityError(
            f"a fork inside of a node needs the text of single tokens, which the backend {backend.name!r} does not "
            "show",
            hint="a backend states it as BackendMetadata.text_of; a fork before a text does not need it",
        )
    state = ""  # the reason why the node cannot be divided
    if t.parent is None:
        state = "a root"
    elif t.node in tree.scratch:
        state = "of a rollout"
    elif t.status == "failed":
        state = "failed"
    elif t.node in tree.pruned:
        state = "pruned"
    if t.parent is None or state:
        raise ConfigError(f"node {t.node} is {state}, but only a live piece of a path can be forked")
    if isinstance(at, str):
        return _place_before(t, at, t.num_tokens - t.parent.num_tokens, metadata_of(backend))
    check_int("at", at, 1, optional=False)
    size = t.num_tokens - t.parent.num_tokens
    if at >= size or len(t.token_ids) != size:
        known = f"has {size} tokens" if len(t.token_ids) == size else "has not shown its tokens"
        raise ConfigError(f"at is {at}, but node {t.node} {known}", hint="give an offset from 1 to below its tokens")
    assert text_of is not None, "asked for above"
    head = text_of(t.text, t.token_ids[:at])
    if not t.text.startswith(head) or not text_of(t.text, t.token_ids).startswith(t.text):
        raise ConfigError(f"at is {at}, which lies inside of a character of node {t.node}", hint="give another offset")
    return Fork(at, head)


def _place_before(t: Trajectory, text: str, size: int, metadata: BackendMetadata) -> Fork:
    """Return the place before the last occurrence of a text in a node of `size` tokens.

    Where the text of single tokens is not known, the number of tokens before the place is estimated.
    """
    head = t.text[: max(0, t.text.rfind(text))] if text else ""
    if not head or size < 2:
        raise ConfigError(
            f"at is {quote(text)}, but node {t.node} has no such text after its first token",
            hint="give a text of the node",
        )
    if metadata.text_of is None or len(t.token_ids) != size:
        tail = t.text.removeprefix(head)
        tail_tokens = 1 if metadata.count_text is None else metadata.count_text(tail)
        return Fork(min(size - 1, max(1, size - tail_tokens)), head, aligned=False)
    text_of = metadata.text_of

    def text_length(count: int) -> int:
        """Return the number of characters of the first `count` tokens."""
        return len(text_of(t.text, t.token_ids[:count]))

    head_tokens = bisect_right(range(size), len(head), key=text_length) - 1
    is_aligned = head_tokens > 0 and text_of(t.text, t.token_ids[:head_tokens]) == head
    return Fork(max(1, head_tokens), head, is_aligned)


async def fork_path(t: Trajectory, fork: Fork, tree: Tree, prompts: Prompts) -> Trajectory:
    """Return the path up to a place inside of a node, as a node of its own whose state is read anew.

    An earlier fork may have divided the node already. Then the part of the node that contains the place is divided.

    Raises:
        Exhausted: the budget cannot pay reading the path.
    """
    parent_tokens = 0 if t.parent is None else t.parent.num_tokens
    parent_chars = 0 if t.parent is None else len(t.parent.full_text)
    position = parent_tokens + fork.at
    divided_part, ancestor = tree.piece_at(t, position)
    if ancestor.num_tokens == position:  # an earlier fork divided the node at this place
        if ancestor.node not in tree.pruned:
            return ancestor
        opened = await prompts.read_again(ancestor, ancestor.model)
        tree.pruned.discard(ancestor.node)
        return tree.replace(dataclasses.replace(ancestor, handle=opened.handle))
    first_tokens = slice(ancestor.num_tokens - parent_tokens, fork.at)  # the new node's tokens, within the node's
    first_char = len(ancestor.full_text) - parent_chars
    first_part = Trajectory(
        parent=ancestor,
        text=fork.head[first_char:],
        token_ids=t.token_ids[first_tokens] if fork.aligned else (),
        logprobs=_part(t.logprobs, first_tokens, t),
        status="active",
        stream=t.stream,
        node=len(tree.nodes),
        num_tokens=position,
        depth=ancestor.depth + 1,
        root_kind=t.root_kind,
        model=t.model,
        spreads=_part(t.spreads, first_tokens, t),
        marks=t.marks,
        sampling_logprobs=_part(t.sampling_logprobs, first_tokens, t),
    )
    opened = await prompts.read_again(first_part, t.model)
    first_part = dataclasses.replace(first_part, handle=opened.handle)
    extra_tokens = 0 if opened.path is None else opened.path - position
    return tree.divide(divided_part, first_part, extra_tokens)


def _part(values: Sequence[Any], cut: slice, t: Trajectory) -> tuple[Any, ...]:
    """Return the values of some tokens of a node; none unless the node has one value for each token."""
    return tuple(values[cut]) if len(values) == len(t.token_ids) else ()
