"""Compile every kernel for GPUs that are not here, and print what each one needs, a line of JSON a kernel.

Run as a program: without TRITON_INTERPRET, in a process of its own. A folder of PYTHONPATH may have another Triton.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tts.backends.kernels import attention_triton, draw_triton, norm_triton, rope_triton
from tts.backends.kernels.lowering import lower
from tts.backends.kernels.plan import BLOCK, AttentionPlan

LAUNCH = {"num_warps", "num_stages", "enable_fp_fusion"}
CAPABILITIES = (80, 90, 100)
COLUMNS = {"key_column": 1, "value_column": 1}  # the numbers of a key, and of a value, lie side by side
KERNELS = {
    kernel.__name__: kernel
    for kernel in (
        attention_triton.tree_partial,
        attention_triton.merge,
        rope_triton.rope_and_write,
        norm_triton.norm_rows,
        draw_triton.sum_blocks,
        draw_triton.draw_rows,
        draw_triton.read_tokens,
        draw_triton.spread_rows,
        draw_triton.write_uniforms,
    )
}
_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
_NOTHING = AttentionPlan(np.zeros(0, np.int64), np.zeros((0, 4), np.int64), np.zeros((0, 3), np.int64))


class Model(NamedTuple):
    """The shapes of a model.

    Args:
        heads: Key-value heads.
        group: Query heads of each key-value head.
        size: Numbers of a head.
        hidden: Numbers of a hidden state.
        vocabulary: Tokens of the vocabulary.
        has_norms: Whether heads are normed before they are rotated.
    """

    heads: int
    group: int
    size: int
    hidden: int
    vocabulary: int
    has_norms: bool = False


MODELS = {
    "Llama-3-8B": Model(8, 4, 128, 4096, 128_256),
    "Qwen2.5-7B": Model(4, 7, 128, 3584, 152_064),
    "Qwen3-0.6B": Model(8, 2, 128, 1024, 151_936, has_norms=True),
    "Qwen3-8B": Model(8, 4, 128, 4096, 151_936, has_norms=True),
    "Gemma-3-1B": Model(1, 4, 256, 1152, 262_144, has_norms=True),
    "Gemma-3-4B": Model(4, 2, 256, 2560, 262_208, has_norms=True),
    "SmolLM2-135M": Model(3, 3, 64, 576, 49_152),
    "64 query heads on one": Model(1, 64, 128, 8192, 49_152),
    "64 small query heads on one": Model(1, 64, 64, 4096, 49_152),
}


class Variant(NamedTuple):
    """A kernel with the types of its arguments and its constants.

    Args:
        kernel: The name of the kernel.
        capability: The compute capability of the GPU, ten times the number.
        types: The types of the arguments that are no constants, in order.
        constants: The constants, and the parameters of the launch.
        aligned: A pattern of the numbers that are divisible by 16, as most addresses are.
    """

    kernel: str
    capability: int
    types: str
    constants: dict[str, Any]
    aligned: str = "$"


def compiled(variant: Variant) -> dict[str, Any]:
    """Compile a variant, and return what it needs."""
    kernel, constants = KERNELS[variant.kernel], dict(variant.constants)
    launch = {key: constants.pop(key) for key in LAUNCH & set(constants)}
    names = [name for name in kernel.arg_names if name not in constants]
    signature = dict(zip(names, variant.types.split(), strict=True)) | dict.fromkeys(constants, "constexpr")
    places = {name: (i,) for i, name in enumerate(kernel.arg_names)}
    anywhere = {parameter.name for parameter in kernel.params if parameter.do_not_specialize_on_alignment}
    attributes = {
        places[name]: [["tt.divisibility", 16]]
        for name in names
        if (signature[name][0] == "*" and name not in anywhere) or re.match(variant.aligned, name)
    }
    source = ASTSource(kernel, signature, {places[name]: value for name, value in constants.items()}, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", variant.capability, 32), options=launch)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = subprocess.run([_CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", usage)[-1]
    return {
        "triton": triton.__version__,
        **variant._asdict(),
        "registers": int(registers),
        "stack": int(stack),
        "shared": made.metadata.shared,
        "products": len(re.findall(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma", made.asm["ptx"])),
        "wide_copies": len(re.findall(r"cp\.async\.cg\S* \[[^]]*\], \[[^]]*\], 0x10", made.asm["ptx"])),
    }


def attention_variants(capability: int, element: str, group: int, size: int) -> Iterator[Variant]:
    """Yield attention over runs in each form that occurs: narrow tiles, wide ones, and those of strict work."""
    element_bytes = 4 if element == "fp32" else 2
    types = " ".join([f"*{element}"] * 4 + ["*fp32"] * 2 + ["*i32"] * 6 + ["i32"] * 8)
    shape = {"group": group, "size": size, "padded": size, "block": BLOCK, "upcast": False, **COLUMNS}
    for strict, is_wide in ((False, False), (False, True), (True, False)):
        work = lower(_NOTHING, group=group, element_bytes=element_bytes, strict=strict)
        if is_wide and work.wide == work.narrow:
            continue  # all tiles of such work are narrow
        tile = attention_triton.tile(work, element_bytes, size, is_wide=is_wide)
        yield Variant("tree_partial", capability, types, {**shape, "strict": strict, **tile}, "key_|value_")


def layer_variants(capability: int, model: Model) -> Iterator[Variant]:
    """Yield the other kernels of a model's layers, each in the form that does the most."""
    heads, group, size, hidden, _, has_norms = model
    shape = {"group": group, "size": size}
    constants = {**shape, "padded": size, **attention_triton.merge_tile(group, size)}
    yield Variant("merge", capability, "*bf16 *fp32 *fp32 *i32", constants)
    rows = triton.next_power_of_2(heads * (group + 2))
    constants = {**shape, **COLUMNS, "num_heads": heads, "rows": rows, "padded": size // 2, "has_norms": has_norms}
    constants |= {"num_warps": 4, "enable_fp_fusion": True}
    for whole in ("*i64", "*i32") if has_norms else ("*i64",):  # of plain steps, of those in fixed shapes
        types = f"*bf16 {whole} *fp32 *fp32 {whole} {whole} *bf16 *bf16 *bf16 *bf16 *bf16 i32 fp32" + " i32" * 6
        yield Variant("rope_and_write", capability, types, constants, "key_|value_")
    constants = {"size": hidden, "padded": triton.next_power_of_2(hidden), "has_change": True, "num_warps": 8}
    yield Variant("norm_rows", capability, "*bf16 *bf16 *bf16 *bf16 fp32", {**constants, "enable_fp_fusion": True})


def draw_variants(capability: int, num_blocks: int) -> Iterator[Variant]:
    """Yield the draws from a vocabulary of so many blocks, a power of two, with a cut."""
    law = "*bf16 *i64 *fp32 *fp32 *i64 *fp32 *i32 *fp64"
    constants = {"vocabulary": 1024 * num_blocks - 256, "block": 1024, "is_cut": True, "column_stride": 1}
    constants |= {"num_warps": 4, "enable_fp_fusion": True}
    yield Variant("sum_blocks", capability, law + " i32", {**constants}, "row_stride")
    types = law + " *i64 *i64 i32 *i64 *fp64 *fp64 i32 i32"
    constants["padded"] = num_blocks
    yield Variant("draw_rows", capability, types, {**constants}, "row_stride")
    del constants["is_cut"]
    yield Variant("spread_rows", capability, "*bf16 *i64 *fp32 *fp64 *fp64 i32 i32", {**constants}, "row_stride")
    del constants["vocabulary"], constants["block"]
    types = "*bf16 *i64 *fp32 *fp64 *i64 *i64 *fp64 i32 i32"
    yield Variant("read_tokens", capability, types, {**constants}, "row_stride")
    types = "*i64 *i64 i32 *fp64 i32"
    yield Variant("write_uniforms", capability, types, {"rows": 1024, "enable_fp_fusion": True})


def variants() -> list[Variant]:
    """Return every variant once.

    The code of a draw depends on the blocks of its vocabulary, rounded up to a power of two.
    """
    made: list[Variant] = []
    for capability in CAPABILITIES:
        for model in MODELS.values():
            made += attention_variants(capability, "bf16", model.group, model.size)
            made += layer_variants(capability, model)
        for num_blocks in {triton.next_power_of_2(triton.cdiv(model.vocabulary, 1024)) for model in MODELS.values()}:
            made += draw_variants(capability, num_blocks)
        for group in (4, 64):
            made += attention_variants(capability, "fp32", group, 128)
    made += attention_variants(80, "fp16", 6, 128)
    return [variant for i, variant in enumerate(made) if variant not in made[:i]]


def main() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for line in pool.imap(compiled, variants()):
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
