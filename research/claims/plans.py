"""The methods, the grids of their parameters, and the verifiers that guide them."""

from __future__ import annotations

from collections.abc import Mapping

NUMBERS = 4
BUDGETS = (62, 124, 248)  # generated tokens of a problem: about 2, 4 and 8 samples
TRIED_AT = 248  # where methods with several steps a level have room for them
FRESH = 20_270_102  # seed of the problems: another than that of the gates
POOL = 32  # samples of a problem that selections are replayed from
POOL_SIZES = (1, 2, 4, 8, 16, 32)

LEARNT = "learnt"
EXACT = "exact"
FLIPPED = {f"flipped {100 * error:g} %": error for error in (0.05, 0.15, 0.3)}
RULES = "rules"
_REACHABLE = "research.methods.countdown:Reachable"
VERIFIERS: Mapping[str, Mapping[str, str]] = {
    LEARNT: {"main": "process(head='reach')"},
    EXACT: {"main": _REACHABLE},
    **{name: {"main": f"{_REACHABLE}(error={error:g})"} for name, error in FLIPPED.items()},
}

MAJORITY, BEST_OF_N = "majority", "best_of_n"
SAMPLED: Mapping[str, str] = {MAJORITY: "best_of_n | majority", BEST_OF_N: "best_of_n | weighted"}
GRIDS: Mapping[str, tuple[str, ...]] = {
    "beam": tuple(f"beam(n={n}, branching=4) | {chosen}" for n in (4, 8) for chosen in ("weighted", "best")),
    "rebase": tuple(f"rebase(n=8, balance_temperature={t}) | weighted" for t in (0.1, 0.2, 0.5)),
    "particle_filter": tuple(f"particle_filter(n=8, weight_temperature={t}) | weighted" for t in (1.0, 3.0)),
    "a_star": tuple(
        f"a_star(branching={k}, goals=1, edge_cost='{cost}') | best"
        for k in (2, 4)
        for cost in ("drop", "consistent", "unit")
    ),
}
AUTO = "auto(model='pocket-countdown') | weighted"  # what `solve` without options runs
STEPWISE = (*GRIDS, "ets")
CHARGES = (0.5, 1.0, 1.5, 2.0, 4.0, 8.0)
ALPHAS = (0.05, 0.1, 0.2, 0.3)


def ets_grid(rebase: str) -> tuple[str, ...]:
    """Return the plans of ETS with the balance of a plan of REBASE, so that the charge alone differs."""
    return tuple(rebase.replace("rebase(", "ets(").replace(")", f", charge={charge:g})", 1) for charge in CHARGES)


def add_rules(plan: str) -> str:
    """Return a plan that ends at the first answer that the rules accept, and returns that answer."""
    return f"{plan.partition(' | ')[0]} | score_threshold(threshold=1, verifier='{RULES}') | best(verifier='{RULES}')"
