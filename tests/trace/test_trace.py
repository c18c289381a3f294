"""The record of a search: what is kept, what is left out, and that no text in it can do harm."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import pytest

from tts.budget.ledger import Call
from tts.errors import ConfigError
from tts.trace.trace import Trace, TraceNode, winning_node
from tts.types import Usage

NAN = float("nan")
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script> ]]> <img src=x onerror=alert(1)>",
    "line\u2028and\u2029paragraph, \x00\x07\x1b[31m, \x85, \ufeff, \u202eright to left",
    "lone \ud800 and \udfff surrogates",
    "{{TRACE}} {{SCRIPT_HASH}} \\u003c &lt;b&gt; 漢字 🙂",
]


def node(number: int, parent: int | None, **changes: Any) -> TraceNode:
    plain = TraceNode(number, parent, "solve", "policy", f"step {number}.\n", 10 + number, "active", f"{number:016x}")
    return dataclasses.replace(plain, **changes)


def trace(**changes: Any) -> Trace:
    nodes = (
        node(0, None, text="How much is 6 times 7?"),
        node(1, 0, scores={"prm": (0.5,)}),
        node(2, 0, scores={"prm": (NAN,)}, pruned=True),
        node(
            3, 1, status="finished", scores={"prm": (0.5, 0.75), "orm": (NAN,)}, answer="42", candidate=0, weight=0.75
        ),
        node(4, 1, status="truncated", answer=None, candidate=1, weight=None),
        node(5, 3, scratch=True, status="failed"),
    )
    usage = Usage(
        generated_tokens=60, cancelled_tokens=4, verifier_tokens=30, seconds=1.5, work_seconds=3.0, usd=None, flops=None
    )
    calls = (
        Call("expand", "policy", 4, 128, dataclasses.replace(usage, verifier_tokens=0)),
        Call("score", "prm", 4, 0, Usage(verifier_tokens=30, verifier_calls=4)),
    )
    plain = Trace(
        problem="How much is 6 times 7?",
        task="arithmetic",
        model="toy",
        strategy="beam_search(num_beams=2)",
        seed=2**63 + 1,
        budget="tokens=512",
        answer="42",
        confidence=1.0,
        stopped_by="samples drawn",
        nodes=nodes,
        calls=calls,
        usage=usage,
    )
    return dataclasses.replace(plain, **changes)


def same(left: object, right: object) -> bool:
    """Equality in which NaN equals NaN and 1 does not equal 1.0."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    if dataclasses.is_dataclass(left):
        names = [f.name for f in dataclasses.fields(left) if f.compare]
        return type(left) is type(right) and all(same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def test_json_gives_back_an_equal_trace() -> None:
    before = trace()
    after = Trace.from_json(before.to_json())
    assert same(before, after)
    assert after.to_json() == before.to_json()
    assert math.isnan(after.nodes[2].scores["prm"][0])
    assert after.nodes[3].scores["prm"] == (0.5, 0.75)
    assert after.seed == 2**63 + 1


def test_an_unknown_confidence_is_null_and_comes_back_as_nan() -> None:
    before = trace(confidence=NAN, answer=None, nodes=(), calls=())
    assert json.loads(before.to_json())["confidence"] is None
    assert math.isnan(Trace.from_json(before.to_json()).confidence)


def test_a_trace_that_compares_unequal_is_not_same() -> None:
    assert not same(trace(), trace(seed=8))
    assert not same(trace(confidence=NAN), trace(confidence=1.0))


@pytest.mark.parametrize("text", HOSTILE)
def test_json_of_any_text_can_be_encoded_and_read_back(text: str) -> None:
    before = trace(problem=text, answer=text, nodes=(node(0, None, text=text, answer=text, candidate=0),))
    encoded = before.to_json().encode("utf-8")
    assert same(Trace.from_json(encoded.decode("utf-8")), before)


def test_json_keeps_readable_letters() -> None:
    assert "漢字 🙂" in trace(problem="漢字 🙂").to_json()


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"format": 1}', '{"format": 1, "nodes": [{}], "calls": []}', "{"]
)
def test_text_that_is_no_trace_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="the text is no trace"):
        Trace.from_json(text)


def test_another_format_is_refused() -> None:
    data = trace().to_dict()
    with pytest.raises(ConfigError, match="another format"):
        Trace.from_json(json.dumps({**data, "format": 0}))


def test_canonical_leaves_out_times_and_cancelled_tokens_and_nothing_else() -> None:
    first = trace()
    late = dataclasses.replace(first.usage, seconds=9.0, work_seconds=99.0, cancelled_tokens=400, flops=7, usd=0.5)
    second = trace(usage=late, calls=(dataclasses.replace(first.calls[0], usage=late), first.calls[1]))
    assert first.canonical()["usage"] != first.to_dict()["usage"]
    other = {**second.canonical(), "calls": [{**call, "usage": None} for call in second.canonical()["calls"]]}
    assert other == {**first.canonical(), "calls": [{**call, "usage": None} for call in first.canonical()["calls"]]}
    timed = {"seconds", "work_seconds", "cancelled_tokens", "flops", "usd"}
    for usage in (first.canonical()["usage"], *(call["usage"] for call in first.canonical()["calls"])):
        assert set(usage) == {f.name for f in dataclasses.fields(Usage)} - timed
    assert set(first.canonical()) == set(first.to_dict())


def test_canonical_sees_every_other_difference() -> None:
    more = dataclasses.replace(trace().usage, generated_tokens=61)
    for changed in (
        trace(seed=1),
        trace(usage=more),
        trace(nodes=trace().nodes[:-1]),
        trace(calls=()),
        trace(stopped_by="failed"),
    ):
        assert changed.canonical() != trace().canonical()


def test_networkx_view_has_the_tree_with_every_attribute() -> None:
    record = trace()
    graph = record.to_networkx()
    assert sorted(graph.nodes) == [0, 1, 2, 3, 4, 5]
    assert sorted(graph.edges) == [(0, 1), (0, 2), (1, 3), (1, 4), (3, 5)]
    assert graph.graph == {"problem": record.problem, "strategy": record.strategy, "answer": "42"}
    for one in record.nodes:
        assert graph.nodes[one.node] == {
            f.name: getattr(one, f.name) for f in dataclasses.fields(one) if f.name != "node"
        }


def test_save_writes_what_the_ending_says(tmp_path: Any) -> None:
    record = trace(problem=HOSTILE[3])
    record.save(tmp_path / "t.json")
    record.save(str(tmp_path / "t.html"))
    assert same(Trace.from_json((tmp_path / "t.json").read_text(encoding="utf-8")), record)
    assert (tmp_path / "t.html").read_text(encoding="utf-8") == record.to_html()


def test_save_refuses_other_endings_and_places_that_do_not_exist(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.html or \.json"):
        trace().save(tmp_path / "t.txt")
    with pytest.raises(ConfigError, match=r"written:.*directory"):
        trace().save(tmp_path / "none" / "t.json")
    (tmp_path / "d.html").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        trace().save(tmp_path / "d.html")


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="trace">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_leaves_its_place_in_the_page(text: str) -> None:
    nodes = (node(0, None, text=text, status="finished", answer=text, candidate=0),)
    record = trace(problem=text, model=text, strategy=text, answer=text, nodes=nodes)
    page = record.to_html()
    page.encode("utf-8")
    plain = trace().to_html()
    assert page.count("<script") == plain.count("<script") == 2
    assert page.count("</script") == plain.count("</script") == 2
    assert page.count("<!--") == 0
    data = embedded(page)
    assert data["trace"]["problem"] == text
    assert data["trace"]["nodes"][0]["text"] == text
    assert data["winner"] == 0


def test_the_page_loads_nothing() -> None:
    page = trace().to_html()
    addresses = re.findall(r"https?://[^\s\"']+", page)
    assert addresses == ["http://www.w3.org/2000/svg"]  # the name of a namespace
    assert not re.search(
        r"\b(?:src|href|srcset|action)=|@import|\burl\(|innerHTML|insertAdjacentHTML|document\.write|\beval\(", page
    )


def test_the_page_holds_the_whole_trace_and_an_exact_seed() -> None:
    data = embedded(trace().to_html())["trace"]
    assert data.pop("seed") == str(2**63 + 1)
    expected = trace().to_dict()
    del expected["seed"]
    assert data == expected


def test_the_winner_is_the_heaviest_candidate_with_the_answer() -> None:
    def candidates(*answers: tuple[str | None, float | None]) -> tuple[TraceNode, ...]:
        ends = (node(i + 1, 0, answer=answer, candidate=i, weight=weight) for i, (answer, weight) in enumerate(answers))
        return (node(0, None), *ends)

    assert winning_node(trace(nodes=candidates(("42", 0.1), ("41", 0.9), ("42", 0.3)))) == 3
    assert winning_node(trace(nodes=candidates(("41", 0.5), ("42", 0.5), ("42", 0.5)))) == 2
    assert winning_node(trace(nodes=candidates(("42", None), ("42", NAN), ("42", 0.0)))) == 3
    assert winning_node(trace(nodes=candidates(("41", 1.0), (None, 1.0)))) is None
    assert winning_node(trace(answer=None, nodes=candidates(("41", 1.0), (None, 1.0)))) is None
    assert winning_node(trace(nodes=(node(0, None, answer="42"),))) is None


def test_a_trace_is_one_line_and_a_table_of_its_calls_in_notebooks() -> None:
    record = trace(strategy="beam<b>", calls=trace().calls * 12)
    assert (
        repr(record)
        == "Trace(strategy='beam<b>', model='toy', nodes=6, calls=24, answer='42', stopped_by='samples drawn')"
    )
    shown = record._repr_html_()
    assert "beam&lt;b&gt;" in shown
    assert shown.count("<tr>") == 1 + 20 + 1  # the head, the first calls, and how many more there are
    assert "<td>expand</td><td>policy</td><td>4</td><td>64</td><td>0</td><td>1.5</td>" in shown
    assert "<td>4 more</td>" in shown
    assert "more</td>" not in trace()._repr_html_()
