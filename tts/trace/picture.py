"""Pictures of a trace, in SVG.

The pictures show the tree as it grew, the tokens that its paths share, and its spend call by call.

Pictures are made from the trace alone, so the same trace gives the same bytes. A trace does not record when a path was
pruned: the tree fades it after the wave of calls that made its last node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tts.trace import svg

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


def growth(record: Mapping[str, Any], winner: int | None, *, animated: bool = True) -> str:
    """Return a picture of the tree as it grew, within five seconds, once.

    A node's fill is its last score, and pruned nodes fade.

    Args:
        record: `Trace.to_dict`.
        winner: The node that the answer was taken from. Of more than `MOST_NODES` nodes the first are shown.
        animated: Whether the picture grows; if not, it shows the whole tree at once.
    """
    tree = _read(record["nodes"])
    answer_path = _way(tree, winner)
    x, depth = _place_nodes(tree)
    top = 3.2 * svg.LETTER
    deepest = max(depth.values(), default=0)
    radius = max(2.5, min(9, 0.42 * (_TREE - _LEFT) / max(1, sum(not tree.children[node] for node in tree.nodes))))
    turn = min(0.8, _SECONDS / max(1, tree.waves))

    def position(node: int) -> tuple[str, str]:
        return svg.number(x[node]), svg.number(top + depth[node] * _LEVEL)

    body = [svg.words(_LEFT, 1.6 * svg.LETTER, svg.cut(record["problem"], 52), "bold")]
    for number, node in tree.nodes.items():
        times, fades = f"--t:{svg.number(tree.born[number] * turn)}s", ""
        if node["pruned"]:
            times, fades = f"{times};--p:{svg.number(tree.died[number] * turn + 0.5)}s", ' class="out"'
        point, parent_point = position(number), None if node["parent"] is None else position(node["parent"])
        edge = "" if parent_point is None else f'<path class="edge" d="M{" ".join(parent_point)}L{" ".join(point)}"/>'
        kind = "node way" if number in answer_path else "node"
        dot = (
            f'<circle class="{kind}" cx="{point[0]}" cy="{point[1]}" r="{svg.number(radius)}" '
            f'fill-opacity="{_fill(node)}"/>'
        )
        body.append(f'<g{fades} style="{times}">{edge}{dot}</g>')
    if answer_path:
        line = "L".join(" ".join(position(number)) for number in answer_path)
        steps = [number for number in answer_path if tree.nodes[number]["parent"] is not None]
        step_texts = [
            svg.words(_STEPS, float(position(step)[1]) + 6, svg.cut(tree.nodes[step]["text"], 23), "mono")
            for step in steps
        ]
        end_s = svg.number(tree.waves * turn + 0.5)
        body.append(f'<g style="--t:{end_s}s"><path class="path" d="M{line}"/>{"".join(step_texts)}</g>')
    bottom = top + deepest * _LEVEL + 2.6 * svg.LETTER
    answer = "no answer" if record["answer"] is None else f"answer: {svg.cut(record['answer'], 44)}"
    node_count = (
        f"{len(tree.nodes):,} nodes"
        if len(tree.nodes) == len(record["nodes"])
        else f"the first {MOST_NODES} of {len(record['nodes']):,} nodes"
    )
    pruned = sum(node["pruned"] for node in tree.nodes.values())
    body += [
        svg.words(_LEFT, bottom, answer, "win bold"),
        svg.words(_LEFT, bottom + 1.5 * svg.LETTER, svg.cut(record["strategy"], 56), "soft"),
        svg.words(_LEFT, bottom + 3 * svg.LETTER, f"{node_count}, {pruned:,} pruned; fill: the last score", "soft"),
    ]
    description = f"{node_count}, {pruned} of them pruned, by {record['strategy']}; {answer}."
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
    block once; one without sharing holds it once a path.
    """
    tree = _read(record["nodes"])
    live = max(
        (_live(tree, wave) for wave in range(tree.waves + 1)),
        key=lambda found: _tokens(tree, found),
        default=set[int](),
    )
    rows: dict[int, tuple[int, int]] = {}  # the first path of each node, and the place after its last path
    tokens_above: dict[int, int] = {}  # the tokens above each node
    paths, alone = 0, 0
    stack = [(root, 0) for root in reversed(tree.roots) if root in live]
    order: list[int] = []
    while stack:
        number, tokens_before = stack.pop()
        tokens_above[number] = tokens_before
        order.append(number)
        tokens_after = tokens_before + tree.nodes[number]["tokens"]
        below = [child for child in tree.children[number] if child in live]
        if not below:
            rows[number] = (paths, paths + 1)
            paths, alone = paths + 1, alone + tokens_after
        stack += [(child, tokens_after) for child in reversed(below)]
    for number in reversed(order):
        if number not in rows:
            inside = [rows[child] for child in tree.children[number] if child in live]
            rows[number] = (inside[0][0], inside[-1][1])
    longest = max((tokens_above[number] + tree.nodes[number]["tokens"] for number in order), default=1)
    scale, high = (svg.WIDTH - 2 * _LEFT) / max(1, longest), max(4.0, min(30.0, 420 / max(1, paths)))
    num_held = _tokens(tree, live)
    body = [svg.words(_LEFT, 1.6 * svg.LETTER, f"{num_held:,} tokens held, {alone:,} without sharing", "bold")]
    top = 2.5 * svg.LETTER
    for number in order:
        first, end = rows[number]
        left, wide = _LEFT + tokens_above[number] * scale, tree.nodes[number]["tokens"] * scale
        place = f'x="{svg.number(left)}" y="{svg.number(top + first * high)}"'
        size = f'width="{svg.number(wide)}" height="{svg.number((end - first) * high)}"'
        body.append(f'<rect class="block" {place} {size}/>')
        if (end - first) * high >= 26 and (room := int((wide - 8) / 10.3)) >= 5:
            body.append(
                svg.words(
                    left + 5, top + (first + end) / 2 * high + 6, svg.cut(tree.nodes[number]["text"], room), "mono"
                )
            )
    bottom = top + paths * high + 1.6 * svg.LETTER
    body.append(svg.words(_LEFT, bottom, f"{paths:,} live paths; width: tokens; height: paths that share them", "soft"))
    description = (
        f"Where most tokens were live: {paths} paths hold {num_held} tokens, and would hold {alone} without sharing."
    )
    return svg.document(
        bottom + svg.LETTER, f"Keys and values that paths share: {record['problem']}", description, body, _BLOCKS
    )


def spending(record: Mapping[str, Any]) -> str:
    """Return a picture of the tokens spent after each call.

    Generated tokens stand below those of verifiers. The limit on tokens is drawn where there is one.
    """
    generated, verified = [0], [0]
    for call in record["calls"]:
        usage = call["usage"]
        generated.append(generated[-1] + usage["generated_tokens"] + usage["cancelled_tokens"])
        verified.append(verified[-1] + usage["verifier_tokens"])
    limit = re.search(r"\btokens=(\d+)", record["budget"])
    limit_tokens = int(limit[1]) if limit else None
    left, right, top, bottom = 84.0, 440.0, 70.0, 330.0
    highest = max(generated[-1] + verified[-1], limit_tokens or 0, 1)

    def across(call: int) -> float:
        return left + (right - left) * call / max(1, len(generated) - 1)

    def y_of(tokens: int) -> float:
        return bottom - (bottom - top) * tokens / highest

    def stairs(tokens: Sequence[int]) -> list[tuple[float, float]]:
        return [(across(x), y_of(tokens[call])) for call in range(1, len(tokens)) for x in (call - 1, call)]

    def area(kind: str, low: Sequence[int], high: Sequence[int]) -> str:
        path = "L".join(f"{svg.number(x)} {svg.number(y)}" for x, y in [*stairs(high), *reversed(stairs(low))])
        return f'<path class="{kind}" d="M{path}Z"/>'

    both = [one + other for one, other in zip(generated, verified, strict=True)]
    total = f"{both[-1]:,} of {limit_tokens:,} tokens spent" if limit_tokens else f"{both[-1]:,} tokens spent"
    body = [svg.words(_LEFT, 1.6 * svg.LETTER, f"{total} in {len(generated) - 1:,} calls", "bold")]
    if len(generated) > 1:
        body += [area("made", [0] * len(generated), generated), area("read", generated, both)]
    body.append(
        f'<path class="axis" d="M{svg.number(left)} {svg.number(top)}V{svg.number(bottom)}H{svg.number(right)}"/>'
    )
    places = [(y_of(generated[-1] // 2) + 7, f"generated {generated[-1]:,}", "accent")]
    if verified[-1]:
        places.append((y_of(generated[-1] + verified[-1] // 2) + 7, f"verifier {verified[-1]:,}", "other"))
    body += [svg.words(right + 10, y, text, f"{kind} bold") for y, text, kind in places]
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

    A new wave begins where a node's parent came in the present one.
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
            wave += born[parent] == wave
        born[number] = wave
    died = dict(born)
    for node in reversed(nodes):
        if (parent := node["parent"]) is not None:
            died[parent] = max(died[parent], died[node["node"]])
    roots = [node["node"] for node in nodes if node["parent"] is None]
    return _Tree({node["node"]: node for node in nodes}, children, roots, born, died, wave)


def _parents_first(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return nodes in their order, each after its parent.

    Where a piece was cut in two, the upper part has the higher number.
    """
    known = {node["node"]: node for node in nodes}
    ordered: dict[int, Mapping[str, Any]] = {}
    for node in nodes:
        ancestor: Mapping[str, Any] | None = node
        chain: list[Mapping[str, Any]] = []
        while ancestor is not None and ancestor["node"] not in ordered:
            chain.append(ancestor)
            ancestor = None if ancestor["parent"] is None else known[ancestor["parent"]]
        ordered.update((each["node"], each) for each in reversed(chain))
    return list(ordered.values())


def _way(tree: _Tree, winner: int | None) -> list[int]:
    """Return the path to a node, from its root on; empty where it is not shown."""
    way: list[int] = []
    while winner is not None and winner in tree.nodes:
        way.append(winner)
        winner = tree.nodes[winner]["parent"]
    return way[::-1]


def _place_nodes(tree: _Tree) -> tuple[dict[int, float], dict[int, int]]:
    """Return places across, by leaf, and depths of all nodes."""
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
        if below := tree.children[number]:
            x[number] = (x[below[0]] + x[below[-1]]) / 2
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
    """Return how full a node is drawn, by its last score, clipped to [0, 1]; a root is full."""
    if node["parent"] is None:
        return "1"
    scores = [steps[-1] for steps in node["scores"].values() if steps]
    score = scores[0] if scores else None
    return "0" if score is None or not math.isfinite(score) else svg.number(min(1.0, max(0.0, score)))
