"""The least work that a template asks of any system: tokens, rows and keys.

The module needs nothing but Python, since the peers use it too.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any


def ids_hash(nodes: Iterable[Sequence[int]]) -> str:
    """Return a hash of the token ids of nodes, in the order of the nodes."""
    digest = hashlib.sha256()
    for ids in nodes:
        digest.update(array("i", [len(ids), *ids]).tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Facts:
    """Numbers of a template.

    Args:
        nodes: The nodes.
        unique: The tokens of all nodes, each once.
        logical: The tokens of the paths to all leaves, each path in full.
        peak_unique: The most unique tokens at one time; a released node counts while a descendant is held.
        peak_logical: The most logical tokens at one time, counted in the same way.
        generated: The tokens of all expanded nodes.
        useful: The generated tokens on paths to the nodes that are held to the end.
        prompts: The prompts.
        no_reuse_prefill: The tokens that an engine reads anew if it reads each child's path again for each child.
        longest: The longest path, in tokens.
        width: The most children of one operation.
        rewards: The nodes that a process model reads.
    """

    nodes: int
    unique: int
    logical: int
    peak_unique: int
    peak_logical: int
    generated: int
    useful: int
    prompts: int
    no_reuse_prefill: int
    longest: int
    width: int
    rewards: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class Walk:
    """The nodes of a template, made one operation after the other."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.size: list[int] = []
        self.depth: list[int] = []
        self.holds: list[int] = []  # the node's own handle, and one for each child that is held
        self.live = self.paths = 0  # tokens of held nodes; of paths to held leaves

    def add(self, parent: int, size: int) -> int:
        self.parent.append(parent)
        self.size.append(size)
        self.depth.append(size + (self.depth[parent] if parent >= 0 else 0))
        self.holds.append(1)
        if parent >= 0:
            self.holds[parent] += 1
        self.live += size
        return len(self.size) - 1

    def release(self, node: int) -> None:
        while node >= 0:
            self.holds[node] -= 1
            if self.holds[node]:
                return
            self.live -= self.size[node]
            node = self.parent[node]

    def ancestry(self, nodes: Iterable[int]) -> set[int]:
        ancestors: set[int] = set()
        for start in nodes:
            node = start
            while node >= 0 and node not in ancestors:
                ancestors.add(node)
                node = self.parent[node]
        return ancestors

    def logical(self) -> int:
        inner = {self.parent[node] for node, holds in enumerate(self.holds) if holds}
        return sum(depth for node, depth in enumerate(self.depth) if self.holds[node] and node not in inner)


def facts(template: dict[str, Any]) -> Facts:
    walk = Walk()
    peak_unique = peak_logical = generated = prefill = width = 0
    released: set[int] = set()
    for op in template["ops"]:
        if op["op"] == "open":
            walk.add(-1, len(op["ids"]))
        elif op["op"] == "expand":
            prefill += sum(walk.depth[parent] for parent, _ in op["children"])
            for parent, ids in op["children"]:
                walk.add(parent, len(ids))
                generated += len(ids)
            width = max(width, len(op["children"]))
            peak_unique, peak_logical = max(peak_unique, walk.live), max(peak_logical, walk.logical())
        elif op["op"] == "release":
            released.update(op["nodes"])
            for node in op["nodes"]:
                walk.release(node)
    nodes = range(len(walk.size))
    survivors = walk.ancestry(node for node in nodes if node not in released)
    inner = set(walk.parent)
    return Facts(
        nodes=len(nodes),
        unique=sum(walk.size),
        logical=sum(walk.depth[node] for node in nodes if node not in inner),
        peak_unique=peak_unique,
        peak_logical=peak_logical,
        generated=generated,
        useful=sum(walk.size[node] for node in survivors if walk.parent[node] >= 0),
        prompts=sum(size for size, parent in zip(walk.size, walk.parent, strict=True) if parent < 0),
        no_reuse_prefill=prefill,
        longest=max(walk.depth),
        width=width,
        rewards=sum(len(op["nodes"]) for op in template["ops"] if op["op"] == "reward"),
    )


def steps(template: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield (rows, tokens whose keys are read) of each forward pass of a perfect engine, level by level.

    The last token of a node is read when the node is first used: by its children, all at once, or by a reading.
    """
    walk, unread, mirrored = Walk(), set[int](), set[int]()
    for op in template["ops"]:
        if op["op"] == "open":
            unread.add(walk.add(-1, len(op["ids"])))
            yield len(op["ids"]) - 1, len(op["ids"]) - 1
        elif op["op"] == "expand":
            yield from _level(walk, unread, op["children"])
        elif op["op"] == "score":
            new = unread.intersection(op["nodes"])
            unread -= new
            if new:
                yield len(new), sum(walk.size[node] for node in walk.ancestry(new))
        elif op["op"] == "reward":
            path = walk.ancestry(op["nodes"])
            yield sum(walk.size[node] for node in path - mirrored), sum(walk.size[node] for node in path)
            mirrored |= path


def _level(walk: Walk, unread: set[int], children: list[Any]) -> Iterator[tuple[int, int]]:
    new = unread.intersection(parent for parent, _ in children)
    unread -= new
    if new:
        yield len(new), sum(walk.size[node] for node in walk.ancestry(new))
    for step in range(1, max(len(ids) for _, ids in children)):
        parents = [parent for parent, ids in children if len(ids) > step]
        yield len(parents), step * len(parents) + sum(walk.size[node] for node in walk.ancestry(parents))
    unread.update(walk.add(parent, len(ids)) for parent, ids in children)


def floor_s(template: dict[str, Any], step_s: Callable[[int, int], float]) -> float:
    """Return the seconds of all steps, given the least seconds of one by its rows and its keys."""
    return sum(step_s(rows, keys) for rows, keys in steps(template) if rows)
