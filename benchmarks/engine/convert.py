"""Write a model of the registry in the formats of the peers, with the same float32 weights.

    python -m benchmarks.engine.convert FOLDER [--model smollm2] [--kinds hf f32 q8_0]

vLLM reads a folder, and llama.cpp reads GGUF files. The command writes FOLDER/hf, FOLDER/f32.gguf and FOLDER/q8_0.gguf
where they are missing. GGUF files are made from GGUF files only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf.quants import quantize

from tts.backends.loading.gguf import GGUFFile, read_gguf
from tts.backends.loading.models import load
from tts.errors import ConfigError, TTSError
from tts.models.registry import get, locate

TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
KINDS = ("hf", *TYPES)


def convert(name: str, folder: Path, kinds: Iterable[str] = KINDS) -> dict[str, Path]:
    """Write the files that are missing, and return the paths by kind.

    Args:
        name: The name of the model.
        folder: The folder of its files.
        kinds: The kinds of files: "hf", "f32" or "q8_0".

    Raises:
        ConfigError: A GGUF file is asked for, but the model has none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / ("hf" if kind == "hf" else f"{kind}.gguf") for kind in kinds}
    record = get(name)
    if "hf" in paths and not (paths["hf"] / "config.json").is_file():
        loaded = load(record, device="cpu", dtype=torch.float32)
        loaded.model.save_pretrained(paths["hf"])
        loaded.tokenizer.save_pretrained(paths["hf"])
    missing = [kind for kind in TYPES if kind in paths and not paths[kind].is_file()]
    if missing:
        packaged = locate(record)
        if packaged is None or packaged.suffix != ".gguf":
            raise ConfigError(
                f"model {name!r} is {packaged}, but GGUF files are made from a GGUF file only",
                hint="leave out f32 and q8_0",
            )
        source = read_gguf(packaged)
        for kind in missing:
            write(source, paths[kind], kind)
    return paths


def write(source: GGUFFile, path: Path, kind: str) -> None:
    """Write a GGUF file with the source's metadata and weights, the matrices in another type."""
    tensor_type, file_type = TYPES[kind]
    unfinished = path.with_suffix(f".{os.getpid()}")
    writer = gguf.GGUFWriter(unfinished, source.metadata["general.architecture"])
    copy_metadata(writer, source.metadata)
    writer.add_file_type(file_type)
    for name, values in source.tensors.items():
        packed = tensor_type if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        data = values if packed == gguf.GGMLQuantizationType.F32 else quantize(values, packed)
        writer.add_tensor(name, data, raw_dtype=packed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)


def copy_metadata(writer: gguf.GGUFWriter, metadata: Mapping[str, Any]) -> None:
    kinds = {
        str: gguf.GGUFValueType.STRING,
        bool: gguf.GGUFValueType.BOOL,
        int: gguf.GGUFValueType.UINT32,
        float: gguf.GGUFValueType.FLOAT32,
    }
    for key, value in metadata.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, kinds[type(value)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    try:
        paths = convert(options.model, options.folder, options.kinds)
    except TTSError as failure:
        sys.exit(f"error: {failure}")
    for kind, path in paths.items():
        print(kind, path)


if __name__ == "__main__":
    main()
