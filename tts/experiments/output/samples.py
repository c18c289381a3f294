"""Writes the samples of a study as one page: texts with scores and tokens, a search field and filters.

The page is the template `samples_page.html`, and loads nothing from a network. Texts of models and data sets are never
parsed as HTML. A content security policy allows no script except the page's own (`tts.trace.html`).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from tts._core.display import one_visible_line
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.experiments.output.logs import Sampled
from tts.trace.html import seal_page
from tts.trace.trace import plain_values


def samples_page(name: str, pool: Iterable[Sampled]) -> tuple[str, int]:
    """Return the page of a study's samples, and the number of samples.

    Args:
        name: The name of the study.
        pool: The results of the study, with their texts. Results without samples are shown with their answer alone.

    Raises:
        ConfigError: No result has samples.
    """
    problem_numbers: dict[tuple[str, str, str], int] = {}  # by data set, id and prompt
    problem_entries: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for result, source in pool:
        cell = result.cell
        prompt = source.get("prompt") or ""
        problem_number = problem_numbers.setdefault((cell.dataset, cell.problem, prompt), len(problem_numbers))
        if problem_number == len(problem_entries):  # the problem is new
            problem_entries.append(
                {
                    "dataset": cell.dataset,
                    "id": cell.problem,
                    "group": cell.group,
                    "prompt": prompt,
                    "reference": source.get("reference"),
                }
            )
        drawn = result.drawn or ()
        texts = source.get("texts") or [None] * len(drawn)
        thoughts = source.get("thoughts") or [None] * len(drawn)
        errors = [] if result.error is None else [result.error]
        runs.append(
            {
                "problem": problem_number,
                "model": cell.model,
                "strategy": cell.strategy,
                "budget": str(Budget(**cell.budget)),  # pyright: ignore[reportArgumentType]
                "seed": str(cell.seed),  # a browser's numbers are exact only up to 2**53
                "answer": result.answer,
                "right": result.right,
                "tokens": result.usage.tokens,
                "stopped_by": result.stopped_by,
                "notes": [*errors, *result.warnings],
                "samples": [
                    {
                        "text": text,
                        "thought": thought,
                        "answer": sample.answer,
                        "right": sample.right if sample.given is None else sample.given,
                        "status": sample.status,
                        "tokens": sample.tokens,
                        "scores": plain_values(dict(sample.scores)),
                    }
                    for sample, text, thought in zip(drawn, texts, thoughts, strict=True)
                ],
            }
        )
    num_samples = sum(len(run["samples"]) for run in runs)
    if num_samples == 0:
        raise ConfigError(
            "no result has samples, but the page is of these",
            hint="run the study with record: {texts: true}, which is the default",
        )
    data = json.dumps({"problems": problem_entries, "runs": runs}, allow_nan=False).replace("<", "\\u003c")
    template = resources.files("tts.experiments.output").joinpath("samples_page.html").read_text(encoding="utf-8")
    page = seal_page(template).replace("{{TITLE}}", html.escape(one_visible_line(name))).replace("{{DATA}}", data)
    return page, num_samples
