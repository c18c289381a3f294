"""Runs tests as if the add-ons were not installed.

    python -m pytest -p tests.support.core_alone

`tts_addons` cannot be imported, and tables have no names of its parts. A test that fails for that reason names an
add-on, and is skipped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tests.support.missing.skips import skip_if_match

ADDONS = "tts_addons"
REASON = "it names an add-on"
NAMED = pytest.StashKey[re.Pattern[str]]()


class Missing:
    """A finder that refuses the package of the add-ons, as where it is not installed."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name.split(".", maxsplit=1)[0] == ADDONS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Missing())


def remove_parts() -> re.Pattern[str]:
    """Remove the parts of add-ons from all tables; returns a pattern of an error that names one of them."""
    from tts.backends import BACKENDS
    from tts.experiments.datasets import DATASETS
    from tts.search import families
    from tts.search.parts import STRATEGIES
    from tts.tasks import TABLE
    from tts.verifiers import VERIFIERS

    removed: list[str] = []
    for table in (BACKENDS, DATASETS, STRATEGIES, TABLE, VERIFIERS):
        for name, place in list(table.entries.items()):
            if place.startswith(f"{ADDONS}."):
                removed.append(name)
                del table.entries[name]
    kept = {family: tuple(name for name in names if name not in removed) for family, names in families.FAMILIES.items()}
    families.FAMILIES = {family: names for family, names in kept.items() if names}
    return re.compile(rf"{ADDONS}|is in an add-on|['\"](?:{'|'.join(removed)})\b")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NAMED] = remove_parts()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.match("tests/addons") else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return skip_if_match((yield), collector, collector.config.stash[NAMED], REASON)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return skip_if_match((yield), item, item.config.stash[NAMED], REASON)
