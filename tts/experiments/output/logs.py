"""Exports recorded samples in the forms of other programs.

The forms are plain rows, lm-evaluation-harness, and logs of Inspect. `tts import` reads each form again. Imported texts
and prompts are written unchanged. Where a pool recorded answers alone, the answer stands for the text, and the
problem's id for the prompt.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tts._common.characters import join_surrogates
from tts._common.files import replace_file, write_json_lines
from tts.errors import ConfigError, unknown_name
from tts.experiments.output.export import flat, import_arrow, write_csv
from tts.experiments.study.record import Result
from tts.trace.trace import plain_values

# A result with candidates, and their texts as `store.bodies.source_in` gives them; {}: no texts were recorded.
Sampled = tuple[Result, Mapping[str, Any]]
# the fields of a sample in the order of columns, most of them those of `RecordedSample`
_SAMPLE_FIELDS: Final = (
    "answer", "text", "thought", "correct", "tokens", "usd", "truncated", "verifier_tokens", "like", "shared", "same",
)  # fmt: skip
_PREFIXES: Final = {"scores": "score", "steps": "steps", "outcomes": "outcomes"}  # of a column for each role
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
    if form not in SAMPLE_FORMS:
        raise unknown_name("form", form, SAMPLE_FORMS)
    endings, write = SAMPLE_FORMS[form]
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
    """Return the text of each sample of a result, or its answer where no text was recorded."""
    drawn = result.drawn or ()
    texts = source.get("texts") or [None] * len(drawn)
    return [sample.answer or "" if text is None else text for sample, text in zip(drawn, texts, strict=True)]


def _run_fields(result: Result, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that all samples of a run share, in the usual names of an import."""
    cell = result.cell
    fields: dict[str, Any] = {
        "problem": cell.problem,
        "group": cell.group,
        "prompt": source.get("prompt"),
        "reference": source.get("reference"),
        "tests": source.get("tests"),
        "dataset": cell.dataset,
        "model": cell.model,
        "strategy": cell.strategy,
        "budget": dict(cell.budget),
        "seed": cell.seed,
        "run_answer": result.answer,
        "run_correct": result.right,
    }
    kept_names = {"run_answer", "run_correct"}  # fields that the row has even without a value
    if _has_texts(source):
        kept_names.add("reference")  # without this field, an import might take `answer` for the reference
    return {name: value for name, value in fields.items() if value not in (None, {}) or name in kept_names}


def _sample_fields(result: Result, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a list for each field of samples, or lists by role, in the usual names of an import."""
    drawn, roles = result.drawn or (), result.cell.verifiers
    lists: dict[str, Any] = {name: [getattr(sample, name, None) for sample in drawn] for name in _SAMPLE_FIELDS}
    has_likes = any(like is not None for like in lists["like"])
    empty_names = [name for name in ("usd", "same") if all(value is None for value in lists[name])]
    empty_names += [] if has_likes else ["like", "shared"]
    empty_names += ["same"] if _has_texts(source) else []
    lists["text"] = source["texts"] if _has_texts(source) else None
    lists["thought"] = source.get("thoughts")
    lists["correct"] = [sample.right if sample.given is None else sample.given for sample in drawn]
    lists["truncated"] = [sample.status == "truncated" for sample in drawn]
    lists["scores"] = {role: plain_values([sample.scores.get(role, math.nan) for sample in drawn]) for role in roles}
    lists["steps"] = _lists_by_role([sample.steps for sample in drawn], roles)
    lists["outcomes"] = _lists_by_role([sample.outcomes for sample in drawn], roles)
    return {name: value for name, value in lists.items() if value not in (None, {}) and name not in empty_names}


def _has_texts(source: Mapping[str, Any]) -> bool:
    return any(text is not None for text in source.get("texts") or ())


def _lists_by_role(
    values: Sequence[Mapping[str, tuple[float, ...]]], roles: Iterable[str]
) -> dict[str, list[list[float]]]:
    """Return the values of all samples by role, for the roles that every sample has values of."""
    common_roles = [role for role in roles if all(role in sample_values for sample_values in values)]
    return {role: plain_values([sample_values[role] for sample_values in values]) for role in common_roles}


def _each_sample(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a flat row for each sample, with the fields of the problem, and one value of each list."""
    for result, source in pool:
        run_fields = _run_fields(result, source)
        lists: dict[str, Any] = {}
        for name, values in _sample_fields(result, source).items():
            if name in _PREFIXES:
                lists |= {f"{_PREFIXES[name]}_{role}": role_values for role, role_values in values.items()}
            else:
                lists[name] = values
        for i in range(len(result.drawn or ())):
            yield {**run_fields, "sample": i, **{name: values[i] for name, values in lists.items()}}


def _write_samples(pool: list[Sampled], path: Path) -> int:
    """Write a row for each run as JSON lines, or one for each sample as CSV or Parquet, with nested values as JSON."""
    if ".jsonl" in path.suffixes:
        return write_json_lines((_run_fields(*sampled) | _sample_fields(*sampled) for sampled in pool), path)
    rows = [flat(row) for row in _each_sample(pool)]
    names = dict.fromkeys(name for row in rows for name in row)  # in order of first appearance
    if ".csv" in path.suffixes:
        return write_csv(rows, list(names), path)
    pa, parquet = import_arrow()
    parquet.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
    return len(rows)


def _documents(pool: list[Sampled]) -> Iterator[dict[str, Any]]:
    """Yield a line of the harness for each problem, with the samples as repeats."""
    for number, (result, source) in enumerate(pool):
        drawn = result.drawn or ()
        prompt = source.get("prompt") or result.cell.problem
        target = source.get("reference") or ""
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
    """Yield each sample as a sample of Inspect. The samples of a run are epochs."""
    for result, source in pool:
        prompt = source.get("prompt") or result.cell.problem
        model = result.cell.model
        for epoch, (sample, text) in enumerate(zip(result.drawn or (), _texts(result, source), strict=True), 1):
            message = {"role": "assistant", "content": text, "source": "generate", "model": model}
            usage = {"input_tokens": 0, "output_tokens": sample.tokens, "total_tokens": sample.tokens}
            scores = {"tts": {"value": _GRADE[sample.right], "answer": sample.answer or "", "explanation": text}}
            other_scores = {role: {"value": score} for role, score in sample.scores.items() if not math.isnan(score)}
            stop_reason = "max_tokens" if sample.status == "truncated" else "stop"
            yield {
                "id": result.cell.problem,
                "epoch": epoch,
                "input": prompt,
                "target": source.get("reference") or "",
                "messages": [{"role": "user", "content": prompt, "source": "input"}, message],
                "output": {
                    "model": model,
                    "choices": [{"message": message, "stop_reason": stop_reason}],
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
    first_result, _ = pool[0]
    cell = first_result.cell
    created = datetime.now(UTC).isoformat(timespec="seconds")
    sample_counts: list[int] = []
    verdicts: list[bool] = []
    for result, _ in pool:
        drawn = result.drawn or ()
        sample_counts.append(len(drawn))
        verdicts += [sample.right for sample in drawn if sample.right is not None]
    num_samples = sum(sample_counts)
    metrics: dict[str, Any] = {}
    if verdicts:
        metrics["accuracy"] = {"name": "accuracy", "value": sum(verdicts) / len(verdicts), "params": {}}
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
            "config": {"epochs": max(sample_counts)},
            "packages": {},
            "task_args": {},
            "task_attribs": {},
            "model_args": {},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": num_samples,
            "completed_samples": num_samples,
            "scores": [{"name": "tts", "scorer": "tts", "params": {}, "metrics": metrics}],
        },
        "stats": {"started_at": created, "completed_at": created, "model_usage": {}},
    }


def _write_log(pool: list[Sampled], path: Path) -> None:
    """Write a log of Inspect, as JSON or as an archive with one member for each sample."""
    header = _header(pool)
    if ".eval" not in path.suffixes:
        with path.open("w", encoding="ascii") as file:
            # the samples are written one by one into the object of the header
            file.write(json.dumps(header).removesuffix("}") + ', "samples": [')
            for number, sample in enumerate(_epochs(pool)):
                if number > 0:
                    file.write(", ")
                file.write(json.dumps(sample, allow_nan=False))
            file.write("]}")
        return
    summaries: list[dict[str, Any]] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        start = {name: header[name] for name in ("version", "eval", "plan")}
        archive.writestr("_journal/start.json", json.dumps(start))
        for sample in _epochs(pool):
            name = join_surrogates(f"{sample['id']}_epoch_{sample['epoch']}")
            archive.writestr(f"samples/{name}.json", json.dumps(sample, allow_nan=False))
            summary_names = ("id", "epoch", "input", "target", "metadata", "scores", "model_usage")
            summary = {name: sample[name] for name in summary_names}
            summaries.append({**summary, "completed": True})
        archive.writestr("summaries.json", json.dumps(summaries))
        archive.writestr("header.json", json.dumps(header))


SAMPLE_FORMS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[list[Sampled], Path], int | None]]]] = {
    "samples": ((".jsonl", ".csv", ".parquet"), _write_samples),
    "lm-eval": ((".jsonl",), lambda pool, path: write_json_lines(_documents(pool), path)),
    "inspect": ((".json", ".eval"), _write_log),
}
