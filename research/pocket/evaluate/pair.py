"""The pair that is measured: the shipped one by its record, or a candidate's folders.

The folders of a candidate are laid out as the shipped ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tts.errors import ConfigError
from tts.models import registry
from tts.models.registry import ModelRecord

if TYPE_CHECKING:
    from tts.backends.engine import EngineBackend

_ROWS = 256  # written at once; more of a small model's rows share one pass over its weights


def pair_record(policy: Path | None = None, process: Path | None = None, heads: Path | None = None) -> ModelRecord:
    """Return the record of the shipped pair, or of a candidate.

    Tables that a candidate's parts do not allow are left out.

    Args:
        policy: The folder of a policy; None: the shipped one, with all that belongs to it.
        process: The folder of its process model; None: the candidate has none.
        heads: The folder of `process.safetensors` and `probe.safetensors`; None: "heads" beside the process model's
            folder.

    Raises:
        ConfigError: A folder or a file that is needed is missing.
    """
    if policy is None:
        if process is not None or heads is not None:
            raise ConfigError("a process model or heads were given without a policy", hint="give --policy too")
        return registry.get("pocket")
    for folder in (policy, process, heads):
        if folder is not None and not folder.is_dir():
            raise ConfigError(
                f"{folder} is no folder, but must hold a model", hint="name a folder as the trainer wrote it"
            )
    heads = heads or (None if process is None else process.resolve().parent / "heads")
    if heads is None:
        return ModelRecord(name=str(policy), backend="engine", source="folder", location=str(policy), task="pocket")
    probe, readout = (heads.resolve() / f"{name}.safetensors" for name in ("probe", "process"))
    if process is not None and not readout.is_file():
        raise ConfigError(f"{readout} is missing, but the process model {process} is read by it", hint="give --heads")
    return ModelRecord(
        name=str(policy),
        backend="engine",
        source="folder",
        location=str(policy),
        task="pocket",
        heads=(("probe", str(probe)),) if probe.is_file() else (),
        process_model=None
        if process is None
        else ModelRecord(
            name=str(process),
            backend="engine",
            source="folder",
            location=str(process),
            task="pocket",
            readout=str(readout),
        ),
    )


def load(record: ModelRecord, device: str = "cpu") -> EngineBackend:
    """Load a pair.

    On a CPU, results are the same bits in any batch. Other devices may round otherwise.

    Raises:
        ConfigError: The models are not there, or do not fit together.
        MissingDependency: The engine's libraries are not installed.
    """
    from tts.backends.engine import build

    return build(record, device=device, max_rows=_ROWS)
