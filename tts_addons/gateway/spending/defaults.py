"""The budget of a request that names no budget: it pays whole answers."""

from __future__ import annotations

from tts.budget.budget import Budget
from tts.models.record import ModelRecord
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts_addons.gateway.config import GatewayLimits, GatewayModel

_LEAST = 2000  # the least tokens of a budget, which pay several short answers
_LONGEST = 4096  # tokens of an answer where the request does not limit them and its usual length is not known
_CONTEXT_SHARE = 4  # an answer of unknown length takes at most this part of the context
_SPREAD = 4  # usual lengths that a long answer takes


def default_budget(
    settings: GatewayModel, record: ModelRecord, plan: Plan | None, max_tokens: int | None, limits: GatewayLimits
) -> Budget:
    """Return a budget that pays every answer of a strategy in full.

    An answer may have `max_tokens`, else four times its usual length. Where neither is known, it may have a quarter of
    the context, at most 4,096 tokens. A strategy with verifiers gets twice the tokens.

    Args:
        settings: The model's settings.
        record: The record of its policy.
        plan: The strategy; None: `auto`.
        max_tokens: The most tokens of an answer; None: the request does not limit them.
        limits: The operator's limits, which the budget does not exceed.
    """
    usual_length = settings.expected_tokens if isinstance(settings.expected_tokens, int) else record.expected_tokens
    if max_tokens is not None:
        longest = max_tokens
    elif usual_length is not None:
        longest = _SPREAD * usual_length
    elif record.context is not None:
        longest = min(_LONGEST, record.context // _CONTEXT_SHARE)
    else:
        longest = _LONGEST
    verifier_factor = 2 if _is_scored(plan) else 1  # verifiers get as many tokens as the answers
    tokens = longest * _num_answers(plan) * verifier_factor
    max_budget = limits.tokens if limits.client_tokens is None else min(limits.tokens, limits.client_tokens)
    return Budget(tokens=min(max(_LEAST, tokens), max_budget))


def _num_answers(plan: Plan | None) -> int:
    """Return the number of answers that a strategy draws, its parameter `n`.

    A strategy without that parameter counts as 1, since it spends its whole budget anyway.
    """
    num_answers = 1 if plan is None else getattr(plan.strategy, "n", 1)
    return num_answers if isinstance(num_answers, int) else 1


def _is_scored(plan: Plan | None) -> bool:
    """Return whether a strategy scores answers by a verifier."""
    if plan is None:  # `auto` may choose such a strategy
        return True
    parts = (plan.strategy, plan.stopping, plan.selection)
    return any(needs_of(part).verifiers for part in parts if part is not None)
