"""Measure the accuracy of a model that thinks, by the number of tokens that its thoughts may take. Core only."""

import tts

PROBLEMS = [f"{i % 50} + {i % 9} - {i % 4} + {3 * i % 11}" for i in range(40)]


def main() -> None:
    for tokens in (5, 10, 20, 40):
        strategy = f"budget_forcing(n=1, thought_tokens={tokens})"
        solutions = tts.solve_many(PROBLEMS, each=300, model="toy-thinking", strategy=strategy)
        right = sum(s.answer == str(eval(p)) for p, s in zip(PROBLEMS, solutions, strict=True))  # sums of our own
        spent = sum(s.usage.generated_tokens for s in solutions) / len(PROBLEMS)
        print(f"thoughts of at most {tokens:>2} tokens: {right} of {len(PROBLEMS)} right, {spent:.0f} tokens each")


if __name__ == "__main__":
    main()
