"""Confidences from the log-probabilities of tokens: how well they tell right from wrong.

    python -m research.methods.confidences [--limit 200] [--samples 32] [--draws 12] [--online 100] [--store FILE]
        [--out FOLDER]

The embedded pair draws one pool of samples a problem on the test split, with all confidences of each sample.
Selections are replayed on subsets of the pool, which shows what a vote gains by confidences. Then `deepconf_online`
runs beside votes of as many samples. The command writes `confidences.md`. It takes half an hour of one core. If it was
stopped, it goes on where it ended.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from research.methods import arguments as shared
from research.methods import running, selections
from research.methods.choosing import Choices
from research.methods.measuring import point_difference
from research.stamps import stamp_line
from tts._common.scopes import trust_places
from tts.errors import TTSError
from tts.experiments.analysis.curves import Curve, curves_of
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.replay import CHANCE, replay
from tts.experiments.store.store import Store, default_store
from tts.experiments.study import config
from tts.experiments.study.config import StudyConfig
from tts.search.plan import parse

WINDOW = 8  # tokens: about the last line of a solution of the pair, which ends with its answer
ROLES = {
    "main": "confidence",
    "path": "confidence(measure='logprob', over='sum')",
    "certainty": "confidence(measure='certainty')",
    "entropy": "confidence(measure='entropy')",
    "tail_logprob": f"confidence(measure='logprob', over='tail', window={WINDOW})",
    "tail_entropy": f"confidence(measure='entropy', over='tail', window={WINDOW})",
    "joint": f"confidence(measure='logprob', over='joint', window={WINDOW})",
    "tail": f"confidence(measure='top', over='tail', window={WINDOW})",
    "bottom": f"confidence(measure='top', over='bottom', window={WINDOW})",
    "lowest": f"confidence(measure='top', over='lowest', window={WINDOW})",
}
NAMES = {
    "main": "inverse perplexity", "path": "log-probability of the path (PiCSAR, plain)", "certainty": "self-certainty",
    "entropy": "entropy", "tail_logprob": "tail log-probability", "tail_entropy": "tail entropy",
    "joint": "joint score (PiCSAR, by length)", "tail": "DeepConf, tail", "bottom": "DeepConf, bottom",
    "lowest": "DeepConf, lowest group",
}  # fmt: skip
SIZES = (4, 16)
BASES = ("majority", f"best, {NAMES['main']}")  # the votes and the scores that took no distributions of tokens
CHOOSERS = ("best", "weighted", "deepconf(keep=10.0)")
LIVE = 16  # samples
LIVE_PLANS = {
    "majority": "best_of_n | majority",
    "deepconf, keep 50": "best_of_n | deepconf(keep=50.0)",
    "deepconf, keep 10": "best_of_n | deepconf(keep=10.0)",
    "deepconf_online, keep 90": "deepconf_online(warmup=8, keep=90.0)",
    "deepconf_online, keep 50": "deepconf_online(warmup=8, keep=50.0)",
    "deepconf_online, keep 10": "deepconf_online(warmup=8, keep=10.0)",
}


@dataclass(frozen=True, kw_only=True)
class AllScores(selections.AllScores):
    """The selection of the same name, with the confidences of this file."""

    roles: tuple[str, ...] = tuple(ROLES)


def study(choices: Choices, limit: int, samples: int) -> StudyConfig:
    """Return the study that draws the pools."""
    return config.study_config(
        {
            "name": "confidences",
            "models": "pocket",
            "verifiers": ROLES,
            "problems": {"dataset": "arithmetic", "split": "test", "operations": choices.operations, "limit": limit},
            "strategies": ["best_of_n | research.methods.confidences:AllScores"],
            "budgets": {"samples": [samples]},
            "seeds": 1,
            "record": {"candidates": True},
            "concurrency": 16,
        }
    )


def online_study(choices: Choices, limit: int) -> StudyConfig:
    """Return the study of searches that stop traces while they are written."""
    problems = {"split": "test", "operations": choices.operations, "limit": limit}
    plans = list(LIVE_PLANS.values())
    return running.make_study(
        "confidences, online", problems, plans, {"samples": [LIVE]}, seeds=1, verifier=ROLES["lowest"]
    )


def plans() -> dict[str, str]:
    """Return the selections that are replayed, by name."""
    made = {"majority": "majority", "rpc, inverse perplexity": "rpc"}
    for chooser in CHOOSERS:
        name, _, rest = chooser.rstrip(")").partition("(")
        words = chooser.replace("(keep=", ", keep ").replace(".0)", "")
        made |= {f"{words}, {NAMES[role]}": f"{name}({rest}{', ' * bool(rest)}verifier={role!r})" for role in ROLES}
    return made


def measure(pools: Sequence[ProblemPool], sizes: Sequence[int], draws: int) -> dict[str, list[Curve]]:
    """Return a curve of one point for each selection and size."""
    found = {CHANCE: [one.curve for size in sizes for one in replay(pools, [CHANCE], [size])]}
    for name, selection in plans().items():
        found[name] = [
            one.curve for size in sizes for one in replay(pools, [f"best_of_n | {selection}"], [size], draws=draws)
        ]
    return found


def gap(curve: Curve, base: Curve) -> str:
    """Return the cell of a paired difference, in points."""
    if curve is base:
        return "–"
    mean = point_difference(curve, 0, base, 0).mean
    return f"{100 * mean.value:+.1f} [{100 * mean.low:+.1f}, {100 * mean.high:+.1f}]"


def cell(curve: Curve) -> str:
    """Return the cell of an accuracy, in percent."""
    point = curve.accuracy[0]
    return f"{100 * point.value:.1f} [{100 * point.low:.1f}, {100 * point.high:.1f}]"


def page(
    pools: Sequence[ProblemPool],
    curves_by_name: Mapping[str, Sequence[Curve]],
    live: Mapping[str, Curve],
    sizes: Sequence[int],
    flags: str,
) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from (
        "# Confidences by token, on the embedded pair",
        "",
        stamp_line(f"python -m research.methods.confidences {flags}"),
        "",
    )
    yield (
        f"{len(pools)} problems, {len(pools[0].drawn)} samples each, one seed; replayed. Differences are not "
        f"corrected for their number. Tails, groups and the answer's part of the joint score have {WINDOW} tokens. "
        "The solutions of `pocket` are short and end with the answer, so this page does not show what the tail of a "
        "long thought is worth. The vocabulary has 330 tokens. On one of 50,000 or more, measures that read all likely "
        "tokens may rank otherwise: `tts verifiers report` measures them on your samples."
    )
    yield from (
        "",
        "## AUC among the samples of one problem",
        "",
        "| confidence | verifier | AUC |",
        "| :-- | :-- | :-- |",
    )
    rated = list(selections.aucs(pools, NAMES))
    for (name, one), text in zip(rated, ROLES.values(), strict=True):
        yield f"| {name} | `{text}` | {one.value:.3f} [{one.low:.3f}, {one.high:.3f}] |"
    yield from ("", "## Accuracy", "")
    sized = " | ".join(f"N = {size}" for size in sizes)
    yield f"| selection | {sized} | to majority, N = {sizes[-1]} | to `best` by inverse perplexity, N = {sizes[-1]} |"
    yield f"| :-- |{' :-- |' * (len(sizes) + 2)}"
    for name, curves in curves_by_name.items():
        gaps = " | ".join(gap(curves[-1], curves_by_name[base][-1]) for base in BASES)
        yield f"| {name} | {' | '.join(map(cell, curves))} | {gaps} |"
    yield from ("", "## Traces that are stopped while they are written", "")
    count = len(live["majority"].problems)
    yield (
        f"{count} of the problems, at most {LIVE} samples each, by `{ROLES['lowest']}`. `deepconf_online` writes 8 of "
        "them to their end."
    )
    yield from ("", "| plan | accuracy | to majority | generated tokens |", "| :-- | :-- | :-- | --: |")
    for name, curve in live.items():
        yield (
            f"| {name} | {cell(curve)} | {gap(curve, live['majority'])} | "
            f"{float(curve.costs['generated_tokens'][0]):,.0f} |"
        )


def main() -> None:
    """Draw what is missing, and write the page."""
    options = arguments()
    path, sizes = options.store or default_store(), [size for size in SIZES if size <= options.samples]
    try:
        choices = Choices.load(options.choices)
        pools = selections.draw_pools(study(choices, options.limit, options.samples), path, options.jobs)
        number = running.run(online_study(choices, options.online), path, options.jobs)
        with Store(path) as store, trust_places():
            curves = curves_of(store.results(number), rng=np.random.default_rng(0))
        curves_by_name = measure(pools, sizes, options.draws)
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    live = {
        name: next(one for one in curves if one.label.startswith(str(parse(plan)))) for name, plan in LIVE_PLANS.items()
    }
    flags = f"--limit {options.limit} --samples {options.samples} --draws {options.draws} --online {options.online}"
    shared.write_page(options.out, "confidences.md", page(pools, curves_by_name, live, sizes, flags))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    made = shared.parser(__doc__, limit=200, samples=32, draws=12)
    made.add_argument("--online", type=int, default=100, help="problems of the searches that stop traces")
    return made.parse_args()


if __name__ == "__main__":
    main()
