"""Exports recorded samples in the forms of other programs.

The forms are plain rows, lm-evaluation-harness, and logs of Inspect. `tts import` reads each of them again. Texts and
prompts are those that were imported. Where a pool recorded answers alone, the answer stands for the text, and the
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

# A result with candidates, and what they were imported from, as `store.bodies.source_in` gives it; {}: they were not
# imported.
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
)  # of a row
_GRADE: Final = {True: "C", False: "I", None: "N"}


def export_samples(pool: Iterable[Sampled], path: str | Path, form: str, study: str) -> int:
    """Write recorded samples to a file, and return how many runs they are of.

    An existing file is replaced when all are written.

    Args:
        pool: The results with recorded candidates.
        path: It ends in .jsonl, for "samples" also in .csv or .parquet, or for "inspect" in .json or .eval.
        form: "samples": a row a run, with lists and what the run answered; in .csv and .parquet a row a sample.
            "lm-eval": `samples_….jsonl` of the harness. "inspect": a log, an epoch a sample.
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
    drawn = [(result, source) for result, source in pool if result.drawn]
    if not drawn:
        raise ConfigError(
            f"no result of the study {study!r} has recorded samples, but these are exported",
            hint="draw a pool (tts sample), export results, or name another study of tts runs",
        )
    with replace_file(target) as part:
        write(drawn, part)
    return len(drawn)


def _texts(result: Result, source: Mapping[str, Any]) -> list[str]:
    drawn = result.drawn or ()
    known = source.get("texts") or [None] * len(drawn)
    return [one.answer or "" if text is None else text for one, text in zip(drawn, known, strict=True)]


def _row(result: Result, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem as a plain row with lists, of the usual fields of an import."""
    drawn, cell = result.drawn or (), result.cell
    scores = {role: plain_values([one.scores.get(role, math.nan) for one in drawn]) for role in cell.verifiers}
    by_step, by_test = [one.steps for one in drawn], [one.outcomes for one in drawn]
    steps, outcomes = (
        {role: plain_values([one[role] for one in told]) for role in cell.verifiers if all(role in one for one in told)}
        for told in (by_step, by_test)
    )
    shared = {name: source.get(name) for name in ("prompt", "reference", "tests")}
    run = {
        "dataset": cell.dataset,
        "model": cell.model,
        "strategy": cell.strategy,
        "budget": dict(cell.budget),
        "seed": cell.seed,
    }
    run |= {"run_answer": result.answer, "run_correct": result.right}
    row = {"problem": cell.problem, "group": cell.group, **shared, **run, "answer": [one.answer for one in drawn]}
    row["text"] = source["texts"] if any(text is not None for text in source.get("texts") or ()) else None
    row["thought"] = source.get("thoughts")
    row["correct"] = [one.right if one.given is None else one.given for one in drawn]
    row["tokens"] = [one.tokens for one in drawn]
    if any(one.usd is not None for one in drawn):
        row["usd"] = [one.usd for one in drawn]
    row["truncated"] = [one.status == "truncated" for one in drawn]
    row["verifier_tokens"] = [one.verifier_tokens for one in drawn]
    if any(one.like is not None for one in drawn):
        row |= {"like": [one.like for one in drawn], "shared": [one.shared for one in drawn]}
    if row["text"] is None and any(one.same is not None for one in drawn):
        row["same"] = [one.same for one in drawn]
    given = {**row, "scores": scores, "steps": steps, "outcomes": outcomes}
    kept = {"run_answer", "run_correct"}  # of each run, also where it has none
    # else `answer` might be the reference beside a text
    kept |= {"reference"} if row["text"] is not None else set[str]()
    return {name: value for name, value in given.items() if value not in (None, {}) or name in kept}


def _each_sample(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a flat row for each sample: what the problem has once, and one value of each list."""
    for result, source in pool:
        row = _row(result, source)
        count = len(result.drawn or ())
        shared = {name: value for name, value in row.items() if name in _SHARED}
        for place in range(count):
            own = {name: value[place] for name, value in row.items() if name not in _SHARED and isinstance(value, list)}
            nested = {
                f"{kind.removesuffix('s')}_{role}" if kind == "scores" else f"{kind}_{role}": values[place]
                for kind in ("scores", "steps", "outcomes")
                for role, values in row.get(kind, {}).items()
            }
            yield {**shared, "sample": place, **own, **nested}


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
        whole = {
            name: [join_surrogates(one) if isinstance(one := row.get(name), str) else one for row in rows]
            for name in names
        }
        parquet.write_table(pa.table(whole), path)
        return len(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {name: inert(join_surrogates(one) if isinstance(one, str) else one) for name, one in row.items()}
            )
    return len(rows)


def _write_samples(pool: list[Sampled], path: Path) -> int:
    if {".csv", ".parquet"} & set(path.suffixes):
        return _write_each(pool, path)
    return write_json_lines((_row(*one) for one in pool), path)


def _documents(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a line of the harness for each problem, its samples as repeats."""
    for number, (result, source) in enumerate(pool):
        drawn, prompt, target = (
            result.drawn or (),
            source.get("prompt") or result.cell.problem,
            source.get("reference") or "",
        )
        answers = ["[invalid]" if one.answer is None else one.answer for one in drawn]
        right = [bool(one.right) for one in drawn]
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
            "exact_match": sum(right) / len(right),
            "correct": right,
        }


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _epochs(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a sample of Inspect for each sample."""
    for result, source in pool:
        prompt, model = source.get("prompt") or result.cell.problem, result.cell.model
        for epoch, (one, text) in enumerate(zip(result.drawn or (), _texts(result, source), strict=True), 1):
            message = {"role": "assistant", "content": text, "source": "generate", "model": model}
            usage = {"input_tokens": 0, "output_tokens": one.tokens, "total_tokens": one.tokens}
            scores = {"tts": {"value": _GRADE[one.right], "answer": one.answer or "", "explanation": text}}
            others = {role: {"value": score} for role, score in one.scores.items() if not math.isnan(score)}
            stop = "max_tokens" if one.status == "truncated" else "stop"
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
                "scores": {**scores, **others},
                "metadata": {},
                "store": {},
                "events": [],
                "attachments": {},
                "model_usage": {model: usage},
            }


def _header(pool: list[Sampled]) -> dict[str, Any]:
    """Return a log of Inspect without its samples."""
    first, now = pool[0][0].cell, datetime.now(UTC).isoformat(timespec="seconds")
    epochs = max(len(result.drawn or ()) for result, _ in pool)
    verdicts = [one.right for result, _ in pool for one in result.drawn or () if one.right is not None]
    metric = (
        {"accuracy": {"name": "accuracy", "value": sum(verdicts) / len(verdicts), "params": {}}} if verdicts else {}
    )
    count = sum(len(result.drawn or ()) for result, _ in pool)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": _hash(first.key)[:22],
            "run_id": _hash(first.setting)[:22],
            "created": now,
            "task": first.dataset,
            "task_id": _hash(first.dataset)[:22],
            "task_version": 0,
            "dataset": {"name": first.dataset, "samples": len(pool)},
            "model": first.model,
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
        "stats": {"started_at": now, "completed_at": now, "model_usage": {}},
    }


def _write_log(pool: list[Sampled], path: Path) -> None:
    """Write a log of Inspect: JSON, or an archive with one member a sample."""
    header = _header(pool)
    if ".eval" not in path.suffixes:
        with path.open("w", encoding="ascii") as file:
            file.write(json.dumps(header)[:-1] + ', "samples": [')
            for number, one in enumerate(_epochs(pool)):
                file.write((", " if number else "") + json.dumps(one, allow_nan=False))
            file.write("]}")
        return
    summaries: list[dict[str, Any]] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "_journal/start.json", json.dumps({name: header[name] for name in ("version", "eval", "plan")})
        )
        for one in _epochs(pool):
            name = join_surrogates(f"{one['id']}_epoch_{one['epoch']}")
            archive.writestr(f"samples/{name}.json", json.dumps(one, allow_nan=False))
            kept = {key: one[key] for key in ("id", "epoch", "input", "target", "metadata", "scores", "model_usage")}
            summaries.append({**kept, "completed": True})
        archive.writestr("summaries.json", json.dumps(summaries))
        archive.writestr("header.json", json.dumps(header))


_WRITERS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[list[Sampled], Path], int | None]]]] = {
    "samples": ((".jsonl", ".csv", ".parquet"), _write_samples),
    "lm-eval": ((".jsonl",), lambda pool, path: write_json_lines(_documents(pool), path)),
    "inspect": ((".json", ".eval"), _write_log),
}
