"""Traces, events and counts: read by the client that made the search, and by nobody else."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import tts
from tests.addons.gateway import parts
from tests.addons.gateway.asking import (
    QUESTION,
    VOTE,
    ask,
    bearer,
    function_models,
    refused,
    serving,
    url_of,
    write_keys,
)
from tests.support.guard import LIMIT_S
from tts.errors import ConfigError, TTSError
from tts.solver.live import Event
from tts.trace.trace import TraceNode
from tts.types import Problem
from tts_addons.gateway.access import Client
from tts_addons.gateway.archive import Archive
from tts_addons.gateway.observe import search_events
from tts_addons.gateway.replies import head_of
from tts_addons.gateway.searches import RunningSearch
from tts_addons.gateway.server_events import PING
from tts_addons.gateway.streams import SearchStream
from tts_addons.gateway.wire import chat

ABOUT = {"model": "toy", "question": "?"}
ANNA, BERT = bearer("anna"), bearer("bert")


def kept(gateway: Any, number: str, headers: Any = None) -> Any:
    """Ask for the trace of a search."""
    return gateway.get(f"/v1/searches/{number}/trace", headers=headers)


@contextmanager
def streaming(model: str, strategy: str, **settings: Any) -> Iterator[tuple[str, httpx.Client, httpx.Response]]:
    """Serve a model of `parts`, and ask it for a stream; gives the url, a client and the stream."""
    models = function_models(model, strategy=strategy)
    with serving(models=models, **settings) as server, httpx.Client(timeout=LIMIT_S) as http:
        body = {"model": model, "messages": QUESTION, "stream": True}
        with http.stream("POST", f"{url_of(server)}/chat/completions", json=body) as answer:
            yield url_of(server), http, answer


def test_a_trace_is_read_with_the_key_that_made_it(client):
    gateway = client()  # without a file of keys, clients are told apart by what they present
    number = ask(gateway, ANNA).json()["tts"]["search"]
    told = kept(gateway, number, ANNA)
    assert told.json()["trace"]["problem"] == "3 + 4 - 2"
    assert told.json()["winner"] is not None
    for headers in (BERT, None):
        refused(kept(gateway, number, headers), 404, None, "search_not_found")
        refused(gateway.get(f"/v1/searches/{number}/events", headers=headers), 404, None, "search_not_found")
        assert gateway.get("/v1/searches", headers=headers).json()["data"] == []
    (one,) = gateway.get("/v1/searches", headers=ANNA).json()["data"]
    assert (one["id"], one["question"], one["state"]) == (number, "3 + 4 - 2", "done")


def test_the_events_of_a_search_that_is_over_are_its_nodes_and_its_end(client):
    gateway = client()
    reply = ask(gateway).json()["tts"]
    told = gateway.get(f"/v1/searches/{reply['search']}/events")
    assert told.headers["content-type"].startswith("text/event-stream")
    nodes, end = (part.split("\ndata: ") for part in told.text.strip().split("\n\n"))
    assert (nodes[0], end[0]) == ("event: nodes", "event: end")
    assert json.loads(end[1]) == {"state": "done", "answer": reply["answer"]}
    kept_nodes = kept(gateway, reply["search"]).json()["trace"]["nodes"]
    assert json.loads(nodes[1]) == [{"thought": 0, "outcomes": {}, "notes": {}, **node} for node in kept_nodes]


def test_a_trace_is_not_kept_where_the_request_says_so(client):
    gateway = client()
    reply = ask(gateway, tts={"trace": False}).json()["tts"]
    assert reply["trace"] is None
    refused(kept(gateway, reply["search"]), 404, None, "search_not_found")


def test_a_trace_as_a_page_runs_no_script_of_its_texts(client):
    gateway = client(models=function_models("texts"))
    script = "<script>alert(1)</script>"
    number = ask(gateway, model="texts", messages=[{"role": "user", "content": script}]).json()["tts"]["search"]
    kept(gateway, number)
    page = gateway.get(f"/v1/searches/{number}/trace?format=html")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"] == "sandbox allow-scripts"
    assert script not in page.text
    assert script not in gateway.get(f"/v1/searches/{number}/trace").text


def test_finished_searches_outlive_the_server(client, tmp_path):
    store = str(tmp_path / "gateway.sqlite")
    with serving(store=store) as server:
        reply = httpx.post(
            f"{url_of(server)}/chat/completions", json={"model": "toy", "messages": QUESTION}, timeout=LIMIT_S
        ).json()
    again = client(store=store)
    assert kept(again, reply["tts"]["search"]).json()["trace"]["strategy"] == VOTE


@pytest.mark.slow
def test_a_large_trace_is_read_again():
    whole = tts.solve("3 + 4", tts.Budget(samples=2), model="toy").trace
    large = dataclasses.replace(whole, problem="".join(map(str, range(3_000_000))))
    archive = Archive(None, kept=3)
    archive.add_search("anna", "1", 1, ABOUT, large.to_json())
    assert archive.trace("anna", "1") == large
    archive.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        zlib.compress(b" " * (65 << 20), 9),
        b"no zlib",
        zlib.compress(b"\xff"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"9" * 5000),
        zlib.compress(b"[]"),
        zlib.compress(b"{}")[:-3],
        "text",
        5,
    ],
)
def test_what_no_gateway_wrote_takes_bounded_memory_and_is_not_found(client, caplog, body):
    gateway = client()
    number = ask(gateway).json()["tts"]["search"]
    kept(gateway, number)
    name = gateway.post("/v1/responses", json={"model": "toy", "input": "3 + 4"}).json()["id"]
    gateway.get(f"/v1/responses/{name}").raise_for_status()
    gateway.app.state.gateway.archive._file.execute("UPDATE kept SET body = ?", (body,))
    tracemalloc.start()
    try:
        for end in ("trace", "trace?format=html", "events"):
            refused(gateway.get(f"/v1/searches/{number}/{end}"), 404, None, "search_not_found")
        refused(gateway.get(f"/v1/responses/{name}"), 404, None, "response_not_found")
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert caplog.text.count(f"the store cannot be read: the trace of the search {number} in the store memory") == 3
    assert f"the store cannot be read: the response {name.partition('_')[2]} in the store memory" in caplog.text


def test_a_file_of_another_program_is_no_archive(tmp_path):
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as other:
        other.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(ConfigError, match=r"gateway.*version"):
        Archive(str(tmp_path / "b.sqlite"), kept=3)


def test_a_store_that_fails_costs_no_reply_and_is_in_the_log(client, caplog):
    gateway = client()
    archive = gateway.app.state.gateway.archive
    archive._file.execute("DROP TABLE kept")
    assert ask(gateway).status_code == 200
    with pytest.raises(TTSError, match=r"memory.*used:.*table"):
        archive.recent("anyone")
    refused(gateway.get("/v1/searches"), 500, None, "search_failed")
    assert "a search was not kept: the store memory cannot be used" in caplog.text


def test_events_show_the_tree_as_it_grows():
    parts.GATE.clear()
    with streaming("gated", "sequential_revision(length=3)") as (url, http, answer):
        number = answer.headers["x-request-id"]
        seen: dict[str, list[Any]] = {"nodes": [], "spend": [], "end": []}
        with http.stream("GET", f"{url}/searches/{number}/events") as told:
            parts.GATE.set()
            kind = ""
            for line in told.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    seen[kind].append(json.loads(line.removeprefix("data: ")))
        answer.read()
        (end,) = seen["end"]
        assert end["state"] == "done"
        nodes = {node["node"]: node for part in seen["nodes"] for node in part}
        trace = http.get(f"{url}/searches/{number}/trace").json()["trace"]
        assert nodes == {node["node"]: {"thought": 0, "outcomes": {}, "notes": {}, **node} for node in trace["nodes"]}
        assert seen["spend"][-1]["tokens"] <= trace["usage"]["generated_tokens"]


def test_a_stream_tells_progress_before_the_model_answers_and_keeps_alive():
    parts.GATE.clear()
    with streaming("gated", "best_of_n(n=2) | majority", ping_s=0.05) as (_url, _http, answer):
        lines = answer.iter_lines()
        assert any('"reasoning_content":"0 candidates' in line for line in lines)
        assert any(line == ": ping" for line in lines)
        parts.GATE.set()
        assert any('"content":"A: ' in line for line in lines)
        assert [line for line in lines if line][-1] == "data: [DONE]"


def test_who_watches_late_sees_the_tree_while_the_model_works():
    """The model answers its first call, and waits in the second. The second event comes sooner than a stream tells
    one, and the third after the test.
    """
    parts.ASKED.clear()
    parts.GATE.clear()
    with streaming("once", "sequential_revision(length=3)", ping_s=600) as (url, http, answer):
        lines = answer.iter_lines()  # kept: without its reader the stream is closed, and the search ends
        assert any('"reasoning_content":"1 candidates' in line for line in lines)
        with http.stream("GET", f"{url}/searches/{answer.headers['x-request-id']}/events") as told:
            assert any(line.startswith("data: ") and '"text": "A: 5"' in line for line in told.iter_lines())
        parts.GATE.set()


def test_of_two_trees_within_a_moment_the_last_is_seen():
    def event(number: int) -> Event:
        node = TraceNode(
            node=number, parent=None, kind="solve", model="policy", text="", tokens=0, status="active", stream="0" * 16
        )
        return Event(Problem("?"), number, 0, 0, None, (), nodes=lambda: (node,))

    async def run() -> None:
        order: Any = None
        search = RunningSearch("a", Client("anna", "anna"), order, 0.0)
        with search.follow(tree=True):
            for number in (1, 2, 3):
                search.tell(event(number))
            async with asyncio.timeout(LIMIT_S):
                while [node.node for node in search.tree] != [3]:
                    await search.signal.wait()

    asyncio.run(run())


def test_streams_of_a_search_begin_and_keep_alive_before_anything_happens():
    async def run() -> tuple[bytes, list[bytes]]:
        gateway: Any = SimpleNamespace(config=SimpleNamespace(ping_s=0.001), limit_headers=lambda *_: {})
        request = SimpleNamespace(echo={"usage": False}, options=SimpleNamespace(account=None))
        order: Any = SimpleNamespace(offer=SimpleNamespace(name="toy"), request=request)
        search = RunningSearch("a", Client("anna", "anna"), order, 0.0)
        async with aclosing(SearchStream(gateway, search, chat.frames(head_of(search)))._chunks()) as chunks:
            begun = await anext(chunks)
            assert await anext(chunks) == PING
        async with aclosing(search_events(gateway, search)) as events:
            told = [await anext(events)]
            search.state = "done"
            search.wake()
            return begun, [*told, *[part async for part in events if part != PING]]

    begun, told = asyncio.run(run())
    assert b'"delta":{"role":"assistant","content":""}' in begun
    assert told == [PING, b'event: end\ndata: {"state": "done", "answer": null}\n\n']


def test_a_client_can_end_its_search(tmp_path: Path):
    models = function_models("forever")
    with serving(models=models) as server, httpx.Client(timeout=LIMIT_S) as http:
        url, replies = url_of(server), list[Any]()
        asked = threading.Thread(
            target=lambda: replies.append(
                http.post(f"{url}/chat/completions", json={"model": "forever", "messages": QUESTION})
            )
        )
        asked.start()
        while not (running := http.get(f"{url}/searches").json()["data"]):
            pass
        number = running[0]["id"]
        refused(http.delete(f"{url}/searches/{number}", headers=ANNA), 404, None, "search_not_found")
        assert http.delete(f"{url}/searches/{number}").status_code == 200
        asked.join(LIMIT_S)
        refused(replies[0], 409, None, "cancelled")


def test_a_server_that_ends_tells_those_who_wait():
    models = function_models("forever")
    replies: dict[bool, Any] = {}
    with serving(models=models) as server:
        gateway = server.config.app.state.gateway

        def post(stream: bool) -> None:
            body = {"model": "forever", "messages": QUESTION, "stream": stream}
            replies[stream] = httpx.post(f"{url_of(server)}/chat/completions", json=body, timeout=LIMIT_S)

        threads = [threading.Thread(target=post, args=(stream,)) for stream in (False, True)]
        for thread in threads:
            thread.start()
        while sum(one.listeners > 0 and one.event is not None for one in list(gateway.running.values())) < 2:
            pass
    for thread in threads:
        thread.join(LIMIT_S)
    refused(replies[False], 503, None, "shutting_down")
    assert replies[False].headers["retry-after"] == "5"
    (error,) = [line for line in replies[True].text.splitlines() if '"error"' in line]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert not gateway.running
    assert not gateway.books.held


async def hangs(ask: Any) -> str:
    """Write what begins with "fast"; other prompts come to no end."""
    if "fast" not in str(ask.prompt):
        await asyncio.Event().wait()
    return "done"


HANGS = {"hangs": {"backend": "tests.addons.gateway.test_observe:hangs"}}


@pytest.mark.slow
@pytest.mark.parametrize(("prompt", "stream"), [("slow", False), ("slow", True), (["fast", "slow"], True)])
def test_a_server_that_ends_tells_those_who_wait_for_a_completion(prompt, stream):
    replies = list[Any]()
    begun = isinstance(prompt, list)  # then the error stands in the stream
    with serving(models=HANGS) as server:
        gateway, url = server.config.app.state.gateway, f"{url_of(server)}/completions"
        body = {"model": "hangs", "prompt": prompt, "stream": stream, "max_tokens": 7}
        seen = threading.Event()

        def post() -> None:
            with httpx.stream("POST", url, json=body, timeout=LIMIT_S) as reply:
                lines = reply.iter_lines()
                text = [next(lines)] if begun else []
                seen.set()
                replies.append((reply.status_code, reply.headers, "\n".join([*text, *lines])))

        thread = threading.Thread(target=post)
        thread.start()
        while not gateway.books.held:
            pass
        if begun:
            assert seen.wait(LIMIT_S)
    thread.join(LIMIT_S)
    ((status, headers, text),) = replies
    (error,) = [line.removeprefix("data: ") for line in text.splitlines() if '"error"' in line]
    assert json.loads(error)["error"]["code"] == "shutting_down"
    assert (status, headers.get("retry-after")) == ((200, None) if begun else (503, "5"))
    assert not gateway.books.held
    assert not gateway.admission.running


def test_a_client_that_leaves_a_stream_of_a_completion_is_no_fault_of_the_server():
    with serving(models=HANGS) as server:
        gateway = server.config.app.state.gateway
        body = {"model": "hangs", "prompt": ["fast", "slow"], "stream": True, "max_tokens": 7}
        faults, log = list[str](), logging.getLogger("uvicorn.error")
        noted = logging.Handler(logging.ERROR)
        noted.emit = lambda record: faults.append(record.getMessage())
        log.addHandler(noted)
        with httpx.stream("POST", f"{url_of(server)}/completions", json=body, timeout=LIMIT_S) as reply:
            lines = reply.iter_lines()  # without a name its end would close the connection at once
            next(lines)
            assert gateway.books.held
        while gateway.books.held:
            pass
    log.removeHandler(noted)
    assert faults == []


def test_only_operators_see_the_counts_of_others(client, tmp_path):
    keys = write_keys(tmp_path, "anna", "bert", "olga")
    gateway = client(keys=keys, operators=["olga"])
    spent = [ask(gateway, one).json()["tts"]["usage"]["generated_tokens"] for one in (ANNA, BERT)]
    for headers, told in (
        (ANNA, {"anna": spent[0]}),
        (BERT, {"bert": spent[1]}),
        (bearer("olga"), {"anna": spent[0], "bert": spent[1]}),
    ):
        text = gateway.get("/metrics", headers=headers).text
        rows = [
            line.partition('{client="')[2].split('"} ')
            for line in text.splitlines()
            if line.startswith("tts_client_tokens_total{")
        ]
        assert {name: int(count) for name, count in rows} == told
        assert 'tts_searches_total{model="toy",end="done"} 2' in text
    refused(gateway.get("/metrics"), 401, None, "invalid_api_key")
    for settings in ({"keys": keys, "operators": ["otto"]}, {"operators": ["olga"]}):
        with pytest.raises(ConfigError, match="operators"):
            client(**settings)


def test_metrics_count_each_token_once(client):
    gateway = client()
    spent = [ask(gateway, seed=seed).json()["tts"]["usage"]["generated_tokens"] for seed in range(3)]
    ask(gateway, model="nobody")
    lines = gateway.get("/metrics").text.splitlines()
    assert f'tts_client_tokens_total{{client="anyone"}} {sum(spent)}' in lines
    assert 'tts_searches_total{model="toy",end="done"} 3' in lines
    assert 'tts_replies_total{status="404"} 1' in lines
    assert "tts_searches_running 0" in lines
    assert "tts_search_seconds_count 3" in lines


def test_spans_of_searches_stand_below_the_callers(client):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from tts.solver import telemetry

    gateway, kept_spans, provider = client(telemetry=True), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept_spans))
    telemetry.enable(provider)
    try:
        ask(gateway, {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"})
    finally:
        telemetry.disable()
    (span,) = [one for one in kept_spans.get_finished_spans() if one.name.startswith("invoke_workflow")]
    assert (span.context.trace_id, span.parent.span_id) == (int("ab" * 16, 16), int("cd" * 8, 16))


OPENS = """
import sys, time
from tts_addons.gateway.archive import Archive
from tts_addons.gateway.spending.books import SharedBooks
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    Archive(f"{sys.argv[1]}/{number}", 10).close()
    SharedBooks(time.time, f"{sys.argv[1]}/{number}").close()
"""


@pytest.mark.slow
def test_processes_open_a_new_store_at_once(tmp_path):
    command = [sys.executable, "-c", OPENS, str(tmp_path), "20"]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=LIMIT_S)[1] for process in processes] == [""] * 3


# Bounds of what is kept -----------------------------------------------------------------------------------------------


def noise(size: int, seed: int = 0) -> str:
    """A text that cannot be packed."""
    return np.random.default_rng(seed).bytes(size // 2).hex()


def content(size: int, seed: int) -> dict[str, Any]:
    return {"items": [noise(size, seed)], "reply": {}}


@hypothesis.given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 30_000)),
        max_size=30,
    )
)
@hypothesis.settings(deadline=None)
def test_each_owner_keeps_its_newest_within_its_bytes_and_number_and_drops_nothing_of_others(
    added: list[tuple[str, int]],
):
    archive = Archive(None, kept=4, kept_bytes=10_000)
    kept: dict[str, list[tuple[str, int]]] = {}
    for place, (owner, size) in enumerate(added):
        before = {other: [number for number, _ in rows] for other, rows in kept.items() if other != owner}
        with suppress(TTSError):
            archive.add_response(owner, f"{place}", place, content(size, place))
            kept.setdefault(owner, []).append((f"{place}", size))
        for other, numbers in before.items():
            assert all(archive.response(other, number) is not None for number in numbers)
        rows = kept.setdefault(owner, [])
        rows[:] = [row for row in rows if archive.response(owner, row[0]) is not None]
        assert len(rows) <= 4
        assert sum(size // 2 for _, size in rows) <= 10_000  # hexadecimal digits pack to half of their size
        if size < 15_000:
            assert rows[-1][0] == f"{place}", "the newest is kept"
    archive.close()


def test_where_all_owners_fill_the_archive_nothing_of_others_is_dropped():
    archive = Archive(None, kept=100, kept_bytes=40_000)
    for place in range(60):
        with suppress(TTSError):
            archive.add_response(f"owner {place}", f"{place}", place, content(60_000, place))
    kept = [place for place in range(60) if archive.response(f"owner {place}", f"{place}") is not None]
    assert kept == list(range(len(kept)))
    assert 10 <= len(kept) <= 20
    with pytest.raises(TTSError, match="no room"):
        archive.add_search("late", "late", 0, ABOUT, noise(60_000))
    archive.add_response("owner 0", "new", 99, content(60_000, 99))
    assert archive.response("owner 0", "0") is None, "a newcomer takes the place of its own oldest"
    assert archive.response("owner 1", "1") is not None
    archive.close()


@pytest.mark.parametrize(
    ("body", "message"),
    [(noise(20_000), "no room"), (" " * (1 << 20) + "{}", r"trace.*2:.*1 MiB.*TTS_LARGEST_ROW")],
    ids=["room", "size"],
)
def test_a_search_whose_trace_cannot_be_kept_is_kept_without_it(monkeypatch, body, message):
    monkeypatch.setenv("TTS_LARGEST_ROW", "1")
    archive = Archive(None, kept=10, kept_bytes=5_000)
    archive.add_search("anna", "1", 1, ABOUT, "{}")
    with pytest.raises(TTSError, match=message):
        archive.add_search("anna", "2", 2, ABOUT, body)
    assert [number for number, _begun_at, _about in archive.recent("anna")] == ["2", "1"]
    assert (archive.recent("bert"), archive.trace("anna", "2")) == ([], None)
    archive.close()


def test_one_key_drops_no_response_of_another_and_a_prompt_is_kept_once(client, tmp_path):
    gateway = client(keys=write_keys(tmp_path, "anna", "bert"), kept=3, models=function_models("texts"))

    def respond(headers: Any, text: str, **fields: Any) -> Any:
        return gateway.post("/v1/responses", headers=headers, json={"model": "texts", "input": text, **fields})

    first = respond(BERT, "2 + 2").json()["id"]
    long = respond(ANNA, noise(200_000)).json()["id"]
    assert gateway.get(f"/v1/responses/{long}", headers=ANNA).status_code == 200  # it waits for the write
    archive = gateway.app.state.gateway.archive
    assert 100_000 < archive._file.execute("SELECT sum(length(body)) FROM kept").fetchone()[0] < 150_000
    for _ in range(5):
        assert respond(ANNA, "1 + 1").status_code == 200
    assert respond(BERT, "and 3?", previous_response_id=first).status_code == 200
