"""The page in a real browser: what it draws, that it runs no text of the trace, and that its controls work."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import CHROMIUM, add_script, colours, milliseconds_to_open, open_page
from tts.budget.ledger import Call
from tts.tasks.patch import format_turn
from tts.trace.trace import Trace, TraceNode
from tts.types import Usage

NAN = float("nan")
ATTACK = (
    '</script><script>document.body.dataset.pwned = 1</script><img src=x onerror="document.body.dataset.pwned = '
    "2\"> & <b>'bold'</b>"
)
ODD = "a\u2028b\x00c\ud800d\u202ee"
ODD_SHOWN = "a⟨U+2028⟩b⟨U+0000⟩c⟨U+D800⟩d⟨U+202E⟩e"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def node(number: int, parent: int | None, **changes: Any) -> TraceNode:
    plain = TraceNode(
        number,
        parent,
        "solve",
        "policy",
        f"Step {number}: so it goes on.\n",
        10 + number % 7,
        "active",
        f"{number:016x}",
    )
    return dataclasses.replace(plain, **changes)


def trace(nodes: tuple[TraceNode, ...], **changes: Any) -> Trace:
    usage = Usage(
        prompt_tokens=31,
        generated_tokens=480,
        verifier_tokens=300,
        verifier_calls=48,
        samples=16,
        seconds=2.5,
        work_seconds=9.0,
    )
    calls = (
        Call("open", "policy", 1, 0, Usage(prompt_tokens=31)),
        *(Call("expand", "policy", 16, 512, Usage(generated_tokens=160)) for _ in range(3)),
    )
    plain = Trace(
        problem="How many km are 7 stages of 6 km?",
        task="math",
        model="toy",
        strategy="beam_search(num_beams=4)",
        seed=7,
        budget="tokens=4096",
        answer="42",
        confidence=0.625,
        stopped_by="samples drawn",
        nodes=nodes,
        calls=calls,
        usage=usage,
    )
    return dataclasses.replace(plain, **changes)


def beams(steps: int = 3, width: int = 4) -> tuple[TraceNode, ...]:
    """A beam search: every step each kept beam has `width` children, of which `width` in all are kept; the last are
    candidates.
    """
    nodes = [node(0, None, text="How many km are 7 stages of 6 km?")]
    kept = [0]
    for step in range(steps):
        children: list[int] = []
        for parent in kept:
            for _ in range(width):
                number = len(nodes)
                score = (number * 37 % 100) / 100
                scores = (*nodes[parent].scores.get("prm", ()), score)
                nodes.append(node(number, parent, scores={"prm": scores}, pruned=True))
                children.append(number)
        kept = sorted(children, key=lambda number: -nodes[number].scores["prm"][-1])[:width]
        for place, number in enumerate(kept):
            last = {
                "status": "finished",
                "answer": "41" if place == 1 else "42",
                "candidate": place,
                "weight": 1.0 - place / 10,
            }
            nodes[number] = dataclasses.replace(nodes[number], pruned=False, **(last if step == steps - 1 else {}))
    return tuple(nodes)


def wide_and_deep(count: int) -> tuple[TraceNode, ...]:
    """A tree of `count` nodes: 300 children of the root, the rest in branches below them."""
    nodes = [node(0, None)]
    for number in range(1, count):
        parent = 0 if number <= 300 else number - 300
        last = {
            "status": "finished",
            "answer": "42" if number == count - 1 else "41",
            "candidate": number - count + 50,
            "weight": 0.5,
        }
        nodes.append(
            node(number, parent, scores={"orm": (number % 100 / 10 - 3,)}, **(last if number >= count - 50 else {}))
        )
    return tuple(nodes)


def hostile_beams() -> Trace:
    nodes = list(beams())
    winner = next(one for one in nodes if one.candidate == 0)
    nodes[winner.node] = dataclasses.replace(winner, text=ATTACK + "\n" + ODD, answer=ATTACK, stream=ATTACK)
    nodes[1] = dataclasses.replace(nodes[1], text=ATTACK, status="failed", scores={}, pruned=False)
    nodes[2] = dataclasses.replace(nodes[2], status="truncated", scores={"prm": (NAN,), ATTACK: (0.5,)}, pruned=True)
    nodes.append(node(len(nodes), winner.parent, scratch=True, status="finished", model=ATTACK))
    call = Call(ATTACK, ATTACK, 1, 5, Usage())
    return trace(
        tuple(nodes), problem=ATTACK + ODD, answer=ATTACK, strategy=ATTACK, model=ODD, stopped_by=ATTACK, calls=(call,)
    )


def test_it_draws_the_tree_and_shows_hostile_text_as_text(tmp_path: Path) -> None:
    record = hostile_beams()
    winner = next(one.node for one in record.nodes if one.candidate == 0)
    page = open_page(record.to_html(), tmp_path, size="1280,800", fragment=f"#node={winner}")
    assert page.log == []
    assert page.body.get("data-ready") == "true"
    assert "data-pwned" not in page.body
    assert not [element for element in page.elements if element.tag == "img" or element.text == "'bold'"]
    assert len([element for element in page.elements if element.tag == "script"]) == 2

    drawn = {int(element.attributes["data-node"]): element for element in page.find_class("node")}
    assert sorted(drawn) == [one.node for one in record.nodes]
    assert page.find_id("count").text == f"all {len(record.nodes)} nodes drawn"
    path = [number for number, element in drawn.items() if "winner" in element.classes]
    assert len(path) == 4
    assert winner in path
    hover = drawn[winner].attributes["title"].splitlines()
    own, path_tokens = record.nodes[winner].tokens, sum(record.nodes[number].tokens for number in path if number)
    assert hover[0] == f"#{winner} · {own} tokens, {path_tokens} on the path · finished"
    assert hover[1].startswith("score (prm): ")
    assert [element.text for element in page.find_class("best")] == ["★"]
    assert "failed" in drawn[1].classes
    assert {"truncated", "pruned"} <= drawn[2].classes
    assert "scratch" in drawn[record.nodes[-1].node].classes
    assert len(page.find_class("chip", "unknown")) == 1
    assert len(page.find_class("edge-winner")) == 1
    for word in ("winning path", "truncated", "failed", "pruned", "scratch", "no score"):
        assert word in page.find_id("legend").text

    assert page.find_id("problem").text == ATTACK + ODD_SHOWN
    assert page.find_id("answer").text == ATTACK
    assert ODD_SHOWN in page.find_id("facts").text
    assert ATTACK in page.find_id("facts").text
    assert page.find_id("text").text == ATTACK + "\n" + ODD_SHOWN
    assert page.find_id("stream").text == ATTACK
    assert drawn[winner].attributes["aria-selected"] == "true"
    assert f"Node {winner}" in page.find_id("side").text
    rows = [element for element in page.elements if element.tag == "tr" and "data-row" in element.attributes]
    assert len(rows) == 4
    assert rows[0].attributes["data-row"] == str(winner)
    assert ATTACK in rows[0].text
    assert ATTACK in page.find_id("ledger").text

    size, count = colours(tmp_path / "page.png")
    assert size == (1280, 800)
    assert count > 64


DRIVER = """
const $ = (id) => document.getElementById(id);
const log = {};
const drawn = () => document.querySelectorAll(".node").length;
const selected = () => document.querySelector('.node[aria-selected="true"]').dataset.node;
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
log.first = [drawn(), $("count").textContent];
document.querySelector("#candidates tr[data-row]:nth-child(7)").click();
const picked = document.querySelector("#candidates tr[data-row]:nth-child(7)").dataset.row;
log.picked = [picked === selected(), $("side").textContent.includes(`Node ${picked}`), location.hash === `#node=${picked}`];
$("only").click();
log.only = [drawn(), document.querySelectorAll(".node.winner").length, selected()];
const root = document.querySelector('.node[data-node="0"]');
root.click();
log.root = [selected(), document.activeElement.dataset.node];
press("Enter");
log.closed = [drawn(), document.activeElement.dataset.node, document.activeElement.getAttribute("aria-expanded")];
press("ArrowRight");
log.opened = [drawn() > 1, document.activeElement.getAttribute("aria-expanded")];
press("ArrowRight");
log.right = [selected(), document.activeElement.dataset.node];
press("ArrowDown");
log.down = selected();
press("ArrowLeft");
log.left = selected();
const before = drawn();
document.querySelector(".more").click();
log.more = drawn() - before;
$("all").click();
log.all = [drawn(), $("count").textContent, $("all").disabled];
document.querySelectorAll("#candidates thead button")[0].click();
log.sorted = document.querySelector("#candidates tbody tr").dataset.row;
document.body.dataset.log = JSON.stringify(log);
"""  # noqa: E501


def test_a_large_tree_starts_small_and_opens_on_demand(tmp_path: Path) -> None:
    record = trace(wide_and_deep(1500))
    page = open_page(add_script(record.to_html(), DRIVER), tmp_path, size="1280,800")
    assert page.log == []
    log = json.loads(page.body["data-log"])
    count, words = log["first"]
    assert 60 < count < 300
    assert words == f"{count} of 1,500 nodes drawn, {1500 - count:,} hidden"
    assert log["picked"] == [True, True, True]
    assert log["only"] == [6, 6, "1499"]
    assert log["root"] == ["0", "0"]
    assert log["closed"] == [1, "0", "false"]
    assert log["opened"] == [True, "true"]
    assert log["right"] == ["299", "299"]
    assert log["down"] == "299"
    assert log["left"] == "0"
    assert log["more"] == 60
    assert log["all"] == [1500, "all 1,500 nodes drawn", True]
    assert log["sorted"] == "1450"


def deep(count: int) -> tuple[TraceNode, ...]:
    """A path of `count` nodes, each with a branch beside it; the last node is the winner."""
    nodes = [node(0, None)]
    for level in range(count - 1):
        last = {"status": "finished", "answer": "42", "candidate": 0, "weight": 1.0} if level == count - 2 else {}
        nodes.append(node(2 * level + 1, max(0, 2 * level - 1), scores={"prm": (0.5,)}, **last))
        nodes.append(node(2 * level + 2, max(0, 2 * level - 1), scores={"prm": (0.1,)}, pruned=True))
    return tuple(nodes)


DEEP_DRIVER = """
const log = {};
const $ = (id) => document.getElementById(id);
const drawn = () => document.querySelectorAll(".node").length;
log.first = [drawn(), document.querySelectorAll("#path li").length, document.querySelector('.node[aria-selected="true"]').dataset.node];
log.above = document.querySelector('[data-key="above"]').textContent;
document.querySelector('[data-key="above"]').click();
log.more = [drawn(), document.querySelector('[data-key="above"]').textContent];
$("earlier").click();
log.path = [document.querySelectorAll("#path li").length, $("path").start];
document.querySelector('#path .link').click();
log.jumped = [document.querySelector('.node[aria-selected="true"]').dataset.node, drawn() < 700];
$("all").click();
log.all = drawn();
$("only").click();
log.only = [document.querySelectorAll(".node.winner").length, document.querySelector('[data-key="above"]').textContent];
document.body.dataset.log = JSON.stringify(log);
"""  # noqa: E501


def test_of_a_deep_path_the_last_levels_are_drawn_and_others_on_demand(tmp_path: Path) -> None:
    page = open_page(add_script(trace(deep(3000)).to_html(), DEEP_DRIVER), tmp_path, size="1280,800")
    assert page.log == []
    log = json.loads(page.body["data-log"])
    assert log["first"] == [100, 100, "5997"]
    assert log["above"] == "+ 2,900 above"
    assert log["more"] == [160, "+ 2,840 above"]
    assert log["path"] == [200, 2800]
    assert log["jumped"][1]
    assert 100 < log["all"] <= 5200
    assert log["only"] == [100, "+ 2,900 above"]


def test_many_roots_are_drawn_on_demand(tmp_path: Path) -> None:
    roots = tuple(node(number, None) for number in range(2000))
    script = """
    const drawn = () => document.querySelectorAll(".node").length;
    const log = [drawn(), document.querySelector('[data-key="roots"]').textContent];
    document.querySelector('[data-key="roots"]').click();
    document.body.dataset.log = JSON.stringify([...log, drawn()]);
    """
    page = open_page(add_script(trace(roots).to_html(), script), tmp_path, size="1280,800")
    assert page.log == []
    assert json.loads(page.body["data-log"]) == [260, "+ 1,740 hidden", 320]


@pytest.mark.slow
@pytest.mark.parametrize("made", [wide_and_deep, lambda count: deep(count // 2)], ids=["wide", "deep"])
def test_a_page_of_100_000_nodes_opens_within_three_seconds(made: Any, tmp_path: Path) -> None:
    page = trace(made(100_000)).to_html()
    assert min(milliseconds_to_open(page, tmp_path) for _ in range(3)) < 3000


def test_one_node_in_a_narrow_window(tmp_path: Path) -> None:
    record = trace(
        (node(0, None),), answer=None, confidence=NAN, strategy="x" * 300, usage=Usage(flops=None, usd=None), calls=()
    )
    script = "document.body.dataset.wide = document.documentElement.scrollWidth - window.innerWidth"
    page = open_page(add_script(record.to_html(), script), tmp_path, size="400,800")
    assert page.log == []
    assert page.find_id("count").text == "1 node drawn"
    assert len(page.find_class("node")) == 1
    assert page.find_class("node", "winner") == []
    assert page.find_id("answer").text == "none found"
    assert page.find_id("confidence").text == "confidence unknown"
    assert page.find_id("usage").text.count("unknown") == 2
    assert "No path ended with a candidate." in page.find_id("candidates").text
    assert "No call was made." in page.find_id("ledger").text
    assert int(page.body["data-wide"]) <= 0
    size, count = colours(tmp_path / "page.png")
    assert size == (400, 800)
    assert count > 64


def test_a_turn_of_an_agent_shows_its_patch_by_lines_and_what_its_tests_said(tmp_path: Path) -> None:
    patch = f"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n same\n-old\n+{ATTACK}\n"
    said = "1 of 2 tests pass; tests that fail: test_a::test_b."
    turns = (
        node(0, None),
        node(1, 0, text=format_turn("I looked.", "", is_last=False), scores={"main": (0.0,)}, notes={"main": said}),
        node(
            2,
            1,
            text=format_turn("I wrote.", patch, is_last=True),
            status="finished",
            answer=patch,
            candidate=0,
            weight=1.0,
        ),
    )
    page = open_page(trace(turns).to_html(), tmp_path, size="1280,800", fragment="#node=2")
    assert page.log == []
    assert "data-pwned" not in page.body
    shown = page.find_id("text").text
    assert shown.startswith("I wrote.")
    assert "=====" not in shown
    lines = {
        kind: {element.text.strip() for element in page.find_class(kind)} for kind in ("plus", "minus", "hunk", "file")
    }
    assert lines["plus"] == {f"+{ATTACK}"}
    assert lines["minus"] == {"-old"}
    assert lines["hunk"] == {"@@ -1,2 +1,2 @@"}
    assert lines["file"] == {"diff --git a/a.py b/a.py", "--- a/a.py", "+++ b/a.py"}
    page = open_page(trace(turns).to_html(), tmp_path, size="1280,800", fragment="#node=1")
    assert said in page.find_id("side").text
    assert "no change" in page.find_id("text").text


@pytest.mark.slow
def test_a_diff_of_any_model_is_shown_by_lines(tmp_path: Path) -> None:
    """A diff is in a fence, or is the whole answer."""
    patch = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+new"
    text = f"I change it:\n```diff\n{patch}\n```\nDone."
    nodes = node(0, None), node(1, 0, text=text, answer=patch, status="finished", candidate=0, weight=1.0)
    page = open_page(trace(nodes).to_html(), tmp_path, size="1280,800", fragment="#node=1")
    assert page.log == []
    shown = page.find_id("text").text
    assert "```" not in shown
    assert shown.rstrip().endswith("Done.")
    for kind, line in (("plus", "+new"), ("minus", "-old"), ("file", "--- a/a.py")):
        assert [element.text.strip() for element in page.find_class(kind)].count(line) >= 2
