"""Verifiers: the time of the cheap ones for 10,000 finished candidates, and their worth as guides.

    python -m research.methods.verifiers [--candidates 10000]
        processor seconds, one line a verifier; the command fails above 10 seconds together
    python -m research.methods.verifiers --compare [--limit 200] [--seeds 3] [--jobs 2] [--store FILE] [--out FOLDER]
        [--choices FOLDER]

The second command compares the process model, the probe, self-evaluation, confidence and their ensemble on the
embedded pair. Each guides beam search and A*, and chooses among samples. All have the same hard limit on all tokens,
those of the verifier included. The command writes `verifiers.md` with two figures. It takes about an hour of two
cores. If it was stopped, it goes on where it ended. The parameters are those that
`python -m research.methods --choose-parameters` chose on the validation split, with the process model as the guide.
They are read from the folder of `--choices`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process

import tts
from research.methods import arguments as shared
from research.methods import guides
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import TTSError
from tts.experiments.store.store import default_store
from tts.search.parts import Selection
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.types import Candidate, Problem
from tts.verifiers.checker import Checker
from tts.verifiers.confidence import Confidence
from tts.verifiers.ensemble import Ensemble

LIMIT_S = 10.0
OPERATIONS = 32  # of the sum: about two hundred tokens a candidate
CHEAP = {
    "confidence": Confidence(),
    "lowest group": Confidence(measure="logprob", over="lowest", window=64),
    "checker": Checker(),
    "ensemble": Ensemble(members=(Checker(), Confidence())),
}


@dataclass(frozen=True, kw_only=True)
class Scored(tts.Strategy):
    """Draws candidates, then has each verifier score all of them.

    Args:
        count: The number of candidates.
        seconds: The processor's seconds of each verifier, which a run fills in.
    """

    registered_as = "scored"
    count: int
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    async def run(self, search: Search) -> Sequence[Candidate]:
        candidates = await search.complete([search.root], self.count)
        for role in CHEAP:
            started = time.process_time()
            scores = await search.score([c.trajectory for c in candidates], role)
            self.seconds[role] = time.process_time() - started
            assert len(scores) == self.count
        return candidates

    def default_selection(self, *, verified: bool) -> Selection:
        return Majority()


def speed(count: int) -> float:
    """Print the processor seconds of each cheap verifier for so many candidates, and return their sum.

    Booking is included.
    """
    terms = " + ".join(str(3 + i % 7) for i in range(OPERATIONS + 1))
    answer = str(sum(3 + i % 7 for i in range(OPERATIONS + 1)))
    scored = Scored(count=count)
    with tts.Solver(ToyBackend(ToyLanguage(accuracy=0.97)), CHEAP, allow_oracle=True) as solver:
        solution = solver.solve(Problem(terms, answer=answer), tts.Budget(samples=count), strategy=scored)
    if solution.error is not None:
        raise solution.error
    tokens = sum(c.trajectory.num_tokens for c in solution.candidates) / count
    print(f"{count} candidates of {tokens:.0f} tokens")
    for name, seconds in scored.seconds.items():
        print(f"  {name:<14} {seconds:6.2f} s   {1e6 * seconds / count:6.0f} µs a candidate")
    total = sum(scored.seconds.values())
    print(f"  {'together':<14} {total:6.2f} s   (at most {LIMIT_S:g} s for 10000)")
    return total


def main() -> None:
    """Measure what the options ask for."""
    options = arguments()
    if not options.compare:
        if speed(options.candidates) > LIMIT_S * options.candidates / 10_000:
            raise SystemExit("the cheap verifiers take too long")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    asked: dict[str, Any] = {"limit": options.limit, "seeds": options.seeds, "jobs": options.jobs}
    try:
        guides.compare(options.store or default_store(), options.out, options.choices, **asked)
    except TTSError as failure:
        raise SystemExit(str(failure)) from None


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = shared.parser(__doc__, limit=200, jobs=2, seeds=3)
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--compare", action="store_true", help="guides of a search, in place of the seconds")
    return parser.parse_args()


if __name__ == "__main__":
    main()
