"""The performance models that ship for the embedded pair, from the validation split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from research.allocation.pair import studies
from tts.allocator import shipped
from tts.experiments.analysis.performance_fit import PerformanceData, of_what
from tts.models import registry
from tts.solver.model_cache import own_verifier

_PAIR = registry.get("pocket")
# what ships, by name: what its results are of. The last two are what `solve` without options goes by.
KINDS: Mapping[str, studies.Kind] = MappingProxyType(
    {
        "pocket": studies.EXPRESSIONS,
        "pocket-likelihood": studies.Kind(name="likelihood", verifier=own_verifier(_PAIR, "pocket")),
        "pocket-countdown": studies.Kind(
            name="countdown", dataset={"dataset": "countdown", "numbers": [3, 4], "seed": 0, "group_by": "numbers"},
            verifier=own_verifier(_PAIR, "countdown"), trees=studies.COUNTDOWN_TREES, unit="tokens",
            budgets=studies.COUNTDOWN_TOKENS,
        ),
    }
)  # fmt: skip


def fit(store: Path, jobs: int, limit: int, names: Iterable[str] = tuple(KINDS)) -> None:
    """Run what the store lacks, write the models to where shipped ones lie, and print how well they predict."""
    shipped.FOLDER.mkdir(exist_ok=True)
    for name in names:
        kind = KINDS[name]
        asked = [studies.pools(studies.VALIDATION, limit, 1, kind), *studies.others(studies.VALIDATION, limit, kind)]
        measured = PerformanceData.of(studies.results(store, asked, jobs))
        policy, task, _ = of_what(asked[0], measured.cell)
        measured.fitted(model=policy, task=task, source=asked[0].name).save(shipped.FOLDER / f"{name}.json")
        for one in measured.held_out():
            print(
                f"{name}, {one.strategy}: {one.measured:.1%}, held out predicted as {one.predicted:.1%}, calibration error {one.error:.1%}"
            )
