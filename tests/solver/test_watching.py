"""Logs and spans of searches."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import tts
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Rates
from tts.models.registry import ModelRecord

PLAN = "best_of_n(n=3) | weighted"
SECRET = "3 + 4 - 2"


def solved(**more: Any) -> tts.Solution:
    record = ModelRecord(name="toy", backend="toy", task="arithmetic", parameters=10)
    return tts.solve(
        tts.Problem(SECRET, id="sums/1"), 400, model=record, verifier="toy(error=0.1)", strategy=PLAN, **more
    )


def test_levels(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="tts"):
        solution = solved()
    by_level = {level: [r.getMessage() for r in caplog.records if r.levelno == level] for level in (10, 20, 30, 40)}
    assert len(by_level[logging.DEBUG]) == len(solution.trace.calls)
    begins, ends = by_level[logging.INFO]
    assert begins.startswith(f"sums/1: begins, {PLAN}, tokens=400, model toy")
    assert f"{solution.usage.tokens} tokens" in ends
    assert by_level[logging.WARNING] == [f"sums/1: {line}" for line in solution.warnings]
    assert not any(SECRET in record.getMessage() for record in caplog.records)


def test_a_search_that_fails_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    def broken(ask: tts.Ask) -> str:
        raise ValueError("out of order")

    with caplog.at_level(logging.INFO, logger="tts"), pytest.raises(tts.EngineError):
        tts.solve("1 + 1", tts.Budget(samples=2), backend=broken, strategy="single")
    assert any(r.levelno == logging.ERROR and "out of order" in r.getMessage() for r in caplog.records)


@pytest.mark.slow
def test_nothing_is_printed_where_nobody_configured_logging() -> None:
    script = "import tts; tts.solve('3 + 4 - 2', 40, model='toy')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_without_opentelemetry_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(tts.MissingDependency, match="telemetry needs") as refused:
        tts.telemetry.enable()
    assert refused.value.hint == "pip install 'test-time-search[telemetry]'"


@pytest.fixture
def exported() -> Iterator[Any]:
    """A tracer provider whose spans are kept in memory."""
    pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    tts.telemetry.disable()
    provider.shutdown()


def test_a_search_is_a_span_and_each_call_a_child(exported: Any) -> None:
    provider, exporter = exported
    tts.telemetry.enable(provider)
    with provider.get_tracer("mine").start_as_current_span("request"):
        solution = solved()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    search, mine = spans[f"invoke_workflow {PLAN}"], spans["request"]
    children = [
        s for s in exporter.get_finished_spans() if s.parent is not None and s.parent.span_id == search.context.span_id
    ]
    calls = [call for call in solution.trace.calls if call.kind not in ("search", "cancel")]
    assert search.parent.span_id == mine.context.span_id
    assert len(children) == len(calls)
    assert sum(c.attributes["gen_ai.usage.output_tokens"] for c in children) == solution.usage.generated_tokens
    assert search.attributes["gen_ai.usage.output_tokens"] == solution.usage.generated_tokens
    assert search.attributes["gen_ai.request.model"] == "toy"
    assert (
        search.attributes["tts.cost.flops"]
        == sum(c.attributes["tts.cost.flops"] for c in children)
        == solution.usage.flops
    )
    assert solution.usage.usd is None
    assert not any("tts.cost.usd" in span.attributes for span in (search, *children))  # unknown is not 0
    assert {c.attributes["gen_ai.operation.name"] for c in children} == {"chat", "score"}
    assert all(c.start_time <= c.end_time for c in children)
    told = json.dumps([dict(s.attributes) for s in exporter.get_finished_spans()])
    assert SECRET not in told
    assert "messages" not in told


def test_texts_are_sent_where_they_are_asked_for(exported: Any) -> None:
    provider, exporter = exported
    tts.telemetry.enable(provider, texts=True)
    solution = solved()
    [search] = [s for s in exporter.get_finished_spans() if s.parent is None]
    assert json.loads(search.attributes["gen_ai.input.messages"])[0]["parts"][0]["content"] == SECRET
    assert json.loads(search.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == solution.text


def test_a_failure_ends_its_span_as_one(exported: Any) -> None:
    provider, exporter = exported
    tts.telemetry.enable(provider)
    with pytest.raises(tts.ConfigError):
        tts.solve("", 100, model="toy")
    [search] = exporter.get_finished_spans()
    assert search.attributes["error.type"] == "ConfigError"
    tts.telemetry.disable()
    solved()
    assert len(exporter.get_finished_spans()) == 1


def test_what_is_not_known_of_a_search_is_no_attribute_and_its_price_is_one(exported: Any) -> None:
    provider, exporter = exported
    tts.telemetry.enable(provider)
    backend = ToyBackend()
    backend.rates = Rates(usd_in=10**9, usd_out=10**9)
    paid, unpaid = (
        tts.solve(SECRET, tts.Budget(usd=usd), backend=backend, task="arithmetic", strategy="single")
        for usd in (1, 1e-9)
    )
    one, other = (dict(s.attributes) for s in exporter.get_finished_spans() if s.parent is None)
    assert one["tts.cost.usd"] == paid.usage.usd > 0
    assert one["tts.confidence"] == paid.confidence
    assert "tts.cost.flops" not in one
    assert unpaid.candidates == ()
    assert "tts.confidence" not in other


def test_the_work_of_the_search_itself_is_no_call(exported: Any) -> None:
    class Working(tts.Strategy):
        async def run(self, search: tts.Search) -> None:
            await search.run(sum, [1, 2])
            await search.complete([search.root], n=1)

    provider, exporter = exported
    tts.telemetry.enable(provider)
    solution = tts.solve(SECRET, 400, model="toy", strategy=Working())
    assert [call.kind for call in solution.trace.calls] == ["open", "search", "expand"]
    assert [s.attributes["tts.call.kind"] for s in exporter.get_finished_spans() if s.parent is not None] == [
        "open",
        "expand",
    ]
