"""Print how much each extra of the package adds to the core, in megabytes of installed files.

    python scripts/extra_sizes.py

Sizes are those of this environment.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OWN = ("docs", "dev", "all")  # extras of those who change the package


def installed_bytes(distribution: metadata.Distribution) -> int:
    """Return the bytes of a distribution's files."""
    paths = (Path(str(file.locate())) for file in distribution.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def closure(requirements: Iterable[str], sizes: dict[str, int], missing: set[str], extras: Iterable[str] = ()) -> None:
    """Add to `sizes` the bytes of all that some requirements need, and to `missing` what is not installed."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        name = canonicalize_name(requirement.name)
        if name in sizes:
            continue
        try:
            distribution = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            missing.add(name)
            continue
        sizes[name] = installed_bytes(distribution)
        closure(distribution.requires or (), sizes, missing, requirement.extras)


def main() -> None:
    """Print a line for the core and for each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core: dict[str, int] = {}
    closure(project["dependencies"], core, set())
    sys.stdout.write(f"core {sum(core.values()) / 1e6:.0f} MB\n")
    for extra, requirements in project["optional-dependencies"].items():
        if extra in OWN:
            continue
        sizes, missing = dict(core), set[str]()
        closure(requirements, sizes, missing)
        more = f"{(sum(sizes.values()) - sum(core.values())) / 1e6:.0f} MB more"
        unknown = f"not measured, for {', '.join(sorted(missing))} is not installed"
        sys.stdout.write(f"{extra} {unknown if missing else more}\n")


if __name__ == "__main__":
    main()
