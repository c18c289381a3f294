"""Selections by score on the embedded pair: scores, selections, and the threshold of best-of-majority.

    python -m research.methods.selections [--limit 200] [--samples 64] [--draws 12] [--jobs 1] [--store FILE]
        [--out FOLDER]

The command draws one pool of samples a problem on the validation split and one on the test split, with four scores of
each sample. All selections are replayed on subsets of the pools. The command writes `selections.md`. The default share
of best-of-majority is chosen on the validation split, by half as many problems (`thresholds.py`). The command takes
half an hour of one core. If it was stopped, it goes on where it ended.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import tts
from research.methods import arguments as shared
from research.methods import running, thresholds
from research.methods.choosing import Choices
from research.methods.measuring import point_difference
from research.stamps import stamp_line
from tts._common.scopes import trust_places
from tts.errors import TTSError
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.replay import CHANCE, ReplayedCurve, replay
from tts.experiments.store.store import Store, default_store
from tts.experiments.study import config
from tts.experiments.study.config import StudyConfig
from tts.search.needs import Needs
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.statistics import Estimate, clustered_auc_within
from tts.types import Candidate

PATH = "confidence(measure='logprob', over='sum')"
ROLES = {
    "main": "process",
    "mean": "confidence",
    "path": PATH,
    "both": f"ensemble(members=('process', {PATH!r}), how='log_odds')",
}
NAMES = {
    "main": "process model", "mean": "inverse perplexity", "path": "log-probability of the path",
    "both": "log-probability plus log-odds",
}  # fmt: skip
SIZES = (4, 8, 16, 32)
BASE = "majority"


@dataclass(frozen=True, kw_only=True)
class AllScores(tts.Selection):
    """A majority vote after every role has scored all candidates, so that a pool has all scores.

    Args:
        roles: The roles that score.
    """

    roles: tuple[str, ...] = tuple(ROLES)

    def needs(self) -> Needs:
        return Needs(verifiers=self.roles, scores_all=True)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Score with every role, and vote."""
        for role in self.roles:
            await search.score([c.trajectory for c in candidates], role)
        return await Majority().select(candidates, search)


def study(choices: Choices, split: str, limit: int, samples: int) -> StudyConfig:
    """Return the study that draws the pools of a split."""
    return config.study_config(
        {
            "name": "selections" if split == "test" else f"selections, {split}",
            "models": "pocket",
            "verifiers": ROLES,
            "problems": {"dataset": "arithmetic", "split": split, "operations": choices.operations, "limit": limit},
            "strategies": ["best_of_n | research.methods.selections:AllScores"],
            "budgets": {"samples": [samples]},
            "seeds": 1,
            "record": {"candidates": True},
            "concurrency": 16,
        }
    )


def plans(size: int) -> dict[str, str]:
    """Return the selections that are compared at a size, by name."""
    selections = {BASE: "majority"}
    for selection in ("best", "weighted"):
        selections |= {f"{selection}, {NAMES[role]}": f"{selection}(verifier={role!r})" for role in ROLES}
    selections["rpc, inverse perplexity"] = "rpc(verifier='mean')"
    for name in ("deepconf", "borda"):
        selections |= {
            f"{name}, {NAMES[role]}": f"{name}({'keep=10.0, ' * (name == 'deepconf')}verifier={role!r})"
            for role in ("mean", "path")
        }
    for threshold in thresholds.THRESHOLDS:
        alpha = thresholds.alpha_of(threshold, size)
        selections[f"best of majority, alpha {threshold}"] = f"best_of_majority(alpha={alpha!r})"
        selections[f"best of majority by {NAMES['both']}, alpha {threshold}"] = (
            f"best_of_majority(alpha={alpha!r}, verifier='both')"
        )
    return selections


def measure(pools: Sequence[ProblemPool], sizes: Sequence[int], draws: int) -> dict[str, list[ReplayedCurve]]:
    """Return a curve of one point for each selection and size."""
    curves_by_name: dict[str, list[ReplayedCurve]] = {
        CHANCE: [one for size in sizes for one in replay(pools, [CHANCE], [size])]
    }
    for size in sizes:
        for name, selection in plans(size).items():
            curves_by_name.setdefault(name, []).extend(replay(pools, [f"best_of_n | {selection}"], [size], draws=draws))
    return curves_by_name


def aucs(pools: Sequence[ProblemPool], names: Mapping[str, str]) -> Iterator[tuple[str, Estimate]]:
    """Yield each score's AUC among the samples of one problem.

    Args:
        pools: The pools.
        names: The names of the scores, by role.
    """
    for role, name in names.items():
        rows = [
            (i, d.scores[role], d.right is True)
            for i, pool in enumerate(pools)
            for d in pool.drawn
            if not np.isnan(d.scores[role])
        ]
        clusters, scores, right = zip(*rows, strict=True)
        yield name, clustered_auc_within(scores, right, clusters, rng=np.random.default_rng(0))


def page(
    pools: Sequence[ProblemPool],
    curves_by_name: dict[str, list[ReplayedCurve]],
    sizes: Sequence[int],
    chosen: Sequence[str],
    flags: str,
) -> Iterator[str]:
    """Yield the lines of the page.

    Args:
        pools: The pools of the test split.
        curves_by_name: The curves of each selection.
        sizes: The numbers of samples.
        chosen: The lines on how rare an answer best-of-majority may keep.
        flags: The options of the command.
    """
    num = len(pools[0].drawn)
    yield from (
        "# Selections by score, on the embedded pair",
        "",
        stamp_line(f"python -m research.methods.selections {flags}"),
        "",
    )
    yield (
        f"{len(pools)} problems, {num} samples each, replayed. Differences are to the majority vote at the same N. "
        f"*Log-probability of the path* is `{PATH}`; *plus log-odds* adds those of the process model. `deepconf` "
        "keeps a tenth of the samples, as in its paper, but neither it nor `borda` has its paper's scores, which "
        "need distributions of tokens."
    )
    yield from ("", "## AUC among the samples of one problem", "", "| score | AUC |", "| :-- | :-- |")
    yield from (f"| {name} | {one.value:.3f} [{one.low:.3f}, {one.high:.3f}] |" for name, one in aucs(pools, NAMES))
    yield from (
        "",
        "## Accuracy",
        "",
        f"| selection | {' | '.join(f'N = {size}' for size in sizes)} | difference at N = {sizes[-1]} |",
    )
    yield f"| :-- |{' :-- |' * (len(sizes) + 1)}"
    for name, curves in curves_by_name.items():
        points = [one.curve.accuracy[0] for one in curves]
        gap = "–"
        if name != BASE:
            mean = point_difference(curves[-1].curve, 0, curves_by_name[BASE][-1].curve, 0).mean
            gap = f"{100 * mean.value:+.1f} [{100 * mean.low:+.1f}, {100 * mean.high:+.1f}]"
        yield (
            f"| {name} | "
            f"{' | '.join(f'{100 * p.value:.1f} [{100 * p.low:.1f}, {100 * p.high:.1f}]' for p in points)} | {gap} |"
        )
    yield from chosen


def choice(pools: Sequence[ProblemPool], draws: int) -> Iterator[str]:
    """Yield the lines of how rare an answer best-of-majority may keep."""
    yield from ("", "## How rare an answer best-of-majority keeps, chosen on validation data", "")
    yield (
        f"Accuracy on {len(pools)} problems of the validation split, {len(pools[0].drawn)} samples each, and on "
        f"recorded rewards. The default, `{thresholds.DEFAULT}`, has the smallest mean loss to the best threshold of "
        "each row. It loses every problem whose right answer has a share below 0.1. Where problems are that hard and "
        "the verifier ranks no rare wrong answer first, as the process model does, a smaller `alpha` is better."
    )
    yield ""
    yield from thresholds.table(list(thresholds.columns(pools, NAMES, draws)))


def main() -> None:
    """Draw what is missing, and write the page."""
    options = arguments()
    path, sizes = options.store or default_store(), [size for size in SIZES if size <= options.samples]
    try:
        choices, half = Choices.load(options.choices), max(1, options.limit // 2)
        chosen_on = draw_pools(study(choices, "validation", half, options.samples), path, options.jobs)
        chosen = list(choice(chosen_on, options.draws))
        pools = draw_pools(study(choices, "test", options.limit, options.samples), path, options.jobs)
        curves_by_name = measure(pools, sizes, options.draws)
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    flags = f"--limit {options.limit} --samples {options.samples} --draws {options.draws}"
    shared.write_page(options.out, "selections.md", page(pools, curves_by_name, sizes, chosen, flags))


def draw_pools(asked: StudyConfig, path: Path, jobs: int) -> Sequence[ProblemPool]:
    """Run what a study lacks, and return its pools."""
    number = running.run(asked, path, jobs)
    with Store(path) as store, trust_places():  # the selection of the study is this module's
        return pools_of(store.results(number)).pools


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = shared.parser(__doc__, limit=200, samples=64, draws=12)
    return parser.parse_args()


if __name__ == "__main__":
    main()
