"""A process model from exported rows: what it reads, where it reads, and that it learns what rows say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("research", reason="research is no part of the wheel")
pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("transformers")

import torch

from research.pocket import exported
from research.pocket.exported import Labelled
from tts.errors import ConfigError


def rows(count: int) -> list[dict[str, object]]:
    """Return rows whose step is worth 1 where its operation is a sum, else 0."""
    made = list[dict[str, object]]()
    for i in range(count):
        a, b = i % 8 + 2, i % 6 + 1
        step, good = (f"{a} + {b} = {a + b}", True) if i % 2 else (f"{a} - {b} = {a - b}", False)
        made.append(
            {
                "prompt": f"Reach {i % 40 + 1} with {a} {b}.\n",
                "completions": [step],
                "labels": [good],
                "soft_labels": [float(good)],
            }
        )
    return made


def written(folder: Path, given: list[dict[str, object]]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def test_steps_are_read_at_their_newlines() -> None:
    from transformers import PreTrainedTokenizerFast

    from tts.models import registry

    source = registry.locate(registry.resolve("pocket"))
    assert source is not None
    tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
    some = [
        Labelled("Reach 3 with 1 2.\n", ("1 + 2 = 3", "A: 1 + 2"), (0.5, 1.0)),
        Labelled("Reach 9 with 4 5.\n", ("4 + 5 = 9\n",), (0.25,)),
    ]
    ids, places, labels = exported.batch_of(tokenizer, some)
    newline = tokenizer.encode("\n", add_special_tokens=False)[-1]
    assert [int(ids[row, column]) for row, column in places.tolist()] == [newline] * 3
    assert labels.tolist() == [0.5, 1.0, 0.25]
    text = tokenizer.decode(ids[0, : int(places[1, 1]) + 1], skip_special_tokens=True)
    assert text == "Reach 3 with 1 2.\n1 + 2 = 3\nA: 1 + 2\n"


def test_it_learns_what_the_rows_say_and_is_written(tmp_path: Path) -> None:
    model, tokenizer = exported.fit(written(tmp_path, rows(240)), tmp_path / "out", minutes=0.15, seed=0)
    some = [Labelled(str(row["prompt"]), (row["completions"][0],), (0.0,)) for row in rows(40)]  # type: ignore[index]
    ids, places, _ = exported.batch_of(tokenizer, some)
    with torch.no_grad():
        logits = exported.logits_of(model, ids, places)
    assert float(logits[1::2].min()) > float(logits[::2].max()), "sums are worth more than differences"
    assert (tmp_path / "out" / "model.safetensors").exists()
    lines = list(exported.measure(model, tokenizer, 4, 4))
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| from the exported file", "| shipped with the package"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "must have rows with prompt, completions, soft_labels"),
        ([{"prompt": "a", "completion": "b"}], "must have rows with prompt, completions, soft_labels"),
        ([rows(1)[0]] * 3, "alone, but training holds one out"),
    ],
)
def test_other_files_are_refused(given: list[dict[str, object]], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        exported.fit(written(tmp_path, given), tmp_path / "out", minutes=0.01, seed=0)
