"""The HTTP backend: throughput beside other clients, requests in flight, and a faulty server.

    python -m benchmarks.servers throughput --vllm PYTHON --model FOLDER [--its-hub PYTHON] [--repeats 3] [--smoke]
    python -m benchmarks.servers flight [--requests 1000] [--smoke]
    python -m benchmarks.servers faults [--problems 250] [--smoke]
    python -m benchmarks.servers capabilities URL [URL ...]

`throughput` starts a vLLM server on this machine, and the same engine without a server. The other clients are the
server's own batch and its_hub. FOLDER is the folder `hf` that `python -m benchmarks.engine.convert` writes. An
interpreter of its_hub that does not start is left out, with the reason.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from benchmarks.servers import flight, throughput
from benchmarks.smoke import Smoke
from tests.backends.openai.faulty import run_faulty
from tts.backends.openai.errors import Key
from tts.backends.openai.probe import probe_server
from tts.cli.doctor import shown_lines
from tts.errors import TTSError


def run_throughput(options: argparse.Namespace) -> None:
    """Print tokens a second and cached tokens."""
    jobs = {
        "best-of-n": throughput.Job(
            prompts=throughput.prompts(options.problems), n=options.n, kept=1, levels=1, tokens=options.tokens
        ),
        "beam": throughput.Job(
            prompts=throughput.prompts(options.problems),
            n=options.beam,
            kept=options.kept,
            levels=options.levels,
            tokens=options.tokens,
        ),
    }
    rivals = throughput.Rivals(options.vllm, options.its_hub, str(options.model.absolute()))
    print(
        f"vLLM {rivals.version}, {os.cpu_count()} cores; {options.problems} problems at once, {options.repeats} runs "
        "each, in turns"
    )
    print(f"absent: its_hub: {rivals.absent}\n" if rivals.absent else "")
    for name, job in jobs.items():
        if name in options.only:
            says = f"{name}: {job.n} rows of {job.tokens} tokens" + (
                f", {job.levels} levels, {job.kept} kept" * (job.levels > 1)
            )
            print("\n".join(throughput.lines(says, throughput.measure(rivals, job, options.repeats))), flush=True)


def run_flight(options: argparse.Namespace) -> None:
    """Print how many requests were in flight, and the time that they took."""
    print(" ".join(flight.measure(options.requests, options.tokens, options.gap)))


def run_faults(options: argparse.Namespace) -> None:
    """Print the outcome of calls through a faulty server; fail if a token, a connection or a task is lost."""
    outcome = run_faulty(options.problems)
    num_faults = sum(outcome.given.values())
    share = num_faults / outcome.calls
    print(f"{outcome.calls:,} calls, {num_faults:,} of them faulty ({share:.1%}); {outcome.seconds:.0f} s")
    print(f"given:  {', '.join(f'{name} {count}' for name, count in outcome.given.most_common())}")
    print(f"typed:  {', '.join(f'{name} {count}' for name, count in outcome.found.most_common())}")
    print(
        f"tokens: {outcome.written:,} written, {outcome.charged:,} booked; {outcome.lossy:,} stood in replies whose "
        "connection was reset"
    )
    print(
        f"{outcome.candidates:,} candidates; no budget passed, every ledger sums, no task and no connection left "
        f"({outcome.most_open} at most)"
    )


def run_capabilities(options: argparse.Namespace) -> None:
    """Print the probed capabilities of each server, as a table."""
    found = {url: dict(shown_lines(probe_server(url, options.served, Key.find()))) for url in options.urls}
    print("| | " + " | ".join(found) + " |\n| :-- |" + " :-- |" * len(found))
    for name in next(iter(found.values())):
        print(f"| {name} | " + " | ".join(lines[name] for lines in found.values()) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    what = parser.add_subparsers(required=True)
    one = what.add_parser("throughput")
    one.set_defaults(run=run_throughput)
    one.add_argument("--vllm", required=True, help="the Python of an environment with vLLM")
    one.add_argument("--model", required=True, type=Path, help="a folder with weights and tokenizer")
    one.add_argument("--its-hub", help="the Python of an environment with its_hub 1.2")
    one.add_argument("--repeats", type=int, default=3)
    one.add_argument("--only", nargs="+", default=["best-of-n", "beam"], choices=["best-of-n", "beam"])
    for name, value in (("problems", 64), ("n", 16), ("beam", 8), ("kept", 2), ("levels", 3), ("tokens", 8)):
        one.add_argument(f"--{name}", type=int, default=value)
    one.add_argument(
        "--smoke",
        action=Smoke,
        sizes={"problems": 2, "n": 2, "beam": 2, "kept": 1, "levels": 2, "tokens": 4, "repeats": 1},
    )
    one = what.add_parser("flight")
    one.set_defaults(run=run_flight)
    one.add_argument("--requests", type=int, default=1000)
    one.add_argument("--tokens", type=int, default=20)
    one.add_argument("--gap", type=float, default=0.5, help="seconds between two tokens of a reply")
    one.add_argument("--smoke", action=Smoke, sizes={"requests": 8, "tokens": 3, "gap": 0.05})
    one = what.add_parser("faults")
    one.set_defaults(run=run_faults)
    one.add_argument("--problems", type=int, default=250)
    one.add_argument("--smoke", action=Smoke, sizes={"problems": 5})
    one = what.add_parser("capabilities")
    one.set_defaults(run=run_capabilities)
    one.add_argument("urls", nargs="+")
    one.add_argument("--served", default="", help="the model; needed where a server has several")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    try:
        options.run(options)
    except TTSError as failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
