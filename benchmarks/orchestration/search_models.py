"""Cost of a search beside real models: its share of a run, and tokens that are read twice.

The functions are parts of `benchmarks/orchestration/search_overhead.py`. The run is with SmolLM2. Tokens read twice are
those of process models. Times are of the processor. All but the engine's steps counts as the search's: grants, ledger,
tree, event loop, batching, texts. Tokens are the engine's own count.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.engine.systems import AbsentError
from benchmarks.orchestration.peers import run_peer
from tts.backends.base import Sampling
from tts.backends.engine import build
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.experiments.datasets import load
from tts.models import registry
from tts.solver.solver import Solver
from tts.trace.trace import TraceNode
from tts.types import Solution
from tts.verifiers.heads import ProcessVerifier

PLANS = (
    "beam(n={n})",
    "dvts(n={n})",
    "rebase(n={n})",
    "ets(n={n})",
    "a_star(goals=None)",
    "particle_filter(n={n})",
    "mcts",
)
SMOLLM2_PLANS = ("best_of_n(n={n}) | best", "beam(n={n}, max_steps=4)", "particle_filter(n={n}, max_steps=4)")
QUESTIONS = ("What is 12 + 7?", "What is 3 times 8?", "Name a prime between 20 and 30.", "What is half of 46?")


def share(verifier: Any, n: int) -> Iterator[str]:
    """Yield a table of the search's share of the time of runs with SmolLM2.

    The verifier takes no time. Without SmolLM2, the table has one line with the reason.
    """
    yield "| plan | tokens | seconds in all | of the search | share |"
    yield "| :-- | --: | --: | --: | --: |"
    try:
        backend = build(registry.get("smollm2"), device="cpu", threads=1)
    except ConfigError as missing:
        yield f"| absent: {missing.cause} | | | | |"
        return
    runner, spent = backend.runner, [0.0]
    step = runner.step

    def time_sharing() -> None:
        torch.set_num_threads(1)  # of this thread: the time of torch's other threads would count as the search's
        began = time.thread_time()
        step()
        spent[0] += time.thread_time() - began

    runner.step = time_sharing
    with Solver(backend, verifier, task="math", sampling=Sampling(temperature=0.8, max_tokens=40)) as solver:
        # what is compiled or imported at first is no part of it
        solver.solve(QUESTIONS[0], Budget(tokens=20), strategy="single")
        for form in SMOLLM2_PLANS:
            spent[0], began = 0.0, time.process_time()
            solutions = solver.solve_many(QUESTIONS, strategy=form.format(n=n), each=Budget(tokens=10**6))
            total = time.process_time() - began
            generated = sum(_check_solution(one).usage.generated_tokens for one in solutions)
            search = total - spent[0]
            plan = form.format(n=n).replace("|", "\\|")
            yield f"| `{plan}` | {generated:,} | {total:.1f} | {search:.2f} | {search / total:.1%} |"


def read_twice(n: int, problems: int, peer: str | None) -> Iterator[str]:
    """Yield a table of verifier tokens computed for each generated token of scored steps.

    Each prompt's first pass is left out. Without its_hub, its row has the reason.
    """
    yield "| plan | generated, of scored steps | computed by the engine | ratio | whole prefixes each time |"
    yield "| :-- | --: | --: | --: | --: |"
    backend: Any = build(registry.get("pocket"), device="cpu", threads=1)
    stats = backend.reward_models["process"].runner.stats
    asked = load("arithmetic", split="validation", operations=[5, 6], limit=problems)
    lengths: dict[int, list[int]] = defaultdict(list)
    prompt = 0
    for form in PLANS:
        with Solver(backend, ProcessVerifier(), task="pocket", strategy=form.format(n=n)) as solver:
            before = stats.prefill_computed
            solutions = [_check_solution(one) for one in solver.solve_many(asked, each=Budget(generated_tokens=60 * n))]
        prompts = sum(call.usage.prompt_tokens for one in solutions for call in one.trace.calls if call.kind == "score")
        computed = stats.prefill_computed - before - prompts
        trees = [_Scored(one.trace.nodes) for one in solutions]
        written = sum(tree.written for tree in trees)
        whole = sum(tree.whole + len(tree.scored) * tree.prompt - tree.prompt for tree in trees)
        if form == PLANS[0]:
            for tree in trees:
                tree.add_lengths(lengths)
            prompt = round(sum(tree.prompt for tree in trees) / len(trees))
        yield (
            f"| `{form.format(n=n)}` | {written:,} | {computed:,} | {computed / written:.3f} | {whole / written:.2f} |"
        )
    yield f"| its_hub 1.2, beam search of {n} | | | {_peers(peer, n, prompt, lengths)} | |"


class _Scored:
    """The nodes of a trace that a verifier was asked to score, and their tokens.

    Attributes:
        scored: The nodes that it was asked about.
        written: The tokens on their paths, each counted once.
        whole: The tokens of all their paths.
        prompt: The tokens of the problem.
    """

    def __init__(self, nodes: Sequence[TraceNode]) -> None:
        self._nodes = nodes
        self.prompt = nodes[0].tokens
        self.scored = [node for node in nodes if node.scores]
        paths = [self._path(node) for node in self.scored]
        self.whole = sum(node.tokens for path in paths for node in path)
        self.written = sum(node.tokens for node in {node.node: node for path in paths for node in path}.values())

    def _path(self, node: TraceNode) -> list[TraceNode]:
        """Return a node and those above it, the root left out."""
        path: list[TraceNode] = []
        while node.parent is not None:
            path.append(node)
            node = self._nodes[node.parent]
        return path

    def add_lengths(self, lengths: dict[int, list[int]]) -> None:
        """Note the tokens of every scored step, by its depth."""
        for node in self.scored:
            lengths[len(self._path(node))].append(node.tokens)


def _peers(python: str | None, n: int, prompt: int, lengths: dict[int, list[int]]) -> str:
    """Return the ratio of its_hub's beam search on steps as long as ours, or the reason why it is absent.

    Steps go up to the last depth of a full level.
    """
    if python is None:
        return "absent: no --peer PYTHON"
    deepest = max((depth for depth, of in lengths.items() if len(of) >= n), default=1)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"prompt": prompt, "steps": [lengths[depth] for depth in range(1, deepest + 1)]}, file)
        file.flush()
        try:
            return f"{float(run_peer(python, 'peer_its_hub_verifier', file.name, str(n))):.2f}"
        except AbsentError as reason:
            return f"absent: {reason}"


def _check_solution(solution: Solution) -> Solution:
    if solution.error is not None:
        raise solution.error
    return solution
