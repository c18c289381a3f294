"""The command: `python -m research.pocket.evaluate`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tts.errors import ConfigError, MissingDependency, TTSError

# threads that wait must not take the cores from those that work; read when numerical libraries are loaded
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

_ABOUT = """Measure the embedded pair on its fixed sets, and print the tables of its card with 95 % intervals.

The same options give the same numbers. All of it takes a few minutes on two cores; --quick takes a fraction, with wide intervals."""  # noqa: E501


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code: 0, 1 for a failure, 2 for a mistake of the caller's."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except TTSError as failure:
        sys.stderr.write(f"error: {failure.cause}\n" + (f"hint: {failure.hint}\n" if failure.hint else ""))
        return 2 if isinstance(failure, ConfigError | MissingDependency) else 1
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m research.pocket.evaluate",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print the tables for a document")
    parser.add_argument(
        "--from",
        dest="measured",
        type=Path,
        metavar="FILE",
        help="print what an earlier --json put there; measure nothing",
    )
    parser.add_argument(
        "--split", choices=("test", "validation"), default="test", help="choose by validation, report test"
    )
    parser.add_argument("--quick", action="store_true", help="few problems")
    parser.add_argument("--problems", type=int, metavar="N", help="problems of each difficulty")
    parser.add_argument("--samples", type=int, metavar="N", help="samples of each problem")
    parser.add_argument("--seed", type=int, default=0, help="of the samples (default 0)")
    parser.add_argument(
        "--fresh", type=int, metavar="SEED", help="draw the problems by this seed, instead of the fixed sets"
    )
    parser.add_argument("--policy", type=Path, metavar="DIR", help="a candidate's policy, instead of the shipped pair")
    parser.add_argument("--process", type=Path, metavar="DIR", help="the candidate's process model")
    parser.add_argument(
        "--heads", type=Path, metavar="DIR", help="the candidate's heads (default: 'heads' beside its process model)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, where results are exact, or cuda")
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.measured is not None:
        _print_file(options)
        return
    from research.pocket.evaluate.pair import load, pair_record
    from research.pocket.evaluate.problems import SET_SEED, draw_sets
    from research.pocket.evaluate.run import all_tables, draw_pools, verifiers_of

    began = time.perf_counter()
    sizes = _sizes(options)
    backend = load(pair_record(options.policy, options.process, options.heads), options.device)
    seed = SET_SEED if options.fresh is None else options.fresh
    sets = draw_sets(options.split, problems=sizes.problems, others=sizes.others, seed=seed)
    pools = draw_pools(
        backend, sets, sizes, verifiers=verifiers_of(backend), seed=options.seed, progress=_progress(began)
    )
    facts = {
        "models": backend.identity,
        "split": options.split,
        "problems": {"seed": seed, "sha256": sets.checksum},
        "seed": options.seed,
        "sizes": dataclasses.asdict(sizes),
    }
    _print(options, facts, all_tables(pools, options.seed))
    sys.stderr.write(f"{time.perf_counter() - began:.0f} s\n")


def _print_file(options: argparse.Namespace) -> None:
    from research.pocket.evaluate.rendering import restore_tables

    try:
        facts = json.loads(options.measured.read_text())
        tables = restore_tables(facts.pop("tables"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as failure:
        raise ConfigError(f"--from is {options.measured}, but that is no output of --json: {failure}") from failure
    _print(options, facts, tables)


def _sizes(options: argparse.Namespace) -> Any:
    """Return the sizes that the options ask for."""
    from research.pocket.evaluate.run import FULL, QUICK

    sizes = QUICK if options.quick else FULL
    if options.problems is not None:
        others = min(sizes.others, options.problems)
        sizes = dataclasses.replace(
            sizes, problems=options.problems, deep=min(sizes.deep, options.problems), others=others
        )
    if options.samples is not None:
        sizes = dataclasses.replace(
            sizes, samples=options.samples, deep_samples=max(options.samples, sizes.deep_samples)
        )
    return sizes


def _progress(began: float) -> Any:
    """Return the function that prints progress on standard error; None: standard error is no terminal."""
    if not sys.stderr.isatty():
        return None

    def progress(done: int, total: int) -> None:
        sys.stderr.write(f"\r{done} of {total} problems, {time.perf_counter() - began:.0f} s ")
        sys.stderr.flush()

    return progress


def _print(options: argparse.Namespace, facts: dict[str, Any], tables: Any) -> None:
    from rich.console import Console

    from research.pocket.evaluate.rendering import make_json, markdown, print_text

    if options.json:
        sys.stdout.write(json.dumps({**facts, "tables": make_json(tables)}, indent=1, allow_nan=False) + "\n")
    elif options.markdown:
        sys.stdout.write(markdown(tables))
    else:
        sys.stdout.write(
            f"{facts['models']}\n{facts['split']} split, problems {facts['problems']}, seed {facts['seed']}\n\n"
        )
        print_text(tables, Console(markup=False, highlight=False, emoji=False))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
