"""Claims about search methods, tested on countdowns of four numbers with tuned parameters.

    python -m research.claims --choose [--problems 60]
        on the validation split: parameters, best methods, alpha
    python -m research.claims --self-evaluation [--problems 100]
        pools of expressions for claim (g)
    python -m research.claims --auto [--problems 300] [--seeds 3]
        claim (f) alone, which a new performance model changes
    python -m research.claims [--problems 300] [--seeds 3] [--verifiers learnt exact 'flipped 15 %' ...]

A command that was stopped goes on where it ended. More problems or seeds use the runs that are there.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process

from research.claims import page, plans, self_evaluation
from research.claims.claims import Claim, claims, claims_on_auto
from research.claims.measuring import Choices, Lab, choose, measure, measure_auto
from tts.errors import TTSError
from tts.experiments.store.store import default_store

PAGE, PAGE_ON_AUTO = "claims.md", "claims_auto.md"
CHOSEN_ON, EVALUATED_ON = 60, 100  # problems


def main() -> None:
    options = arguments()
    folder, store = options.out, options.store or default_store()
    try:
        if options.self_evaluation:
            self_evaluation.measure(store, folder, options.jobs, options.problems or EVALUATED_ON)
        elif options.choose:
            choose(Lab(store, options.jobs, options.problems or CHOSEN_ON, options.seeds or 1)).save(folder)
        else:
            lab = Lab(store, options.jobs, options.problems or 300, options.seeds or 3)
            _auto(lab, folder) if options.auto else _claims(options, lab, folder)
    except TTSError as failure:
        raise SystemExit(str(failure)) from None


def _claims(options: argparse.Namespace, lab: Lab, folder: Path) -> None:
    verifiers = [name for name in plans.VERIFIERS if name == plans.LEARNT or name in options.verifiers]
    choices = Choices.load(folder)
    measured = measure(lab, choices, verifiers)
    command = f"python -m research.claims --problems {lab.problems} --seeds {lab.seeds}"
    if len(verifiers) < len(plans.VERIFIERS):
        command += f" --verifiers {shlex.join(verifiers)}"
    found = claims(measured, choices, folder)
    _write(found, page.page(found, measured, choices, command, folder), folder / PAGE)


def _auto(lab: Lab, folder: Path) -> None:
    choices = Choices.load(folder)
    measured = measure_auto(lab, choices)
    found = claims_on_auto(measured, choices)
    command = f"python -m research.claims --auto --problems {lab.problems} --seeds {lab.seeds}"
    _write(found, page.page_on_auto(found, measured, command), folder / PAGE_ON_AUTO)


def _write(found: list[Claim], lines: Iterable[str], file: Path) -> None:
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(*(f"{one.text}: {one.verdict}" for one in found), sep="\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    part = parser.add_mutually_exclusive_group()
    for name in ("--choose", "--auto", "--self-evaluation"):
        part.add_argument(name, action="store_true")
    parser.add_argument("--problems", type=int, help="problems of each study")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--verifiers", nargs="+", choices=tuple(plans.VERIFIERS), default=list(plans.VERIFIERS))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
