"""The forms of rows: for each a function from a search to its rows, and the columns that they have.

Sources: the dataset formats of TRL (SFT: prompt and completion; DPO: prompt, chosen, rejected; KTO: prompt, completion,
label; PRM: prompt, completions as steps, labels; GRPO: prompt), and JSON lines of chat messages. Differs: `soft_labels`
stand beside the labels of steps, and `answer` beside the prompts of GRPO; trainers leave further columns to reward
functions, or ignore them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from tts.errors import ConfigError, unknown_name
from tts.experiments.study.record import Cell
from tts.trace.node import plain_values
from tts.types import Prompt, prompt_text
from tts_addons.training.filters import Filters, Sieve, check_filters
from tts_addons.training.records import PathSample, SearchRows

Row = dict[str, Any]
T = TypeVar("T", SearchRows, Cell)
# of columns: a text, a text or messages as the prompt is, or lists of values
Kind = Literal[
    "text", "turns", "messages", "bool", "int", "float", "texts", "bools", "ints", "floats", "nodes", "levels"
]


_OF_SAMPLES: Final = frozenset(
    {"keep", "judge", "threshold", "per_problem", "distinct", "balanced", "thoughts", "verifier"}
)


@dataclass(frozen=True, slots=True)
class Form:
    """One form.

    Args:
        rows: Yields the rows of a search.
        columns: The kind of each column.
        keep: The samples that are kept where the filters do not say.
        tokens: Whether it needs token ids.
        filters: The names of the filters that it uses.
    """

    rows: Callable[[SearchRows, Sieve], Iterator[Row]]
    columns: Mapping[str, Kind]
    keep: Literal["good", "best", "all"] = "all"
    tokens: bool = False
    filters: frozenset[str] = _OF_SAMPLES


def form_of(name: str, filters: Filters) -> Form:
    """Return a form by its name.

    Raises:
        ConfigError: There is no such form, or it cannot follow the filters.
    """
    if name not in FORMS:
        raise unknown_name("form", name, FORMS)
    check_filters(filters, name, FORMS[name].filters, masks=FORMS[name].tokens)
    return FORMS[name]


def messages_of(prompt: Prompt) -> str | list[dict[str, str]]:
    """Return a prompt as a text or as messages."""
    return prompt if isinstance(prompt, str) else [{"role": turn.role, "content": turn.content} for turn in prompt]


def _text(sample: PathSample, filters: Filters) -> str:
    return sample.text[sample.thought :].lstrip() if filters.thoughts == "drop" and sample.thought else sample.text


def _turn(sample: PathSample, text: str) -> str | list[dict[str, str]]:
    """Return a completion in the kind of its prompt."""
    return text if isinstance(sample.prompt, str) else [{"role": "assistant", "content": text}]


def _sft(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    for sample in sieve.samples(record):
        if sieve.admit(record, sample):
            yield {"prompt": messages_of(sample.prompt), "completion": _turn(sample, _text(sample, sieve.filters))}


def _chat(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    for sample in sieve.samples(record):
        if sieve.admit(record, sample):
            prompt = messages_of(sample.prompt)
            turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            yield {"messages": [*turns, {"role": "assistant", "content": _text(sample, sieve.filters)}]}


def _dpo(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    """Pair each good sample with the first unpaired bad sample whose score is far enough below.

    Both samples of a pair were drawn for the same prompt.
    """
    good_samples = defaultdict[Prompt, list[PathSample]](list)
    bad_samples = defaultdict[Prompt, list[PathSample]](list)
    prompts: dict[Prompt, None] = {}  # in the order of their first samples
    for sample in sieve.samples(record):
        is_good = sieve.filters.is_good(sample)
        if is_good is None:
            sieve.left_out[sieve.filters.unknown] += 1
            continue
        prompts.setdefault(sample.prompt)
        (good_samples if is_good else bad_samples)[sample.prompt].append(sample)
    for prompt in prompts:
        unpaired = list(bad_samples[prompt])
        for chosen in good_samples[prompt]:
            partners = [sample for sample in unpaired if _is_apart(chosen, sample, sieve.filters.margin)]
            if not partners:
                sieve.left_out["good samples without a bad one to pair"] += 1
                continue
            rejected = partners[0]
            unpaired.remove(rejected)
            if sieve.admit(record, chosen):
                yield {
                    "prompt": messages_of(prompt),
                    "chosen": _turn(chosen, _text(chosen, sieve.filters)),
                    "rejected": _turn(rejected, _text(rejected, sieve.filters)),
                }
        sieve.left_out["bad samples without a good one to pair"] += len(unpaired)


def _is_apart(chosen: PathSample, rejected: PathSample, margin: float | None) -> bool:
    if chosen.text == rejected.text:
        return False
    if margin is None:
        return True
    return chosen.score is not None and rejected.score is not None and chosen.score - rejected.score >= margin


def _kto(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    """Yield a row for each judged sample, labelled by whether the sample is good."""
    for sample in sieve.samples(record):
        is_good = sieve.filters.is_good(sample)
        if is_good is None:
            sieve.left_out[sieve.filters.unknown] += 1
        elif sieve.admit(record, sample if is_good else None):
            yield {
                "prompt": messages_of(sample.prompt),
                "completion": _turn(sample, _text(sample, sieve.filters)),
                "label": is_good,
            }


def _prm(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    """Label each step.

    The label follows the verifier's score of the step, or the share of right samples among the samples with the same
    first steps.
    """
    shares = _right_shares(record)
    for sample in sieve.samples(record):
        is_by_score = sieve.filters.judge == "score"
        by_verdict = [shares.get(sample.steps[: i + 1]) for i in range(len(sample.steps))]
        soft_labels: Sequence[float | None] = sample.values if is_by_score else by_verdict
        if not sample.steps or len(soft_labels) != len(sample.steps) or None in soft_labels:
            sieve.left_out["samples without a score of each step" if is_by_score else sieve.filters.unknown] += 1
        elif sieve.admit(record):
            known_labels = [float(value) for value in soft_labels if value is not None]
            yield {
                "prompt": prompt_text(sample.prompt),
                "completions": [step.rstrip() for step in sample.steps],
                "labels": [value >= sieve.filters.threshold if is_by_score else value > 0 for value in known_labels],
                "soft_labels": known_labels,
            }


def _right_shares(record: SearchRows) -> Mapping[tuple[str, ...], float]:
    """Return, for each sequence of first steps, the share of right samples among the samples that begin with it."""
    verdicts = defaultdict[tuple[str, ...], list[bool]](list)
    for sample in record.samples:
        if sample.right is not None:
            for count in range(1, len(sample.steps) + 1):
                verdicts[sample.steps[:count]].append(sample.right)
    return {first_steps: sum(rights) / len(rights) for first_steps, rights in verdicts.items()}


def _grpo(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    """One row a problem, whatever the samples."""
    if record.reference is None:
        sieve.left_out["problems without a reference answer"] += 1
    elif sieve.admit_problem(record):
        yield {"prompt": messages_of(record.prompt), "answer": record.reference}


def _origin(record: SearchRows) -> Row:
    return {
        "problem": record.problem,
        "model": record.model,
        "strategy": record.strategy,
        "seed": str(record.seed),
        "budget": record.budget,
        "temperature": record.temperature,
    }


_ORIGIN: Final[Mapping[str, Kind]] = {
    "problem": "text", "model": "text", "strategy": "text", "seed": "text", "budget": "text", "temperature": "float",
}  # fmt: skip


def _tokens(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    """Yield a row with the tokens of each sample, as far as its tokens are known."""
    for sample in sieve.samples(record):
        tokens = sample.tokens
        if tokens is None:
            sieve.left_out["samples without token ids"] += 1
        elif sieve.admit(record):
            num_masked = tokens.thought if sieve.filters.thoughts == "mask" else 0
            sampling = tokens.sampling_logprobs
            yield {
                **_origin(record),
                "prompt_ids": list(tokens.prompt),
                "ids": list(tokens.ids),
                "logprobs": list(tokens.logprobs),
                "sampling_logprobs": None if sampling is None else list(sampling),
                "mask": [int(is_written and i >= num_masked) for i, is_written in enumerate(tokens.written)],
                "weight": sample.weight,
                "text": sample.text,
                "answer": sample.answer,
                "right": sample.right,
                "score": sample.score,
            }


def _tree(record: SearchRows, sieve: Sieve) -> Iterator[Row]:
    """Yield one row with the whole tree of a search, if its tokens are those of one model."""
    if not any(node.token_ids for node in record.nodes):
        sieve.left_out["searches without token ids"] += 1
        return
    if any(node.token_ids and node.model != "policy" for node in record.nodes):
        sieve.left_out["searches with tokens of several models"] += 1
        return
    samples_by_node = {sample.node: sample for sample in record.samples}
    if sieve.admit(record):
        yield {
            **_origin(record),
            "nodes": [
                {
                    "node": node.node,
                    "parent": node.parent,
                    "kind": node.kind,
                    "model": node.model,
                    "text": node.text,
                    "ids": list(node.token_ids),
                    "logprobs": list(node.logprobs),
                    "sampling_logprobs": list(node.sampling_logprobs),
                    "status": node.status,
                    "pruned": node.pruned,
                    "scratch": node.scratch,
                    "scores": [
                        {"verifier": role, "values": plain_values(list(values))} for role, values in node.scores.items()
                    ],
                    "candidate": node.candidate,
                    "answer": node.answer,
                    "selection_weight": node.weight,
                    "right": samples_by_node[node.node].right if node.node in samples_by_node else None,
                    "weight": samples_by_node[node.node].weight if node.node in samples_by_node else None,
                }
                for node in record.nodes
            ],
            "levels": [
                {
                    "kind": level.kind,
                    "chain": level.sweep[0],
                    "sweep": level.sweep[1],
                    "nodes": list(level.nodes),
                    "log_weights": plain_values(list(level.log_weights)),
                    "temperature": level.temperature,
                    "ancestors": list(level.parents()),
                }
                for level in record.levels
            ],
        }


FORMS: Final[Mapping[str, Form]] = {
    "trl-sft": Form(_sft, {"prompt": "turns", "completion": "turns"}, keep="good"),
    "trl-dpo": Form(
        _dpo, {"prompt": "turns", "chosen": "turns", "rejected": "turns"}, filters=_OF_SAMPLES | {"margin"}
    ),
    "trl-kto": Form(_kto, {"prompt": "turns", "completion": "turns", "label": "bool"}),
    "trl-prm": Form(
        _prm,
        {"prompt": "text", "completions": "texts", "labels": "bools", "soft_labels": "floats"},
        filters=_OF_SAMPLES - {"thoughts"},
    ),
    "trl-grpo": Form(_grpo, {"prompt": "turns", "answer": "text"}, filters=frozenset()),
    "chat": Form(_chat, {"messages": "messages"}, keep="good"),
    "tokens": Form(
        _tokens,
        {
            **_ORIGIN,
            "prompt_ids": "ints",
            "ids": "ints",
            "logprobs": "floats",
            "sampling_logprobs": "floats",
            "mask": "ints",
            "weight": "float",
            "text": "text",
            "answer": "text",
            "right": "bool",
            "score": "float",
        },
        tokens=True,
    ),
    "tree": Form(
        _tree, {**_ORIGIN, "nodes": "nodes", "levels": "levels"}, tokens=True, filters=frozenset({"per_problem"})
    ),
}


def check_one_model(records: Iterable[T]) -> Iterator[T]:
    """Yield searches or cells unchanged, as long as all are of one model: a file has one tokenizer.

    Raises:
        ConfigError: A search is of another model.
    """
    model: str | None = None
    for record in records:
        if model is not None and record.model != model:
            raise ConfigError(
                f"the searches are of the models {model!r} and {record.model!r}, but a file has the tokens of one",
                hint=f"give model={model!r}, and write another file for the other",
            )
        model = record.model
        yield record
