"""The methods that are compared, and the grids from which the validation split chooses parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tts.models import registry
from tts.search.plan import parse
from tts.solver.model_cache import own_verifier

BUDGETS = (1, 2, 4, 8, 16)  # plain samples' worth of generated tokens
POOL = 32  # samples of a problem that the selections of best-of-n are replayed from
GUIDE = own_verifier(registry.get("pocket"), "pocket")  # the verifier that guides and that chooses at the end
BASELINE = "best_of_n | weighted"

# Chosen among recorded samples, at N samples where other methods have a budget of as many samples' worth.
REPLAYED: Mapping[str, str] = {
    "majority": "best_of_n | majority",
    "best": "best_of_n | best",
    "weighted": BASELINE,
    "best of majority": "best_of_n | best_of_majority",
}
# beside the methods whose parameters are chosen: the baselines under the hard limit, and a greedy sample
LIVE: Mapping[str, str] = {
    "best_of_n": BASELINE,
    "best_of_n, best": "best_of_n | best",
    "greedy": "single(temperature=0.0) | majority",
}
# chosen plans with another value of one parameter, which no grid tries: the method, and what is added
VARIANTS: Mapping[str, tuple[str, str]] = {
    "dvts, lookahead": ("dvts", "lookahead=1"),  # as in the reference code
    "beam, duplicates": ("beam", "duplicates='keep'"),
    "ets, unordered": ("ets", "embedder='ngrams(size=1)'"),  # "3 + 4 = 7" and "4 + 3 = 7" are one kind of step
}
# What is live in the comparison, by the panel that it is drawn in; best_of_n beside its replay, for its live tokens.
PANELS: Mapping[str, Sequence[str]] = {
    "sampling": (*LIVE, "adaptive", "early_pruning", "adaptive, self-evaluated", "early_pruning, self-evaluated"),
    "tree search": ("beam", "dvts", "rebase", "ets", "a_star", "mcts", *VARIANTS),
    "particles": ("particle_filter", "particle_gibbs", "parallel_tempering", "entropic_particle_filter"),
    "sequential": ("sequential_revision", "semantic_entropy", "answer_convergence"),
}
SELF_EVALUATED = ", self-evaluated"  # guided by the policy's own judgement in place of the process model
# whose live tokens are compared, so that every search of the first seed is recorded
KEPT = ("rebase", "ets", "ets, unordered")

_BOTH = ("best", "weighted")


def first_grids() -> dict[str, list[str]]:
    """Return the plans to try of each method whose parameters depend on no other method's."""
    return {
        "beam": [f"beam(branching={m}) | {chosen}" for m in (2, 4) for chosen in _BOTH],
        "dvts": [f"dvts(branching={m}) | {chosen}" for m in (2, 4) for chosen in _BOTH],
        "rebase": [f"rebase(balance_temperature={t}) | weighted" for t in (0.1, 0.2, 0.5)],
        "a_star": [
            f"a_star(branching={k}, edge_cost='{cost}')"
            for k in (2, 4)
            for cost in ("drop", "consistent", "zero", "unit")
        ],
        "mcts": [f"mcts(width={m}, exploration={c}) | weighted" for m in (2, 4) for c in (0.5, 1.4)],
        "particle_filter": [
            f"particle_filter(weight_temperature={t}) | {chosen}" for t in (1.0, 3.0, 10.0) for chosen in _BOTH
        ],
        "entropic_particle_filter": [
            f"entropic_particle_filter(annealing='{a}') | {chosen}" for a in ("ess", "entropy") for chosen in _BOTH
        ],
        "adaptive": [f"adaptive(threshold={t})" for t in (0.5, 0.8, 0.95)],
        "early_pruning": [f"early_pruning(pruned={share}) | weighted" for share in (0.5, 0.75)],
        "sequential_revision": [f"sequential_revision(length={length})" for length in (2, 4)],
        "semantic_entropy": [f"semantic_entropy(rounds={r}, prompt='revise')" for r in (2, 4)],
        "answer_convergence": [f"answer_convergence(k={k}) | majority" for k in (2, 3)],
    }


def add_variants(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the chosen plans of methods, and their variants."""
    changed = {
        name: chosen[method].replace(")", f", {parameter})", 1)
        for name, (method, parameter) in VARIANTS.items()
        if method in chosen
    }
    return {**chosen, **changed}


def second_grids(chosen: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the plans to try of each method that shares a parameter with a method already chosen."""
    balance, weight = (
        _parse_strategy(chosen["rebase"]).balance_temperature,
        _parse_strategy(chosen["particle_filter"]).weight_temperature,
    )
    selection = parse(chosen["particle_filter"]).selection
    return {
        "ets": [f"ets(balance_temperature={balance}, charge={charge}) | weighted" for charge in (0.5, 1.0, 2.0)],
        "particle_gibbs": [f"particle_gibbs(weight_temperature={weight}, sweeps={s}) | {selection}" for s in (2, 4)],
        "parallel_tempering": [
            f"parallel_tempering(weight_temperature={weight}, hottest={h}) | {selection}" for h in (2.0, 4.0)
        ],
    }


def self_evaluated_grids() -> dict[str, list[str]]:
    """Return the plans to try where the policy's own judgement guides."""
    return {
        f"adaptive{SELF_EVALUATED}": [f"adaptive(threshold={t})" for t in (0.9, 0.99, 0.999)],
        f"early_pruning{SELF_EVALUATED}": [f"early_pruning(pruned={share}) | weighted" for share in (0.5, 0.75)],
    }


def _parse_strategy(plan: str) -> Any:
    return parse(plan).strategy
