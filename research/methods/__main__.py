"""Every search method on the embedded pair, on equal terms: a table, two figures and checked claims.

    python -m research.methods --choose-range
        on the validation split: the numbers of operations, and the cost of a sample
    python -m research.methods --choose-parameters
        on the validation split: the parameters of every method, from small grids
    python -m research.methods --reasons
        the same searches by how often a verifier errs, on the toy; what ETS's charge buys
    python -m research.methods [--limit 200] [--seeds 3] [--jobs 2] [--store FILE] [--out docs/results]

The last command takes about 45 minutes of two cores. A command that was stopped goes on where it ended. All methods
have the same hard budget in generated tokens, as many as some plain samples have. The verifier's tokens are counted
beside the budget, and have a figure of their own. A budget in all tokens would not be fair to best-of-N: it reserves
the greatest cost of scores until the scores are made. Methods that score every step get that reserve back sooner.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process

from research.methods import choosing, measuring, reasons, writing
from tts.errors import TTSError
from tts.experiments.store.store import default_store

RANGE_LIMIT = 300
TRIED_LIMIT, TRIED_SEEDS = 60, 2


def main() -> None:
    options = arguments()
    try:
        run(options)
    except TTSError as failure:
        raise SystemExit(str(failure)) from None


def run(options: argparse.Namespace) -> None:
    """Run what the options ask for.

    Raises:
        ConfigError: The folder has no choices yet.
    """
    folder, store = options.out, options.store or default_store()
    folder.mkdir(parents=True, exist_ok=True)
    if options.choose_range:
        choosing.choose_range(store, options.jobs, options.limit or RANGE_LIMIT).save(folder)
    elif options.choose_parameters:
        known = choosing.Choices.load(folder)
        seeds = options.seeds or TRIED_SEEDS
        choosing.choose_parameters(known, store, options.jobs, options.limit or TRIED_LIMIT, seeds).save(folder)
    elif options.reasons:
        limit, seeds = options.limit or TRIED_LIMIT, options.seeds or TRIED_SEEDS
        reasons.write(choosing.Choices.load(folder), store, folder, limit=limit, seeds=seeds, jobs=options.jobs)
    else:
        choices = choosing.Choices.load(folder)
        measured = measuring.measure(choices, store, options.jobs, options.limit or 200, options.seeds or 3)
        writing.write(choices, measured, folder)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--choose-range", action="store_true")
    parser.add_argument("--choose-parameters", action="store_true")
    parser.add_argument("--reasons", action="store_true")
    parser.add_argument("--limit", type=int, help="problems")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
