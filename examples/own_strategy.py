"""Write a strategy: one method, which gets a `Search`. The library adds batches, budget and trace. Core only."""

from dataclasses import dataclass

import numpy as np

import tts


@dataclass(frozen=True)
class SmallBeam(tts.Strategy):
    beams: int = 2
    width: int = 4

    async def run(self, search: tts.Search):
        live = [search.root]
        while live:
            rows = await search.expand(live, n=self.width)
            children = [child for siblings in rows for child in siblings]
            scores = await search.score(children)
            best = [children[i] for i in np.argsort(-scores, kind="stable")[: self.beams]]
            for t in best:
                search.finish(t)  # a candidate, if it has ended
            live = [t for t in best if t.status == "active"]
            search.keep(live)  # all other paths are pruned, and their state is released
        return search.candidates


def main() -> None:
    solution = tts.solve(
        "3 + 4 - 2 + 9 - 1", budget=600, model="toy", verifier="toy(error=0.05)", strategy=SmallBeam() | tts.Best()
    )
    print(solution.strategy, "->", solution.answer, "in", solution.usage.tokens, "tokens")


if __name__ == "__main__":
    main()
