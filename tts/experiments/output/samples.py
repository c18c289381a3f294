"""The samples of a study as one page: what the model wrote, with scores and tokens.

The page has a search over all of it, and filters. The page is the template `samples_page.html`. It loads nothing from a
network. Texts of models and data sets are never parsed as HTML, and a content security policy allows no script except
the page's own (`tts.trace.html`).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from tts.budget.budget import Budget
from tts.display import one_visible_line
from tts.errors import ConfigError
from tts.experiments.output.logs import Sampled
from tts.trace.html import seal_page
from tts.trace.trace import plain_values


def samples_page(name: str, pool: Iterable[Sampled]) -> tuple[str, int]:
    """Return the page of a study's samples, and how many there are.

    Args:
        name: The name of the study.
        pool: Its results, with their texts. Results without samples are shown with their answer alone.

    Raises:
        ConfigError: No result has samples.
    """
    problems: dict[tuple[str, str, str], int] = {}
    texts: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for result, source in pool:
        cell = result.cell
        prompt = source.get("prompt") or ""
        place = problems.setdefault((cell.dataset, cell.problem, prompt), len(problems))
        if place == len(texts):
            texts.append(
                {
                    "dataset": cell.dataset,
                    "id": cell.problem,
                    "group": cell.group,
                    "prompt": prompt,
                    "reference": source.get("reference"),
                }
            )
        drawn = result.drawn or ()
        written = source.get("texts") or [None] * len(drawn)
        thoughts = source.get("thoughts") or [None] * len(drawn)
        runs.append(
            {
                "problem": place,
                "model": cell.model,
                "strategy": cell.strategy,
                "budget": str(Budget(**cell.budget)),  # pyright: ignore[reportArgumentType]
                "seed": str(cell.seed),  # a browser's numbers are exact only up to 2**53
                "answer": result.answer,
                "right": result.right,
                "tokens": result.usage.tokens,
                "stopped_by": result.stopped_by,
                "notes": [*([] if result.error is None else [result.error]), *result.warnings],
                "samples": [
                    {
                        "text": text,
                        "thought": thought,
                        "answer": one.answer,
                        "right": one.right if one.given is None else one.given,
                        "status": one.status,
                        "tokens": one.tokens,
                        "scores": plain_values(dict(one.scores)),
                    }
                    for one, text, thought in zip(drawn, written, thoughts, strict=True)
                ],
            }
        )
    count = sum(len(run["samples"]) for run in runs)
    if not count:
        raise ConfigError(
            "no result has samples, but the page is of these",
            hint="run the study with record: {texts: true}, which is the default",
        )
    data = json.dumps({"problems": texts, "runs": runs}, allow_nan=False).replace("<", "\\u003c")
    page = seal_page(
        resources.files("tts.experiments.output").joinpath("samples_page.html").read_text(encoding="utf-8")
    )
    return page.replace("{{TITLE}}", html.escape(one_visible_line(name))).replace("{{DATA}}", data), count
