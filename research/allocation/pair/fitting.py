"""The performance models that ship for the embedded pair, fitted on the validation split.

Where a model has searches under budgets of whole problems, `auto` runs with its pilots on the same problems and under
the same budgets. So the model can tell where a search is better from the start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from research.allocation.pair import studies
from research.methods import running
from tts.allocator import shipped
from tts.allocator.performance import PerformanceModel, PilotedCurve
from tts.allocator.performance_file import draws_plain
from tts.experiments.analysis.curves import curves_of
from tts.experiments.analysis.performance_fit import PerformanceData, described_keys
from tts.models import registry
from tts.search.plan import parse
from tts.solver.model_cache import own_verifier

_PAIR = registry.get("pocket")
# what ships, by name: what its results are of. The last two are what `solve` without options goes by.
KINDS: Mapping[str, studies.Kind] = MappingProxyType(
    {
        "pocket": studies.EXPRESSIONS,
        "pocket-likelihood": studies.Kind(name="likelihood", verifier=own_verifier(_PAIR, "pocket")),
        "pocket-countdown": studies.Kind(
            name="countdown",
            dataset={"dataset": "countdown", "numbers": [3, 4], "seed": 0, "group_by": "numbers"},
            verifier=own_verifier(_PAIR, "countdown"),
            trees=studies.COUNTDOWN_TREES,
            unit="tokens",
            budgets=studies.COUNTDOWN_TOKENS,
        ),
    }
)


def fit(store: Path, jobs: int, limit: int, names: Iterable[str] = tuple(KINDS)) -> None:
    """Run what the store lacks, write the models where shipped ones lie, and print how well they predict."""
    shipped.FOLDER.mkdir(exist_ok=True)
    for name in names:
        kind = KINDS[name]
        wanted = [
            studies.pools(studies.VALIDATION, limit, 1, kind),
            *studies.alternatives(studies.VALIDATION, limit, kind),
        ]
        measured = PerformanceData.of(studies.results(store, wanted, jobs))
        policy, task, _ = described_keys(wanted[0], measured.cell)
        path = shipped.FOLDER / f"{name}.json"
        fitted = measured.fit(model=policy, task=task, source=wanted[0].name)
        fitted.save(path)
        # the budgets of its searches are those of whole problems, so that `auto` can be held against them
        if kind.unit == "tokens":
            add_piloted_curve(store, jobs, limit, name, kind, fitted).save(path)
        for one in measured.held_out():
            print(
                f"{name}, {one.strategy}: {one.measured:.1%}, held out predicted as {one.predicted:.1%}, calibration "
                f"error {one.error:.1%}"
            )


def add_piloted_curve(
    store: Path, jobs: int, limit: int, name: str, kind: studies.Kind, known: PerformanceModel
) -> PerformanceModel:
    """Return a model with the accuracy that `auto` reaches with a pilot on the problems of its fit.

    Runs that the store lacks are run first.
    """
    plan = f"auto(model={name!r}, pilots=1) | weighted"
    study = running.make_study(
        kind.study("auto", studies.VALIDATION),
        kind.problems(studies.VALIDATION, limit),
        [plan],
        {kind.unit: list(kind.budgets)},
        seeds=kind.seeds,
        verifier=kind.verifier,
    )
    (curve,) = curves_of(studies.results(store, [study], jobs), rng=np.random.default_rng(0))
    limits, reached = np.array(sorted(kind.budgets)) / known.tokens, np.array([one.value for one in curve.accuracy])
    piloted = dataclasses.replace(known, piloted=PilotedCurve(limits, reached))
    searches = [text for text in piloted.curves if not draws_plain(parse(text))]
    for budget, share, size in zip(sorted(kind.budgets), reached.tolist(), limits.tolist(), strict=True):
        direct = piloted.direct(size, searches)
        begins = "a pilot first" if direct is None else f"{direct[0]} from the start"
        print(f"{name}, {budget} {kind.unit}: {share:.1%} with a pilot; {begins}")
    return piloted
