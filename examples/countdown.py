"""Solve a countdown that one sample misses, and save the page of the search. Needs `[engine]`."""

import sys
from pathlib import Path

import tts


def main(
    folder: str = ".", model: str = "pocket", problem: str = "Reach 4 with 8 18 20 10.", task: str = "countdown"
) -> None:
    verifier = None if model == "pocket" else "toy(error=0.1)"
    asked = {"budget": 400, "task": task, "seed": 0, "model": model, "verifier": verifier}
    for strategy in ("single", "beam(n=8, branching=4) | weighted"):
        solution = tts.solve(problem, strategy=strategy, **asked)
        print(strategy, "->", solution.answer, "in", solution.usage.tokens, "tokens")
    solution.trace.save(Path(folder) / "countdown.html")  # opens in any browser


if __name__ == "__main__":
    main(*sys.argv[1:])
