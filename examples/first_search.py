"""Accuracy against samples on the toy, by three selections: thirty lines, a second, nothing installed but the core."""

from __future__ import annotations

import tts
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage, read_sum

NUM_PROBLEMS = 200


def main() -> None:
    problems = [f"{7 * i % 50} + {i % 9} - {i % 4} + {3 * i % 11} - {i % 7}" for i in range(NUM_PROBLEMS)]
    truth = [str(first + sum(steps)) for first, steps in map(read_sum, problems)]
    backend = ToyBackend(ToyLanguage(accuracy=0.75))
    print(f"{'n':>4} {'majority':>9} {'weighted':>9} {'best':>9}   accuracy on {NUM_PROBLEMS} problems, one seed; standard error <= 0.035")
    for n in (1, 2, 4, 8, 16, 32):
        row: list[str] = []
        for selection in ("majority", "weighted", "best"):
            with tts.Solver(backend, "toy(error=0.2)", task="arithmetic", strategy=f"best_of_n(n={n}) | {selection}") as solver:
                solutions = solver.solve_many(problems, each=10_000)
            row.append(f"{sum(s.answer == t for s, t in zip(solutions, truth, strict=True)) / NUM_PROBLEMS:9.3f}")
        print(f"{n:>4} {' '.join(row)}")


if __name__ == "__main__":
    main()
