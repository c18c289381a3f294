"""The allocator on the embedded pair: a page and figures, with what is asked of it checked.

    python -m research.allocation.pair --fit [NAME ...]   on the validation split: the performance models that ship
    python -m research.allocation.pair [--limit 400] [--seeds 3] [--jobs 2] [--store FILE] [--out docs/results]

The first takes about ten minutes of two cores, the second half an hour; stopped, each goes on where it was.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process

from research.allocation.pair import fitting, measuring, restarting, writing
from tts.experiments.store.store import default_store


def main() -> None:
    options = arguments()
    store = options.store or default_store()
    if options.fit is not None:
        fitting.fit(store, options.jobs, options.limit, options.fit or fitting.KINDS)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    restarts = restarting.measure(store, options.jobs, options.limit)
    writing.write(measuring.measure(store, options.jobs, options.limit, options.seeds), restarts, options.out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--fit", nargs="*", choices=fitting.KINDS, metavar="NAME", help=f"of {', '.join(fitting.KINDS)}; none: all"
    )
    parser.add_argument("--limit", type=int, default=400, help="problems")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
