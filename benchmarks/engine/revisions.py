"""The engine of this checkout beside that of another one, on the embedded policy.

    git worktree add ../before REVISION
    python -m benchmarks.engine.revisions ../before [--smoke] [--rows 8 64] [--tokens 128] [--turns 5]

Compared are tokens a second, in turns, and whether texts are equal. Each turn is a process of its own, which draws the
rows of one prompt six times and leaves out the first. Figures are medians over the turns, with the least and greatest.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.smoke import Smoke

HERE = Path(__file__).resolve()
DRAWS = 6
PROMPT = "12 + 7 * 3 - 4 + 8 * 2 - 6 + 1\n"


def measure_revision(rows: int, tokens: int) -> dict[str, Any]:
    """Return tokens a second of the package that is imported here, and a digest of the tokens."""
    from tts.backends.base import Row, SampleRequest, Sampling, StopCondition
    from tts.backends.engine import EngineBackend
    from tts.models import registry

    async def run() -> dict[str, Any]:
        backend = EngineBackend.from_record(registry.get("pocket"))
        [opened] = await backend.open([PROMPT])
        speeds, digest = list[float](), hashlib.sha256()
        for draw in range(DRAWS):
            asked = tuple(Row(1000 * draw + row, 0, tokens) for row in range(rows))
            began = time.perf_counter()
            found = backend.sample(SampleRequest(opened.value, asked, Sampling(temperature=2.0), StopCondition()))
            await found.drain()
            speeds.append(
                sum(one.num_tokens for one in found.samples if one is not None) / (time.perf_counter() - began)
            )
            digest.update(str([one.token_ids for one in found.samples if one is not None]).encode())
        await backend.close()
        return {"speed": statistics.median(speeds[1:]), "digest": digest.hexdigest()}

    return asyncio.run(run())


def turn(checkout: Path, rows: int, tokens: int) -> dict[str, Any]:
    """Return what `measure_revision` gives for the package of a checkout, in a process of its own."""
    environment = {
        **os.environ,
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join([str(checkout), str(HERE.parents[2])]),
    }
    asked = [sys.executable, str(HERE), "--draw", "--rows", str(rows), "--tokens", str(tokens)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=checkout, env=environment)
    if done.returncode:
        raise SystemExit(f"the checkout {checkout} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(before: Path, rows: int, tokens: int, turns: int) -> str:
    """Return a row of the table."""
    pairs = [(turn(before, rows, tokens), turn(HERE.parents[2], rows, tokens)) for _ in range(turns)]
    speeds = [statistics.median(one["speed"] for one in side) for side in zip(*pairs, strict=True)]
    ratios = [new["speed"] / old["speed"] for old, new in pairs]
    same = "yes" if len({one["digest"] for pair in pairs for one in pair}) == 1 else "no"
    ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"| {rows} | {speeds[0]:,.0f} | {speeds[1]:,.0f} | {ratio} | {same} |"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="The engine of this checkout beside that of another one.")
    parser.add_argument("--smoke", action=Smoke, sizes={"rows": [2], "tokens": 8, "turns": 1})
    parser.add_argument(
        "before", type=Path, nargs="?", default=HERE.parents[2], help="the other checkout (default: this one)"
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[8, 64])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--draw", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.draw:
        print(json.dumps(measure_revision(options.rows[0], options.tokens)))
        return
    print("| rows | tokens/s before | now | ratio | equal texts |\n|--:|--:|--:|:--|:--|")
    for rows in options.rows:
        print(compare(options.before.resolve(), rows, options.tokens, options.turns), flush=True)


if __name__ == "__main__":
    main()
