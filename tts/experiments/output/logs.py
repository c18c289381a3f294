"""Exports recorded samples as rows, which `tts import` reads again.

Imported texts and prompts are written unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tts._common.files import replace_file, write_json_lines
from tts.errors import ConfigError
from tts.experiments.study.record import Result
from tts.trace.trace import plain_values

# A result with candidates, and their texts as `store.bodies.source_in` gives them; {}: no texts were recorded.
Sampled = tuple[Result, Mapping[str, Any]]
# the fields of a sample, most of them those of `RecordedSample`
_SAMPLE_FIELDS: Final = (
    "answer", "text", "thought", "correct", "tokens", "usd", "truncated", "verifier_tokens", "like", "shared", "same",
)  # fmt: skip


def export_samples(pool: Iterable[Sampled], path: str | Path, study: str) -> int:
    """Write a row for each run with recorded samples, as JSON lines, and return the number of rows.

    An existing file is replaced when all samples are written.

    Args:
        pool: The results with recorded candidates.
        path: The file, which ends in .jsonl. A row has lists with a value for each sample, and the run's answer.
        study: The name of the study, for messages.

    Raises:
        ConfigError: Another ending, or no result has candidates.
        TTSError: The file cannot be written.
    """
    target = Path(path)
    if target.suffix != ".jsonl":
        raise ConfigError(f"path is {str(path)!r}, but the form samples must end in .jsonl")
    results = [(result, source) for result, source in pool if result.drawn]
    if not results:
        raise ConfigError(
            f"no result of the study {study!r} has recorded samples, but these are exported",
            hint="draw a pool (tts sample), export results, or name another study of tts runs",
        )
    with replace_file(target) as part:
        return write_json_lines((_run_fields(*sampled) | _sample_fields(*sampled) for sampled in results), part)


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
