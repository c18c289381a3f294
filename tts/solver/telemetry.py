"""Reports of searches: lines to the standard library's logging, and OpenTelemetry spans.

Spans are sent where `enable` was called.

Logger "tts": INFO has the begin and the end of each search, DEBUG each call, WARNING what a solution warns of, ERROR
what ended a search. No texts of problems, prompts or answers are logged.

Spans follow the conventions for generative AI.

    tts.telemetry.enable()            # spans go to the tracer provider that the program has set up
    tts.telemetry.enable(texts=True)  # with prompts and answers

A search is one span, `invoke_workflow STRATEGY`, below the span that is current where `solve` is called. Each call of a
model or verifier is a child, with its tokens, rows, model and cost. Attributes without a convention begin with "tts.".
Needs the extra `telemetry`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tts._core.logs import get_logger
from tts.budget.budget import format_limits
from tts.budget.ledger import Call
from tts.errors import require_extra
from tts.solver.setup import ProblemRun
from tts.types import Message, Prompt, Solution, Usage

_BOOKS = ("cancel", "search")  # rows of the ledger that are no call of a model
_NS = 10**9
_LOG = get_logger("tts")
_LOG.addHandler(logging.NullHandler())  # else warnings would be printed where logging is not configured


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of OpenTelemetry spans.

    `tracer` is OpenTelemetry's. `texts` is whether prompts and answers are sent. `clock` gives nanoseconds since the
    epoch.
    """

    tracer: Any
    texts: bool
    clock: Callable[[], int]


_active: list[Settings] = []  # at most one


def enable(provider: Any = None, *, texts: bool = False, clock: Callable[[], int] = time.time_ns) -> None:
    """Make spans of all searches from now on.

    Args:
        provider: A tracer provider of OpenTelemetry; None: the program's.
        texts: Whether the spans have prompts, answers and solutions.
        clock: A function that returns nanoseconds since the epoch.

    Raises:
        MissingDependency: OpenTelemetry is not installed.
    """
    trace = _api()
    tracer = (provider or trace.get_tracer_provider()).get_tracer("tts")
    _active[:] = [Settings(tracer, texts, clock)]


def disable() -> None:
    """Make no more spans; spans of searches under way are ended."""
    _active.clear()


@contextmanager
def continue_trace(headers: Mapping[str, str]) -> Generator[None]:
    """Put the searches that begin in the block below the span of a request.

    The request's headers name that span (`traceparent`). Without `enable` nothing changes.
    """
    if not _active:
        yield
        return
    context: Any = importlib.import_module("opentelemetry.context")
    token = context.attach(importlib.import_module("opentelemetry.propagate").extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def _api() -> Any:
    """Return the tracing module of OpenTelemetry."""
    with require_extra("opentelemetry-api", "telemetry", "telemetry"):
        return importlib.import_module("opentelemetry.trace")


class SearchSpan:
    """The span of one search, and its children."""

    def __init__(self, run: ProblemRun, settings: Settings) -> None:
        self._setup, self._settings, self._trace = run.setup, settings, _api()
        strategy = str(run.setup.plan)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": strategy,
            "gen_ai.request.model": run.setup.model,
            "tts.task": run.setup.task.name,
            "tts.seed": run.seed,
            "tts.budget": format_limits(run.limits),
        }
        if run.problem.id is not None:
            attributes["tts.problem.id"] = run.problem.id
        if settings.texts:
            attributes["gen_ai.input.messages"] = _messages(run.problem.prompt)
        self._span = settings.tracer.start_span(
            f"invoke_workflow {strategy}", attributes=attributes, start_time=settings.clock()
        )
        self._context = self._trace.set_span_in_context(self._span)

    def call(self, call: Call) -> None:
        """Make the span of a call that has ended."""
        if call.kind in _BOOKS:
            return
        end = self._settings.clock()
        operation = {"embed": "embeddings", "score": "score"}.get(call.kind, "chat")
        model = self._setup.model if call.model == "policy" else call.model
        attributes = {
            "gen_ai.operation.name": operation,
            "tts.call.kind": call.kind,
            "tts.call.rows": call.rows,
            **_usage_attributes(call.usage),
        }
        if model:
            attributes["gen_ai.request.model"] = model
        if call.kind in ("expand", "rollout"):
            attributes["gen_ai.request.temperature"] = self._setup.sampling.temperature
        span = self._settings.tracer.start_span(
            f"{operation} {model}".strip(),
            context=self._context,
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=end - int(call.usage.seconds * _NS),
        )
        span.end(end_time=end)

    def end(self, solution: Solution) -> None:
        """End the span with the results of the search."""
        attributes: dict[str, Any] = {
            **_usage_attributes(solution.usage),
            "tts.samples": solution.usage.samples,
            "tts.candidates": len(solution.candidates),
            "tts.stopped_by": solution.stopped_by,
        }
        if not math.isnan(solution.confidence):
            attributes["tts.confidence"] = solution.confidence
        if self._settings.texts and solution.text is not None:
            attributes["gen_ai.output.messages"] = _messages((Message("assistant", solution.text),))
            attributes["tts.answer"] = solution.answer
        self._span.set_attributes(attributes)
        self.close(solution.error)

    def close(self, failure: BaseException | None) -> None:
        """End the span, with the failure that ended the search, if any."""
        if failure is not None:
            self._span.set_attribute("error.type", type(failure).__name__)
            self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, type(failure).__name__))
        self._span.end(end_time=self._settings.clock())


def _usage_attributes(usage: Usage) -> Mapping[str, Any]:
    """Return a usage as attributes of a span; unknown amounts are left out."""
    attributes: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens + (usage.reused_tokens or 0),
        "gen_ai.usage.output_tokens": usage.generated_tokens + usage.cancelled_tokens,
        "tts.usage.verifier_tokens": usage.verifier_tokens,
    }
    if usage.reused_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.reused_tokens
    if usage.usd is not None:
        attributes["tts.cost.usd"] = float(usage.usd)
    if usage.flops is not None:
        attributes["tts.cost.flops"] = float(usage.flops)
    return attributes


def _messages(prompt: Prompt) -> str:
    turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
    return json.dumps(
        [{"role": turn.role, "parts": [{"type": "text", "content": turn.content}]} for turn in turns],
        ensure_ascii=False,
    )


class Watched:
    """One search, as logs and spans show it."""

    def __init__(self, run: ProblemRun) -> None:
        self._name = run.problem.id or "a problem"
        self._span = SearchSpan(run, _active[0]) if _active else None
        facts = (run.setup.plan, format_limits(run.limits), run.setup.model, run.setup.task.name, run.seed)
        _LOG.info("%s: begins, %s, %s, model %s, task %s, seed %d", self._name, *facts)

    @property
    def noted(self) -> Callable[[Call], None] | None:
        """The function that gets each call that has ended; None: neither logs nor spans show calls."""
        return self._call if self._span is not None or _LOG.isEnabledFor(logging.DEBUG) else None

    def _call(self, call: Call) -> None:
        """Report a call that has ended."""
        if self._span is not None:
            self._span.call(call)
        if _LOG.isEnabledFor(logging.DEBUG):
            usage = call.usage
            facts = (call.kind, call.model or "-", call.rows, usage.tokens, usage.prompt_tokens, usage.seconds)
            _LOG.debug("%s: %s %s, %d rows, %d tokens, %d in, %.3f s", self._name, *facts)

    def end(self, solution: Solution) -> None:
        """Report the end of the search."""
        if self._span is not None:
            self._span.end(solution)
        for line in solution.warnings:
            _LOG.warning("%s: %s", self._name, line)
        if solution.error is not None:
            _LOG.error("%s: failed: %s", self._name, solution.error)
        answer, usage = "no answer" if solution.answer is None else "an answer", solution.usage
        facts = (answer, solution.confidence, len(solution.candidates), usage.tokens, usage.seconds)
        text = "%s: ends with %s, confidence %.2f, %d candidates, %d tokens, %.3f s, stopped by %s"
        _LOG.info(text, self._name, *facts, solution.stopped_by)

    def fail(self, failure: BaseException) -> None:
        """Report a search that raised."""
        if self._span is not None:
            self._span.close(failure)
        if not isinstance(failure, asyncio.CancelledError):
            _LOG.error("%s: refused or failed: %s", self._name, failure)
