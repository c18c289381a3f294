"""The choice of the leaves of a tree to keep, by an integer program.

It weighs reward, the memory that kept paths share, and what they cover.

Source: algorithm A7, line 3 (Hooper et al., "ETS: Efficient Tree Search for Inference-Time Scaling", 2502.13575; the
authors' code, which solves it with PuLP and CBC). Solved here by HiGHS (`scipy.optimize.milp`), with no gap allowed.
Differs, with the same optimum:
- That a kept leaf's ancestors are kept is one constraint for each edge of the tree, not for each pair of ancestor and
  leaf.
- Only the leaves are integer variables, because the others then are 0 or 1 by themselves.

Shapes: N leaves, M inner nodes (ancestors of leaves, the root among them), K clusters of leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

_KEEPING = 1e-4  # what a kept node earns where nothing is charged, in the authors' code

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LevelTree:
    """The leaves and their ancestors.

    Args:
        leaf_parents: [N], the inner node above each leaf.
        node_parents: [M], the one above each inner node, -1 for the root's.
        leaf_costs: [N], node_costs: [M], each at least 0: what keeping them costs.
    """

    leaf_parents: Indices
    node_parents: Indices
    leaf_costs: Numbers
    node_costs: Numbers


@dataclass(frozen=True, slots=True)
class KeptLeaves:
    """The optimum. leaves: [N], nodes: [M]: whether each is kept."""

    leaves: NDArray[np.bool_]
    nodes: NDArray[np.bool_]


def gains(tree: LevelTree, rewards: Numbers, charge: float) -> tuple[Numbers, Numbers]:
    """Return what keeping each leaf [N] and each inner node [M] adds to the objective, coverage aside.

    Args:
        tree: The nodes of the level, with N leaves and M inner nodes.
        rewards: [N], sum to 1.
        charge: The charge of all costs together (lambda_b), at least 0.
    """
    if charge == 0:
        return rewards + _KEEPING, np.full(len(tree.node_costs), _KEEPING)
    everything = float(tree.leaf_costs.sum() + tree.node_costs.sum())
    each = charge / everything if everything > 0 else 0.0
    return rewards - each * tree.leaf_costs, -each * tree.node_costs


def best_leaves(
    tree: LevelTree, rewards: Numbers, charge: float, clusters: Indices | None, bonus: float, seconds: float
) -> KeptLeaves | str:
    """Return the leaves to keep, at least one, and their ancestors.

    If the solver found no optimum, its message is returned.

    Args:
        tree: The nodes of the level, with N leaves.
        rewards: As in `gains`.
        charge: As in `gains`.
        clusters: [N], the number of each leaf's cluster, from 0; None: covering clusters earns nothing.
        bonus: What keeping a leaf of every cluster earns (lambda_d).
        seconds: The longest that the solver may take.
    """
    num_leaves, num_nodes = len(tree.leaf_costs), len(tree.node_costs)
    num_clusters = 0 if clusters is None else int(clusters.max()) + 1
    leaf_gains, node_gains = gains(tree, rewards, charge)
    covering = np.full(num_clusters, bonus / num_clusters if num_clusters else 0.0)
    at_most_zero, one_leaf = _constraints(tree, clusters, num_leaves, num_nodes, num_clusters)
    found = milp(
        -np.concatenate([leaf_gains, node_gains, covering]),
        integrality=np.repeat([1, 0], [num_leaves, num_nodes + num_clusters]),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(at_most_zero, ub=0.0), LinearConstraint(one_leaf, lb=1.0)],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if found.status != 0 or found.x is None:
        return " ".join(str(found.message).split())
    kept = np.asarray(found.x) > 0.5
    return KeptLeaves(kept[:num_leaves], kept[num_leaves : num_leaves + num_nodes])


def _constraints(
    tree: LevelTree, clusters: Indices | None, num_leaves: int, num_nodes: int, num_clusters: int
) -> tuple[coo_array, coo_array]:
    """Return the rows that are at most 0, and the one that is at least 1; columns: leaves, inner nodes, clusters."""
    below_root = np.flatnonzero(tree.node_parents >= 0)
    children = np.concatenate([np.arange(num_leaves), num_leaves + below_root])
    parents = num_leaves + np.concatenate([tree.leaf_parents, tree.node_parents[below_root]])
    edges = np.arange(len(children))
    # child <= parent  # noqa: ERA001
    rows, columns, values = [edges, edges], [children, parents], [np.ones(len(edges)), -np.ones(len(edges))]
    nodes = np.arange(num_nodes)
    rows += [len(edges) + nodes, len(edges) + parents - num_leaves]  # node <= sum of its children
    columns += [num_leaves + nodes, children]
    values += [np.ones(num_nodes), -np.ones(len(children))]
    if clusters is not None:
        covered = np.arange(num_clusters)
        rows += [len(edges) + num_nodes + covered, len(edges) + num_nodes + clusters]  # cluster <= sum of its leaves
        columns += [num_leaves + num_nodes + covered, np.arange(num_leaves)]
        values += [np.ones(num_clusters), -np.ones(num_leaves)]
    width = num_leaves + num_nodes + num_clusters
    shape = (len(edges) + num_nodes + num_clusters, width)
    one = coo_array(
        (np.ones(num_leaves), (np.zeros(num_leaves, dtype=np.int64), np.arange(num_leaves))), shape=(1, width)
    )
    return coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape), one
