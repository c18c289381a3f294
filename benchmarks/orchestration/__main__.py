"""Cost of a search besides models: processor microseconds a sample and an expanded step.

    python -m benchmarks.orchestration [--peer PYTHON] [--repeats 5] [--problems 1 64 1024] [--smoke]

Ours runs with tree, budget, ledger and trace, on two models. One answers at once. The other is the toy, whose draws
take time of their own. `--peer` is the Python of an environment that has its_hub 1.2. The peer's best-of-n and beam
search run on a model that answers at once, in alternation with ours, so that all meet the same noise. Ratios are ours
to the peer's. That of the instant model compares like with like.

One search that is not timed comes first. In the row "1, warm" 20 such searches come first, and 100 follow one after
another. If the peer is missing or does not start, its columns are empty, and a line says why. Figures are medians over
the repeats, with the least and greatest. Times are of the processor, so that other work on the machine counts little.
The profiles and the exact counts of calls of `costs.py` follow.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.engine.systems import AbsentError
from benchmarks.orchestration.costs import print_costs
from benchmarks.orchestration.peers import run_peer
from benchmarks.orchestration.plans import (
    BEAMS,
    KINDS,
    LEVELS,
    MODELS,
    SAMPLES,
    WIDTH,
    make_solver,
    prompt_of,
    units_of,
)
from benchmarks.smoke import Smoke

PEER = "its_hub 1.2"


class Load(NamedTuple):
    """Problems that are solved at once, searches before that are not timed, and timed rounds."""

    problems: int
    warm: int = 1
    rounds: int = 1

    def __str__(self) -> str:
        return f"{self.problems}{', warm' if self.rounds > 1 else ''}"


WARM = Load(1, warm=20, rounds=100)


def ours(kind: str, model: str, load: Load) -> float:
    """Return microseconds of the processor a sample ("best_of_n") or an expanded step ("beam")."""
    prompt = prompt_of(kind)
    with make_solver(kind, model) as solver:
        for _ in range(load.warm):
            solver.solve_many([prompt], each=100_000)
        gc.collect()
        started = time.process_time()
        for _ in range(load.rounds):
            solver.solve_many([prompt] * load.problems, each=100_000)
        return (time.process_time() - started) / (load.rounds * load.problems * units_of(kind)) * 1e6


def peer(python: str, kind: str, load: Load) -> float:
    """Return the same of its_hub, in its own environment."""
    return json.loads(run_peer(python, "peer_its_hub", kind, *map(str, (*load, SAMPLES, BEAMS, WIDTH, LEVELS))))


def absence(python: str | None) -> str:
    """Return why its_hub is left out; "" where it runs."""
    if python is None:
        return "no --peer PYTHON"
    try:
        peer(python, "best_of_n", Load(1))
    except AbsentError as reason:
        return str(reason)
    return ""


def spread(values: Sequence[float]) -> str:
    """Return the median of figures with the least and greatest; "-" without figures."""
    return f"{statistics.median(values):.1f} [{min(values):.1f}, {max(values):.1f}]" if values else "-"


def table(peer_python: str | None, repeats: int, sizes: Sequence[int]) -> None:
    """Print the costs by number of problems."""
    print(
        f"best-of-n: n={SAMPLES}; beam: {BEAMS} beams x {WIDTH} children, {LEVELS} levels; us, median [least, "
        f"greatest] of {repeats} runs"
    )
    titles = "".join(f"{title:>24}" for title in (*(f"ours, {model}" for model in MODELS), PEER))
    print(f"{'':>9} {'problems':>8}{titles}  ratio: {', '.join(MODELS)}")
    for kind in KINDS:
        for load in (WARM, *map(Load, sizes)):
            found: dict[str, list[float]] = defaultdict(list)
            for _ in range(repeats):
                for model in MODELS:
                    found[model].append(ours(kind, model, load))
                if peer_python:
                    found[PEER].append(peer(peer_python, kind, load))
            figures = "".join(f"{spread(found[column]):>24}" for column in (*MODELS, PEER))
            print(f"{kind:>9} {load!s:>8}{figures}  {ratios(found)}", flush=True)


def ratios(found: dict[str, list[float]]) -> str:
    """Return the ratio of each model's median to the peer's; "-" without a peer."""
    if not found[PEER]:
        return "-"
    return " ".join(f"{statistics.median(found[model]) / statistics.median(found[PEER]):.2f}" for model in MODELS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--peer", help="the Python of an environment with its_hub 1.2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--problems", type=int, nargs="+", default=[1, 64, 1024], help="solved at once")
    parser.add_argument("--smoke", action=Smoke, sizes={"repeats": 1, "problems": [1, 2]})
    options = parser.parse_args()
    absent = absence(options.peer)
    if absent:
        print(f"absent: its_hub: {absent}")
    table(None if absent else options.peer, options.repeats, options.problems)
    for kind in KINDS:
        print_costs(kind, min(64, options.problems[-1]))


if __name__ == "__main__":
    main()
