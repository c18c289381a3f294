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

_KEEPING = 1e-4  # the gain of a kept node where nothing is charged, in the authors' code

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LevelTree:
    """The leaves and their ancestors.

    Args:
        leaf_parents: The inner node above each leaf [N].
        node_parents: The inner node above each inner node [M]; -1 for the root.
        leaf_costs: The cost to keep each leaf [N], at least 0.
        node_costs: The cost to keep each inner node [M], at least 0.
    """

    leaf_parents: Indices
    node_parents: Indices
    leaf_costs: Numbers
    node_costs: Numbers


@dataclass(frozen=True, slots=True)
class KeptLeaves:
    """The optimum.

    Args:
        leaves: Whether each leaf is kept [N].
        nodes: Whether each inner node is kept [M].
    """

    leaves: NDArray[np.bool_]
    nodes: NDArray[np.bool_]


def gains(tree: LevelTree, rewards: Numbers, charge: float) -> tuple[Numbers, Numbers]:
    """Return the gain in the objective of keeping each leaf [N] and each inner node [M].

    The bonus of clusters is not part of these gains.

    Args:
        tree: The nodes of the level, with N leaves and M inner nodes.
        rewards: The reward of each leaf [N]; they sum to 1.
        charge: The charge of all costs together (lambda_b), at least 0.
    """
    if charge == 0:
        return rewards + _KEEPING, np.full(len(tree.node_costs), _KEEPING)
    all_costs = float(tree.leaf_costs.sum() + tree.node_costs.sum())
    unit_charge = charge / all_costs if all_costs > 0 else 0.0
    return rewards - unit_charge * tree.leaf_costs, -unit_charge * tree.node_costs


def best_leaves(
    tree: LevelTree, rewards: Numbers, charge: float, clusters: Indices | None, bonus: float, seconds: float
) -> KeptLeaves | str:
    """Return the leaves to keep, at least one, and their ancestors.

    If the solver found no optimum, its message is returned.

    Args:
        tree: The nodes of the level, with N leaves.
        rewards: As in `gains`.
        charge: As in `gains`.
        clusters: The number of each leaf's cluster, from 0 [N]; None: covering clusters earns nothing.
        bonus: The gain of keeping a leaf of every cluster (lambda_d).
        seconds: The longest that the solver may take.
    """
    num_leaves, num_nodes = len(tree.leaf_costs), len(tree.node_costs)
    num_clusters = 0 if clusters is None else int(clusters.max()) + 1
    leaf_gains, node_gains = gains(tree, rewards, charge)
    cluster_gains = np.full(num_clusters, bonus / num_clusters if num_clusters else 0.0)
    at_most_zero, one_leaf = _constraints(tree, clusters, num_leaves, num_nodes, num_clusters)
    solution = milp(  # the solver minimizes
        -np.concatenate([leaf_gains, node_gains, cluster_gains]),
        integrality=np.repeat([1, 0], [num_leaves, num_nodes + num_clusters]),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(at_most_zero, ub=0.0), LinearConstraint(one_leaf, lb=1.0)],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if solution.status != 0 or solution.x is None:
        return " ".join(str(solution.message).split())
    is_kept = np.asarray(solution.x) > 0.5
    leaves_kept, nodes_kept, _clusters_covered = np.split(is_kept, [num_leaves, num_leaves + num_nodes])
    return KeptLeaves(leaves_kept, nodes_kept)


def _constraints(
    tree: LevelTree, clusters: Indices | None, num_leaves: int, num_nodes: int, num_clusters: int
) -> tuple[coo_array, coo_array]:
    """Return the constraints that are at most 0, and the constraint that is at least 1: some leaf is kept.

    The variables, and so the columns of both matrices, are the leaves, the inner nodes and the clusters.
    """
    leaves, nodes = np.arange(num_leaves), np.arange(num_nodes)
    below_root = np.flatnonzero(tree.node_parents >= 0)
    children = np.concatenate([leaves, num_leaves + below_root])  # the columns of each edge's two ends
    parents = num_leaves + np.concatenate([tree.leaf_parents, tree.node_parents[below_root]])
    edges = np.arange(len(children))
    # of each entry of the matrix: its row, its column and its value. First rows: child - parent <= 0
    rows = [edges, edges]
    columns = [children, parents]
    values = [np.ones(len(edges)), -np.ones(len(edges))]
    # next rows: node - sum of its children <= 0
    first_row = len(edges)
    rows += [first_row + nodes, first_row + parents - num_leaves]
    columns += [num_leaves + nodes, children]
    values += [np.ones(num_nodes), -np.ones(len(children))]
    if clusters is not None:  # last rows: cluster - sum of its leaves <= 0
        first_row = len(edges) + num_nodes
        numbers = np.arange(num_clusters)
        rows += [first_row + numbers, first_row + clusters]
        columns += [num_leaves + num_nodes + numbers, leaves]
        values += [np.ones(num_clusters), -np.ones(num_leaves)]
    num_columns = num_leaves + num_nodes + num_clusters
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    at_most_zero = coo_array(entries, shape=(len(edges) + num_nodes + num_clusters, num_columns))
    one_row = np.zeros(num_leaves, dtype=np.int64)
    one_leaf = coo_array((np.ones(num_leaves), (one_row, leaves)), shape=(1, num_columns))
    return at_most_zero, one_leaf
