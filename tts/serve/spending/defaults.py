"""The budget of a request that names none: it pays whole answers."""

from __future__ import annotations

from tts.budget.budget import Budget
from tts.models.record import ModelRecord
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.serve.config import GatewayLimits, GatewayModel

_LEAST = 2000  # tokens of a budget, which pay several short answers
_LONGEST = 4096  # tokens of an answer where the request does not limit them and its usual length is not known
_CONTEXT_SHARE = 4  # an answer of unknown length takes at most this part of the context
_SPREAD = 4  # usual lengths that a long answer takes


def default_budget(
    settings: GatewayModel, record: ModelRecord, plan: Plan | None, max_tokens: int | None, limits: GatewayLimits
) -> Budget:
    """Return a budget that pays every answer of a strategy in full.

    An answer may have `max_tokens`, else four times its usual length, else a quarter of the context, at most 4,096
    tokens. A strategy that is paid for scores gets as much again for its verifiers.

    Args:
        settings: The model's settings.
        record: The record of its policy.
        plan: The strategy; None: `auto`.
        max_tokens: The most tokens of an answer; None: the request does not limit them.
        limits: The operator's limits, which the budget does not exceed.
    """
    usual = settings.expected_tokens if isinstance(settings.expected_tokens, int) else record.expected_tokens
    if max_tokens is not None:
        length = max_tokens
    elif usual is not None:
        length = _SPREAD * usual
    else:
        length = _LONGEST if record.context is None else min(_LONGEST, record.context // _CONTEXT_SHARE)
    tokens = length * _rows(plan) * (2 if _is_scored(plan) else 1)
    most = min(limits.tokens, limits.tokens if limits.client_tokens is None else limits.client_tokens)
    return Budget(tokens=min(max(_LEAST, tokens), most))


def _rows(plan: Plan | None) -> int:
    """Return the number of answers that a strategy draws.

    Without a parameter for it the number is 1: such a strategy spends all that it gets.
    """
    rows = 1 if plan is None else getattr(plan.strategy, "n", 1)
    return rows if isinstance(rows, int) else 1


def _is_scored(plan: Plan | None) -> bool:
    """Return whether answers are scored by a verifier."""
    if plan is None:
        return True
    parts = (plan.strategy, plan.stopping, plan.selection)
    return any(needs_of(part).verifiers for part in parts if part is not None)
