"""From a solution to a chat completion of the API: choices, usage, and the field `tts` with everything else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts.budget.ledger import Call, sum_usage
from tts.serve.request_task import RequestTask
from tts.serve.searches import RunningSearch
from tts.tasks.json import JsonTask
from tts.trace.trace import plain_values
from tts.types import Candidate, Solution

_CAUSE = re.compile(r"^(\d+ (?:rows|replies or scores of verifiers) failed: [^:]*|the run failed)\b.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """One answer of a reply.

    Args:
        tokens: of its path. message: as the API has it, without the role. finish: why it ended. weight: its share of the
            selection's weight; None where nothing was weighed.
    """

    tokens: int
    message: Mapping[str, Any]
    finish: str
    weight: float | None


def choices_of(search: RunningSearch, solution: Solution) -> list[AnswerChoice]:
    """Return the best candidate of each of the best answers, best first; at most as many as were asked for."""
    shares = _shares(solution.candidates)
    found: dict[int | None, AnswerChoice] = {}
    for candidate in solution.candidates:
        kind = candidate.answer_class
        if kind in found or (kind is None and (found or solution.answer is not None)):
            continue
        found[kind] = _choice(search, candidate, shares.get(kind))
        if len(found) == search.order.choices:
            break
    # clients read the first choice, also where the budget paid for no text
    return list(found.values()) or [AnswerChoice(0, {"content": ""}, "length", None)]


def _choice(search: RunningSearch, candidate: Candidate, weight: float | None) -> AnswerChoice:
    path, task = candidate.trajectory, search.order.task
    told: dict[str, Any] = {"reasoning_content": path.thought} if path.thought else {}
    text, calls = path.response if path.thought else path.full_text, list[dict[str, Any]]()
    finish, has_tools = "length" if candidate.truncated else "stop", False
    if isinstance(task, RequestTask):
        if (cut := task.cut(text)) != text:
            text, finish = cut, "stop"
        text, calls = task.calls(text, candidate.answer)
        has_tools, task = task.tools is not None, task.inner
    if calls:
        number = search.number[:12]
        told["tool_calls"] = [
            {"id": f"call_{number}_{place}", "type": "function", "function": {**call, "arguments": json.dumps(call["arguments"])}}
            for place, call in enumerate(calls)
        ]
        return AnswerChoice(path.num_tokens, {"content": text or None, **told}, "tool_calls", weight)
    if candidate.answer is None and (isinstance(task, JsonTask) or has_tools):
        message = {"content": None, "refusal": "no candidate has the form that was asked for", **told}
    else:
        message = {"content": candidate.answer if isinstance(task, JsonTask) else text, **told}
    return AnswerChoice(path.num_tokens, message, finish, weight)


def _shares(candidates: Sequence[Candidate]) -> dict[int | None, float]:
    """Return the share of all weight that the candidates of each answer have."""
    weights = [0.0 if math.isnan(candidate.weight) else candidate.weight for candidate in candidates]
    total = math.fsum(weights)
    if not total:
        return {}
    sums: dict[int | None, list[float]] = {}
    for candidate, weight in zip(candidates, weights, strict=True):
        sums.setdefault(candidate.answer_class, []).append(weight)
    return {kind: math.fsum(parts) / total for kind, parts in sums.items()}


def usage_of(solution: Solution, choices: Sequence[AnswerChoice]) -> dict[str, Any]:
    """Return the ledger's usage in the API's terms.

    All tokens that were computed beyond prompts are `completion_tokens`. Those that are not of the choices, verifiers' included, are
    `reasoning_tokens`.
    """
    usage = solution.usage
    shown = min(usage.tokens, sum(choice.tokens for choice in choices))
    reused = usage.reused_tokens or 0
    return usage_report(usage.prompt_tokens + reused, usage.tokens, cached=reused, reasoning=usage.tokens - shown)


def usage_report(prompt: int, completion: int, *, cached: int, reasoning: int = 0) -> dict[str, Any]:
    """Return counts of tokens in the API's terms."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def report_of(search: RunningSearch, solution: Solution, choices: Sequence[AnswerChoice]) -> dict[str, Any]:
    """Return the field `tts`: how the search went, and its whole ledger."""
    order, short = search.order, search.order.choices - len(choices)
    missing = (f"n is {order.choices}, but the search found {len(choices)} distinct answers",) if short else ()
    return plain_values(
        {
            "answer": solution.answer,
            "confidence": solution.confidence,
            "strategy": solution.strategy,
            "model": solution.model,
            "seed": solution.seed,
            "budget": order.budget.limits,
            "remaining": dict(solution.remaining),
            "stopped_by": solution.stopped_by,
            "reproducible": solution.reproducible,
            "candidates": len(solution.candidates),
            "weights": [choice.weight for choice in choices],
            "warnings": [*order.notes, *missing, *map(public, solution.warnings)],
            "usage": solution.usage,
            "ledger": _ledger(() if solution.trace is None else solution.trace.calls),
            "search": search.number,
            "trace": search.number if order.keep_trace else None,
        }
    )


def public(warning: str) -> str:
    """Return a warning without the words of a failed model or server, which may name paths and addresses of the operator's."""
    return _CAUSE.sub(r"\1", warning)


def _ledger(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Return the ledger with the calls of one kind and model as one row; the trace has them one by one."""
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        groups.setdefault((call.kind, call.model), []).append(call)
    return [
        {
            "kind": kind,
            "model": model,
            "calls": len(group),
            "rows": sum(c.rows for c in group),
            **_told(sum_usage([c.usage for c in group])),
        }
        for (kind, model), group in groups.items()
    ]


def _told(usage: Any) -> dict[str, Any]:
    return {name: value for name, one in usage.__dataclass_fields__.items() if (value := getattr(usage, name)) != one.default}


def completion(search: RunningSearch, solution: Solution) -> dict[str, Any]:
    """Return the reply to a request that is not streamed."""
    choices = choices_of(search, solution)
    return {
        **heading(search, "chat.completion"),
        "choices": [
            {
                "index": place,
                "message": {"role": "assistant", "refusal": None, **choice.message},
                "logprobs": None,
                "finish_reason": choice.finish,
            }
            for place, choice in enumerate(choices)
        ],
        "usage": usage_of(solution, choices),
        "tts": report_of(search, solution, choices),
    }


def heading(search: RunningSearch, kind: str) -> dict[str, Any]:
    """Return what every reply of a search begins with."""
    return {"id": f"chatcmpl-{search.number}", "object": kind, "created": int(search.begun_at), "model": search.order.offer.name}
