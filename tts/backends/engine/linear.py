"""Linear layers whose rows have the same bits however many rows share the call, and faster ones for where that is not asked.

Shapes: M rows, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, Protocol

import torch
from torch.nn import functional

from tts.backends.engine.int8 import Int8Linear
from tts.errors import ConfigError

Precision = Literal["float32", "int8", "bfloat16"]

_DTYPES = {"float32": torch.float32, "int8": torch.int8, "bfloat16": torch.bfloat16}
TILE_ROWS = 16
MOST_ROWS = 128  # rows of one oneDNN call: oneDNN caches 1,024 compiled shapes, and the probe covers this range
_BATCH_HINT = 16  # rows for which oneDNN lays the weights out
_PROBED_ROWS = (1, 2, 3, 7, 8, 15, 16, 17, 33, 64)
_PROBED_OUTPUTS = 1024  # wider layers are probed on about as many of their outputs
_PRIME = 65_537  # values of the probe's weights before they repeat


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
        """Bytes of weights that a call reads."""
        ...

    @property
    def exact_rows(self) -> bool:
        """Whether a row's bits depend neither on M nor on where the row stands nor on its companions."""
        ...

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """Return x · weightᵀ + bias, `[M, N]`, of x's dtype."""
        ...


class PlainLinear:
    """torch's own product, on any device and in any dtype. Its rows' bits depend on M.

    Args:
        weight: `[N, K]`.
        bias: `[N]` or None.
    """

    exact_rows = False

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() * weight.itemsize

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        return functional.linear(x.to(self._weight.dtype), self._weight, self._bias).to(x.dtype)


class TiledLinear:
    """torch's own product in tiles of exactly 16 rows, the last one filled with zeros: one shape, so one order of additions.

    Args:
        weight: `[N, K]`.
        bias: `[N]` or None.
    """

    exact_rows = True

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() * weight.itemsize

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        out = x.new_empty((len(x), self.out_features))
        for start in range(0, len(x), TILE_ROWS):
            tile = _at_least(x[start : start + TILE_ROWS].to(self._weight.dtype), TILE_ROWS)
            out[start : start + TILE_ROWS] = functional.linear(tile, self._weight, self._bias)[: len(x) - start]
        return out


class Float32Linear:
    """oneDNN's product on weights that it has laid out beforehand, float32 on CPU, at most 128 rows at once.

    Args:
        weight: `[N, K]`, float32, on CPU; not kept.
        bias: `[N]` or None.
        least_rows: fewer rows are filled up with zeros to so many: with 1, what oneDNN computes; more makes rows exact where it
            computes few rows otherwise (see `make_linear`).
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, least_rows: int = 1, exact_rows: bool = False) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _BATCH_HINT)
        self._bias = None if bias is None else bias.detach()
        self._least_rows = least_rows
        self.exact_rows = exact_rows
        self.out_features, self.in_features = weight.shape
        self.weight_bytes = weight.numel() * weight.itemsize

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor:
        """See `Linear`."""
        rows = len(x)
        if rows > MOST_ROWS:
            return torch.cat([self(part) for part in x.split(MOST_ROWS)])
        if rows == 0:
            return x.new_empty((0, self.out_features))
        x = _at_least(x.contiguous(), self._least_rows)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")[:rows]


def make_linear(
    weight: torch.Tensor, bias: torch.Tensor | None = None, *, precision: Precision = "float32", strict: bool = True, threads: int = 1
) -> Linear:
    """Return the fastest layer for a weight that keeps what is asked.

    A probe compares bits on this machine, for several M and places, once a process for each shape and number of threads. It
    decides how many rows oneDNN must see at least, and what stands in where none will do.

    Args:
        weight: `[N, K]`; the layer runs on its device. It may be dropped afterwards, unless the layer is plain or tiled.
        bias: `[N]` or None.
        precision: "float32"; "int8": weights and activations rounded to 8 bits, CPU only; "bfloat16".
        strict: whether rows must be exact (`Linear.exact_rows`).
        threads: torch's threads at the calls, at least 1; exact rows are promised for this number.

    Raises:
        ConfigError: rows must be exact, and nothing here makes them so on this machine; int8 off CPU.
    """
    if precision not in _DTYPES:
        raise ConfigError(f"precision is {precision!r}, but must be one of {', '.join(_DTYPES)}")
    if precision == "int8":
        return Int8Linear(weight, bias)
    dtype = _DTYPES[precision]
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    onednn = precision == "float32" and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    if onednn:
        least = least_exact_rows(Float32Linear, weight, bias, threads) if strict else 1
        if least is not None:
            return Float32Linear(weight, bias, least_rows=least, exact_rows=strict)
    if not strict:
        return PlainLinear(weight, bias)
    if least_exact_rows(TiledLinear, weight, bias, threads) != 1:
        raise ConfigError(
            f"strict is set, but {precision} products of shape {tuple(weight.shape)} on {weight.device} have rows that depend on others",
            hint="set strict=False: results then vary in the last bits with what else is computed",
        )
    return TiledLinear(weight, bias)


_known: dict[tuple[object, ...], int | None] = {}


def least_exact_rows(
    kind: Callable[[torch.Tensor, torch.Tensor | None], Linear], weight: torch.Tensor, bias: torch.Tensor | None, threads: int
) -> int | None:
    """Return from how many rows on a kind of layer is exact, of up to 16; None where it is not even from there.

    Args:
        kind: makes a layer of a weight and a bias.
        weight: `[N, K]`: its shape, dtype and device count, its values do not.
        bias: whether there is one counts.
        threads: torch's threads while it is asked.
    """
    outputs, inputs = weight.shape
    if outputs > _PROBED_OUTPUTS:
        outputs = _PROBED_OUTPUTS + outputs % _PROBED_OUTPUTS % 64
    key = (kind, outputs, inputs, bias is None, weight.dtype, weight.device, threads)
    if key not in _known:
        probe = _spread(outputs, inputs, weight, 0.5**0.5)
        layer = kind(probe, None if bias is None else _spread(1, outputs, weight, 0.5**0.5)[0])
        with torch_threads(threads):
            _known[key] = _least_exact_rows(layer, _spread(MOST_ROWS, inputs, weight, 0.2**0.5))
    return _known[key]


def _least_exact_rows(layer: Linear, x: torch.Tensor) -> int | None:
    reference = layer(x)
    least = None
    for rows in reversed(_PROBED_ROWS):
        if not torch.equal(layer(x[-rows:]), reference[-rows:]):
            break
        least = rows
    return least if least is not None and least <= TILE_ROWS else None


def _spread(rows: int, columns: int, like: torch.Tensor, step: float) -> torch.Tensor:
    """Return `[rows, columns]` numbers in ±0.5 with full mantissas: multiples of an irrational step, less their whole parts."""
    values = (torch.arange(_PRIME, dtype=torch.float64) * step).frac() - 0.5
    count = rows * columns
    return values.to(like.device, like.dtype).repeat(-(-count // _PRIME))[:count].view(rows, columns)


@contextmanager
def torch_threads(threads: int) -> Generator[None]:
    """Set the number of torch's threads for what the calling thread does inside, and put it back."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _at_least(x: torch.Tensor, rows: int) -> torch.Tensor:
    return functional.pad(x, (0, 0, 0, rows - len(x))) if len(x) < rows else x
