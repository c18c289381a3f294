"""Exports recorded samples in the forms of other programs.

The forms are plain rows, lm-evaluation-harness, and logs of Inspect. `tts import` reads each form again. Imported texts
and prompts are written unchanged. Where a pool recorded answers alone, the answer stands for the text, and the
problem's id for the prompt.
"""

from __future__ import annotations

import csv
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tts.characters import join_surrogates
from tts.errors import ConfigError, missing_extra, unknown_name
from tts.experiments.output.tables import inert
from tts.experiments.study.record import Result
from tts.files import replace_file, write_json_lines
from tts.trace.trace import plain_values

# A result with candidates, and their texts as `store.bodies.source_in` gives them; {}: no texts were recorded.
Sampled = tuple[Result, Mapping[str, Any]]
_SHARED: Final = frozenset(
    {
        "problem",
        "group",
        "prompt",
        "reference",
        "tests",
        "dataset",
        "model",
        "strategy",
        "budget",
        "seed",
        "run_answer",
        "run_correct",
    }
)  # the fields of a row that all samples share
_GRADE: Final = {True: "C", False: "I", None: "N"}


def export_samples(pool: Iterable[Sampled], path: str | Path, form: str, study: str) -> int:
    """Write recorded samples to a file, and return the number of their runs.

    An existing file is replaced when all samples are written.

    Args:
        pool: The results with recorded candidates.
        path: The file. It ends in .jsonl for "samples" and "lm-eval", for "samples" also in .csv or .parquet, and for
            "inspect" in .json or .eval.
        form: The form. "samples": one row for each run, with lists and the run's answer; in .csv and .parquet, one row
            for each sample. "lm-eval": `samples_….jsonl` of the harness. "inspect": a log with an epoch for each
            sample.
        study: The name of the study, for messages.

    Raises:
        ConfigError: Another form or ending, or no result has candidates.
        MissingDependency: Parquet without pyarrow.
        TTSError: The file cannot be written.
    """
    if form not in _WRITERS:
        raise unknown_name("form", form, _WRITERS)
    endings, write = _WRITERS[form]
    target = Path(path)
    if target.suffix not in endings:
        raise ConfigError(f"path is {str(path)!r}, but the form {form} must end in {' or '.join(endings)}")
    results = [(result, source) for result, source in pool if result.drawn]
    if not results:
        raise ConfigError(
            f"no result of the study {study!r} has recorded samples, but these are exported",
            hint="draw a pool (tts sample), export results, or name another study of tts runs",
        )
    with replace_file(target) as part:
        write(results, part)
    return len(results)


def _texts(result: Result, source: Mapping[str, Any]) -> list[str]:
    drawn = result.drawn or ()
    texts = source.get("texts") or [None] * len(drawn)
    return [sample.answer or "" if text is None else text for sample, text in zip(drawn, texts, strict=True)]


def _row(result: Result, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem as a plain row with lists, in the usual fields of an import."""
    drawn, cell = result.drawn or (), result.cell
    scores = {role: plain_values([sample.scores.get(role, math.nan) for sample in drawn]) for role in cell.verifiers}
    by_step, by_test = [sample.steps for sample in drawn], [sample.outcomes for sample in drawn]
    steps, outcomes = (
        {
            role: plain_values([sample[role] for sample in values_by_role])
            for role in cell.verifiers
            if all(role in sample for sample in values_by_role)
        }
        for values_by_role in (by_step, by_test)
    )
    problem_fields = {name: source.get(name) for name in ("prompt", "reference", "tests")}
    run = {
        "dataset": cell.dataset,
        "model": cell.model,
        "strategy": cell.strategy,
        "budget": dict(cell.budget),
        "seed": cell.seed,
    }
    run |= {"run_answer": result.answer, "run_correct": result.right}
    row = {
        "problem": cell.problem,
        "group": cell.group,
        **problem_fields,
        **run,
        "answer": [sample.answer for sample in drawn],
    }
    row["text"] = source["texts"] if any(text is not None for text in source.get("texts") or ()) else None
    row["thought"] = source.get("thoughts")
    row["correct"] = [sample.right if sample.given is None else sample.given for sample in drawn]
    row["tokens"] = [sample.tokens for sample in drawn]
    if any(sample.usd is not None for sample in drawn):
        row["usd"] = [sample.usd for sample in drawn]
    row["truncated"] = [sample.status == "truncated" for sample in drawn]
    row["verifier_tokens"] = [sample.verifier_tokens for sample in drawn]
    if any(sample.like is not None for sample in drawn):
        row |= {"like": [sample.like for sample in drawn], "shared": [sample.shared for sample in drawn]}
    if row["text"] is None and any(sample.same is not None for sample in drawn):
        row["same"] = [sample.same for sample in drawn]
    whole_row = {**row, "scores": scores, "steps": steps, "outcomes": outcomes}
    empty_names = {"run_answer", "run_correct"}  # fields that stay without a value
    # without `reference`, the import might take `answer` for the reference of a text
    empty_names |= {"reference"} if row["text"] is not None else set[str]()
    return {name: value for name, value in whole_row.items() if value not in (None, {}) or name in empty_names}


def _each_sample(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a flat row for each sample, with the fields of the problem, and one value of each list."""
    for result, source in pool:
        row = _row(result, source)
        count = len(result.drawn or ())
        problem_fields = {name: value for name, value in row.items() if name in _SHARED}
        for place in range(count):
            sample_fields = {
                name: value[place] for name, value in row.items() if name not in _SHARED and isinstance(value, list)
            }
            nested = {
                f"{kind.removesuffix('s')}_{role}" if kind == "scores" else f"{kind}_{role}": values[place]
                for kind in ("scores", "steps", "outcomes")
                for role, values in row.get(kind, {}).items()
            }
            yield {**problem_fields, "sample": place, **sample_fields, **nested}


def _write_each(pool: list[Sampled], path: Path) -> int:
    """Write a row for each sample as CSV or Parquet. Nested values are JSON."""
    rows = [
        {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
        for row in _each_sample(pool)
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if ".parquet" in path.suffixes:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as missing:
            raise missing_extra("pyarrow", "experiments", "a Parquet file") from missing
        columns = {
            name: [join_surrogates(cell) if isinstance(cell := row.get(name), str) else cell for row in rows]
            for name in names
        }
        parquet.write_table(pa.table(columns), path)
        return len(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {name: inert(join_surrogates(cell) if isinstance(cell, str) else cell) for name, cell in row.items()}
            )
    return len(rows)


def _write_samples(pool: list[Sampled], path: Path) -> int:
    if {".csv", ".parquet"} & set(path.suffixes):
        return _write_each(pool, path)
    return write_json_lines((_row(*one) for one in pool), path)


def _documents(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a line of the harness for each problem, with the samples as repeats."""
    for number, (result, source) in enumerate(pool):
        drawn, prompt, target = (
            result.drawn or (),
            source.get("prompt") or result.cell.problem,
            source.get("reference") or "",
        )
        answers = ["[invalid]" if sample.answer is None else sample.answer for sample in drawn]
        verdicts = [bool(sample.right) for sample in drawn]
        doc = {"problem": result.cell.problem, "question": prompt}
        yield {
            "doc_id": number,
            "doc": doc,
            "target": target,
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}},
            "resps": [_texts(result, source)],
            "filtered_resps": answers if len(answers) == 1 else [answers],
            "filter": "tts",
            "metrics": ["exact_match"],
            "doc_hash": _hash(json.dumps(doc)),
            "prompt_hash": _hash(prompt),
            "target_hash": _hash(target),
            "exact_match": sum(verdicts) / len(verdicts),
            "correct": verdicts,
        }


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _epochs(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a sample of Inspect for each sample."""
    for result, source in pool:
        prompt, model = source.get("prompt") or result.cell.problem, result.cell.model
        for epoch, (sample, text) in enumerate(zip(result.drawn or (), _texts(result, source), strict=True), 1):
            message = {"role": "assistant", "content": text, "source": "generate", "model": model}
            usage = {"input_tokens": 0, "output_tokens": sample.tokens, "total_tokens": sample.tokens}
            scores = {"tts": {"value": _GRADE[sample.right], "answer": sample.answer or "", "explanation": text}}
            other_scores = {role: {"value": score} for role, score in sample.scores.items() if not math.isnan(score)}
            stop = "max_tokens" if sample.status == "truncated" else "stop"
            yield {
                "id": result.cell.problem,
                "epoch": epoch,
                "input": prompt,
                "target": source.get("reference") or "",
                "messages": [{"role": "user", "content": prompt, "source": "input"}, message],
                "output": {
                    "model": model,
                    "choices": [{"message": message, "stop_reason": stop}],
                    "completion": text,
                    "usage": usage,
                },
                "scores": {**scores, **other_scores},
                "metadata": {},
                "store": {},
                "events": [],
                "attachments": {},
                "model_usage": {model: usage},
            }


def _header(pool: list[Sampled]) -> dict[str, Any]:
    """Return a log of Inspect without its samples."""
    cell, created = pool[0][0].cell, datetime.now(UTC).isoformat(timespec="seconds")
    epochs = max(len(result.drawn or ()) for result, _ in pool)
    verdicts = [sample.right for result, _ in pool for sample in result.drawn or () if sample.right is not None]
    metric = (
        {"accuracy": {"name": "accuracy", "value": sum(verdicts) / len(verdicts), "params": {}}} if verdicts else {}
    )
    count = sum(len(result.drawn or ()) for result, _ in pool)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": _hash(cell.key)[:22],
            "run_id": _hash(cell.setting)[:22],
            "created": created,
            "task": cell.dataset,
            "task_id": _hash(cell.dataset)[:22],
            "task_version": 0,
            "dataset": {"name": cell.dataset, "samples": len(pool)},
            "model": cell.model,
            "config": {"epochs": epochs},
            "packages": {},
            "task_args": {},
            "task_attribs": {},
            "model_args": {},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": count,
            "completed_samples": count,
            "scores": [{"name": "tts", "scorer": "tts", "params": {}, "metrics": metric}],
        },
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
    }


def _write_log(pool: list[Sampled], path: Path) -> None:
    """Write a log of Inspect, as JSON or as an archive with one member for each sample."""
    header = _header(pool)
    if ".eval" not in path.suffixes:
        with path.open("w", encoding="ascii") as file:
            file.write(json.dumps(header)[:-1] + ', "samples": [')
            for number, sample in enumerate(_epochs(pool)):
                file.write((", " if number else "") + json.dumps(sample, allow_nan=False))
            file.write("]}")
        return
    summaries: list[dict[str, Any]] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "_journal/start.json", json.dumps({name: header[name] for name in ("version", "eval", "plan")})
        )
        for sample in _epochs(pool):
            name = join_surrogates(f"{sample['id']}_epoch_{sample['epoch']}")
            archive.writestr(f"samples/{name}.json", json.dumps(sample, allow_nan=False))
            summary = {
                key: sample[key] for key in ("id", "epoch", "input", "target", "metadata", "scores", "model_usage")
            }
            summaries.append({**summary, "completed": True})
        archive.writestr("summaries.json", json.dumps(summaries))
        archive.writestr("header.json", json.dumps(header))


_WRITERS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[list[Sampled], Path], int | None]]]] = {
    "samples": ((".jsonl", ".csv", ".parquet"), _write_samples),
    "lm-eval": ((".jsonl",), lambda pool, path: write_json_lines(_documents(pool), path)),
    "inspect": ((".json", ".eval"), _write_log),
}
