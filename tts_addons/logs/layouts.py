"""Files of well-known programs whose rows are plain.

The fields of a row tell the program, and so the meaning of each field.

| layout | written by |
|---|---|
| search-and-learn | `scripts/test_time_compute.py` of huggingface/search-and-learn; `completion_tokens` is -1 where it was not counted |
| Qwen2.5-Math | `evaluation/math_eval.py` of QwenLM/Qwen2.5-Math; with `pred_score` by its reward model |
| large_language_monkeys | ScalingIntelligence/large_language_monkeys, and its tables; `gt_answer` is a worked solution |
| DeepConf | facebookresearch/deepconf, whose pickles were written as JSON; `min_conf` is the lowest mean confidence of a window |
| OpenAI batch | the output file of a batch of chat completions |
| OpenAI batch, completions | the same of the completions endpoint |
| OpenAI batch, responses | the same of the responses endpoint |
| verifiers | `results.jsonl` of the library verifiers; a reward of 0 or 1 is the verdict, as it sees the answer |

Sources: the code of these repositories, and OpenAI's description of batch output.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from tts_addons.logs.paths import has_path

# one path; several paths, of which the first that a row has is read; or a path for each role
Paths = str | tuple[str, ...] | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The fields of one program's rows.

    Args:
        name: The name of the program, for the report.
        needs: The paths that every row of this layout has.
        paths: The path of each meaning.
        failed: A function that returns whether a row has no sample because its request failed.
        prepare: A function that changes a row before it is read.
        repeats: Whether a further file has further samples of the same problems.
    """

    name: str
    needs: tuple[str, ...]
    paths: Mapping[str, Paths]
    failed: Callable[[Mapping[str, Any]], bool] = lambda _: False
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda row: row
    repeats: bool = False


def layout_of(row: Mapping[str, Any]) -> Layout:
    """Return the layout of a row, which is `PLAIN` where the row has no other."""
    return next((layout for layout in LAYOUTS if all(has_path(row, path) for path in layout.needs)), PLAIN)


def has_failed(row: Mapping[str, Any]) -> bool:
    """Return whether a request of a batch brought no reply."""
    response = row.get("response")
    return (
        not isinstance(response, Mapping)
        or response.get("status_code") != 200
        or not isinstance(response.get("body"), Mapping)
    )


def join_parts(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of the responses endpoint with the joined texts of its messages as `output_text`.

    The client library joins texts in the same way.
    """
    if has_failed(row):
        return row
    body: Any = row["response"]["body"]
    messages = [item for item in _dicts(body.get("output")) if item.get("type") == "message"]
    parts = [part for message in messages for part in _dicts(message.get("content"))]
    texts = [part.get("text") for part in parts if part.get("type") == "output_text"]
    return {**row, "output_text": "".join(text for text in texts if isinstance(text, str))}


def _dicts(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [item for item in cast("list[Any]", value) if isinstance(item, dict)]


def _traces(*lists: str) -> Mapping[str, Paths]:
    """Return the path of each meaning in a row of DeepConf, whose traces are in the lists with these names."""

    def path(name: str) -> str:
        return "+".join(f"{list_name}.*.{name}" for list_name in lists)

    return {
        "problem": "question_id", "prompt": "question", "reference": "ground_truth", "text": path("text"),
        "answer": path("extracted_answer"), "correct": path("is_correct"), "tokens": path("num_tokens"),
        "truncated": path("stop_reason"),
    }  # fmt: skip


def _choices(text: str) -> Mapping[str, Paths]:
    """Return the path of each meaning in a row of a batch, whose choices have their text at this path."""
    return {
        "problem": "custom_id", "model": "response.body.model", "text": f"response.body.choices.*.{text}",
        "tokens": "response.body.usage.completion_tokens", "truncated": "response.body.choices.*.finish_reason",
    }  # fmt: skip


LISTS: Final = ("samples", "outputs", "texts")  # names of texts only where the value is a list
# The usual names of fields, by meaning. The first name that a row has is read. Callers state unusual names.
USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "problem": ("problem", "problem_id", "id", "task_id", "doc_id", "idx", "problem_idx"),
    "sample": ("sample", "sample_id", "epoch"),
    "prompt": ("prompt", "question", "input"),
    "text": ("text", "completions", "completion", "responses", "response", "output", "generations", "generation", *LISTS),  # noqa: E501
    "answer": ("prediction", "pred", "answer", "predictions", "preds", "answers"),
    "reference": ("reference", "target", "gold", "gt", "ground_truth", "gt_answer", "gold_answer"),
    "correct": ("correct", "right", "is_correct", "is_corrects", "corrects"),
    "tokens": ("tokens", "num_tokens", "completion_tokens", "output_tokens"),
    "usd": ("usd", "cost_usd"),
    "scores": ("scores", "score", "reward"),
    "steps": ("steps", "step_scores"),
    "outcomes": ("outcomes",),
    "tests": ("tests",),
    "written_tests": ("written_tests", "generated_tests"),
    "group": ("group",),
    "truncated": ("truncated",),
    "verifier_tokens": ("verifier_tokens",),
    "like": ("like",),
    "shared": ("shared",),
    "same": ("same",),
    "model": ("model", "model_name", "model_id"),
}  # fmt: skip
PLAIN: Final = Layout(name="", needs=(), paths=USUAL)  # of rows of no well-known program
_BATCH: Final = ("custom_id", "response.body")
_MONKEYS: Final[Mapping[str, Paths]] = {
    "problem": ("orig_dset_idx", "question", "prompt"), "prompt": ("prompt", "question"), "text": "samples",
    "reference": "gt_answer", "correct": "is_corrects",
}  # fmt: skip
LAYOUTS: Final = (
    Layout(
        name="search-and-learn", needs=("problem", "completions", "scores"),
        paths={
            "problem": ("unique_id", "problem"), "prompt": "problem", "text": "completions", "reference": "answer",
            "scores": "scores", "tokens": "completion_tokens",
        },
    ),
    Layout(
        name="Qwen2.5-Math", needs=("idx", "gt", "code", "pred"),
        paths={
            "problem": "idx", "prompt": "question", "text": "code", "answer": "pred", "reference": "gt",
            "correct": "score", "scores": "pred_score",
        },
    ),
    Layout(name="large_language_monkeys", needs=("samples", "gt_answer"), paths=_MONKEYS),
    Layout(name="large_language_monkeys", needs=("samples", "is_corrects"), paths=_MONKEYS),
    Layout(
        name="DeepConf", needs=("ground_truth", "warmup_traces.*.text", "final_traces.*.text"),
        paths={
            **_traces("warmup_traces", "final_traces"),
            "scores": {"confidence": "warmup_traces.*.min_conf+final_traces.*.min_conf"},
        },
    ),
    Layout(name="DeepConf", needs=("ground_truth", "all_traces.*.text"), paths=_traces("all_traces")),
    Layout(
        name="OpenAI batch, responses", needs=(*_BATCH, "response.body.output"), failed=has_failed, repeats=True,
        prepare=join_parts,
        paths={
            "problem": "custom_id", "text": "output_text", "tokens": "response.body.usage.output_tokens",
            "model": "response.body.model", "truncated": "response.body.incomplete_details.reason",
        },
    ),
    Layout(
        name="OpenAI batch, completions", needs=(*_BATCH, "response.body.choices.0.text"), failed=has_failed,
        repeats=True, paths=_choices("text"),
    ),
    Layout(
        name="OpenAI batch", needs=("custom_id", "response", "error"), failed=has_failed, repeats=True,
        paths=_choices("message.content"),
    ),
    Layout(
        name="verifiers", needs=("example_id", "completion", "reward"),
        prepare=lambda row: {**row, "reward": row["reward"] if row.get("reward") in (0, 1) else None},
        paths={
            "problem": "example_id", "prompt": "prompt", "text": "completion", "reference": "answer",
            "correct": "reward",
        },
    ),
)  # fmt: skip
