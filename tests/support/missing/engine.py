"""Skips what needs torch where torch is not installed, as no build for this Python is at hand.

    python -m pytest -p tests.support.missing.engine

A file or test that fails since torch, or a package that needs torch, is missing is skipped with that reason. Where
torch is installed, nothing is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from importlib.util import find_spec

import pytest

from tests.support.missing.skips import skip_if_match

NEED_TORCH = ("torch", "accelerate", "triton")
# nothing where torch is at hand: then a failure that names it is a fault
NAMED = re.compile(
    rf"(?:No module named '|needs the optional dependency )(?:{'|'.join(NEED_TORCH)})\b|requires PyTorch"
    if find_spec("torch") is None
    else r"(?!)"
)
REASON = "it needs the engine, and torch is not installed"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return skip_if_match((yield), collector, NAMED, REASON)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return skip_if_match((yield), item, NAMED, REASON)
