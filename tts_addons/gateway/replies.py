"""From a solution to the answers of a reply, the tokens, and the object `tts` with everything else."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tts.budget.ledger import Call, sum_usage
from tts.tasks.base import Task
from tts.tasks.json import JsonTask
from tts.trace.receipt import Receipt
from tts.trace.trace import plain_values
from tts.types import Candidate, Solution
from tts_addons.gateway.request_task import RequestTask
from tts_addons.gateway.searches import RunningSearch
from tts_addons.gateway.wire.request import AnswerCall, AnswerChoice, Counts, Outcome, ReplyHead
from tts_addons.gateway.wire.token_logprobs import token_logprobs

_CAUSE = re.compile(r"^(\d+ (?:rows|replies or scores of verifiers) failed: [^:]*|the run failed)\b.*", re.DOTALL)


def head_of(search: RunningSearch) -> ReplyHead:
    """Return the head of every reply of a search."""
    return ReplyHead(search.number, search.begun_at, search.order.offer.name, search.order.request)


def outcome_of(search: RunningSearch, solution: Solution) -> Outcome:
    """Return the choices, counts and report of a search."""
    solution = with_majority_first(search, solution)
    choices = choices_of(search, solution)
    return Outcome(tuple(choices), counts_of(solution, choices), report_of(search, solution, choices))


def with_majority_first(search: RunningSearch, solution: Solution) -> Solution:
    """Return a solution by vote, in which most samples decide between calls of tools and texts.

    Calls come first if most samples call a tool, else texts come first. In a plain vote two equal calls would win
    against three different texts, because texts are seldom equal.
    """
    task = search.order.task
    _strategy, _, selection = solution.strategy.rpartition("| ")
    is_vote = selection.startswith("majority")
    if not isinstance(task, RequestTask) or task.tools is None or not is_vote or solution.answer is None:
        return solution
    voters = [c for c in solution.candidates if c.answer is not None and c.weight > 0]
    weight_of_calls = math.fsum(c.weight for c in voters if task.is_call(c.answer))
    calls_win = 2 * weight_of_calls > math.fsum(c.weight for c in voters)
    if task.is_call(solution.answer) == calls_win:
        return solution
    ranked = sorted(solution.candidates, key=lambda c: c.answer is None or task.is_call(c.answer) != calls_win)
    share = _shares(ranked).get(ranked[0].answer_class, solution.confidence)
    return dataclasses.replace(solution, candidates=tuple(ranked), answer=ranked[0].answer, confidence=share)


def choices_of(search: RunningSearch, solution: Solution) -> list[AnswerChoice]:
    """Return the best candidates, best first, at most as many as the request asks for.

    If the request asks for distinct answers, equal answers are returned once. Candidates without an answer come last.
    If answers have a form or must be distinct, one of these is returned, and only if no candidate has an answer.
    """
    if solution.abstained:
        return [AnswerChoice(**_abstention(search, solution.abstained), finish="refusal")]
    answered = [c for c in solution.candidates if c.answer_class is not None]
    unanswered = [c for c in solution.candidates if c.answer_class is None]
    is_distinct = search.order.request.options.distinct
    if is_distinct:
        best_of_class: dict[int | None, Candidate] = {}
        for candidate in answered:
            best_of_class.setdefault(candidate.answer_class, candidate)
        answered = list(best_of_class.values())
    if is_distinct or _has_form(search.order.task):
        unanswered = [] if answered else unanswered[:1]
    chosen = [*answered, *unanswered][: search.order.choices]
    if not chosen:  # the budget paid for no text, but clients read a first choice
        return [AnswerChoice(text="", finish="length")]
    shares = _shares(solution.candidates)
    return [_choice(search, candidate, shares.get(candidate.answer_class)) for candidate in chosen]


def _has_form(task: Task | None) -> bool:
    """Return whether a request asked for a form of answers: JSON, or calls of tools."""
    if isinstance(task, RequestTask):
        return task.tools is not None or isinstance(task.inner, JsonTask)
    return isinstance(task, JsonTask)


def _abstention(search: RunningSearch, why: str) -> dict[str, Any]:
    """Return the sentence in place of an answer that is not given.

    Where a form was asked for, the sentence is a refusal.
    """
    sentence = f"{why[:1].upper()}{why[1:]}."
    return {"refusal": sentence} if _has_form(search.order.task) else {"text": sentence}


def _choice(search: RunningSearch, candidate: Candidate, weight: float | None) -> AnswerChoice:
    """Return the choice of a reply that a candidate makes; `weight`: the share of its answer."""
    path, task = candidate.trajectory, search.order.task
    text = path.response if path.thought else path.full_text
    calls, stop_text, must_call = list[dict[str, Any]](), "", False
    finish = "length" if candidate.truncated else "stop"
    share = len(path.thought) / len(path.full_text) if path.thought else 0.0
    common: dict[str, Any] = {
        "thought": path.thought,
        "tokens": path.num_tokens,
        "weight": weight,
        "thought_share": share,
    }
    if isinstance(task, RequestTask):
        cut_text = task.cut(text)
        if cut_text != text:
            stop_text = next(stop for stop in task.stops if text.startswith(stop, len(cut_text)))
            text, finish = cut_text, "stop text"
        text, calls = task.calls(text, candidate.answer)
        must_call, task = task.tools is not None and task.tools.required, task.inner
    if calls:
        number = search.number[:12]
        answer_calls = [
            AnswerCall(f"call_{number}_{place}", call["name"], json.dumps(call["arguments"], ensure_ascii=False))
            for place, call in enumerate(calls)
        ]
        return AnswerChoice(text=text or None, calls=tuple(answer_calls), finish="calls", **common)
    if candidate.answer is None and (isinstance(task, JsonTask) or must_call):
        refusal = "no candidate has the form that was asked for"
        return AnswerChoice(refusal=refusal, finish="length" if finish == "length" else "refusal", **common)
    answer_text = (candidate.answer or "") if isinstance(task, JsonTask) else text
    tokenizer = search.order.tokenizer
    logprobs = None if tokenizer is None else token_logprobs(path, answer_text, tokenizer)
    return AnswerChoice(text=answer_text, finish=finish, stop_text=stop_text, logprobs=logprobs, **common)


def _shares(candidates: Sequence[Candidate]) -> dict[int | None, float]:
    """Return each answer's share of the total weight of the candidates."""
    weights = [0.0 if math.isnan(candidate.weight) else candidate.weight for candidate in candidates]
    total = math.fsum(weights)
    if not total:
        return {}
    by_class: dict[int | None, list[float]] = {}
    for candidate, weight in zip(candidates, weights, strict=True):
        by_class.setdefault(candidate.answer_class, []).append(weight)
    return {answer_class: math.fsum(class_weights) / total for answer_class, class_weights in by_class.items()}


def counts_of(solution: Solution, choices: Sequence[AnswerChoice]) -> Counts:
    """Return the tokens of the client's prompt and of the answers in the reply.

    The prompt counts once, and answers count with their thoughts. The report, not this count, has the cost of the
    search. Tokens of a thought are estimated by its share of the characters.
    """
    prompt = _prompt_tokens(() if solution.trace is None else solution.trace.calls)
    reasoning = sum(round(choice.tokens * choice.thought_share) for choice in choices)
    cached = max(0, prompt - solution.usage.prompt_tokens)
    completion = sum(choice.tokens for choice in choices)
    return Counts(prompt, completion, cached=cached, reasoning=reasoning)


def _prompt_tokens(calls: Sequence[Call]) -> int:
    """Return the input tokens of the first call of a search, counted once, which are the tokens of its prompt."""
    for call in calls:
        readings = call.rows if call.readings is None else call.readings
        if (count := call.usage.prompt_tokens + (call.usage.reused_tokens or 0)) and readings:
            return round(count / readings)
    return 0


def report_of(search: RunningSearch, solution: Solution, choices: Sequence[AnswerChoice]) -> dict[str, Any]:
    """Return the object `tts`: the results of the search, and its whole ledger."""
    order = search.order
    notes = list(order.notes)
    if len(choices) != order.choices:
        kind = "distinct answers" if order.request.options.distinct else "answers"
        notes.append(f"n is {order.choices}, but the search found {len(choices)} {kind}")
    lacks_logprobs = any(choice.text and choice.logprobs is None and not choice.calls for choice in choices)
    if order.tokenizer is not None and lacks_logprobs:
        notes.append(
            "the log-probabilities of an answer are not known: its text is not one that tokens of the model make up"
        )
    return plain_values(
        {
            "answer": solution.answer,
            "confidence": solution.confidence,
            "abstained": solution.abstained,
            "strategy": solution.strategy,
            "model": solution.model,
            "seed": solution.seed,
            "budget": order.budget.limits,
            "remaining": dict(solution.remaining),
            "stopped_by": solution.stopped_by,
            "reproducible": solution.reproducible,
            "candidates": len(solution.candidates),
            "weights": [choice.weight for choice in choices],
            "warnings": [*notes, *map(public, solution.warnings)],
            "usage": solution.usage,
            "ledger": _ledger(() if solution.trace is None else solution.trace.calls),
            "receipt": receipt_in(search, solution),
            "search": search.number,
            "trace": search.number if order.keep_trace else None,
        }
    )


def receipt_in(search: RunningSearch, solution: Solution) -> Receipt | None:
    """Return the receipt of a search; None: the search has no trace.

    If calls of tools compete with texts, the receipt has no answers of parts of the samples.
    """
    if solution.trace is None:
        return None
    receipt: Receipt = solution.receipt()
    task = search.order.task
    if receipt.parts is None or not isinstance(task, RequestTask) or task.tools is None:
        return receipt
    return dataclasses.replace(
        receipt, parts=None, reason="the choice between calls of tools and texts is made for all samples alone"
    )


def public(warning: str) -> str:
    """Return a warning without the words of a failed model or server.

    These words may name paths and addresses of the operator's.
    """
    return _CAUSE.sub(r"\1", warning)


def _ledger(calls: Sequence[Call]) -> list[Mapping[str, Any]]:
    """Return the ledger, with one row for the calls of one kind and model."""
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        groups.setdefault((call.kind, call.model), []).append(call)
    return [
        {
            "kind": kind,
            "model": model,
            "calls": len(group),
            "rows": sum(c.rows for c in group),
            **_nonzero(sum_usage([c.usage for c in group])),
        }
        for (kind, model), group in groups.items()
    ]


def _nonzero(usage: Any) -> dict[str, Any]:
    return {
        name: value
        for name, one in usage.__dataclass_fields__.items()
        if (value := getattr(usage, name)) != one.default
    }
