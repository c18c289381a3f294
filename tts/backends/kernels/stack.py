"""All layers of a small decoder in one compiled call.

So no product waits for the interpreter.

Each part is the kernel that larger models call separately, on the same numbers in the same order, so the bits are the
same.

Shapes: T tokens, L layers, K hidden size, F intermediate size, H key-value heads, G query heads for each, d head size,
P panels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.kernels import gemm, layers
from tts.backends.kernels.attention_strict import attend_part
from tts.backends.kernels.host import compile_function


class Stack(NamedTuple):
    """The weights of all layers.

    Args:
        attention_norm: [L, K] weights of the norm before attention.
        feed_norm: [L, K] weights of the norm before the feed-forward part.
        head_norms: [L, 2, d], or [L, 0, d].
        qkv: [L, P, ...], panels of the product for queries, keys and values, as `gemm.pack` makes them.
        out: [L, P, ...], panels of the output product of attention.
        gate_up: [L, P, ...], panels of the product for gate and up.
        down: [L, P, ...], panels of the product that returns to the hidden size.
        qkv_bias: [L, N] or [L, 0] biases of `qkv`.
        out_bias: [L, N] or [L, 0] biases of `out`.
        gate_up_bias: [L, N] or [L, 0] biases of `gate_up`.
        down_bias: [L, N] or [L, 0] biases of `down`.
        cosines: [context, d / 2] cosines of the rotary positions.
        sines: [context, d / 2] sines of the rotary positions.
    """

    attention_norm: NDArray[np.float32]
    qkv: NDArray[Any]
    qkv_bias: NDArray[np.float32]
    head_norms: NDArray[np.float32]
    out: NDArray[Any]
    out_bias: NDArray[np.float32]
    feed_norm: NDArray[np.float32]
    gate_up: NDArray[Any]
    gate_up_bias: NDArray[np.float32]
    down: NDArray[Any]
    down_bias: NDArray[np.float32]
    cosines: NDArray[np.float32]
    sines: NDArray[np.float32]


@compile_function(inline="always")
def _linear(x: Any, panels: Any, bias: Any, out: Any) -> None:
    """Write x @ weights.T + bias, [T, outputs of all panels]."""
    gemm.multiply_panels(x, panels, out, 0, panels.shape[0])
    for row in range(out.shape[0]):
        out_row = out[row]
        for column in range(bias.shape[0]):
            out_row[column] += bias[column]


@compile_function(inline="always")
def _outputs(panels: Any) -> int:
    """Return the number of outputs of a layer's panels, those of padding included."""
    return panels.shape[1] * panels.shape[3]


@compile_function
def pass_layers(
    hidden: Any,
    positions: Any,
    items: Any,
    blocks: Any,
    places: Any,
    keys: Any,
    values: Any,
    stack: Any,
    eps: float,
    group: int,
    feed: int,
) -> None:
    """Pass tokens through all layers, and write their keys and values.

    Args:
        hidden: [T, K], changed in place.
        positions: [T] the positions of the plan.
        items: The items of the plan.
        blocks: The blocks of the plan.
        places: [T, 2] block and offset of each token.
        keys: [L, H, N, d, BLOCK] of the pool.
        values: [L, H, N, BLOCK, d] of the pool.
        stack: The weights of the model's layers.
        eps: The number that the model's norms add to the mean square.
        group: G, the query heads of each key-value head.
        feed: F, the inner size of a feed-forward layer.
    """
    rows, width = hidden.shape
    heads, head_size = values.shape[1], values.shape[4]
    normed = np.empty((rows, width), np.float32)
    change = np.empty((0, width), np.float32)  # without rows, as nothing is added before the first layer
    projected = np.empty((rows, _outputs(stack.out)), np.float32)
    qkv = np.empty((rows, _outputs(stack.qkv)), np.float32)
    queries = np.empty((heads, rows, group, head_size), np.float32)
    attended = np.empty((rows, heads, group, head_size), np.float32)
    gate_up = np.empty((rows, _outputs(stack.gate_up)), np.float32)
    gated = np.empty((rows, feed), np.float32)
    for layer in range(stack.qkv.shape[0]):
        layers.add_norm(hidden, change, stack.attention_norm[layer], eps, normed, 0, rows)
        _linear(normed, stack.qkv[layer], stack.qkv_bias[layer], qkv)
        layer_keys, layer_values = keys[layer], values[layer]
        norms = stack.head_norms[layer]
        layers.rotate_write(
            qkv, positions, stack.cosines, stack.sines, places, norms, eps, layer_keys, layer_values, queries, 0, rows
        )
        attend_part(0, heads, 0, rows, positions, items, blocks, queries, layer_keys, layer_values, attended)
        change = projected
        _linear(attended.reshape(rows, heads * group * head_size), stack.out[layer], stack.out_bias[layer], change)
        layers.add_norm(hidden, change, stack.feed_norm[layer], eps, normed, 0, rows)
        _linear(normed, stack.gate_up[layer], stack.gate_up_bias[layer], gate_up)
        layers.gate(gate_up, gated, 0, rows)
        _linear(gated, stack.down[layer], stack.down_bias[layer], change)
    for row in range(rows):
        for k in range(width):
            hidden[row, k] += change[row, k]
