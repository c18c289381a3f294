"""Write a verifier that scores each step, so that searches can use it before a solution has ended. Core only."""

import re
from collections.abc import Sequence

import tts
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls


class Sums(tts.Verifier):
    """Scores a line 1 if it and all lines before it are right, else 0."""

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[tts.StepScores]:
        del problem  # a line shows whether it is right
        return [tts.StepScores(steps=self.check_steps(calls.task.split(each.full_text))) for each in trajectories]

    def check_steps(self, lines: Sequence[str]) -> tuple[float, ...]:
        scores: list[float] = []
        for line in lines:
            found = re.fullmatch(r"(-?\d+) ([+-]) (\d+) = (-?\d+)\n", line)
            true = found is None or int(found[1]) + int(found[2] + found[3]) == int(found[4])
            scores.append(float(true and (not scores or scores[-1] == 1)))
        return tuple(scores)


def main() -> None:
    problem = "3 + 4 - 2 + 9 - 1 + 6"
    for verifier in ("none", Sums()):
        strategy = "best_of_n(n=4) | majority" if verifier == "none" else "beam(n=4) | best"
        solution = tts.solve(problem, budget=400, model="toy", verifier=verifier, strategy=strategy, seed=3)
        print(solution.strategy, "->", solution.answer, "in", solution.usage.tokens, "tokens")


if __name__ == "__main__":
    main()
