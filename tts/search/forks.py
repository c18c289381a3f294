"""Forks inside of a node, at a token or before a text: the node is divided there, and what is drawn after its first part branches off."""

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
from tts.errors import CapabilityError, ConfigError, shown
from tts.search.prompts import Prompts
from tts.search.tree import Tree
from tts.types import Trajectory


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a node is divided: the tokens and the text of its first part; `aligned`: whether the tokens spell the text."""

    at: int
    head: str
    aligned: bool = True


def check_fork(t: Trajectory, at: int | str, backend: Backend, tree: Tree) -> Fork:
    """Return where a node is divided: after so many tokens, or before the last occurrence of a text.

    Raises:
        CapabilityError: the backend cannot append text, or does not show the text of single tokens.
        ConfigError: the node has no such place, or it lies inside of a character.
    """
    require(backend, ["extend"] if isinstance(at, str) else ["token_ids", "extend"], "a fork inside of a node")
    text_of = metadata_of(backend).text_of
    if text_of is None and not isinstance(at, str):
        raise CapabilityError(
            f"a fork inside of a node needs the text of single tokens, which the backend {backend.name!r} does not show",
            hint="a backend states it as BackendMetadata.text_of; a fork before a text does not need it",
        )
    if t.parent is None or t.status == "failed" or t.node in tree.scratch | tree.pruned:
        what = (
            "a root" if t.parent is None else "of a rollout" if t.node in tree.scratch else "failed" if t.status == "failed" else "pruned"
        )
        raise ConfigError(f"node {t.node} is {what}, but only a live piece of a path can be forked")
    if isinstance(at, str):
        return _before(t, at, t.num_tokens - t.parent.num_tokens, metadata_of(backend))
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


def _before(t: Trajectory, text: str, size: int, metadata: BackendMetadata) -> Fork:
    """Return the place before the last occurrence of a text in a node of `size` tokens."""
    head = t.text[: max(0, t.text.rfind(text))] if text else ""
    if not head or size < 2:
        raise ConfigError(f"at is {shown(text)}, but node {t.node} has no such text after its first token", hint="give a text of the node")
    if metadata.text_of is None or len(t.token_ids) != size:
        behind = 1 if metadata.count_text is None else metadata.count_text(t.text[len(head) :])
        return Fork(min(size - 1, max(1, size - behind)), head, aligned=False)
    text_of = metadata.text_of
    count = bisect_right(range(size), len(head), key=lambda k: len(text_of(t.text, t.token_ids[:k]))) - 1
    aligned = count > 0 and text_of(t.text, t.token_ids[:count]) == head
    return Fork(max(1, count), head, aligned)


async def forked(t: Trajectory, fork: Fork, tree: Tree, prompts: Prompts) -> Trajectory:
    """Return the path up to a place inside of a node: a node of its own, whose state is read anew.

    Raises:
        Exhausted: the budget cannot pay reading it.
    """
    at, head = fork.at, fork.head
    behind = 0 if t.parent is None else t.parent.num_tokens
    before = 0 if t.parent is None else len(t.parent.full_text)
    rest, above = tree.piece_at(t, behind + at)
    if above.num_tokens == behind + at:  # it was forked there before
        if above.node not in tree.pruned:
            return above
        again = dataclasses.replace(above, handle=(await prompts.read_again(above, above.model)).handle)
        tree.pruned.discard(again.node)
        return tree.replace(again)
    cut = slice(above.num_tokens - behind, at)
    ids = t.token_ids[cut] if fork.aligned else ()
    first = Trajectory(
        above, head[len(above.full_text) - before :], ids, _part(t.logprobs, cut, t), "active", t.stream, len(tree.nodes),
        behind + at, above.depth + 1, t.root_kind, t.model, spreads=_part(t.spreads, cut, t), marks=t.marks,
    )  # fmt: skip
    opened = await prompts.read_again(first, t.model)
    first = dataclasses.replace(first, handle=opened.handle)
    more = 0 if opened.path is None else opened.path - first.num_tokens
    return tree.divide(rest, first, more)


def _part(values: Sequence[Any], cut: slice, t: Trajectory) -> tuple[Any, ...]:
    """Return what belongs to some tokens of a node; nothing where it has not one value a token."""
    return tuple(values[cut]) if len(values) == len(t.token_ids) else ()
