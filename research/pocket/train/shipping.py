"""Stage "ship": the files of a run that users need, copied into the package with their checksums."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import tts.models.pocket
from tts.errors import ConfigError

_MODEL = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_HEADS = ("probe", "process", "reach", "likelihood")
FILES = (
    *(f"{model}/{name}" for model in ("policy", "process", "countdown", "reader") for name in _MODEL),
    *(f"heads/{name}.safetensors" for name in _HEADS),
)


def run(
    out: Path, *, minutes: float = 0, seed: int = 0, device: str = "cpu", package: Path | None = None
) -> dict[str, float]:
    """Copy a run's models into a package folder and write their checksums.

    A file that the run lacks stays as the package has it.

    Args:
        out: The folder of the run.
        minutes: Not used.
        seed: Not used.
        device: Not used.
        package: The folder of the package; None: this package.

    Raises:
        ConfigError: A stage has not been run, and the package has none of its files.
    """
    del minutes, seed, device
    package = package or Path(tts.models.pocket.__path__[0])
    made = [name for name in FILES if (out / name).is_file()]
    missing = [name for name in FILES if name not in made and not (package / name).is_file()]
    if missing or not made:
        raise ConfigError(f"{out} lacks {', '.join(missing or FILES)}", hint="run the earlier stages there first")
    for name in made:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / name, package / name)
    sums = {}
    for name in FILES:
        sums[name] = hashlib.sha256((package / name).read_bytes()).hexdigest()
    (package / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n")
    return {"files": float(len(FILES)), "bytes": float(sum((package / name).stat().st_size for name in FILES))}
