"""Import paths of the last version: all of them work, and say what is the new one."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

import tts
from tts import moved
from tts.moved import MOVED, RENAMED

HEAVY = {
    "torch",
    "transformers",
    "vllm",
    "matplotlib",
    "ray",
    "pyarrow",
    "yaml",
    "gguf",
    "safetensors",
    "tokenizers",
    "jinja2",
    "numba",
    "research",
}


def imported(name: str) -> object:
    """Return a module, which may need what is not installed here."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] in HEAVY - {"research"} or isinstance(missing, tts.MissingDependency):
            pytest.skip(f"{missing.name} is not installed")
        raise


def assert_parent(old: str) -> None:
    """Import the package of an old path, which may be an old path too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert imported(old.rpartition(".")[0]) is not None


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_has_its_successors_names(old: str) -> None:
    new = MOVED[old].split()
    if new[0].startswith("research") and find_spec("research") is None:
        pytest.skip("research is in the checkout alone")
    if old.endswith("__main__"):
        pytest.skip("a command: see below")
    homes = [imported(name) for name in new]
    assert_parent(old)
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {new[0]}"):
        module = importlib.import_module(old)
    for home in homes:
        for name in [name for name in vars(home) if not name.startswith("_")]:
            assert getattr(module, name) is not None or getattr(home, name) is None
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_the_kind'"):
        _ = module.nothing_of_the_kind
    del sys.modules[old]


@pytest.mark.parametrize(("old", "name", "now"), [(old, name, now) for old, names in RENAMED.items() for name, now in names.items()])
def test_an_old_name_is_the_new_thing(old: str, name: str, now: str) -> None:
    homes = [imported(home) for home in MOVED[old].split()]
    assert_parent(old)
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved"):
        module = importlib.import_module(old)
    assert getattr(module, name) is next(getattr(home, now) for home in homes if hasattr(home, now))
    del sys.modules[old]


def test_paths_that_the_readme_of_the_last_version_showed() -> None:
    code = """
from tts.search.base import Named, Selection
from tts.search.search import Search
from tts.search.selection import Best
from tts.models.registry import ModelRecord
from tts.budget import Budget
from tts.backends.toy import ToyBackend
from tts.backends.toy_language import ToyLanguage
from tts.experiments.store import Store
from tts.tasks.arithmetic.countdown import draw
from tts.tasks.arithmetic.expression import text
import tts
assert Named.__module__ == "tts.search.plan" and Best is tts.Best and Budget is tts.Budget and Search is tts.Search
"""
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("DeprecationWarning") == 3
    assert "<string>:2: DeprecationWarning: tts.search.base has moved to" in done.stderr


def test_an_old_command_runs_the_new_one() -> None:
    pytest.importorskip("research")
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-m", "tts.models.pocket.evaluate", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "research.pocket.evaluate" in done.stdout


@pytest.mark.parametrize("name", ["__path__", "__spam__", "__version__"])
def test_what_is_a_modules_own_is_not_its_successors(name: str) -> None:
    """The successor of `tts.search.selection` is a package."""
    sys.modules.pop("tts.search.selection", None)
    with pytest.warns(DeprecationWarning, match="tts.search.selection has moved"):
        module = importlib.import_module("tts.search.selection")
    assert hasattr(importlib.import_module("tts.search.selections"), "__path__")
    assert not hasattr(module, name)
    assert "Best" in module.__all__


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tts.search.never_was")


def test_the_first_study_of_the_last_version_finds_its_names() -> None:
    pytest.importorskip("matplotlib")
    code = """
from tts.experiments import config, plots, points
from tts.experiments.gathering import curves_of
from tts.experiments.pool import pool_study, pools_of
from tts.experiments.replay import replay
from tts.experiments.runner import results_of
from tts.experiments.store import Store, default_store
config.study, plots.save, plots.draw, points.as_text, points.points_of
"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        exec(code, {})
    for old in MOVED:
        sys.modules.pop(old, None)


def test_what_went_to_the_checkout_says_so_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved, "find_spec", lambda _: None)
    sys.modules.pop("tts.allocator.greedy", None)
    with pytest.raises(ModuleNotFoundError, match=r"has moved to research[.]allocation[.]greedy, which is run from a checkout"):
        importlib.import_module("tts.allocator.greedy")


def test_an_old_path_has_the_code_of_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match="tts.experiments.laws has moved"):
        spec = find_spec("tts.experiments.laws")
    assert spec is not None
    code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    assert Path(code.co_filename).parts[-3:] == ("experiments", "analysis", "laws.py")


def test_old_paths_are_served_by_one_finder() -> None:
    before = list(sys.meta_path)
    moved.install()
    assert sys.meta_path == before
