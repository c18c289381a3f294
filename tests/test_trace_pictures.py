"""Pictures of traces: what they state is what the trace has, and any text of a trace stays text."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.trace.test_html import ATTACK, ODD, beams, node, trace
from tts.trace.trace import Trace

SCRIPT = Path(__file__).parents[1] / "scripts" / "trace_pictures.py"
pytestmark = [pytest.mark.docs, pytest.mark.skipif(not SCRIPT.exists(), reason="the scripts are not here")]
SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("tree", "kv", "budget")


@cache
def script() -> Any:
    spec = importlib.util.spec_from_file_location("trace_pictures", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def draw(found: Trace, kind: str = "tree") -> str:
    return script().draw(found, kind)


def searched(strategy: str, tokens: int = 400) -> tts.Solution:
    return tts.solve("3 + 4 - 2 + 9", tokens, model="toy", verifier="toy(error=0.2)", strategy=strategy)


def texts(picture: str) -> list[str]:
    return ["".join(each.itertext()) for each in ET.fromstring(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "strategy", ["beam(n=8) | weighted", "rebase(n=8) | weighted", "best_of_n(n=4) | weighted", "mcts | best"]
)
def test_shared_tokens_are_those_of_the_ledger(strategy: str) -> None:
    found = searched(strategy)
    held, alone = map(
        int, re.match(r"(\d+) tokens held, (\d+) without sharing", texts(draw(found.trace, "kv"))[0]).groups()
    )
    assert (held, alone - held) == (found.usage.peak_kv_tokens, found.usage.saved_kv_tokens)


def test_a_still_tree_is_the_whole_one_and_does_not_move() -> None:
    found = searched("beam(n=8) | weighted")
    still, grown = draw(found.trace, "still"), draw(found.trace)
    assert "animation" in grown
    assert "animation" not in still
    assert texts(still) == texts(grown)
    assert still.count("<circle") == grown.count("<circle")


@pytest.mark.parametrize("kind", ["tree", "still", "kv", "budget"])
def test_colours_need_no_variables_of_css(kind: str) -> None:
    """Programs that turn pictures into PDF know no variables, and would paint all in black."""
    picture = draw(searched("beam(n=8) | weighted").trace, kind)
    light, dark = re.search(
        r"<style>(.*)@media\(prefers-color-scheme:dark\)\{(.*)\}\n</style>", picture, re.DOTALL
    ).groups()
    assert not re.search(r"(?:fill|stroke):var", light + dark)
    assert ".page{fill:#fff}" in light
    assert ".page{fill:#181c22}" in dark
    assert len(re.findall(r"(?:fill|stroke):#", light)) == len(re.findall(r"(?:fill|stroke):#", dark))


def test_the_budget_is_that_of_the_ledger() -> None:
    found = searched("beam(n=8) | weighted")
    shown = texts(draw(found.trace, "budget"))
    assert shown[0] == f"{found.usage.tokens} of 400 tokens spent in {len(found.trace.calls)} calls"
    assert {f"generated {found.usage.generated_tokens}", f"verifier {found.usage.verifier_tokens}", "limit"} <= set(
        shown
    )


def test_the_tree_has_every_node_and_the_answers_path() -> None:
    found = searched("beam(n=8) | weighted")
    picture = ET.fromstring(draw(found.trace))
    assert len(list(picture.iter(f"{SVG}circle"))) == len(found.trace.nodes)
    assert len([each for each in picture.iter(f"{SVG}g") if each.get("class") == "out"]) == sum(
        each.pruned for each in found.trace.nodes
    )
    winner = next(each for each in found.trace.nodes if each.candidate is not None and each.answer == found.answer)
    assert winner.text.strip() in texts(draw(found.trace))
    assert f"answer: {found.answer}" in texts(draw(found.trace))


@pytest.mark.parametrize("strategy", ["fractured(n=2, depths=3)", "power_sampling(chains=2, moves=2, block=8)"])
def test_pieces_that_were_cut_in_two_are_drawn_below_their_upper_part(strategy: str) -> None:
    found = tts.solve("3 + 4 - 2 + 9", 600, model="toy", strategy=strategy)
    assert any(node.parent is not None and node.parent > node.node for node in found.trace.nodes)
    for kind in ("tree", "kv"):
        assert ET.fromstring(draw(found.trace, kind)).tag.endswith("svg")
    assert draw(found.trace, "tree").count("<circle") == len(found.trace.nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_trace_gives_the_same_bytes(kind: Any) -> None:
    found = searched("beam(n=4) | weighted")
    assert draw(found.trace, kind) == draw(Trace.from_json(found.trace.to_json()), kind)
    assert draw(found.trace, kind) == draw(searched("beam(n=4) | weighted").trace, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_a_trace_stay_texts(kind: Any) -> None:
    for text in (ATTACK, ODD):
        nodes = (
            node(0, None, text=text, tokens=400),
            node(1, 0, text=text, tokens=300, candidate=0, answer=text, scores={"a": (math.nan,)}),
        )
        picture = ET.fromstring(draw(trace(nodes, problem=text, strategy=text, answer=text), kind))
        assert {each.tag.removeprefix(SVG) for each in picture.iter()} <= {
            "svg",
            "title",
            "desc",
            "style",
            "rect",
            "text",
            "g",
            "path",
            "circle",
        }


EDGES: dict[str, Callable[[], Trace]] = {
    "no node": lambda: trace((), calls=(), answer=None),
    "a root alone": lambda: trace((node(0, None, tokens=0),), calls=(), answer=None),
    "two roots": lambda: trace((node(0, None), node(1, None), node(2, 1))),
    "a deep path": lambda: trace(tuple(node(i, i - 1 if i else None) for i in range(3000))),
    "many leaves": lambda: trace((node(0, None), *(node(i, 0) for i in range(1, 2000)))),
    "no limit on tokens": lambda: trace(beams(), budget="samples=8"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edge", EDGES)
def test_every_tree_can_be_drawn(kind: Any, edge: str) -> None:
    ET.fromstring(draw(EDGES[edge](), kind))


def test_a_large_tree_is_cut_and_says_so() -> None:
    shown = texts(draw(EDGES["many leaves"]()))
    assert any(f"the first {script().MOST_NODES} of 2,000 nodes" in line for line in shown)
