"""What every test stands on: no file of the user's own, and which cases `make test` leaves to `make test-slow`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import signal
import tomllib
import zlib
from collections.abc import Generator
from pathlib import Path

import pytest

NUMBERS = itertools.count()
# what users read and run besides the package: documents, examples, notebooks, pages, the commands that measure
DOCS = (
    "benchmarks", "research", "test_documents.py", "documents", "experiments/test_examples.py",
    "experiments/test_first_curve.py", "solver/test_notebooks.py", "test_site.py", "test_gallery.py",
    "addons/gateway/test_docs.py", "cli/test_recorded_page.py", "addons/gateway/test_page.py", "trace/test_html.py",
    "experiments/output/test_report.py",
)  # fmt: skip

# of which products of cases one in so many is quick, by the names of files, functions and classes of tests
ONE_IN: dict[str, int] = tomllib.loads(Path(__file__).with_name("one_in.toml").read_text(encoding="utf-8"))

# in the background of a shell, where tests of Ctrl-C would wait for ever
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples that hypothesis draws: few in `make test`, many in `make test-slow`.
with contextlib.suppress(ImportError):  # absent where only the tests of a GPU run
    from hypothesis import settings

    # the same in each run: a run fails by what was changed, and not by chance
    settings.register_profile("few", max_examples=15, deadline=None, derandomize=True)
    settings.register_profile("many", max_examples=300, deadline=None, derandomize=True)
    settings.load_profile("few")


class Places:
    """The place of each value of a parameter among all values that it takes, by test, class and parameter, in order of
    appearance.
    """

    def __init__(self) -> None:
        self.seen: dict[tuple[object, ...], list[object]] = {}

    def of(self, value: object, *where: object) -> int:
        values = self.seen.setdefault(where, [])
        at = next((i for i, one in enumerate(values) if one is value), len(values))
        if at == len(values):
            values.append(value)
        return at

    def total(self, item: pytest.Item, where: str) -> int:
        """Return the sum of the places of a case's class and values; those that one decorator gives together count
        once.
        """
        cls = getattr(item, "cls", None)
        params = dict[str, object](item.callspec.params) if hasattr(item, "callspec") else {}  # type: ignore[attr-defined]
        for mark in item.iter_markers("parametrize"):
            names = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
            for name in names[1:]:
                params.pop(name, None)
        return self.of(cls, where) + sum(self.of(value, where, cls, name) for name, value in params.items())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shard", type=_shard, default=(1, 1), metavar="K/N", help="run the K-th of N parts, by the names of the tests"
    )


def _shard(text: str) -> tuple[int, int]:
    """Read K/N. A test stays in its part when others come and go: the part follows from its name alone."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: K/N with 1 <= K <= N, such as 3/12")
    return int(k), int(n)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which no test would be run."""
    if "not docs" in config.option.markexpr.split(" and ") and _name(collection_path).startswith(DOCS):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage once all is collected, and not each time that there is more of it: modules and cases are none.

    They are also kept out of every later garbage collection, which would take longer than many tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # so that extension modules find what is theirs at exit


def _name(path: Path) -> str:
    here = Path(__file__).parent
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of what users read and run as `docs`, and most of a product's cases as `slow`; take one shard."""
    names: dict[Path, str] = {}
    named = [(names.setdefault(item.path, _name(item.path)), item) for item in items]
    for name, item in named:
        if name.startswith(DOCS):
            item.add_marker("docs")
    _thin_classes(named)
    _thin_products(named)
    k, n = config.getoption("shard")
    if n > 1:
        shards = [zlib.crc32(item.nodeid.partition("[")[0].encode()) % n + 1 for item in items]
        config.hook.pytest_deselected(items=[item for item, shard in zip(items, shards, strict=True) if shard != k])
        items[:] = [item for item, shard in zip(items, shards, strict=True) if shard == k]


def _class_of(name: str, item: pytest.Item) -> str:
    cls = getattr(item, "cls", None)
    return f"{name}::{cls.__name__}" if cls else ""


def _thin_classes(named: list[tuple[str, pytest.Item]]) -> None:
    """Mark functions of classes as slow, but for one in so many."""
    functions: dict[str, list[str]] = {}
    for name, item in named:
        of_class = _class_of(name, item)
        if of_class in ONE_IN:
            known, function = functions.setdefault(of_class, []), getattr(item, "originalname", "")
            if function not in known:
                known.append(function)
            if known.index(function) % ONE_IN[of_class]:
                item.add_marker("slow")


def _thin_products(named: list[tuple[str, pytest.Item]]) -> None:
    """Mark cases of functions and files as slow, but for one in so many."""
    places, products = Places(), dict[str, list[tuple[int, pytest.Item]]]()
    for name, item in named:
        test = f"{name}::{getattr(item, 'originalname', '')}"
        is_product = (test in ONE_IN or name in ONE_IN) and _class_of(name, item) not in ONE_IN
        if is_product and not item.get_closest_marker("slow"):
            products.setdefault(test, []).append((places.total(item, test), item))
    turns: dict[str, int] = {}
    for test, cases in products.items():
        name = test.partition("::")[0]
        turn = turns[name] = turns.get(name, -1) + 1
        # tests of one file begin with different cases; one case always stays
        first = 0 if test in ONE_IN else cases[turn % len(cases)][0]
        for place, item in cases:
            if (place - first) % ONE_IN.get(test, ONE_IN.get(name, 1)):
                item.add_marker("slow")


@pytest.fixture(autouse=True)
def users_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's files for this test alone, which does not exist at first."""
    home = tmp_path_factory.getbasetemp() / f"user-{next(NUMBERS)}"
    monkeypatch.setenv("TTS_HOME", str(home))
    return home
