"""Small searches whose whole record is kept beside this file, one line a node, and read like code when it changes.

python -m tests.golden.traces        # renews the records
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.judging import ApprovingToy
from tests.support.revising import RevisingTask
from tests.support.runs import change_setup, make_run, solve
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.verifiers.toy import ToyVerifier

FOLDER = Path(__file__).parent
PLANS = {
    "adaptive": "adaptive(n=4, start=0.0)",
    "answer_convergence": "answer_convergence(n=2, k=2, tokens=1)",
    "budget_forcing": "budget_forcing(n=2, thought_tokens=8, waits=1, wait='Wait ')",
    "cascade": "cascade(models=['policy', 'policy'], samples=[2, 3], thresholds=[1.0])",
    "deepconf_online": "deepconf_online(n=6, warmup=2, keep=50, consensus=2, tokens=6)",
    "early_pruning": "early_pruning(n=4, tokens=6)",
    "entropic_particle_filter": "entropic_particle_filter(n=5, least_ess=0.9)",
    "ab_mcts": "ab_mcts(n=5)",
    "fractured": "fractured(n=2, depths=3, answers=2)",
    "lookahead_power_sampling": "lookahead_power_sampling(n=1, block=6, branching=2, rollouts=2)",
    "mcts": "mcts(n=5, width=2)",
    "pacore": "pacore(widths=[3, 2])",
    "parallel_tempering": "parallel_tempering(n=2)",
    "particle_filter": "particle_filter(n=4)",
    "particle_gibbs": "particle_gibbs(n=3, sweeps=2)",
    "recursive_self_aggregation": "recursive_self_aggregation(n=3, rounds=3, subset=2)",
    "spec_reason": "spec_reason(n=2, threshold=5, draft='policy', question='Its digit is ')",
    "entropy_switching": "entropy_switching(n=2, threshold=0.1, draft='policy')",
    "guided_by_gut": "guided_by_gut(n=4)",
    "archon": "archon(n=3, layers=['generate', 'verify', 'critique', 'rank', 'fuse'], keep=2)",
    "mind_evolution": "mind_evolution(n=2, generations=2)",
    "mixture_of_agents": "mixture_of_agents(samples=3, layers=2)",
    "mur": "mur(n=2, branching=3)",
    "phi_decoding": "phi_decoding(n=2, beams=2, branching=2)",
    "program_aided": "program_aided(n=2)",
    "power_smc": "power_smc(n=4, block=4, resample_below=1)",
    "power_sampling": "power_sampling(chains=2, moves=2, block=8)",
    "self_refine": "self_refine(n=2, rounds=2)",
    "self_verification": "self_verification(n=3, verifications=2)",
    "semantic_entropy": "semantic_entropy(n=3, rounds=2)",
    "sequential_revision": "sequential_revision(chains=2, length=3, shown=2)",
    "a_star": "a_star(goals=1, branching=3)",
    "beam": "beam(n=4, branching=2, lookahead=1)",
    "dvts": "dvts(n=4, branching=2)",
    "ets": "ets(n=6)",
    "rebase": "rebase(n=6)",
    "forest_of_thought": "forest_of_thought(n=2, branching=2)",
    "tree_of_thoughts": "tree_of_thoughts(n=2, branching=2, votes=1)",
}
NODE = ("parent", "text", "tokens", "status", "stream", "pruned", "scratch", "scores", "answer", "candidate", "weight")


def record(plan: str) -> dict[str, Any]:
    """Return what a search on the toy language did."""
    toy = ApprovingToy if plan.startswith("self_verification") else ToyBackend
    backend = toy(ToyLanguage(accuracy=0.5, thoughts=plan.startswith("budget_forcing")))
    run = make_run("10 - 7 + 5", 1000, plan, backend, seed=3, verifiers={"main": ToyVerifier(error=0.2)})
    trace = solve(change_setup(run, task=RevisingTask())).trace.canonical()
    return {
        **{name: trace[name] for name in ("strategy", "answer", "confidence", "stopped_by", "warnings", "kept_tokens")},
        "calls": [[call["kind"], call["model"], call["rows"], call["granted"]] for call in trace["calls"]],
        "nodes": [[node[name] for name in NODE] for node in trace["nodes"]],
    }


def written(made: dict[str, Any]) -> str:
    """Return a record as JSON, with a line for each call and node."""
    lines: list[str] = []
    for name, value in made.items():
        if name in ("calls", "nodes"):
            rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            lines.append(f'"{name}": [\n{rows}\n]')
        else:
            lines.append(f'"{name}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def path(name: str) -> Path:
    """Return where a record is kept."""
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    for known, text in PLANS.items():
        path(known).write_text(written(record(text)), encoding="utf-8")
