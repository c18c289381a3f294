"""Heads of reward models: tensors that are missing or do not fit a record, and outputs that are no numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tts.backends.loading.models import weight_files
from tts.errors import ConfigError
from tts.verifiers.reward.head import activate, first_label_probability, read_head
from tts.verifiers.reward.record import Head, RewardRecord

pytest.importorskip("torch")
LAYERS = ({"weight": "a", "bias": "a.bias"}, {"weight": "b"})
FITS = {"a": np.ones((3, 2)), "a.bias": np.ones(3), "b": np.ones((1, 3))}


def record() -> RewardRecord:
    template = {"layout": "reply", "prompt": "{problem}"}
    readout = {"kind": "head", "layers": LAYERS, "activation": "none"}
    return RewardRecord.model_validate(
        {
            "name": "own",
            "model": "m",
            "kind": "outcome",
            "architecture": "llama",
            "template": template,
            "readout": readout,
            "source": "s",
        }
    )


def saved(folder: Path, tensors: dict[str, Any]) -> list[Path]:
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(tensors, folder / "head.safetensors")
    return weight_files(folder)


def test_layers_are_read_in_order(tmp_path: Path) -> None:
    head = read_head(record(), saved(tmp_path, FITS), 2)
    assert head(np.array([1.0, 2.0])) == pytest.approx([12.0])
    assert head(np.array([-9.0, 2.0])) == pytest.approx([0.0]), "ReLU is between the layers"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a.bias": None, "b": None}, r"the record 'own' reads the tensors a\.bias, b, which the model's weights lack"),
        ({"a": np.ones((3, 4))}, r"reads a of shape \(3, 4\) with a bias of \(3,\), behind 2 numbers"),
        ({"a.bias": np.ones(2)}, r"reads a of shape \(3, 2\) with a bias of \(2,\)"),
        ({"b": np.ones((1, 4))}, r"reads b of shape \(1, 4\) with a bias of \(1,\), behind 3 numbers"),
        ({"b": np.full((1, 3), np.nan)}, "reads b, which is not of finite numbers"),
        ({"b": np.ones((2, 3))}, "has a head of 1 outputs, but b gives 2"),
    ],
)
def test_tensors_that_do_not_fit_the_record_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in (FITS | change).items() if tensor is not None}
    with pytest.raises(ConfigError, match=message):
        read_head(record(), saved(tmp_path, tensors), 2)


def test_the_files_are_those_of_the_index(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "2.safetensors", "y": "1.safetensors"}})
    )
    assert weight_files(tmp_path) == [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]


def test_outputs_that_are_no_numbers_have_no_score() -> None:
    head = record().readout
    assert isinstance(head, Head)
    assert math.isnan(activate([math.nan], head))
    assert math.isnan(first_label_probability([0.0, math.nan]))
    assert math.isnan(first_label_probability([-math.inf, -math.inf]))
    assert first_label_probability([0.0, -math.inf]) == 1.0
