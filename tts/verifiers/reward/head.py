"""Heads of reward models: linear layers with ReLU between them, read from the model's weights by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.verifiers.base import logistic
from tts.verifiers.reward.record import Head, RewardRecord

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The weights of a head: for each layer the weight [outputs, inputs] and the bias [outputs]."""

    layers: tuple[tuple[Floats, Floats], ...]

    def __call__(self, state: NDArray[np.floating]) -> Floats:
        """Return the outputs [outputs] for a hidden state [hidden]."""
        values = np.asarray(state, np.float64)
        for i, (weight, bias) in enumerate(self.layers):
            inputs = np.maximum(values, 0.0) if i else values  # a ReLU between layers
            values = weight @ inputs + bias
        return values


def activate(outputs: Sequence[float] | Floats, head: Head) -> float:
    """Return the score that a head's activation makes of its outputs; NaN if an output is not finite."""
    values = np.asarray(outputs, np.float64)
    if not np.isfinite(values).all():
        return math.nan
    if head.activation == "softmax":
        return first_label_probability(np.roll(values, -head.good))  # the good output comes first
    good_output = float(values[head.good])
    return good_output if head.activation == "none" else float(logistic(good_output))


def first_label_probability(logits: Sequence[float] | Floats) -> float:
    """Return the softmax probability of the first label, from logits or log-probabilities of all labels.

    The result is NaN if the greatest value is not finite, or a value is NaN.
    """
    values = np.asarray(logits, np.float64)
    if np.isnan(values).any() or not np.isfinite(values.max()):
        return math.nan
    weights = np.exp(values - values.max())
    return float(weights[0] / weights.sum())


def read_head(record: RewardRecord, files: Iterable[Path], hidden: int | None) -> HeadWeights:
    """Read the head of a record.

    Args:
        record: The record of the reward model.
        files: Safetensors files.
        hidden: Size of the hidden state; None: unknown.

    Raises:
        ConfigError: a tensor is missing or not finite, or its shape does not fit the record or the neighbouring layers.
    """
    head = record.readout
    assert isinstance(head, Head), "a record of labels has no head"
    names = [name for layer in head.layers for name in (layer.weight, layer.bias) if name is not None]
    tensors = _tensors(names, list(files))
    missing = [name for name in names if name not in tensors]
    if missing:
        raise _unfit(record, f"reads the tensors {', '.join(missing)}, which the model's weights lack")
    layers: list[tuple[Floats, Floats]] = []
    num_inputs = hidden
    for layer in head.layers:
        weight = np.atleast_2d(tensors[layer.weight])
        bias = np.zeros(len(weight)) if layer.bias is None else np.atleast_1d(tensors[layer.bias])
        fits_inputs = weight.ndim == 2 and num_inputs in (None, weight.shape[1])
        if not fits_inputs or bias.shape != (len(weight),):
            raise _unfit(
                record,
                f"reads {layer.weight} of shape {weight.shape} with a bias of {bias.shape}, behind {num_inputs} "
                "numbers",
            )
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise _unfit(record, f"reads {layer.weight}, which is not of finite numbers")
        layers.append((weight, bias))
        num_inputs = len(weight)
    if num_inputs != head.outputs:
        raise _unfit(record, f"has a head of {head.outputs} outputs, but {head.layers[-1].weight} gives {num_inputs}")
    return HeadWeights(tuple(layers))


def _tensors(names: Sequence[str], files: Sequence[Path]) -> dict[str, Floats]:
    """Return the named tensors that the files have, by name."""
    from safetensors import safe_open

    by_name: dict[str, Floats] = {}
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            available_names = set(tensors.keys())
            for name in names:
                if name in available_names:
                    by_name[name] = tensors.get_tensor(name).double().numpy()
    return by_name


def _unfit(record: RewardRecord, what: str) -> ConfigError:
    return ConfigError(
        f"the record {record.name!r} {what}", hint=f"the record is for {record.model}; correct it, or give that model"
    )
