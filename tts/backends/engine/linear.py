"""Linear layers whose rows have the same bits in every batch, and faster layers.

The faster layers serve where equal bits are not needed.

Shapes: M rows, K inputs, N outputs. Rows may be of any floating dtype: a layer computes in its own dtype, and returns
the rows' dtype.

The choices were measured. In float32 the product of this package is faster than oneDNN's on weights laid out
beforehand: 1.0 to 14 times with AVX-512, 1.3 to 20 times with AVX2, 0.94 to 15 times with neither. In bfloat16 only
oneDNN has a product (torch 2.13, two cores with AVX-512, layers of 64 to 9,728 inputs and outputs). Rows of oneDNN's
product are exact in batches of 2 to 2,000 rows, and the same under 1 to 16 threads. Waking a second thread takes about
80 µs, so small products stay on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch.nn import functional

from tts.backends.engine.int8 import FbgemmLinear
from tts.backends.kernels import gemm
from tts.backends.kernels.host import Team
from tts.backends.loading.cpu import has_bfloat16
from tts.errors import ConfigError

Precision = Literal["float32", "int8", "bfloat16"]

TILE_ROWS = 16
MOST_ROWS = 128  # rows of one oneDNN call: oneDNN keeps 1,024 compiled shapes, and the probe covers no more rows
_BATCH_HINT = 16  # rows for which oneDNN lays the weights out
_PROBED_ROWS = (1, 2, 3, 7, 8, 15, 16, 17, 33, 64)
# layers of more outputs are probed on about 256 outputs: oneDNN splits sums, if at all, where outputs are few
_MOST_PROBED, _PROBED = 1024, 256
_PRIME = 65_537  # values of the probe's weights before they repeat

# least multiplications for which a second thread pays, where weights are read from the cache; a call counts as
# _LEAST_ROWS rows at least
_SHARED_FROM = {"int8": 20e6, "bfloat16": 14e6}
_LEAST_ROWS = 4


class Linear(Protocol):
    """A linear layer: `[M, K]` in, `[M, N]` out, M from 0."""

    @property
    def in_features(self) -> int:
        """K."""
        ...

    @property
    def out_features(self) -> int:
        """N."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a call of up to 16 rows reads."""
        ...

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        ...


# weight [N, K], bias [N] or None -> a layer with these parameters
LinearOf = Callable[[torch.Tensor, torch.Tensor | None], Linear]


class PlainLinear:
    """torch's own product, on any device. Its rows' bits depend on M.

    Args:
        weight: `[N, K]`; kept.
        bias: `[N]` or None; of the weight's dtype.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() * weight.itemsize

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        return functional.linear(x.to(self._weight.dtype), self._weight, self._bias).to(x.dtype)


class TiledLinear(PlainLinear):
    """A linear layer that works in tiles of exactly 16 rows.

    The last tile is filled with zeros. One shape means one order of additions.
    """

    tile_rows = TILE_ROWS

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        out = x.new_empty((len(x), self.out_features))
        for start in range(0, len(x), self.tile_rows):
            end = start + self.tile_rows
            tile = _pad_rows(x[start:end].to(self._weight.dtype), self.tile_rows)
            products = functional.linear(tile, self._weight, self._bias)
            out[start:end] = products[: len(x) - start]  # without the products of the zeros
        return out


class DeviceTiledLinear(TiledLinear):
    """A linear layer that works in tiles of 128 rows, for a GPU.

    With fewer rows, a GPU's time is that of reading the weights, and does not fall.
    """

    tile_rows = 128


class PackedLinear:
    """oneDNN's product on a CPU, on weights laid out beforehand, at most 128 rows at once.

    Args:
        weight: `[N, K]`, bfloat16 or float32, on CPU; not kept.
        bias: `[N]` or None; of the weight's dtype.
        least_rows: Smaller batches are padded with zeros to this number, at least 1, because oneDNN has other code for
            few rows.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, least_rows: int = 1) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _BATCH_HINT)
        self._product: Any = torch.ops.mkldnn._linear_pointwise
        self._bias = None if bias is None else bias.detach().clone()
        self._dtype = weight.dtype
        self._least_rows = least_rows
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() * weight.itemsize

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        rows = len(x)
        if rows > MOST_ROWS:
            return torch.cat([self(part) for part in x.split(MOST_ROWS)])
        if rows == 0:
            return x.new_empty((0, self.out_features))
        padded = _pad_rows(x.to(self._dtype).contiguous(), self._least_rows)
        products = self._product(padded, self._packed, self._bias, "none", [], "")  # "none": no function of the results
        return products[:rows].to(x.dtype)


class HostLinear:
    """The float32 product of this package on a CPU (`kernels/gemm.py`).

    Its rows are exact on any number of threads.

    Args:
        weight: `[N, K]`.
        bias: `[N]` or None.
        team: The threads that share a call.

    Attributes:
        panels: The weight, as `gemm.pack` lays it out.
        outputs: The bias; empty without a bias.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, team: Team) -> None:
        self.panels = gemm.pack(weight.detach().numpy())
        self.outputs = np.empty(0, np.float32) if bias is None else bias.detach().numpy().copy()
        self._team = team
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() * weight.itemsize

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        padded = torch.empty(len(x), len(self.panels) * gemm.PANEL)
        if len(x):
            gemm.multiply(x.float().contiguous().numpy(), self.panels, padded.numpy(), self._team)
        out = padded[:, : self.out_features].contiguous()
        if len(self.outputs):
            out.add_(torch.from_numpy(self.outputs))  # the bias
        return out.to(x.dtype)


class SharedLinear:
    """A layer that computes small batches on one thread, and larger ones on all of torch's threads.

    torch has one setting for the calling thread and for threads that start later. So a thread that first uses torch
    during a small product starts with one thread.

    Args:
        layer: The layer. If its rows are exact, they must have the same bits under both numbers of threads.
        shared_from: The smallest number of rows that uses all threads.
    """

    def __init__(self, layer: Linear, *, shared_from: int) -> None:
        self._layer = layer
        self._shared_from = shared_from
        self.in_features = layer.in_features
        self.out_features = layer.out_features
        self.weight_bytes = layer.weight_bytes

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        if len(x) >= self._shared_from:
            return self._layer(x)
        with torch_threads(1):
            return self._layer(x)


def make_linear(
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    precision: Precision = "float32",
    strict: bool = True,
    threads: int = 1,
    team: Team | None = None,
) -> Linear:
    """Return the fastest layer for a weight, with exact rows where they are required.

    On a CPU in float32 the layer is this package's product. Otherwise a probe compares bits on this machine, for
    several M and places, once a process for each shape and number of threads. The probe finds the least number of rows
    that oneDNN needs; where no number is enough, tiles replace oneDNN's layer.

    Args:
        weight: `[N, K]`; the layer runs on the weight's device, and may keep the weight.
        bias: `[N]` or None.
        precision: "float32"; "bfloat16": weights, activations and results rounded to 8 bits of mantissa; "int8":
            weights and activations rounded to 8 bits below the row's largest magnitude, CPU only.
        strict: Whether rows must be exact: a row's bits depend neither on M, nor on its place, nor on other rows.
        threads: How many threads torch has at the calls, at least 1; rows are exact for this number.
        team: The threads of this package's products; None: the calling thread alone.

    Raises:
        ConfigError: rows must be exact, but no layer on this machine has exact rows.
    """
    if precision == "int8":
        return _share_small_batches(FbgemmLinear(weight, bias), precision, threads)
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    weight = weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if weight.device.type == "cpu" and precision == "float32":
        return HostLinear(weight, bias, team or Team(1))
    if weight.device.type == "cpu" and has_bfloat16():
        if not strict:
            return _share_small_batches(PackedLinear(weight, bias), precision, threads)
        least_rows = least_exact_rows(PackedLinear, weight, bias, (1, threads))
        if least_rows is not None:
            layer = PackedLinear(weight, bias, least_rows=least_rows)
            return _share_small_batches(layer, precision, threads)
        least_rows = least_exact_rows(PackedLinear, weight, bias, (threads,))
        if least_rows is not None:
            return PackedLinear(weight, bias, least_rows=least_rows)
    if not strict:
        return PlainLinear(weight, bias)
    tiled_layer = TiledLinear if weight.device.type == "cpu" else DeviceTiledLinear
    if least_exact_rows(tiled_layer, weight, bias, (threads,)) != 1:
        raise ConfigError(
            f"strict is set, but {precision} products of shape {tuple(weight.shape)} on {weight.device} have rows "
            "that depend on others",
            hint="set strict=False: results then vary in the last bits with what else is computed",
        )
    return tiled_layer(weight, bias)


def _share_small_batches(layer: Linear, precision: Precision, threads: int) -> Linear:
    """Return the layer, with small batches on one thread if a second thread does not pay for these batches."""
    row_multiplications = layer.in_features * layer.out_features
    least_multiplications = int(_SHARED_FROM[precision])
    if threads == 1 or row_multiplications * _LEAST_ROWS >= least_multiplications:
        return layer
    shared_from = -(-least_multiplications // max(1, row_multiplications))  # rows, rounded up
    return SharedLinear(layer, shared_from=shared_from)


_known: dict[tuple[object, ...], int | None] = {}  # results of `least_exact_rows` in this process


def least_exact_rows(
    kind: LinearOf, weight: torch.Tensor, bias: torch.Tensor | None, threads: Sequence[int]
) -> int | None:
    """Return the least number of rows, at most 16, with which a kind of layer is exact; else None.

    Args:
        kind: Makes a layer of a weight and a bias.
        weight: `[N, K]`; only its shape, dtype and device matter.
        bias: Only its presence matters.
        threads: Numbers of torch's threads under which rows must have the same bits.
    """
    outputs, inputs = weight.shape
    if outputs > _MOST_PROBED and weight.device.type == "cpu":  # a GPU's library chooses by the whole shape
        outputs = _PROBED + outputs % 64
    key = (kind, outputs, inputs, bias is None, weight.dtype, weight.device, *threads)
    if key not in _known:
        probed_weight = _probe_numbers(outputs, inputs, weight, 0.5**0.5)
        probed_bias = None if bias is None else _probe_numbers(1, outputs, weight, 0.5**0.5)[0]
        layer = kind(probed_weight, probed_bias)
        _known[key] = _least_exact_rows(layer, _probe_numbers(MOST_ROWS, inputs, weight, 0.2**0.5), threads)
    return _known[key]


def _least_exact_rows(layer: Linear, x: torch.Tensor, threads: Sequence[int]) -> int | None:
    """Compare the last rows of x in batches of several sizes with the same rows in one batch of all rows.

    Returns:
        The smallest probed size from which on all sizes give the same bits under all numbers of threads. None: there
        is no such size, or it is above 16.
    """
    with torch_threads(threads[0]):
        reference = layer(x)
    exact_from = None
    for rows in reversed(_PROBED_ROWS):
        for count in sorted(set(threads)):
            with torch_threads(count):
                is_exact = torch.equal(layer(x[-rows:]), reference[-rows:])
            if not is_exact:
                return exact_from if exact_from is not None and exact_from <= TILE_ROWS else None
        exact_from = rows
    return exact_from


def _probe_numbers(rows: int, columns: int, like: torch.Tensor, step: float) -> torch.Tensor:
    """Return `[rows, columns]` numbers in ±0.5 with full mantissas, of `like`'s dtype and device.

    The numbers are the fractional parts of multiples of an irrational step, less 0.5.
    """
    values = (torch.arange(_PRIME, dtype=torch.float64) * step).frac() - 0.5
    count = rows * columns
    repeats = -(-count // _PRIME)  # rounded up
    return values.to(like.device, like.dtype).repeat(repeats)[:count].view(rows, columns)


@contextmanager
def torch_threads(threads: int) -> Generator[None]:
    """Set the number of threads that torch uses for the calling thread, within a `with` block."""
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def _pad_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    return functional.pad(x, (0, 0, 0, rows - len(x))) if len(x) < rows else x
