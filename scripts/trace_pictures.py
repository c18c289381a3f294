"""Pictures of a trace, in SVG.

The pictures show the tree as it grew, the tokens that its paths share, and its spend call by call.

Pictures are made from the trace alone, so the same trace gives the same bytes. A trace does not record when a path was
pruned: the tree fades it after the wave of calls that made its last node.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import svg  # noqa: E402 - it lies beside this file

from tts.trace.trace import Trace, winning_node  # noqa: E402 - the package lies above this folder

MOST_NODES = 600  # in a picture; more could not be distinguished
_LEFT, _TREE, _STEPS = 24, 340, 372  # the tree's left and right end; where the steps of the answer begin
_LEVEL = 62  # between levels
_SECONDS = 4.0  # until the last wave
_GROWTH_COLOURS = """\
.edge{stroke:var(--line);stroke-width:1.5;fill:none}.node{fill:var(--accent);stroke:var(--accent);stroke-width:1.5}
.path{stroke:var(--win);stroke-width:4;fill:none}
.way{stroke:var(--win);stroke-width:3}
"""
_STILL = ".out{opacity:.3}\n"
_GROWTH = (
    _GROWTH_COLOURS
    + """\
g{animation:come .4s var(--t) both}
.out{opacity:.3;animation:come .4s var(--t) both,go .4s var(--p) forwards}
@keyframes come{from{opacity:0}to{opacity:1}}@keyframes go{from{opacity:1}to{opacity:.3}}
@media(prefers-reduced-motion:reduce){g,.out{animation:none}}
"""
)
_BLOCKS = ".block{fill:var(--wash);stroke:var(--accent);stroke-width:1.5}\n"
_AREAS = """\
.made{fill:var(--accent);fill-opacity:.75}.read{fill:var(--other);fill-opacity:.75}
.limit{stroke:var(--ink);stroke-width:2;stroke-dasharray:7 5}
"""


class _Tree(NamedTuple):
    """The shown nodes, by number, with their children and waves.

    `born` and `died` have the wave in which a node came, and the wave in which its path went.
    """

    nodes: Mapping[int, Mapping[str, Any]]
    children: Mapping[int, Sequence[int]]
    roots: Sequence[int]
    born: Mapping[int, int]
    died: Mapping[int, int]
    waves: int


def draw(trace: Trace, picture: Literal["tree", "still", "kv", "budget"] = "tree") -> str:
    """Return a picture in SVG, for light and dark pages, of 640 units across.

    Args:
        trace: The record of the search.
        picture: "tree": the tree as it grew, animated once for at most five seconds. "still": the same tree without
            movement. "kv": tokens of keys and values that live paths share, at the moment with the most tokens.
            "budget": tokens spent after each call.
    """
    record = trace.to_dict()
    if picture == "kv":
        return sharing(record)
    if picture == "budget":
        return spending(record)
    return growth(record, winning_node(trace), animated=picture == "tree")


def growth(record: Mapping[str, Any], winner: int | None, *, animated: bool = True) -> str:
    """Return a picture of the tree as it grew, animated once, for at most five seconds.

    A node's fill is its last score, and pruned nodes fade.

    Args:
        record: `Trace.to_dict`.
        winner: The node that the answer was taken from. Of more than `MOST_NODES` nodes the first are shown.
        animated: Whether the picture grows; if not, the whole tree is shown at once.
    """
    tree = _read(record["nodes"])
    answer_path = _way(tree, winner)
    x, depth = _place_nodes(tree)
    top = 3.2 * svg.LETTER
    deepest = max(depth.values(), default=0)
    num_leaves = sum(not tree.children[node] for node in tree.nodes)
    radius = max(2.5, min(9, 0.42 * (_TREE - _LEFT) / max(1, num_leaves)))
    seconds_per_wave = min(0.8, _SECONDS / max(1, tree.waves))

    def position(node: int) -> tuple[str, str]:
        return svg.number(x[node]), svg.number(top + depth[node] * _LEVEL)

    body = [svg.words(_LEFT, 1.6 * svg.LETTER, svg.cut(record["problem"], 52), "bold")]
    for number, node in tree.nodes.items():
        style, class_attribute = f"--t:{svg.number(tree.born[number] * seconds_per_wave)}s", ""
        if node["pruned"]:
            end_of_path = svg.number(tree.died[number] * seconds_per_wave + 0.5)
            style, class_attribute = f"{style};--p:{end_of_path}s", ' class="out"'
        x_text, y_text = position(number)
        edge = ""
        if node["parent"] is not None:
            parent_point = " ".join(position(node["parent"]))
            edge = f'<path class="edge" d="M{parent_point}L{x_text} {y_text}"/>'
        kind = "node way" if number in answer_path else "node"
        dot = (
            f'<circle class="{kind}" cx="{x_text}" cy="{y_text}" r="{svg.number(radius)}" '
            f'fill-opacity="{_fill(node)}"/>'
        )
        body.append(f'<g{class_attribute} style="{style}">{edge}{dot}</g>')
    if answer_path:
        line = "L".join(" ".join(position(number)) for number in answer_path)
        steps = [number for number in answer_path if tree.nodes[number]["parent"] is not None]
        step_texts = [
            svg.words(_STEPS, float(position(step)[1]) + 6, svg.cut(tree.nodes[step]["text"], 23), "mono")
            for step in steps
        ]
        path_starts_at = svg.number(tree.waves * seconds_per_wave + 0.5)
        body.append(f'<g style="--t:{path_starts_at}s"><path class="path" d="M{line}"/>{"".join(step_texts)}</g>')
    bottom = top + deepest * _LEVEL + 2.6 * svg.LETTER
    answer = "no answer" if record["answer"] is None else f"answer: {svg.cut(record['answer'], 44)}"
    node_count = f"{len(tree.nodes):,} nodes"
    if len(tree.nodes) < len(record["nodes"]):
        node_count = f"the first {MOST_NODES} of {len(record['nodes']):,} nodes"
    num_pruned = sum(node["pruned"] for node in tree.nodes.values())
    body += [
        svg.words(_LEFT, bottom, answer, "win bold"),
        svg.words(_LEFT, bottom + 1.5 * svg.LETTER, svg.cut(record["strategy"], 56), "soft"),
        svg.words(_LEFT, bottom + 3 * svg.LETTER, f"{node_count}, {num_pruned:,} pruned; fill: the last score", "soft"),
    ]
    description = f"{node_count}, {num_pruned} of them pruned, by {record['strategy']}; {answer}."
    return svg.document(
        bottom + 4 * svg.LETTER,
        f"The tree of a search: {record['problem']}",
        description,
        body,
        _GROWTH if animated else _STILL + _GROWTH_COLOURS,
    )


def sharing(record: Mapping[str, Any]) -> str:
    """Return a picture of the live paths at the moment with the most tokens.

    Each block is a node: as wide as its tokens, as high as its paths. A store of keys and values that shares holds a
    block once; a store without sharing holds a block once for each path.
    """
    tree = _read(record["nodes"])
    live_by_wave = [_live(tree, wave) for wave in range(tree.waves + 1)]
    live = max(live_by_wave, key=lambda nodes: _tokens(tree, nodes))
    rows: dict[int, tuple[int, int]] = {}  # node -> its first path, and the place after its last path
    tokens_above: dict[int, int] = {}  # node -> the tokens above the node
    paths, unshared_tokens = 0, 0
    stack = [(root, 0) for root in reversed(tree.roots) if root in live]
    visited: list[int] = []
    while stack:
        number, tokens_before = stack.pop()
        tokens_above[number] = tokens_before
        visited.append(number)
        tokens_after = tokens_before + tree.nodes[number]["tokens"]
        live_children = [child for child in tree.children[number] if child in live]
        if not live_children:
            rows[number] = (paths, paths + 1)
            paths += 1
            unshared_tokens += tokens_after
        stack += [(child, tokens_after) for child in reversed(live_children)]
    for number in reversed(visited):
        if number not in rows:
            live_children = [child for child in tree.children[number] if child in live]
            first_path, _ = rows[live_children[0]]
            _, end_of_paths = rows[live_children[-1]]
            rows[number] = (first_path, end_of_paths)
    most_tokens = max((tokens_above[number] + tree.nodes[number]["tokens"] for number in visited), default=1)
    width_per_token = (svg.WIDTH - 2 * _LEFT) / max(1, most_tokens)
    row_height = max(4.0, min(30.0, 420 / max(1, paths)))
    tokens_held = _tokens(tree, live)
    headline = f"{tokens_held:,} tokens held, {unshared_tokens:,} without sharing"
    body = [svg.words(_LEFT, 1.6 * svg.LETTER, headline, "bold")]
    top = 2.5 * svg.LETTER
    for number in visited:
        first_path, end_of_paths = rows[number]
        left = _LEFT + tokens_above[number] * width_per_token
        width = tree.nodes[number]["tokens"] * width_per_token
        height = (end_of_paths - first_path) * row_height
        place = f'x="{svg.number(left)}" y="{svg.number(top + first_path * row_height)}"'
        size = f'width="{svg.number(width)}" height="{svg.number(height)}"'
        body.append(f'<rect class="block" {place} {size}/>')
        num_letters = int((width - 8) / 10.3)
        if height >= 26 and num_letters >= 5:
            baseline = top + (first_path + end_of_paths) / 2 * row_height + 6
            body.append(svg.words(left + 5, baseline, svg.cut(tree.nodes[number]["text"], num_letters), "mono"))
    bottom = top + paths * row_height + 1.6 * svg.LETTER
    body.append(svg.words(_LEFT, bottom, f"{paths:,} live paths; width: tokens; height: paths that share them", "soft"))
    description = (
        f"Where most tokens were live: {paths} paths hold {tokens_held} tokens, and would hold {unshared_tokens} "
        "without sharing."
    )
    return svg.document(
        bottom + svg.LETTER, f"Keys and values that paths share: {record['problem']}", description, body, _BLOCKS
    )


def spending(record: Mapping[str, Any]) -> str:
    """Return a picture of the tokens spent after each call.

    Generated tokens stand below the tokens of verifiers. A limit on tokens is drawn if the budget has one.
    """
    generated, verified = [0], [0]
    for call in record["calls"]:
        usage = call["usage"]
        generated.append(generated[-1] + usage["generated_tokens"] + usage["cancelled_tokens"])
        verified.append(verified[-1] + usage["verifier_tokens"])
    limit_match = re.search(r"\btokens=(\d+)", record["budget"])
    limit_tokens = int(limit_match[1]) if limit_match else None
    left, right, top, bottom = 84.0, 440.0, 70.0, 330.0
    highest = max(generated[-1] + verified[-1], limit_tokens or 0, 1)

    def x_of(call: int) -> float:
        return left + (right - left) * call / max(1, len(generated) - 1)

    def y_of(tokens: int) -> float:
        return bottom - (bottom - top) * tokens / highest

    def stairs(tokens: Sequence[int]) -> list[tuple[float, float]]:
        points: list[tuple[float, float]] = []
        for call in range(1, len(tokens)):
            y = y_of(tokens[call])
            points += [(x_of(call - 1), y), (x_of(call), y)]
        return points

    def area(kind: str, low: Sequence[int], high: Sequence[int]) -> str:
        path = "L".join(f"{svg.number(x)} {svg.number(y)}" for x, y in [*stairs(high), *reversed(stairs(low))])
        return f'<path class="{kind}" d="M{path}Z"/>'

    all_tokens = [sum(both_kinds) for both_kinds in zip(generated, verified, strict=True)]
    of_limit = f" of {limit_tokens:,}" if limit_tokens else ""
    total = f"{all_tokens[-1]:,}{of_limit} tokens spent"
    body = [svg.words(_LEFT, 1.6 * svg.LETTER, f"{total} in {len(generated) - 1:,} calls", "bold")]
    if len(generated) > 1:
        body += [area("made", [0] * len(generated), generated), area("read", generated, all_tokens)]
    body.append(
        f'<path class="axis" d="M{svg.number(left)} {svg.number(top)}V{svg.number(bottom)}H{svg.number(right)}"/>'
    )
    labels = [(y_of(generated[-1] // 2) + 7, f"generated {generated[-1]:,}", "accent")]
    if verified[-1]:
        labels.append((y_of(generated[-1] + verified[-1] // 2) + 7, f"verifier {verified[-1]:,}", "other"))
    body += [svg.words(right + 10, y, text, f"{kind} bold") for y, text, kind in labels]
    if limit_tokens:
        body.append(
            f'<path class="limit" d="M{svg.number(left)} {svg.number(y_of(limit_tokens))}H{svg.number(right)}"/>'
        )
        body.append(svg.words(right + 10, y_of(limit_tokens) + 7, "limit"))
    ticks = sorted({0, highest // 2, highest})
    body += [svg.words(left - 8, y_of(tick) + 7, f"{tick:,}", "soft", anchor="end") for tick in ticks]
    body.append(svg.words((left + right) / 2, bottom + 1.5 * svg.LETTER, "calls, in order", "soft", anchor="middle"))
    description = f"{total}: {generated[-1]} generated, {verified[-1]} by verifiers."
    return svg.document(
        bottom + 2.4 * svg.LETTER, f"The budget of a search: {record['problem']}", description, body, _AREAS
    )


def _read(record: Sequence[Mapping[str, Any]]) -> _Tree:
    """Return the tree of the first `MOST_NODES` nodes.

    A new wave begins at a node whose parent came in the present wave.
    """
    children: dict[int, list[int]] = {}
    born: dict[int, int] = {}
    wave = 0
    nodes = _parents_first(record)[:MOST_NODES]
    for node in nodes:
        number, parent = node["node"], node["parent"]
        children[number] = []
        if parent is not None:
            children[parent].append(number)
            if born[parent] == wave:
                wave += 1
        born[number] = wave
    died = dict(born)
    for node in reversed(nodes):
        parent = node["parent"]
        if parent is not None:
            died[parent] = max(died[parent], died[node["node"]])
    roots = [node["node"] for node in nodes if node["parent"] is None]
    return _Tree({node["node"]: node for node in nodes}, children, roots, born, died, wave)


def _parents_first(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return nodes in their order, but each after its parent.

    A parent may come later: if a piece of text was cut in two, the upper part has the higher number.
    """
    by_number = {node["node"]: node for node in nodes}
    ordered: dict[int, Mapping[str, Any]] = {}
    for node in nodes:
        ancestor: Mapping[str, Any] | None = node
        chain: list[Mapping[str, Any]] = []
        while ancestor is not None and ancestor["node"] not in ordered:
            chain.append(ancestor)
            ancestor = None if ancestor["parent"] is None else by_number[ancestor["parent"]]
        for new_node in reversed(chain):
            ordered[new_node["node"]] = new_node
    return list(ordered.values())


def _way(tree: _Tree, winner: int | None) -> list[int]:
    """Return the path to a node, from its root on; empty if the node is not shown."""
    path: list[int] = []
    while winner is not None and winner in tree.nodes:
        path.append(winner)
        winner = tree.nodes[winner]["parent"]
    return path[::-1]


def _place_nodes(tree: _Tree) -> tuple[dict[int, float], dict[int, int]]:
    """Return the x coordinates and the depths of all nodes, by number.

    Leaves stand side by side, and every other node midway between its first and its last child.
    """
    depth: dict[int, int] = {}
    for number, node in tree.nodes.items():
        depth[number] = 0 if node["parent"] is None else depth[node["parent"]] + 1
    leaves: list[int] = []
    stack = list(reversed(tree.roots))
    while stack:
        number = stack.pop()
        if not tree.children[number]:
            leaves.append(number)
        stack += reversed(tree.children[number])
    x = {leaf: _LEFT + (_TREE - _LEFT) * (i + 0.5) / len(leaves) for i, leaf in enumerate(leaves)}
    for number in reversed(list(tree.nodes)):
        children = tree.children[number]
        if children:
            x[number] = (x[children[0]] + x[children[-1]]) / 2
    return x, depth


def _live(tree: _Tree, wave: int) -> set[int]:
    """Return the nodes that a wave held before it pruned."""
    return {
        number
        for number, node in tree.nodes.items()
        if tree.born[number] <= wave and (not node["pruned"] or tree.died[number] >= wave)
    }


def _tokens(tree: _Tree, nodes: set[int]) -> int:
    return sum(tree.nodes[number]["tokens"] for number in nodes)


def _fill(node: Mapping[str, Any]) -> str:
    """Return the opacity of a node's fill: its last score, clipped to [0, 1]; a root has 1."""
    if node["parent"] is None:
        return "1"
    scores = [steps[-1] for steps in node["scores"].values() if steps]
    score = scores[0] if scores else None
    return "0" if score is None or not math.isfinite(score) else svg.number(min(1.0, max(0.0, score)))
