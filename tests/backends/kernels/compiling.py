"""Compile every kernel for GPUs that are not here, and print what each one needs, a line of JSON a kernel.

Run as a program: without TRITON_INTERPRET, in a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tts.backends.kernels import attention_triton, draw_triton, norm_triton, rope_triton
from tts.backends.kernels.lowering import KernelWork

LAUNCH = {"num_warps", "num_stages", "enable_fp_fusion"}
_CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def compiled(kernel: Any, types: str, capability: int, aligned: str = "", **options: Any) -> dict[str, Any]:
    """Compile `kernel` for arguments of some types, in order; `aligned` numbers are divisible by 16, as all addresses
    are.
    """
    launch = {key: options.pop(key) for key in LAUNCH & set(options)}
    names = [name for name in kernel.arg_names if name not in options]
    signature = dict(zip(names, types.split(), strict=True)) | dict.fromkeys(options, "constexpr")
    places = {name: (i,) for i, name in enumerate(kernel.arg_names)}
    attributes = {
        places[name]: [["tt.divisibility", 16]]
        for name in names
        if signature[name][0] == "*" or re.match(aligned or "$", name)
    }
    source = ASTSource(kernel, signature, {places[name]: value for name, value in options.items()}, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = subprocess.run([_CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", usage)[-1]
    return {
        "kernel": kernel.__name__,
        "capability": capability,
        "registers": int(registers),
        "stack": int(stack),
        "shared": made.metadata.shared,
        "products": len(re.findall(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma", made.asm["ptx"])),
        "wide_copies": len(re.findall(r"cp\.async\.cg\S* \[[^]]*\], \[[^]]*\], 0x10", made.asm["ptx"])),
    }


def attention(
    element: str, element_bytes: int, group: int, size: int, is_wide: bool, capability: int, *, strict: bool = False
) -> dict[str, Any]:
    work = KernelWork(group, strict, 16, 64, 0, *[None] * 6)  # pyright: ignore[reportArgumentType]
    types = " ".join([f"*{element}"] * 4 + ["*fp32"] * 2 + ["*i32"] * 6 + ["i32"] * 8)
    tile = attention_triton.tile(work, element_bytes, size, is_wide=is_wide)
    shape = {
        "group": group,
        "size": size,
        "padded": size,
        "block": 16,
        "upcast": False,
        "strict": strict,
        "key_column": 1,
        "value_column": 1,
    }
    made = compiled(attention_triton.tree_partial, types, capability, "key_|value_", **shape, **tile)
    return {**made, "element": element, "is_wide": is_wide, "size": size}


def main() -> None:
    made = [
        attention("bf16", 2, group, size, is_wide, capability, strict=strict)
        for capability in (80, 90, 100)
        for group, size in ((1, 128), (4, 128), (7, 128), (2, 256), (3, 64), (9, 64))
        for is_wide, strict in ((False, False), (True, False), (False, True))
    ]
    made += [
        attention("fp32", 4, group, 128, False, capability, strict=strict)
        for capability in (80, 90)
        for group in (1, 2, 4, 8)
        for strict in (False, True)
    ]
    made.append(attention("fp16", 2, 6, 128, True, 80))
    shape = {"group": 6, "size": 128, "padded": 128, "rows": 8, "num_warps": 2, "enable_fp_fusion": True}
    made.append(compiled(attention_triton.merge, "*bf16 *fp32 *fp32 *i32", 90, **shape))
    shape = {
        "num_heads": 2,
        "group": 6,
        "size": 128,
        "rows": 16,
        "padded": 64,
        "has_norms": True,
        "enable_fp_fusion": True,
    }
    for whole in ("*i64", "*i32"):  # of plain steps, of those in fixed shapes
        types = f"*bf16 {whole} *fp32 *fp32 {whole} {whole} *bf16 *bf16 *bf16 *bf16 *bf16 i32 fp32" + " i32" * 8
        made.append(compiled(rope_triton.rope_and_write, types, 90, **shape))
    shape = {"size": 3584, "padded": 4096, "has_change": True, "num_warps": 8, "enable_fp_fusion": True}
    made.append(compiled(norm_triton.norm_rows, "*bf16 *bf16 *bf16 *bf16 fp32", 90, **shape))
    law = "*bf16 *i64 *fp32 *fp32 *i64 *fp32 *i32 *fp64"
    shape = {"vocabulary": 151_936, "block": 1024, "is_cut": True, "num_warps": 4, "enable_fp_fusion": True}
    made.append(compiled(draw_triton.sum_blocks, law + " i32 i32", 90, **shape))
    types = law + " *i64 *i64 i32 *i64 *fp64 i32 i32 i32"
    made.append(compiled(draw_triton.draw_rows, types, 90, **shape, padded=256))
    made.append(compiled(draw_triton.write_uniforms, "*i64 *i64 i32 *fp64 i32", 90, rows=1024, enable_fp_fusion=True))
    for line in made:
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
