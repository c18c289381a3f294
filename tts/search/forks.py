"""Forks at a token inside of a node: the node is divided there, and what is drawn behind its first part branches off."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tts.backends.metadata import metadata_of
from tts.backends.protocol import BackendProtocol, require
from tts.checks import check_int
from tts.errors import CapabilityError, ConfigError
from tts.search.prompts import Prompts
from tts.search.tree import Tree
from tts.types import Trajectory


def check_fork(t: Trajectory, at: int, backend: BackendProtocol, tree: Tree) -> str:
    """Return the text of the first `at` tokens of a node.

    Raises:
        CapabilityError: the backend cannot tell the tokens of a text apart, or cannot append text.
        ConfigError: the node has no such offset, or it lies inside of a character.
    """
    require(backend, ["token_ids", "extend"], "a fork inside of a node")
    text_of = metadata_of(backend).text_of
    if text_of is None:
        raise CapabilityError(
            f"a fork inside of a node needs the text of single tokens, which the backend {backend.name!r} does not show",
            hint="a backend states it as BackendMetadata.text_of",
        )
    check_int("at", at, 1, optional=False)
    if t.parent is None or t.status == "failed" or t.node in tree.scratch | tree.pruned:
        what = (
            "a root" if t.parent is None else "of a rollout" if t.node in tree.scratch else "failed" if t.status == "failed" else "pruned"
        )
        raise ConfigError(f"node {t.node} is {what}, but only a live piece of a path can be forked")
    size = t.num_tokens - t.parent.num_tokens
    if at >= size or len(t.token_ids) != size:
        known = f"has {size} tokens" if len(t.token_ids) == size else "has not shown its tokens"
        raise ConfigError(f"at is {at}, but node {t.node} {known}", hint="give an offset from 1 to below its tokens")
    head = text_of(t.text, t.token_ids[:at])
    if not t.text.startswith(head) or not text_of(t.text, t.token_ids).startswith(t.text):
        raise ConfigError(f"at is {at}, which lies inside of a character of node {t.node}", hint="give another offset")
    return head


async def forked(t: Trajectory, at: int, head: str, tree: Tree, prompts: Prompts) -> Trajectory:
    """Return the path up to a token of a node, `head` being the text of its tokens so far: a node of its own, whose state is read anew.

    Raises:
        Exhausted: the budget cannot pay reading it.
    """
    behind = 0 if t.parent is None else t.parent.num_tokens
    before = 0 if t.parent is None else len(t.parent.full_text)
    rest, above = tree.piece_at(t, behind + at)
    if above.num_tokens == behind + at:  # it was forked there before
        if above.node not in tree.pruned:
            return above
        again = dataclasses.replace(above, handle=(await prompts.read_again(above, above.model)).handle)
        tree.pruned.discard(again.node)
        tree.replace(again)
        return again
    cut = slice(above.num_tokens - behind, at)
    first = Trajectory(
        above, head[len(above.full_text) - before :], t.token_ids[cut], _part(t.logprobs, cut, t), "active", t.stream, len(tree.nodes),
        behind + at, above.depth + 1, t.root_kind, t.model, spreads=_part(t.spreads, cut, t),
    )  # fmt: skip
    opened = await prompts.read_again(first, t.model)
    first = dataclasses.replace(first, handle=opened.handle)
    more = 0 if opened.path is None else opened.path - first.num_tokens
    return tree.divide(rest, first, more)


def _part(values: Sequence[Any], cut: slice, t: Trajectory) -> tuple[Any, ...]:
    """Return what belongs to some tokens of a node; nothing where it has not one value a token."""
    return tuple(values[cut]) if len(values) == len(t.token_ids) else ()
