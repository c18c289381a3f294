"""Cost of a search besides models: processor microseconds a sample and an expanded step.

    python -m benchmarks.orchestration [--peer PYTHON] [--repeats 5] [--problems 1 64 1024] [--smoke]

The model answers at once. Ours runs on the toy backend with tree, budget, ledger and trace. `--peer` is the Python of
an environment that has its_hub 1.2. The peer's best-of-n and beam search run on an equally instant fake model, in
alternation with ours, so that both meet the same noise. If the peer is missing or does not start, its column is empty,
and a line says why. Figures are medians over the repeats, with the least and greatest. Times are of the processor, so
that other work on the machine counts little. The profiles of `costs.py` follow.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Sequence

from benchmarks.engine.systems import AbsentError
from benchmarks.orchestration.costs import print_costs
from benchmarks.orchestration.peers import run_peer
from benchmarks.orchestration.plans import BEAMS, KINDS, LEVELS, SAMPLES, WIDTH, make_solver, prompt_of, units_of
from benchmarks.smoke import Smoke


def ours(kind: str, problems: int) -> float:
    """Return microseconds of the processor a sample ("best_of_n") or an expanded step ("beam")."""
    with make_solver(kind) as solver:
        solver.solve_many([prompt_of(kind)], each=100_000)  # imports and the loop's thread are no part of it
        gc.collect()
        started = time.process_time()
        solver.solve_many([prompt_of(kind)] * problems, each=100_000)
        return (time.process_time() - started) / (problems * units_of(kind)) * 1e6


def peer(python: str, kind: str, problems: int) -> float:
    """Return the same of its_hub, in its own environment."""
    return json.loads(run_peer(python, "peer_its_hub", kind, *map(str, (problems, SAMPLES, BEAMS, WIDTH, LEVELS))))


def absence(python: str | None) -> str:
    """Return why its_hub is left out; "" where it runs."""
    if python is None:
        return "no --peer PYTHON"
    try:
        peer(python, "best_of_n", 1)
    except AbsentError as reason:
        return str(reason)
    return ""


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):7.1f} [{min(values):.1f}, {max(values):.1f}]"


def table(peer_python: str | None, repeats: int, sizes: Sequence[int]) -> None:
    """Print the costs by number of problems.

    With several numbers, the change from the last but one to the last is printed too.
    """
    print(
        f"best-of-n: n={SAMPLES}; beam: {BEAMS} beams x {WIDTH} children, {LEVELS} levels; median [least, greatest] "
        f"of {repeats} runs"
    )
    print(f"{'':>10} {'problems':>8}  {'ours, us':>24}  {'its_hub 1.2, us':>24}  ratio")
    for kind in KINDS:
        medians: dict[int, float] = {}
        for problems in sizes:
            mine, theirs = [], []
            for _ in range(repeats):
                mine.append(ours(kind, problems))
                if peer_python:
                    theirs.append(peer(peer_python, kind, problems))
            medians[problems] = statistics.median(mine)
            ratio = f"{medians[problems] / statistics.median(theirs):.2f}" if theirs else "-"
            print(f"{kind:>10} {problems:>8}  {spread(mine):>24}  {spread(theirs) if theirs else '-':>24}  {ratio}")
        if len(sizes) < 2:
            continue
        few, many = sizes[-2:]
        print(f"{'':>10} from {few:,} to {many:,} problems: x{medians[many] / medians[few]:.2f}")
        gc.disable()
        still = {problems: statistics.median(ours(kind, problems) for _ in range(repeats)) for problems in (few, many)}
        gc.enable()
        print(
            f"{'':>10} without Python's cycle collector: {still[few]:.1f} and {still[many]:.1f} us, "
            f"x{still[many] / still[few]:.2f}"
        )


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
