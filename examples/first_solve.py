"""Solve one problem under a budget, and print what the solution has. Core only."""

import tts


def main() -> None:
    solution = tts.solve("3 + 4 - 2 + 9", budget=400, model="toy", strategy="best_of_n(n=8) | majority")
    print("answer:", solution.answer, "confidence:", solution.confidence, "ended by:", solution.stopped_by)
    print("spent:", solution.usage.tokens, "tokens, left:", solution.remaining)
    for candidate in solution.candidates[:3]:
        print(candidate.index, candidate.answer, repr(candidate.trajectory.text))


if __name__ == "__main__":
    main()
