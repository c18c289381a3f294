"""Solve many problems under one total. `auto` gives most samples to the problems that gain most. Core only."""

import tts

PROBLEMS = [" + ".join(str((3 * i + j) % 9) for j in range(2 + i % 6)) for i in range(40)]  # two to seven terms


def main() -> None:
    with tts.Solver("toy", verifiers="toy(error=0.1)", strategy="auto | weighted") as solver:
        solutions = solver.solve_many(PROBLEMS, budget=tts.Budget(samples=4 * len(PROBLEMS)))
    for terms in range(2, 8):
        group = [(p, s) for p, s in zip(PROBLEMS, solutions, strict=True) if p.count("+") == terms - 1]
        right = sum(s.answer == str(sum(map(int, p.split(" + ")))) for p, s in group)
        samples = sum(s.usage.samples for _, s in group) / len(group)
        print(f"{terms} terms: {right} of {len(group)} right, {samples:.1f} samples each")
    print("in all:", sum(s.usage.samples for s in solutions), "of", 4 * len(PROBLEMS), "samples")


if __name__ == "__main__":
    main()
