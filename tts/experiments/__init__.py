"""Batch experiments. `Study` is the interface; the packages are the stages of a study.

datasets/         problems by name
study/            configuration, cells with their keys, records, and the snapshot of a run
run/              executors, and the runner that leases cells from the store
store/            results in one SQLite file
analysis/         curves, comparisons, replay of recorded samples, laws, performance models
imported/         pools from samples of other programs
output/           tables, figures, pages and exports
verifier_report/  quality of verifiers on recorded samples
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.experiments.api import Study as Study
    from tts_addons.logs.pool import Pool as Pool

__getattr__, __dir__, __all__ = lazy_exports(__name__)
