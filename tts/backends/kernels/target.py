"""The instructions that kernels are compiled for.

The instructions are this machine's, or the ones that NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from numba.core import registry

Instructions = Literal["AVX-512", "AVX2", "NEON", "portable"]


class Tiles(NamedTuple):
    """Sizes of products whose sums fit the registers.

    Args:
        panel: Vectors of 16 outputs of a panel of weights.
        rows: Most rows in a product with a panel.
        narrow: Most rows in a product with one vector of 16 columns.
        pair: Most rows in a product with two vectors; with more rows, one vector is better.
        wide: Most rows in a product with four vectors; with more rows, fewer vectors are better.
    """

    panel: int
    rows: int
    narrow: int
    pair: int
    wide: int


_TILES: dict[Instructions, Tiles] = {
    "AVX-512": Tiles(panel=4, rows=6, narrow=8, pair=4, wide=4),  # 32 registers of 16 floats
    "AVX2": Tiles(panel=1, rows=6, narrow=6, pair=2, wide=1),  # 16 registers of 8
    "NEON": Tiles(panel=1, rows=6, narrow=6, pair=2, wide=1),  # 32 registers of 4
    "portable": Tiles(panel=1, rows=2, narrow=2, pair=1, wide=0),  # 16 registers of 4
}


def _triple_and_features() -> tuple[str, set[str]]:
    target: Any = registry.cpu_target
    triple, _, feature_list = target.target_context.codegen().magic_tuple()  # numba's key of compiled code
    return triple, set(feature_list.split(","))


def _instructions() -> Instructions:
    """Return the best set of instructions that the target has."""
    triple, features = _triple_and_features()
    if triple.startswith(("aarch64", "arm64")):
        return "NEON"
    if {"+avx512f", "+fma"} <= features:
        return "AVX-512"
    if {"+avx2", "+fma"} <= features:
        return "AVX2"
    return "portable"


INSTRUCTIONS = _instructions()
FUSED = INSTRUCTIONS != "portable"  # whether products are added without rounding in between
# whether the CPU turns float16 into float32 and back
WIDENS_HALVES = INSTRUCTIONS == "NEON" or "+f16c" in _triple_and_features()[1]
TILES = _TILES[INSTRUCTIONS]
