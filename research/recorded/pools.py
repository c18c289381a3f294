"""The recorded pools: their files as rows, and the figures that involve no chance."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tts
from tts.errors import ConfigError
from tts.statistics import pass_at_k

DATE = re.compile(r"\d{2}/\d{2}/\d{4}")
_FILES = {
    "qwen25math": "qwen25math/math_cot_100_n8_rm.jsonl",
    "game24_cot": "tot/game24_gpt4_cot_n100.json",
    "game24_io": "tot/game24_gpt4_io_n100.json",
    "game24_tot": "tot/game24_gpt4_tot_b5.json",
    "dates": "faithful_cot/date_code002_LtM_n40.jsonl",
    "crucible": "crucible_math500",
    "bestofn": "bestofn_gsm8k/gsm8k_trajectories.jsonl.gz",
}
MODELS = {
    "qwen25math": "Qwen2.5-Math (size not stated)",
    "game24_cot": "GPT-4, chain of thought",
    "game24_io": "GPT-4, answer alone",
    "game24_tot": "GPT-4, tree of thoughts",
    "dates": "code-davinci-002",
    "crucible": "Qwen2.5-1.5B on MATH-500, with scores of a process model",
    "bestofn": "Qwen2.5-0.5B on GSM8K, with mean log-probabilities",
}
MEASURED = ("crucible", "bestofn")  # pools whose files have the tokens of each sample
NOTES: Mapping[str, tuple[str, ...]] = {
    "crucible": (
        "Eight samples of each of 40 problems in three seeds count as 120 problems, so intervals are too narrow for "
        "40. The first samples have an accuracy of 38.3 %, all samples one of 38.2 %. The vote has 53.3 % in "
        "recorded order; the source prints 52.5 %, where texts without a box vote. `best` has 55.0 % if these can be "
        "chosen.",
    ),
    "bestofn": ("A quarter of the texts is cut at 400 tokens, and 29 % state no answer.",),
}
_SEEDS = range(3)  # of the pool "crucible"


def folder() -> Path:
    """Return the folder of the pools.

    Raises:
        ConfigError: TTS_DATA_DIR is not set, or has no pools.
    """
    path = Path(os.environ.get("TTS_DATA_DIR", "")) / "pools"
    if "TTS_DATA_DIR" not in os.environ or not path.is_dir():
        raise ConfigError(
            "TTS_DATA_DIR has no folder of pools",
            hint="set TTS_DATA_DIR to a folder with pools/qwen25math and the others",
        )
    return path


def pool(name: str) -> tts.Pool:
    """Return a pool by its name; the verdicts are those of its source, where it has some."""
    readers = {
        "qwen25math": _qwen, "game24_cot": _cot, "game24_io": _io, "game24_tot": _tree, "dates": _dates,
        "crucible": _crucible, "bestofn": _bestofn,
    }  # fmt: skip
    rows = readers[name](folder() / _FILES[name])
    return tts.Pool.from_rows(
        rows, name=name, model=MODELS[name], task="text", verdicts="given", fields={"answer": "answer"}
    )


def figures(recorded: tts.Pool) -> Mapping[str, float]:
    """Return the figures of a pool that involve no chance.

    They are the share of right first samples, of all right samples, and of problems with any right one. Two more are
    the
    accuracy of the majority and that of the best by score, of all samples in recorded order.
    """
    right = [[drawn.right is True for drawn in one.drawn] for one in recorded.problems]
    n, c = [len(one) for one in right], [sum(one) for one in right]
    shares = {
        "first": float(np.mean([one[0] for one in right])),
        "sample": float(np.mean(pass_at_k(n, c, 1))),
        "any": float(np.mean([any(one) for one in right])),
    }
    ways = {"majority": "best_of_n | majority"}
    if all(one.has("main") for one in recorded.problems):
        ways["best"] = "best_of_n | best"
    if len(set(n)) == 1:
        shares |= {
            way: float(recorded.replay([plan], [n[0]], first=True)[0].curve.accuracy[0].value)
            for way, plan in ways.items()
        }
    return shares


def _qwen(path: Path) -> Iterator[Mapping[str, Any]]:
    for row in _lines(path):
        scores = [score for (score,) in row["pred_score"]]
        yield {
            "problem": f"{row['idx']}", "prompt": row["question"], "text": row["code"], "answer": row["pred"],
            "correct": row["score"], "scores": scores,
        }  # fmt: skip


def _cot(path: Path) -> Iterator[Mapping[str, Any]]:
    for row in json.loads(path.read_text(encoding="utf-8")):
        answers = [_expression(text) for text in row["ys"]]
        yield {
            "problem": f"{row['idx']}",
            "text": row["ys"],
            "answer": answers,
            "correct": [bool(one["r"]) for one in row["infos"]],
        }


def _io(path: Path) -> Iterator[Mapping[str, Any]]:
    for row in json.loads(path.read_text(encoding="utf-8")):
        yield {
            "problem": f"{row['idx']}",
            "text": row["ys"],
            "answer": [_expression(text) for text in row["ys"]],
            "correct": row["accs"],
        }


def _tree(path: Path) -> Iterator[Mapping[str, Any]]:
    for row in json.loads(path.read_text(encoding="utf-8")):
        last = row["steps"][-1]
        values = dict(zip(last["new_ys"], last["values"], strict=True))
        yield {
            "problem": f"{row['idx']}",
            "text": row["ys"],
            "answer": [_expression(text) for text in row["ys"]],
            "correct": [bool(one["r"]) for one in row["infos"]],
            "scores": [values[text] for text in row["ys"]],
        }


def _dates(path: Path) -> Iterator[Mapping[str, Any]]:
    for row in _lines(path):
        answers = [(DATE.findall(text) or [""])[-1] for text in row["completions"]]
        yield {
            "problem": row["id"], "text": row["completions"], "answer": answers, "reference": row["answer"],
            "correct": [answer == row["answer"] for answer in answers],
        }  # fmt: skip


def _crucible(path: Path) -> Iterator[Mapping[str, Any]]:
    for seed in _SEEDS:
        for record in json.loads((path / f"math500-bestofn-seed{seed}.json").read_text(encoding="utf-8"))["records"]:
            drawn = record["traces"]
            yield {
                "problem": f"{record['problem_id']}/{seed}",
                "text": [t["text"] for t in drawn],
                "answer": [boxed_answer(t["text"]) for t in drawn],
                "correct": [t["correct"] for t in drawn],
                "scores": [t["prm_score"] for t in drawn],
                "tokens": [t["tokens"] for t in drawn],
            }


def _bestofn(path: Path) -> Iterator[Mapping[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            drawn = row["trajectories"]
            yield {
                "problem": f"{row['gsm8k_id']}",
                "text": [t["text"] for t in drawn],
                "answer": [t["answer"] or "" for t in drawn],
                "correct": [equal_numbers(str(t["answer"]), str(row["gold"])) for t in drawn],
                "scores": [t["logprob"] for t in drawn],
                "tokens": [t["n_tokens"] for t in drawn],
            }


def equal_numbers(answer: str, gold: str) -> bool:
    """Return whether two texts are equal, or are equal as numbers: "6.00" is "6"."""
    try:
        return answer.strip() == gold.strip() or math.isclose(*(float(one.replace(",", "")) for one in (answer, gold)))
    except ValueError:
        return False


def boxed_answer(text: str) -> str:
    """Return the content of the last box of a text, without white space; "": there is no box."""
    start, depth = text.rfind("\\boxed{"), 0
    for i in range(start + 6, len(text)) if start >= 0 else ():
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return re.sub(r"\s+", "", text[start + 7 : i])
    return ""


def _expression(text: str) -> str:
    """Return the expression of a text's answer, left of its equals sign; "": there is none."""
    found = re.findall(r"Answer:(.*)", text)
    expression = found[-1].split("=")[0].strip() if found else ""
    return expression if re.search(r"\d", expression) else ""  # "not possible", "none"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)
