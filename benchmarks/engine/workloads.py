"""Tree templates W1-W6: the operations of a search on its engine, as data.

So every system replays the same tokens in the same order. A template's operations run in order, and each is a batch.
Nodes are numbered as they are made:

    {"op": "open", "ids": [...]}                         a prompt: makes a node
    {"op": "expand", "children": [[parent, [...]], ...]} one step of all these children, decoded together: makes a node
                                                         each
    {"op": "score", "nodes": [...], "ids": [yes, no]}    next-token probabilities of two ids after each node
    {"op": "reward", "nodes": [...], "ids": [good, bad]} the same of two ids alone, read by a process model with a cache
                                                         of its own
    {"op": "release", "nodes": [...]}                    no more is asked of these nodes; their descendants live on

Lengths are ragged. Lengths and token ids are drawn from the seed alone. Forced tokens cost what sampled ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.engine.facts import ids_hash

PLAIN = 1_000, 40_000  # ids of plain text in the vocabularies of the models that are measured: no control tokens

Op = dict[str, Any]


@dataclass
class Tree:
    """A template in the making.

    Args:
        seed: The seed of lengths and ids.
        ids_from: The least token id.
        ids_to: The end of the range of token ids.
        parents: The parent of each node.
        ids: The tokens of each node.
        ops: The operations.
    """

    seed: int
    ids_from: int = PLAIN[0]
    ids_to: int = PLAIN[1]
    parents: list[int] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)

    def length(self, most: int, least: int | None = None) -> int:
        return int(self.draw.integers(least or max(1, most * 3 // 4), most + 1))

    def _tokens(self, length: int) -> list[int]:
        return self.draw.integers(self.ids_from, self.ids_to, length).tolist()

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
        self.ops.append({"op": op, "nodes": list(nodes), "ids": [self.ids_from + 1, self.ids_from + 2]})

    def release(self, nodes: Iterable[int]) -> None:
        if nodes := list(nodes):
            self.ops.append({"op": "release", "nodes": nodes})

    def pick(self, nodes: Sequence[int], count: int) -> list[int]:
        return sorted(self.draw.choice(nodes, count, replace=False).tolist())


def best_of_n(tree: Tree, *, prompt: int, samples: int, tokens: int) -> None:
    """W1: one trunk, long tails."""
    root = tree.open(prompt)
    tree.expand([root] * samples, [tree.length(tokens) for _ in range(samples)])


def beam(
    tree: Tree,
    *,
    prompt: int,
    beams: int,
    width: int,
    levels: int,
    tokens: int,
    scored: bool = False,
    problems: int = 1,
) -> None:
    """Make W2, W5 or W6.

    W2 forks and prunes. W5 also has a reading of each node. W6 has several problems, each starting one level after the
    one before.
    """
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
    """A kind of tree.

    Args:
        make: The function that makes a tree.
        full: The full sizes.
        quick: The sizes of a quick comparison.
        smoke: The smallest sizes.
        says: The name of the kind for people.
    """

    make: Callable[..., None]
    full: dict[str, int]
    quick: dict[str, int]
    smoke: dict[str, int]
    says: str


_BEAM = {"prompt": 400, "beams": 4, "width": 4, "levels": 8, "tokens": 48}
_QUICK_BEAM = {"prompt": 32, "beams": 4, "width": 4, "levels": 3, "tokens": 6}
_SMOKE_BEAM = {"prompt": 12, "beams": 2, "width": 2, "levels": 3, "tokens": 4}
_BEAMS = (_BEAM, _QUICK_BEAM, _SMOKE_BEAM)

WORKLOADS = {
    "W0": Workload(
        beam,
        *[{"prompt": 37, "beams": 2, "width": 2, "levels": 2, "tokens": 5, "scored": True}] * 3,
        "the check of numbers",
    ),
    "W1": Workload(
        best_of_n,
        {"prompt": 300, "samples": 64, "tokens": 256},
        {"prompt": 32, "samples": 16, "tokens": 14},
        {"prompt": 12, "samples": 4, "tokens": 8},
        "best of n: one trunk, long tails",
    ),
    "W2": Workload(beam, _BEAM, _QUICK_BEAM, _SMOKE_BEAM, "beam search: forks and prunes"),
    "W3": Workload(
        weighted_width,
        {"prompt": 400, "width": 64, "levels": 10, "least": 20, "most": 80},
        {"prompt": 32, "width": 16, "levels": 3, "least": 2, "most": 8},
        {"prompt": 12, "width": 4, "levels": 2, "least": 2, "most": 6},
        "weighted width with a process model: ragged steps",
    ),
    "W4": Workload(
        monte_carlo,
        {"prompt": 800, "expansions": 200, "tokens": 36},
        {"prompt": 128, "expansions": 6, "tokens": 6},
        {"prompt": 12, "expansions": 4, "tokens": 4},
        "tree walk: single expansions",
    ),
    "W5": Workload(beam, *({**sizes, "scored": True} for sizes in _BEAMS), "W2 with a yes/no reading of each node"),
    "W6": Workload(
        beam,
        _BEAM | {"problems": 8},
        _QUICK_BEAM | {"problems": 3, "levels": 2},
        _SMOKE_BEAM | {"problems": 2, "levels": 2},
        "several W2, overlapping",
    ),
}


def template(
    name: str, *, size: str = "full", seed: int = 0, vocabulary: int | None = None, **sizes: int
) -> dict[str, Any]:
    """Return a template: `name`, `ops`, and `hash` of all ids in the order of the nodes.

    Args:
        name: The name of the workload.
        size: "full", "quick" or "smoke".
        seed: The seed of lengths and ids.
        vocabulary: The size of the model's vocabulary; a small one gives its upper three quarters, free of control
            tokens.
        sizes: Sizes that replace the workload's own.
    """
    workload = WORKLOADS[name]
    tree = Tree(seed) if vocabulary is None or vocabulary >= PLAIN[1] else Tree(seed, vocabulary // 4, vocabulary)
    workload.make(tree, **getattr(workload, size) | sizes)
    return {"name": name, "ops": tree.ops, "hash": ids_hash(tree.ids)}
