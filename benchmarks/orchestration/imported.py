"""Cost of imported samples: the import of a large file, and the replay of many samples at 12 sizes.

    python -m benchmarks.orchestration.imported [--problems 25000] [--samples 40] [--megabytes 1024] [--words 180]
        [--forms …] [--smoke]

Samples are replayed in recorded order. Answers are texts; problems differ in how often the most frequent answer comes.
Each part runs in a process of its own. The rate is the samples of the pool by the processor's seconds, of each strategy
and of all together. The import reads a file of each form with texts. Its rows come sample by sample, so that the rows
of one problem are far apart. Without samples (0) nothing is replayed.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import multiprocessing
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tts
from benchmarks.smoke import Smoke
from tts.experiments.store.store import Store
from tts_addons.logs.importing import Import, ImportSettings, rows_of
from tts_addons.logs.source import Source, SourceFacts

STRATEGIES = ("best_of_n | majority", "best_of_n | posterior | majority", "best_of_n | unanimous | majority")
POINTS = 12


def peak() -> float:
    """Return the most memory that this process had, in MiB; `getrusage` would tell that of its parent."""
    return (
        next(
            int(line.split()[1])
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        / 1024
    )


def rows(problems: int, samples: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each problem, with the answers of its samples."""
    rng = np.random.default_rng(0)
    for problem in range(problems):
        share = rng.beta(1, 1)
        answers = np.where(rng.random(samples) < share, 0, rng.integers(1, 6, samples))
        yield {"problem": problem, "reference": "answer 0", "answer": [f"answer {answer}" for answer in answers]}


def measure_replays(options: argparse.Namespace) -> None:
    """Import a pool, and print the rate of each strategy."""
    pool = tts.Pool.from_rows(rows(options.problems, options.samples), task="text")
    sizes = sorted({round(size) for size in np.geomspace(1, options.samples, POINTS + 3)})[-POINTS:]
    count, total = options.problems * options.samples, 0.0
    for strategy in STRATEGIES:
        start = time.process_time()
        (curve,) = pool.replay([strategy], sizes, first=True)
        seconds = time.process_time() - start
        total += seconds
        accuracy, cost = curve.curve.accuracy[-1].value, curve.curve.costs["samples"][-1]
        print(
            f"{strategy:<34} {len(sizes)} sizes {count / seconds:>10,.0f} samples/s   {accuracy:.4f} with {cost:.2f} "
            "samples",
            flush=True,
        )
    print(
        f"{'all three':<34} {len(sizes)} sizes {count / total:>10,.0f} samples/s   peak {peak():,.0f} MiB, import "
        "included"
    )


def samples(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield samples for ever, each with its number; those of a problem are far apart."""
    text = " ".join(f"step{i}" for i in range(options.words))
    for number in itertools.count():
        answer, problem = number * 2_654_435_761 % 7, number % options.problems
        yield {
            "problem": problem,
            "reference": "3",
            "text": f"{text} {number}\n#### {answer}",
            "tokens": options.words,
            "number": number,
        }


def format_harness_line(row: dict[str, Any]) -> str:
    """Return a line of lm-evaluation-harness."""
    answer = row["text"].rpartition(" ")[2]
    return json.dumps(
        {
            "doc_id": row["problem"],
            "doc": {"question": f"question {row['problem']}"},
            "target": "3",
            "arguments": {},
            "resps": [[row["text"]]],
            "filtered_resps": [answer],
            "filter": "strict-match",
            "metrics": ["exact_match"],
            "exact_match": float(answer == "3"),
        }
    )


def format_inspect_sample(row: dict[str, Any], problems: int) -> str:
    """Return a sample of an Inspect log."""
    message = {"role": "assistant", "content": row["text"]}
    return json.dumps(
        {
            "id": row["problem"],
            "epoch": row["number"] // problems + 1,
            "input": f"question {row['problem']}",
            "target": "3",
            "messages": [],
            "output": {
                "model": "m",
                "choices": [{"message": message, "stop_reason": "stop"}],
                "usage": {"output_tokens": row["tokens"]},
            },
            "scores": {"match": {"value": "C", "answer": row["text"].rpartition(" ")[2]}},
            "metadata": {},
        }
    )


COLUMNS = ("problem", "reference", "text", "tokens")
HEADER = '"version": 2, "status": "success", "eval": {"task": "sums", "model": "m"}'


def write(form: str, path: Path, given: argparse.Namespace) -> int:
    """Write a file with samples of so many megabytes, and return how many; an archive has them packed."""
    writer = {"eval": write_archive, "parquet": write_table}.get(form)
    return write_text(form, path, given) if writer is None else writer(path, given)


def write_archive(path: Path, options: argparse.Namespace) -> int:
    written, number = 0, 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", f"{{{HEADER}}}")
        for row in samples(options):
            line, number = format_inspect_sample(row, options.problems), number + 1
            archive.writestr(f"samples/{row['problem']}_epoch_{row['number'] // options.problems + 1}.json", line)
            if (written := written + len(line)) >= options.megabytes << 20:
                break
    return number


def write_table(path: Path, options: argparse.Namespace) -> int:
    import pyarrow as pa
    from pyarrow import parquet

    rows, number = samples(options), 0
    schema = pa.schema(
        [("problem", pa.int64()), ("reference", pa.string()), ("text", pa.string()), ("tokens", pa.int64())]
    )
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as table:
        while path.stat().st_size < options.megabytes << 20:
            group = list(itertools.islice(rows, 500))
            table.write_table(pa.table({name: [row[name] for row in group] for name in schema.names}, schema))
            number += len(group)
    return number


def write_text(form: str, path: Path, options: argparse.Namespace) -> int:
    number, written, text = 0, 0, io.StringIO(newline="")
    cells = csv.writer(text)
    with path.open("w", newline="") as file:
        file.write({"csv": "problem,reference,text,tokens\r\n", "json": f'{{{HEADER}, "samples": ['}.get(form, ""))
        for number, row in enumerate(samples(options), 1):
            if form == "csv":
                cells.writerow([row[name] for name in COLUMNS])
            elif form == "json":
                text.write((", " if number > 1 else "") + format_inspect_sample(row, options.problems))
            else:
                text.write(
                    (
                        format_harness_line(row)
                        if form == "lm-eval"
                        else json.dumps({name: row[name] for name in COLUMNS})
                    )
                    + "\n"
                )
            written += file.write(text.getvalue())
            text.seek(0)
            text.truncate()
            if written >= options.megabytes << 20:
                break
        file.write("]}" if form == "json" else "")
    return number


FORMS = {
    "jsonl": "samples.jsonl", "csv": "samples.csv", "parquet": "samples.parquet", "lm-eval": "samples_sums.jsonl",
    "json": "log.json", "eval": "log.eval",
}  # fmt: skip


def measure_import(form: str, path: Path, number: int, text: str) -> None:
    """Import a file to a store, and print time and memory."""
    before, start, processor = peak(), time.perf_counter(), time.process_time()
    source, facts = Source(), SourceFacts()
    with (
        Import(rows_of([path], source, facts), ImportSettings(name="large", task="pocket"), facts) as found,
        Store(path.parent / "s.sqlite") as store,
    ):
        found.save(store)
    seconds = time.perf_counter() - start
    if found.report.samples != number:
        raise SystemExit(f"{found.report.samples:,} samples of {number:,} were imported")
    print(
        f"import of {form}, {path.stat().st_size >> 20:,} MiB, {number:,} samples of {found.report.problems:,} "
        f"problems{text}: "
        f"{seconds:,.1f} s ({time.process_time() - processor:,.1f} s of processor), peak {peak():,.0f} MiB (before: "
        f"{before:,.0f} MiB)",
        flush=True,
    )


def run_apart(part: Callable[..., None], *arguments: Any) -> None:
    """Run a part in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=part, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=int, default=25_000)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--megabytes", type=int, default=1024, help="of a file's samples; 0: no import")
    parser.add_argument("--words", type=int, default=180, help="of a solution")
    parser.add_argument("--forms", nargs="+", default=["jsonl"], choices=FORMS)
    parser.add_argument("--smoke", action=Smoke, sizes={"problems": 20, "samples": 16, "megabytes": 1})
    options = parser.parse_args()
    if options.samples:
        run_apart(measure_replays, options)
    for form in options.forms if options.megabytes else ():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, FORMS[form])
            number = write(form, path, options)
            run_apart(measure_import, form, path, number, f", {options.words:,} words each")


if __name__ == "__main__":
    main()
