"""Compare a fixed number of samples with `auto`, which decides how many samples are worth their tokens. Core only."""

import tts

PROBLEMS = [f"{7 * i % 50} + {i % 9} - {i % 4} + {3 * i % 11} - {i % 7}" for i in range(60)]


def right(problem: str, answer: str | None) -> bool:
    return answer == str(eval(problem))  # sums of our own


def main() -> None:
    print(f"{'strategy':<28} {'accuracy':>8} {'tokens':>8} {'samples':>8}")
    for strategy in ("single", "best_of_n(n=8) | weighted", "auto | weighted"):
        solutions = tts.solve_many(
            PROBLEMS, each=tts.Budget(samples=8), model="toy", verifier="toy(error=0.1)", strategy=strategy
        )
        correct = sum(right(problem, each.answer) for problem, each in zip(PROBLEMS, solutions, strict=True))
        tokens, samples = sum(each.usage.tokens for each in solutions), sum(each.usage.samples for each in solutions)
        print(f"{strategy:<28} {correct / len(PROBLEMS):>8.0%} {tokens:>8,} {samples:>8}")


if __name__ == "__main__":
    main()
