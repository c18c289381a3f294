"""Compares the graders `math` and `math_verify` on public cases and on recorded samples of models.

    TTS_DATA_DIR=… python -m research.grading [--pairs FILE] [--no-pools] [--disagreements]

The command reads TTS_DATA_DIR/cases (`answer_pairs.jsonl`: a, b, equal, source; `outputs.jsonl`: text, task, answer,
source), the samples of mathematics in TTS_DATA_DIR/pools, and FILE: lines of JSON with gold, pred, expected and file.
A text of FILE is read as the answer that it states. A sentence without one is read as its last expression between
delimiters of mathematics. The command prints tables in Markdown. It needs the extras `math` and `math-verify`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tts.tasks
from tts.tasks.base import Task
from tts.thoughts import THINK

_DELIMITED = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_SHORT = 20  # characters outside of mathematics: the text is the answer
_SOURCE = re.compile(r"(?:variant of )?([\w.-]+/[\w.-]+)?.*?(?:\(([a-z ]+)\))?")


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines, packed or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def kind_of(source: str) -> str:
    """Return the group of a case: the kind of a variant, else the repository."""
    match = _SOURCE.fullmatch(source)
    repository, kind = (None, None) if match is None else match.groups()
    return f"variants: {kind}" if source.startswith("variant") and kind else repository or "others"


def read_answer(task: Task, text: str) -> str:
    """Return the answer that a text states, else its last expression between dollar signs, else the text."""
    text = THINK.response(text)
    if (stated := task.extract(text)) is not None:
        return stated
    spans = _DELIMITED.findall(text)
    if len(spans) > 1 and len(_DELIMITED.sub("", text)) <= _SHORT:
        return text
    return next(part for part in spans[-1] if part) if spans else text


def samples_of(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield pool, reference and text of each recorded sample of mathematics."""
    for row in lines_of(folder / "qwen25math" / "math_cot_100_n8_rm.jsonl"):
        yield from (("qwen25math", row["gt"], text) for text in row["code"])
    for row in lines_of(folder / "bestofn_gsm8k" / "gsm8k_trajectories.jsonl.gz"):
        yield from (("bestofn_gsm8k", row["gold"], each["text"]) for each in row["trajectories"])
    for path in sorted((folder / "crucible_math500").glob("*bestofn*.json")):
        records = json.loads(path.read_text(encoding="utf-8"))["records"]
        yield from (("crucible_math500", row["gold"], each["text"]) for row in records for each in row["traces"])


def print_pairs(
    title: str, graders: dict[str, Task], pairs: Iterable[tuple[str, str, str, bool]], *, disagreements: bool
) -> None:
    """Print how many pairs each grader judges right, by group.

    Args:
        title: The title of the table.
        graders: The tasks, by name.
        pairs: The pairs: group, answer, reference and whether both are equal.
        disagreements: Whether each pair is printed that a grader judges otherwise.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    slowest = 0.0
    for group, answer, reference, equal in pairs:
        counts[group]["pairs"] += 1
        for name, task in graders.items():
            started = time.perf_counter()
            right = task.equivalent(answer, reference) is equal
            slowest = max(slowest, time.perf_counter() - started if name == "math" else 0.0)
            counts[group][name] += right
            if not right:
                wrong.append(f"{name}: {reference!r} and {answer!r} are {'equal' if equal else 'different'}")
    print(
        f"\n### {title}\n\n| group | pairs | {' | '.join(f'`{name}`' for name in graders)} "
        f"|\n|:--|--:|{'--:|' * len(graders)}"
    )
    for group, count in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        print(f"| {group} | {count['pairs']} | {' | '.join(str(count[name]) for name in graders)} |")
    print(f"\nSlowest pair of `math`: {1000 * slowest:.0f} ms.")
    if disagreements:
        print("\n" + "\n".join(wrong))


def print_outputs(cases: Iterable[dict[str, Any]], graders: dict[str, Task]) -> None:
    """Print how many outputs each task reads right."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        group = counts[case["task"]]
        group["outputs"] += 1
        for name, task in graders.items() if case["task"] == "math" else [("math", tts.tasks.get(case["task"]))]:
            found, wanted = task.extract(THINK.response(case["text"])), case["answer"]
            group[name] += (
                found is None if wanted is None else found is not None and bool(task.equivalent(found, wanted))
            )
    print("\n### Outputs\n\n| task | outputs | ours | `math_verify` |\n|:--|--:|--:|--:|")
    for name, count in sorted(counts.items()):
        print(f"| `{name}` | {count['outputs']} | {count['math']} | {count['math_verify'] if name == 'math' else ''} |")


def print_pools(folder: Path, graders: dict[str, Task]) -> None:
    """Print the accuracy of recorded samples by each grader, and how often they differ."""
    counts: defaultdict[str, Counter[Any]] = defaultdict(Counter)
    for pool, reference, text in samples_of(folder):
        found = {name: task.extract(text) for name, task in graders.items()}
        verdicts = tuple(
            answer is not None and task.equivalent(answer, reference)
            for (_, task), answer in zip(graders.items(), found.values(), strict=True)
        )
        counts[pool][verdicts] += 1
    print("\n### Recorded samples\n\n| pool | samples | both right | `math` alone | `math_verify` alone | both wrong |")
    print("|:--|--:|--:|--:|--:|--:|")
    for pool, count in sorted(counts.items()):
        cells = [count[verdicts] for verdicts in ((True, True), (True, False), (False, True), (False, False))]
        print(f"| {pool} | {sum(cells)} | {' | '.join(map(str, cells))} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="compare the graders math and math_verify")
    parser.add_argument("--pairs", type=Path, help="further pairs, as lines of JSON with gold, pred, expected and file")
    parser.add_argument("--no-pools", action="store_true", help="leave out the recorded samples")
    parser.add_argument("--disagreements", action="store_true", help="print each pair that a grader judges otherwise")
    options = parser.parse_args()
    if "TTS_DATA_DIR" not in os.environ:
        parser.exit(2, "TTS_DATA_DIR is not set, but must name a folder with cases and pools\n")
    data = Path(os.environ["TTS_DATA_DIR"])
    graders = {name: tts.tasks.get(name) for name in ("math", "math_verify")}
    for task in graders.values():
        task.equivalent("x+x", "2x")  # starts a worker, whose time is no pair's
    cases = [
        (kind_of(case["source"]), case["a"], case["b"], case["equal"])
        for case in lines_of(data / "cases" / "answer_pairs.jsonl")
    ]
    print_pairs("Pairs", graders, cases, disagreements=options.disagreements)
    print_outputs(lines_of(data / "cases" / "outputs.jsonl"), graders)
    if options.pairs is not None:
        task = graders["math"]
        pairs = [
            (row["file"], read_answer(task, row["pred"]), read_answer(task, row["gold"]), bool(row["expected"]))
            for row in lines_of(options.pairs)
        ]
        print_pairs("Further pairs", graders, pairs, disagreements=options.disagreements)
    if not options.no_pools:
        print_pools(data / "pools", graders)
    for task in graders.values():
        task.close()


if __name__ == "__main__":
    main()
