"""The snapshot of a run: configuration, versions, commit, machine, checksums and problems' sources."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tts.experiments import datasets
from tts.experiments.study.config import ProblemsConfig, StudyConfig
from tts.experiments.study.grid import Problems, Settings, digest, part_sources, problem_digest
from tts.experiments.study.record import RESULT_VERSION

# packages that results may depend on
_PACKAGES: Final = (
    "test-time-search",
    "numpy",
    "scipy",
    "torch",
    "transformers",
    "tokenizers",
    "numba",
    "mpmath",
    "datasets",
    "ray",
)
_TIMEOUT_S: Final = 10.0


def snapshot(config: StudyConfig, problems: Problems, settings: Settings) -> dict[str, Any]:
    """Return the snapshot of a study. Its "configuration" identifies the study.

    Args:
        config: The configuration of the study.
        problems: The problems of the study.
        settings: The settings of the study's models, for their checksums.
    """
    return {
        "configuration": config.plain_settings(),
        "concurrency": config.concurrency,
        "result_version": RESULT_VERSION,
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
        "models": {
            name: {**setting.identity, **part_sources(*setting.strategies.values())}
            for (name, _), setting in settings.items()
        },
        "data": {section.title: data_of(section, problems[section.title]) for section in config.problems},
    }


def data_of(section: ProblemsConfig, problems: Mapping[str, Any]) -> dict[str, Any]:
    """Return the source and licence of problems as their data set states them, with a checksum."""
    dataset, path = datasets.get(section.dataset), section.parameters.get("path")
    return {
        "dataset": section.dataset,
        "source": dataset.source if path is None else f"{dataset.source}: {path}",
        "licence": dataset.licence,
        "note": dataset.note,
        "problems": len(problems),
        "sha256": data_checksum(problems),
    }


def data_checksum(problems: Mapping[str, Any]) -> str:
    """Return a hash of problems and their answers, in order."""
    return digest(problems=[problem_digest(problem) for problem in problems.values()])


def versions() -> dict[str, str]:
    """Return the versions of Python and of every installed package that results may depend on."""
    package_versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            package_versions[name] = metadata.version(name)
    return package_versions


def commit() -> str | None:
    """Return the commit of this package's checkout, marked if files have changed; None: no checkout."""
    folder = Path(__file__).parent
    # without this check, any checkout around an installed package would be taken for the package's own
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    head = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{head} with changes" if head and changes else head


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command in a folder; None: the command failed."""
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()


def machine() -> dict[str, Any]:
    """Return facts about this machine, without the names of machine and user."""
    facts: dict[str, Any] = {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()}
    torch: Any = sys.modules.get("torch")  # torch is slow to import, and is not imported only for the snapshot
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
        facts["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts
