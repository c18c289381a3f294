"""The performance model that ships for the embedded pair, from the validation split."""

from __future__ import annotations

from pathlib import Path

from research.allocation.pair import studies
from tts.allocator import shipped
from tts.experiments.analysis.performance_fit import PerformanceData, of_what

NAME = "pocket"


def fit(store: Path, jobs: int, limit: int) -> None:
    """Run what the store lacks, write the model to where shipped ones lie, and print how well it predicts."""
    asked = [studies.pools(studies.VALIDATION, limit, 1), *studies.others(studies.VALIDATION, limit)]
    measured = PerformanceData.of(studies.results(store, asked, jobs))
    policy, task = of_what(asked[0], measured.cell)
    shipped.FOLDER.mkdir(exist_ok=True)
    measured.fitted(model=policy, task=task, source=asked[0].name).save(shipped.FOLDER / f"{NAME}.json")
    for one in measured.held_out():
        print(f"{one.strategy}: {one.measured:.1%}, held out predicted as {one.predicted:.1%}, calibration error {one.error:.1%}")
