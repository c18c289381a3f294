"""What every test stands on: no file of the user's own."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

NUMBERS = itertools.count()
DOCS = (  # what users read and run besides the package: documents, examples, notebooks, pages, the commands that measure
    "benchmarks", "research", "test_documents.py", "experiments/test_examples.py", "experiments/test_first_curve.py",
    "solver/test_notebooks.py", "test_site.py", "serve/test_docs.py",
    "serve/test_page.py", "trace/test_html.py", "experiments/output/test_report.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of what users read and run as `docs`."""
    here = Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(here / name) for name in DOCS):
            item.add_marker("docs")


@pytest.fixture(autouse=True)
def users_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's files for this test alone, which does not exist at first."""
    home = tmp_path_factory.getbasetemp() / f"user-{next(NUMBERS)}"
    monkeypatch.setenv("TTS_HOME", str(home))
    return home
