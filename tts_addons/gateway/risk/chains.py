"""Chains: a preset with a risk, and the presets that are asked where it is not sure enough.

One budget pays all links.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.budget.ledger import sum_usage
from tts.errors import TTSError
from tts.models.record import ModelRecord
from tts.solver.model_cache import ModelCache
from tts.solver.risk import RiskLimit, use_of
from tts.solver.setup import ProblemRun
from tts.solver.solver import Solver
from tts.solver.thresholds import Thresholds
from tts.types import Solution
from tts_addons.gateway.failures import api_error
from tts_addons.gateway.offers import Offer, Offers
from tts_addons.gateway.searches import Order
from tts_addons.gateway.wire.request import SearchRequest

_NONE: Mapping[str, Any] = {"temperature": None, "draws": {}, "max_tokens": None, "thinking_tokens": None, "effort": ""}


def prepare_run(
    order: Order, budget: Budget | Account, records: Mapping[str, ModelRecord], cache: ModelCache
) -> ProblemRun:
    """Return the run of an order, not begun.

    Args:
        order: The order.
        budget: The limits, or the account that pays.
        records: The models by role, on one server.
        cache: The cache of loaded models.
    """
    settings = order.offer.settings
    solver = Solver(
        records,
        settings.verifiers if order.verifier is None else order.verifier,
        task=order.task,
        sampling=order.sampling,
        expected_tokens=settings.expected_tokens,
        on_error="keep",
        keep=cache,
    )
    return solver.prepare(order.problem, budget, strategy=order.strategy, seed=order.seed)


def calibrated_request(request: SearchRequest) -> SearchRequest:
    """Return a request for a preset with a risk, without what would change its sampling or its budget.

    Such fields have no effect, and are reported.
    """
    names = {name: tuple(request.draws) if name == "draws" else (name,) for name in _NONE}
    field_names = [one for name, none in _NONE.items() if getattr(request, name) != none for one in names[name]]
    notes = tuple(
        f"{request.name_of(name)} had no effect: the risk of this preset holds for its own sampling"
        for name in field_names
    )
    changes: dict[str, Any] = {**_NONE, "notes": (*request.notes, *notes)}
    return dataclasses.replace(request, **changes)


class CalibratedChains:
    """The thresholds of presets with a risk.

    Args:
        offers: The models and presets.
        cache: Where loaded models stay.

    Raises:
        ConfigError: A file cannot be read, or does not keep the risk of its preset.
    """

    def __init__(self, offers: Offers, cache: ModelCache) -> None:
        self._offers, self._cache = offers, cache
        self._thresholds: dict[str, Thresholds] = {}
        for name, offer in offers.by_name.items():
            if offer.preset.risk is not None and offer.preset.calibration is not None:
                thresholds = Thresholds.read(offer.preset.calibration)
                thresholds.check_risk(offer.preset.risk)
                self._thresholds[name] = thresholds

    def check(self, order: Order) -> None:
        """Refuse an order that its calibration does not cover, before anything is reserved.

        Raises:
            ApiError: 400, whose text names what differs from the calibrated use.
        """
        for place, link in enumerate(order.links):
            records = self._offers.servers[link.offer.model].records[0]
            try:
                self.limit(
                    order.offer, place, prepare_run(link, link.budget, records, self._cache), of=len(order.links)
                )
            except TTSError as failure:
                raise api_error(failure, "model") from None

    def limit(self, offer: Offer, place: int, run: ProblemRun, *, of: int) -> RiskLimit:
        """Return the limit below which a link of a preset abstains.

        Args:
            offer: The preset.
            place: The place of the link in its chain.
            run: The run of the link.
            of: How many links the chain has.

        Raises:
            ConfigError: The calibration does not cover this use.
        """
        assert offer.preset.risk is not None, "links have a risk"
        return RiskLimit(offer.preset.risk, self._thresholds[offer.name].threshold(use_of(run), place, of))


def with_earlier(earlier: Sequence[tuple[str, Solution]], name: str, solution: Solution) -> Solution:
    """Return the solution of the link that answers, with the costs and reasons of the earlier links.

    Args:
        earlier: The links that abstained, with their solutions.
        name: The name of the link that answers.
        solution: The solution of this link.
    """
    if not earlier:
        return solution
    links = [*earlier, (name, solution)]
    usage = sum_usage([link_solution.usage for _, link_solution in links])
    reasons = [f"{link}: {link_solution.abstained}" for link, link_solution in earlier]
    warnings = (*reasons, *solution.warnings)
    trace = solution.trace
    if trace is not None:
        calls = [
            dataclasses.replace(call, model=f"{link} {call.model}".strip())
            for link, link_solution in links
            for call in link_solution.trace.calls
        ]
        trace = dataclasses.replace(trace, calls=tuple(calls), usage=usage, warnings=warnings)
    return dataclasses.replace(solution, usage=usage, warnings=warnings, trace=trace)
