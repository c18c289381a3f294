"""Train the embedded pair: `python -m research.pocket.train STAGE --out DIR --minutes M --seed S`.

The stages, in order, each from what the earlier ones left in DIR ("judge" and "calibrate" stand in place of "rollouts"
and "prm"):

    policy      a Llama learns to write worked solutions
                -> base/
    self-eval   the policy draws samples of its own, learns to judge and to correct them
                -> policy/
    rollouts    the policy's solutions are drawn, and every prefix is continued eight times
                -> stages/rollouts/
    prm         a process model, begun from the policy, learns the values of the prefixes
                -> process/, heads/process.safetensors
    probe       a head on the policy's hidden states learns the same
                -> heads/probe.safetensors
    judge       a process model of its own, from scratch, on exact labels of states
                -> judge/, judge-heads/
    attempts    the shipped policy's solutions of countdowns are drawn
                -> stages/attempts/
    refine      the process model goes on from OUT/judge, or from the shipped one
                -> refined/, refined-heads/
    settle      the same with rates that fall to nothing
                -> settled/, settled-heads/
    calibrate   the head of the process model is scaled on samples of the validation split
                -> countdown/, heads/reach.safetensors
    drill       the shipped policy goes on with short sums of two digits
                -> drilled/, mean/ (of both)
    reader      the shipped policy learns expressions and stories for longer
                -> reader/, reader-heads/
    odds        the chance that a sample is right by its likelihood under the reader
                -> heads/likelihood.safetensors
    ship        what users need is copied into the package, with its checksums
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


_STAGES = {
    "policy": ("policy", "run"),
    "self-eval": ("self_eval", "run"),
    "rollouts": ("rollouts", "run"),
    "judge": ("judge", "run"),
    "drill": ("drill", "run"),
    "reader": ("reader", "run"),
    "attempts": ("attempts", "run"),
    "refine": ("refine", "run"),
    "settle": ("refine", "run_settle"),
    "calibrate": ("calibrate", "run"),
    "odds": ("calibrate", "run_odds"),
    "prm": ("prm", "run_prm"),
    "probe": ("prm", "run_probe"),
    "ship": ("shipping", "run"),
}


def _stage(name: str) -> Callable[..., dict[str, float]]:
    module, function = _STAGES[name]
    return getattr(importlib.import_module(f"research.pocket.train.{module}"), function)


def _keep_memory() -> None:
    """Let glibc keep freed blocks.

    Otherwise batches of changing shapes are mapped and zeroed anew, which takes a quarter of the time on a CPU.
    """
    try:
        tune: Any = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in ((-3, 1 << 30), (-1, 2**31 - 1), (-2, 1 << 29)):  # map, trim and grow at these sizes
        tune(parameter, value)


def main(arguments: list[str] | None = None) -> int:
    """Run a stage."""
    parser = argparse.ArgumentParser(
        prog="python -m research.pocket.train", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("stage", choices=tuple(_STAGES))
    parser.add_argument("--out", type=Path, required=True, help="the folder of the run")
    parser.add_argument(
        "--minutes",
        type=float,
        default=5.0,
        help="how long, in minutes of two cores (see loop.py); the shipped pair: the card",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default=None, help="cpu or cuda; cuda where there is one")
    options = parser.parse_args(arguments)
    if not 0 < options.minutes < math.inf:
        parser.error(f"--minutes is {options.minutes}, but must be above 0, and finite")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out is {options.out}, but that is no folder")
    if options.device not in (None, "cpu", "cuda"):
        parser.error(f"--device is {options.device!r}, but must be cpu or cuda")

    import torch

    from tts.errors import TTSError

    _keep_memory()
    began = time.perf_counter()
    try:
        device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
        found = _stage(options.stage)(options.out, minutes=options.minutes, seed=options.seed, device=device)
    except TTSError as failure:
        print(f"error: {failure.cause}" + (f"\nhint: {failure.hint}" if failure.hint else ""), file=sys.stderr)
        return 2
    print(json.dumps({"stage": options.stage, **found, "wall_seconds": round(time.perf_counter() - began, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
