"""Tree templates W1-W6: what a search asked of its engine, as data, so that every system replays the same tokens in the same order.

A template's operations run in order, and each is a batch. Nodes are numbered as they are made:

    {"op": "open", "ids": [...]}                         a prompt: makes a node
    {"op": "expand", "children": [[parent, [...]], ...]} one step of all these children, decoded together: makes a node each
    {"op": "score", "nodes": [...], "ids": [yes, no]}    next-token probabilities of two ids after each node
    {"op": "reward", "nodes": [...], "ids": [good, bad]} the same of two ids alone, read by a process model with a cache of its own
    {"op": "release", "nodes": [...]}                    no more is asked of these nodes; their descendants live on

Lengths are ragged and token ids drawn at random, both from the seed alone: forced tokens cost what sampled ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.facts import ids_hash

FIRST_ID, LAST_ID = 1_000, 40_000  # plain text in the vocabularies of the models we measure: no control tokens
YES_NO = [FIRST_ID + 1, FIRST_ID + 2]

Op = dict[str, Any]


@dataclass
class Tree:
    """A template in the making."""

    seed: int
    parents: list[int] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)

    def length(self, most: int, least: int | None = None) -> int:
        return int(self.draw.integers(least or max(1, most * 3 // 4), most + 1))

    def _tokens(self, length: int) -> list[int]:
        return self.draw.integers(FIRST_ID, LAST_ID, length).tolist()

    def _node(self, parent: int, ids: list[int]) -> int:
        self.parents.append(parent)
        self.ids.append(ids)
        return len(self.ids) - 1

    def open(self, length: int) -> int:
        ids = self._tokens(length)
        self.ops.append({"op": "open", "ids": ids})
        return self._node(-1, ids)

    def expand(self, parents: Sequence[int], lengths: Sequence[int]) -> list[int]:
        """Add one child of each entry of `parents`; a parent may occur often."""
        children = [[parent, self._tokens(length)] for parent, length in zip(parents, lengths, strict=True)]
        self.ops.append({"op": "expand", "children": children})
        return [self._node(parent, ids) for parent, ids in children]

    def read(self, op: str, nodes: Iterable[int]) -> None:
        self.ops.append({"op": op, "nodes": list(nodes), "ids": YES_NO})

    def release(self, nodes: Iterable[int]) -> None:
        if nodes := list(nodes):
            self.ops.append({"op": "release", "nodes": nodes})

    def pick(self, nodes: Sequence[int], count: int) -> list[int]:
        return sorted(self.draw.choice(nodes, count, replace=False).tolist())


def best_of_n(tree: Tree, *, prompt: int, samples: int, tokens: int) -> None:
    """W1: one trunk, long tails."""
    root = tree.open(prompt)
    tree.expand([root] * samples, [tree.length(tokens) for _ in range(samples)])


def beam(tree: Tree, *, prompt: int, beams: int, width: int, levels: int, tokens: int, scored: bool = False, problems: int = 1) -> None:
    """W2: forks and prunes. W5: with a reading of each node. W6: several problems, each starting one level after the one before."""
    live: list[list[int]] = [[] for _ in range(problems)]
    for level in range(levels + problems - 1):
        parents: list[int] = []
        running = [p for p in range(problems) if p <= level < p + levels]
        for p in running:
            first = level == p
            live[p] = [tree.open(prompt)] if first else live[p]
            parents += [node for node in live[p] for _ in range(beams * width if first else width)]
        children = tree.expand(parents, [tree.length(tokens) for _ in parents])
        if scored:
            tree.read("score", children)
        tree.release(dict.fromkeys(parents))
        losers: list[int] = []
        for i, p in enumerate(running):
            mine = children[i * beams * width : (i + 1) * beams * width]
            live[p] = tree.pick(mine, beams)
            losers += [node for node in mine if node not in live[p]]
        tree.release(losers)


def weighted_width(tree: Tree, *, prompt: int, width: int, levels: int, least: int, most: int) -> None:
    """W3: parents get children by reward, steps are ragged, and a process model reads each new step."""
    parents = [tree.open(prompt)] * width
    for level in range(levels):
        children = tree.expand(parents, [tree.length(most, least) for _ in parents])
        tree.read("reward", children)
        tree.release(dict.fromkeys(parents))
        weights = np.exp(2.0 * tree.draw.standard_normal(width))
        parents = np.sort(tree.draw.choice(children, width, p=weights / weights.sum())).tolist()
        if level < levels - 1:
            tree.release(node for node in children if node not in parents)


def monte_carlo(tree: Tree, *, prompt: int, expansions: int, tokens: int) -> None:
    """W4: one child at a time, of any node seen before: late ones likelier, old ones again and again."""
    nodes = [tree.open(prompt)]
    for _ in range(expansions):
        back = int(tree.draw.exponential(len(nodes) / 4))
        nodes += tree.expand([nodes[-1 - min(back, len(nodes) - 1)]], [tree.length(tokens)])


@dataclass(frozen=True)
class Workload:
    make: Callable[..., None]
    full: dict[str, int]
    quick: dict[str, int]
    says: str


_BEAM = {"prompt": 400, "beams": 4, "width": 4, "levels": 8, "tokens": 48}
_QUICK_BEAM = {"prompt": 32, "beams": 4, "width": 4, "levels": 3, "tokens": 6}

WORKLOADS = {
    "W0": Workload(beam, *[{"prompt": 37, "beams": 2, "width": 2, "levels": 2, "tokens": 5, "scored": True}] * 2, "the check of numbers"),
    "W1": Workload(
        best_of_n,
        {"prompt": 300, "samples": 64, "tokens": 256},
        {"prompt": 32, "samples": 16, "tokens": 14},
        "best of n: one trunk, long tails",
    ),
    "W2": Workload(beam, _BEAM, _QUICK_BEAM, "beam search: forks and prunes"),
    "W3": Workload(
        weighted_width,
        {"prompt": 400, "width": 64, "levels": 10, "least": 20, "most": 80},
        {"prompt": 32, "width": 16, "levels": 3, "least": 2, "most": 8},
        "weighted width with a process model: ragged steps",
    ),
    "W4": Workload(
        monte_carlo,
        {"prompt": 800, "expansions": 200, "tokens": 36},
        {"prompt": 128, "expansions": 6, "tokens": 6},
        "tree walk: single expansions",
    ),
    "W5": Workload(beam, _BEAM | {"scored": True}, _QUICK_BEAM | {"scored": True}, "W2 with a yes/no reading of each node"),
    "W6": Workload(beam, _BEAM | {"problems": 8}, _QUICK_BEAM | {"problems": 3, "levels": 2}, "several W2, overlapping"),
}


def template(name: str, *, quick: bool = False, seed: int = 0, **sizes: int) -> dict[str, Any]:
    """Return a template: `name`, `ops`, and `hash` of all ids in the order of the nodes. `sizes` replace the workload's own."""
    workload = WORKLOADS[name]
    tree = Tree(seed)
    workload.make(tree, **(workload.quick if quick else workload.full) | sizes)
    return {"name": name, "ops": tree.ops, "hash": ids_hash(tree.ids)}
