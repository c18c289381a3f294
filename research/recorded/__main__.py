"""Recorded samples of real models: what selections, stop rules and `auto` reach on them.

    TTS_DATA_DIR=… python -m research.recorded [--draws 20] [--every 4] [--only POOL …] [--kept FILE] [--out FOLDER]

No new token is drawn. The command reads the pools in TTS_DATA_DIR/pools, which `research/README.md` names. It writes
`recorded.md` with a figure for each pool. The programs of HumanEval run in the sandbox once. Their verdicts are kept
in a file, and a run after an interruption adds to it. The command takes a quarter of an hour of one core. A program
takes half a second more, or a minute if it does not end.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from research.recorded import page, pools, programs
from research.stamps import stamp_line
from tts.errors import TTSError
from tts.experiments.store.store import default_store
from tts.statistics import Estimate, clustered_mean, pass_at_k

RESULTS = Path(__file__).parents[2] / "docs/results"
HUMANEVAL = "humaneval"
TOTALS: Mapping[str, tuple[int, ...]] = {
    "qwen25math": (2, 4),
    "dates": (2, 4),
    "game24_cot": (8, 32),
    "game24_io": (8, 32),
    "crucible": (2, 4),
    "bestofn": (2, 4),
}
SIZES = (1, 2, 4, 8, 16, 32, 64, 100)


def main() -> None:
    """Replay what is asked for, and write the page."""
    options = arguments()
    try:
        lines = list(page_lines(options.only, options.draws, options.every, options.kept, options.out))
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "recorded.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(options.out / "recorded.md")


def page_lines(names: Sequence[str], draws: int, every: int, kept: Path, folder: Path) -> Iterator[str]:
    """Yield the lines of the page, and save its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    only = "" if tuple(names) == (*pools.MODELS, HUMANEVAL) else f" --only {' '.join(names)}"
    yield from (
        "# Recorded samples of real models",
        "",
        stamp_line(f"python -m research.recorded --draws {draws} --every {every}{only}"),
        "",
    )
    yield from (
        "There are few problems, so most differences are within chance. Figures are means over all subsets of a "
        f"pool, or of {draws} random orders; *recorded order* takes the samples once, as they were drawn. Verdicts "
        "are the source's, which `research/README.md` names; a sample without an extracted answer does not vote, "
        f"even if its source calls it right. Tokens are the source's for {' and '.join(pools.MEASURED)}, and "
        "estimated elsewhere.",
        "",
        "- `auto` sees only votes, and none of its parameters was fitted. It runs over at most 16 orders.",
        "- `sprt` and `mixture_sprt` err with a chance of at most 0.053 for each answer beside the likeliest, if "
        "that is the truth. *No difference* is the share of runs that the test ended because two answers were as "
        "likely. With `preset='consol'`, as in ConSol's code, a lead of three votes stops, no error is bounded, and "
        "that end is never reached.",
        "- `reasc` and `cges` need scores. `reasc` is calibrated on first samples of the same problems, which "
        "favours it. `cges` reads scores as probabilities, by a logistic function of the other half of the problems.",
        "",
    )
    replayed = [page.replay_pool(pools.pool(name), draws, TOTALS.get(name, ())) for name in names if name != HUMANEVAL]
    found = dict[str, dict[int, Estimate]]()
    yield from (page.pool_line(one, folder) for one in replayed)
    if HUMANEVAL in names:
        found, of = measure_agreement(every, kept)
        yield page.programs_line(of, found, every, folder)
    yield from ("", *page.sections(replayed, found))


def measure_agreement(every: int, kept: Path) -> tuple[dict[str, dict[int, Estimate]], list[str]]:
    """Return the accuracy of each way of choosing a program at each size, and the problems."""
    problem_list = programs.problems(pools.folder() / "codet", every)
    shares: dict[str, list[list[float]]] = {}
    for problem in problem_list:
        verdicts = programs.verdicts(problem, kept)
        n, right = len(verdicts), sum(one.right for one in verdicts)
        found = list(
            programs.mean_agreement(
                list(problem.tests.values()), verdicts, SIZES, programs.ORDERS, np.random.default_rng(0)
            )
        )
        rows = {"pass@k": pass_at_k(n, right, SIZES).tolist(), "one sample": [right / n] * len(SIZES)}
        for way, values in {**rows, **{way: [one[way] for one in found] for way in found[0]}}.items():
            shares.setdefault(way, []).append(values)
    estimates = {
        way: {
            size: clustered_mean(column, rng=np.random.default_rng(0), bounds=(0, 1))
            for size, column in zip(SIZES, np.array(values).T, strict=True)
        }
        for way, values in shares.items()
    }
    return estimates, [problem.name for problem in problem_list]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--draws", type=int, default=20, help="random orders of a pool")
    parser.add_argument("--every", type=int, default=4, help="which problems of HumanEval: every so many-th")
    parser.add_argument(
        "--only", nargs="+", default=[*pools.MODELS, HUMANEVAL], choices=[*pools.MODELS, HUMANEVAL], help="pools"
    )
    parser.add_argument(
        "--kept", type=Path, default=default_store().parent / "programs.jsonl", help="verdicts of programs"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
