"""The two searches whose cost is measured on models that answer at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import tts
from benchmarks.orchestration.instant import Instant, InstantBackend
from tts.backends.base import Backend
from tts.backends.toy.backend import ToyBackend
from tts.search.needs import Needs
from tts.search.parts import Selection
from tts.search.search import Search
from tts.search.selections.best import Best
from tts.types import Candidate

KINDS = ("best_of_n", "beam")
SAMPLES, BEAMS, WIDTH, LEVELS = 32, 4, 4, 8
MODELS: Mapping[str, Callable[[], Backend]] = {"instant": InstantBackend, "toy": ToyBackend}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchBeam(tts.Strategy):
    """The smallest beam search: expand, score, keep. It times the calls of a search."""

    registered_as = "bench_beam"

    def needs(self) -> Needs:
        return Needs(capabilities=("steps",))

    async def run(self, search: Search) -> Sequence[Candidate]:
        beams = [search.root]
        for level in range(LEVELS):
            rows = await search.expand(beams, n=WIDTH if level else WIDTH * BEAMS)
            children = [child for siblings in rows for child in siblings]
            scores = await search.score(children)
            beams = [children[i] for i in np.argsort(-scores, kind="stable")[:BEAMS]]
            search.keep(beams)
        for beam in beams:
            search.finish(beam)
        return search.candidates

    def default_selection(self, *, verified: bool) -> Selection:
        return Best()


def make_solver(kind: str, model: str = "toy") -> tts.Solver:
    """Return a solver of the search on one of `MODELS`, with a verifier that takes no time."""
    plan = f"best_of_n(n={SAMPLES}) | best" if kind == "best_of_n" else BenchBeam()
    return tts.Solver(MODELS[model](), Instant(), task="arithmetic", strategy=plan)


def prompt_of(kind: str) -> str:
    """Return a problem that has enough steps."""
    return "3 + 4" if kind == "best_of_n" else "3" + " + 4" * (LEVELS + 1)


def units_of(kind: str) -> int:
    """Return the samples, or expanded steps, of a problem."""
    return SAMPLES if kind == "best_of_n" else BEAMS * WIDTH * LEVELS
