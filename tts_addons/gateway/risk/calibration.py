"""Calibrates a preset of a gateway, with the presets of its chain.

The calibration takes problems with reference answers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from tts.errors import ConfigError
from tts.experiments.run.candidates import judge_answer
from tts.randomness import hash64
from tts.solver.model_cache import LOOP
from tts.solver.risk import use_of
from tts.solver.run import solve_problem
from tts.solver.thresholds import ProblemOutcomes, Thresholds
from tts.tasks.by_references import with_final_answers
from tts.types import Message, Problem
from tts_addons.gateway.config import GatewayConfig
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.orders import order_of
from tts_addons.gateway.risk.chains import prepare_run
from tts_addons.gateway.searches import Order
from tts_addons.gateway.wire.request import SearchRequest

_MOST_SEARCHES = 64  # searches


def calibrate_preset(
    config: GatewayConfig, name: str, problems: Sequence[Problem], risk: float, delta: float = 0.05, of: int = 1
) -> Thresholds:
    """Return the thresholds of a preset and of the other links of its chain.

    Each link answers every problem once.

    Args:
        config: The configuration of the gateway.
        name: The preset, as clients name it.
        problems: The calibration problems, with reference answers; they are not to be reported on.
        risk: The share of given answers that may be wrong, above 0 and below 1.
        delta: The probability that the risk is exceeded, above 0 and below 1.
        of: The number of presets that are tried on these problems; delta is divided by it.

    Raises:
        ConfigError: The preset is unknown; a problem has no reference answer; the problems are too few; or no threshold
            keeps the risk.
    """
    if not problems or any(problem.answer is None for problem in problems):
        count = sum(problem.answer is None for problem in problems)
        raise ConfigError(
            f"{count} of {len(problems)} problems have no reference answer, but all need one to calibrate by"
        )
    return asyncio.run(_calibrate(config, name, problems, risk, delta, of))


async def _calibrate(
    config: GatewayConfig, name: str, problems: Sequence[Problem], risk: float, delta: float, of: int
) -> Thresholds:
    gateway = Gateway(
        config.model_copy(update={"store": None, "keys": None, "accounts": {}, "operators": []}), calibrates=True
    )
    try:
        gateway.offers.get(name)
        names = [str(problem.id or problem.text) for problem in problems]
        links = [await _outcomes(gateway, link, problems) for link in gateway.offers.links(gateway.offers.get(name))]
        return Thresholds.calibrate(names, links, risk, delta, of)
    finally:
        await gateway.close()


async def _outcomes(gateway: Gateway, link: str, problems: Sequence[Problem]) -> ProblemOutcomes:
    """Return the answers of one link to the problems."""
    gate = asyncio.Semaphore(_MOST_SEARCHES)
    offer = gateway.offers.get(link)
    records, task = gateway.offers.servers[offer.model].records[0], gateway.offers.task(offer)

    problems = with_final_answers(problems, task.name, "the file of problems")

    def order(problem: Problem) -> Order:
        messages = (Message("user", problem.prompt),) if isinstance(problem.prompt, str) else problem.prompt
        return order_of(
            SearchRequest(model=link, messages=messages, seed=hash64("calibration", problem.text) % 2**31), gateway
        )

    async def outcome(problem: Problem) -> tuple[float, bool]:
        async with gate:
            checked_order = order(problem)
            run = prepare_run(checked_order, checked_order.budget, records, gateway.cache)
            solution = await LOOP.wait(solve_problem(run))
        if solution.error is not None:
            raise solution.error
        is_right = bool(await asyncio.to_thread(judge_answer, solution.answer, task, problem))
        return (math.nan if solution.answer is None else solution.confidence), is_right

    first_order = order(problems[0])
    use = use_of(prepare_run(first_order, first_order.budget, records, gateway.cache))
    outcomes = await asyncio.gather(*map(outcome, problems))
    return ProblemOutcomes(
        use=use, confidences=[confidence for confidence, _ in outcomes], right=[is_right for _, is_right in outcomes]
    )
