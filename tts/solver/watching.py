"""Reports of searches: to the standard library's logging, and to OpenTelemetry where it is enabled.

Logger "tts": INFO has the begin and the end of each search, DEBUG each call, WARNING what a solution warns of, ERROR what ended a search.
No texts of problems, prompts or answers are logged.
"""

from __future__ import annotations

import asyncio
import logging

from tts.budget.ledger import Call
from tts.logs import get_logger
from tts.solver import telemetry
from tts.solver.telemetry import SearchFacts
from tts.types import Solution

_LOG = get_logger("tts")
_LOG.addHandler(logging.NullHandler())  # else warnings would be printed where logging is not configured


class Watched:
    """One search, as logs and spans show it."""

    def __init__(self, facts: SearchFacts) -> None:
        self._name = facts.problem.id or "a problem"
        self._span = telemetry.begun(facts)
        _LOG.info(
            "%s: begins, %s, %s, model %s, task %s, seed %d",
            self._name, facts.strategy, facts.budget, facts.model, facts.task, facts.seed,
        )  # fmt: skip

    def call(self, call: Call) -> None:
        """Report a call that has ended."""
        if self._span is not None:
            self._span.call(call)
        if _LOG.isEnabledFor(logging.DEBUG):
            usage, model = call.usage, call.model or "-"
            _LOG.debug(
                "%s: %s %s, %d rows, %d tokens, %d in, %.3f s",
                self._name, call.kind, model, call.rows, usage.tokens, usage.prompt_tokens, usage.seconds,
            )  # fmt: skip

    def end(self, solution: Solution) -> None:
        """Report the end."""
        if self._span is not None:
            self._span.end(solution)
        for line in solution.warnings:
            _LOG.warning("%s: %s", self._name, line)
        if solution.error is not None:
            _LOG.error("%s: failed: %s", self._name, solution.error)
        usage, answered = solution.usage, "no answer" if solution.answer is None else "an answer"
        _LOG.info(
            "%s: ends with %s, confidence %.2f, %d candidates, %d tokens, %.3f s, stopped by %s",
            self._name, answered, solution.confidence, len(solution.candidates), usage.tokens, usage.seconds, solution.stopped_by,
        )  # fmt: skip

    def fail(self, failure: BaseException) -> None:
        """Report a search that raised."""
        if self._span is not None:
            self._span.close(failure)
        if not isinstance(failure, asyncio.CancelledError):
            _LOG.error("%s: refused or failed: %s", self._name, failure)
