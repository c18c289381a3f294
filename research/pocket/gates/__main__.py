"""The command of the gates.

python -m research.pocket.gates KIND [--policy DIR --process DIR] [--problems N] [--out FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import sys
import time
import zipfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tts
from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.pair import load, pair_record
from research.pocket.evaluate.problems import Cell, Item
from research.pocket.gates import gates, newcomer
from research.pocket.gates.drawing import draw_pools, draw_problems, read_steps
from research.pocket.gates.gates import Gate
from research.stamps import stamp_line
from tts.backends.engine import EngineBackend
from tts.errors import ConfigError, TTSError
from tts.models.registry import ModelRecord
from tts.solver.model_cache import own_verifier
from tts.solver.solver import Solver
from tts.verifiers.base import traits_of
from tts.verifiers.making import make_verifier

RUNGS = (3, 4, 5, 6)
COMPUTED_SAMPLES = 8  # of a sum
VALIDATED = (20, 16)  # problems of a rung on the validation split, samples of each


def measure(options: argparse.Namespace) -> list[Gate]:
    """Return every gate of one kind of problems."""
    record = pair_record(options.policy, options.process, options.heads)
    measured = _arithmetic if options.kind == "arithmetic" else _countdown
    found, cell, what = measured(load(record), options.problems, head_of(record, options.kind))
    if not options.without_newcomer:
        print("newcomer …", file=sys.stderr, flush=True)
        with Solver(record) as solver:
            found += newcomer.gates(solver, draw_problems(cell, "test", options.newcomers), what, Intervals(0))
    return [*found, wheel()]


def head_of(record: ModelRecord, kind: str) -> str:
    """Return the value head that scores a kind of problems where nobody names a verifier.

    A pair that names no verifier has the head "process".
    """
    named = own_verifier(record, {"arithmetic": "pocket"}.get(kind, kind))
    head = traits_of(make_verifier(named)).head if named else "process"
    if head is None:
        raise ConfigError(
            f"the pair scores {kind} by {named}, which reads no process model", hint="give --policy and --process"
        )
    return head


def _arithmetic(backend: EngineBackend, number: int, head: str) -> tuple[list[Gate], Cell, str]:
    intervals = Intervals(0)
    tried = {
        size: draw_pools(backend, draw_problems(Cell("plain-2", size), "validation", VALIDATED[0]), VALIDATED[1])
        for size in RUNGS
    }
    rung = gates.nearest_rung(dict(tried))
    sizes = {size: (number, gates.BEST_AT) if size == rung else (number // 2, gates.BEST_AT // 2) for size in RUNGS}
    items = {size: draw_problems(Cell("plain-2", size), "test", of) for size, (of, _) in sizes.items()}
    pools = {size: draw_pools(backend, items[size], each, head=head) for size, (_, each) in sizes.items()}
    everything, what = [pool for of in pools.values() for pool in of], f"{rung} operations"
    rows = [
        *gates.auc_of_samples(everything, intervals),
        *gates.best_of_n(pools[rung], what, intervals, wanted=gates.WANTED),
        gates.calibration(everything, f"{RUNGS[0]} to {RUNGS[-1]} operations", intervals),
        gates.ladder(dict(pools)),
        gates.computing_gate(draw_pools(backend, _sums(2 * number), COMPUTED_SAMPLES, head=head), intervals),
    ]
    return rows, Cell("plain-2", rung), what


def _sums(number: int) -> list[Item]:
    """Return sums and differences of two digits."""
    drawn = draw_problems(Cell("plain-2", 1), "test", 4 * number)
    return [item for item in drawn if "*" not in item.problem.text][:number]


def _countdown(backend: EngineBackend, number: int, head: str) -> tuple[list[Gate], Cell, str]:
    intervals, what = Intervals(0), "countdown of 4 numbers"
    items = draw_problems(Cell("countdown", 4), "test", number)
    pools = draw_pools(backend, items, gates.BEST_AT, head=head)
    rows = [
        *gates.auc_of_steps(read_steps(backend, items, head=head), intervals),
        # the gate is of steps
        *(dataclasses.replace(gate, met=None) for gate in gates.auc_of_samples(pools, intervals)),
        *gates.best_of_n(pools, what, intervals, wanted=None),
        gates.calibration(pools, what, intervals),
    ]
    return rows, Cell("countdown", 4), what


def wheel() -> Gate:
    """Return the size of the package's files, packed as a wheel packs them."""
    root, packed = Path(tts.__path__[0]), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                file.write(path, path.relative_to(root.parent))
    megabytes = len(packed.getvalue()) / 1e6
    return Gate(f"wheel at most {gates.WHEEL_MB:g} MB", f"{megabytes:.1f} MB", megabytes <= gates.WHEEL_MB)


def page(rows: list[Gate], kind: str, options: str, seconds: float) -> str:
    """Return the gates as a page."""
    missed = [gate.name for gate in rows if gate.met is False]
    return "\n".join(
        [
            f"# Gates of the embedded pair: {kind}",
            "",
            stamp_line(f"python -m research.pocket.gates {kind}{options}", f" in {seconds:.0f} s"),
            "A gate is a lowest value that the model must reach, on fresh problems at temperature 0.8. The intervals "
            "of an AUC among steps are over states. Lines without a verdict are for information.",
            f"Missed: {len(missed)} of {sum(gate.met is not None for gate in rows)}.",
            "",
            "| gate | found | |",
            "| :-- | :-- | :-- |",
            *map(str, rows),
            "",
        ]
    )


def main() -> int:
    """Measure, print, and write the page where one is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m research.pocket.gates", description="Print the gates of a pair, met or missed."
    )
    parser.add_argument("kind", choices=("arithmetic", "countdown"))
    parser.add_argument("--policy", type=Path, metavar="DIR", help="a candidate's policy, instead of the shipped pair")
    parser.add_argument("--process", type=Path, metavar="DIR", help="the candidate's process model")
    parser.add_argument(
        "--heads", type=Path, metavar="DIR", help="the candidate's heads (default: 'heads' beside its process model)"
    )
    parser.add_argument("--problems", type=int, default=100, metavar="N", help="problems of each set (default 100)")
    parser.add_argument(
        "--newcomers", type=int, metavar="N", help="problems of the gates of the default strategy (default: as many)"
    )
    parser.add_argument("--without-newcomer", action="store_true", help="leave out the gates of the default strategy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page there too")
    options = parser.parse_args()
    options.newcomers = options.problems if options.newcomers is None else options.newcomers
    for name in ("problems", "newcomers"):
        if getattr(options, name) < 2:
            parser.error(f"--{name} is {getattr(options, name)}, but must be at least 2")
    began = time.perf_counter()
    try:
        rows = measure(options)
        flags = f" --problems {options.problems}"
        if options.without_newcomer:
            flags += " --without-newcomer"
        elif options.newcomers != options.problems:
            flags += f" --newcomers {options.newcomers}"
        text = page(rows, options.kind, flags, time.perf_counter() - began)
    except TTSError as failure:
        sys.stderr.write(f"error: {failure.cause}\n" + (f"hint: {failure.hint}\n" if failure.hint else ""))
        return 2
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
