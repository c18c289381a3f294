"""The faces of packages: every public name is there, is typed, and costs nothing until it is used."""

from __future__ import annotations

import ast
import importlib
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

import tts

ROOT = Path(tts.__file__).parent
FACES = sorted(
    path
    for folder in (ROOT, ROOT.parent / "tts_addons")
    for path in folder.rglob("__init__.py")
    if "lazy_exports(" in path.read_text(encoding="utf-8")
)


def name_of(path: Path) -> str:
    return ".".join(path.parent.relative_to(ROOT.parent).parts)


@pytest.mark.parametrize("path", FACES, ids=name_of)
def test_each_name_of_a_package_is_typed_as_what_it_is(path: Path) -> None:
    package = importlib.import_module(name_of(path))
    block = next(node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    typed = {name.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert sorted(set(package.__all__) - {"__version__"}) == sorted(typed)
    for name, home in typed.items():
        try:
            value = getattr(package, name)
        except tts.MissingDependency as missing:
            pytest.skip(str(missing))
        except ModuleNotFoundError as missing:
            pytest.skip(f"{missing.name} is not installed")
        source = importlib.import_module(str(home))
        assert value is (getattr(source, name) if hasattr(source, name) else importlib.import_module(f"{home}.{name}"))
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_the_kind'"):
        _ = package.nothing_of_the_kind


def test_the_names_of_a_package_need_no_source(tmp_path: Path) -> None:
    (tmp_path / "face").mkdir()
    (tmp_path / "face" / "made.py").write_text("ONE, TWO = 1, 2\n")
    (tmp_path / "face" / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\nfrom tts._core.lazy import lazy_exports\n"
        "if TYPE_CHECKING:\n    from face.made import ONE as ONE, TWO as TWO\n"
        "__getattr__, __dir__, __all__ = lazy_exports(__name__)\n"
    )
    for source in list(tmp_path.rglob("*.py")):
        py_compile.compile(str(source), str(source.with_suffix(".pyc")))
        source.unlink()
    code = (
        "import face, importlib; print(face.TWO); importlib.reload(face); from face import *; print(face.__all__, ONE)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT.parent)])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == ["2", "['ONE', 'TWO'] 1"]


def test_what_an_author_needs_is_in_tts_itself() -> None:
    parts = (
        "Strategy",
        "Selection",
        "StopRule",
        "Verifier",
        "Backend",
        "Task",
        "Search",
        "Study",
        "Selected",
        "StopDecision",
        "StepScores",
    )
    assert set(parts) <= set(tts.__all__)
    assert tts.strategies.Beam().registered_as == "beam"
    assert set(tts.strategies.__all__) >= {"AStar", "Beam", "BestOfN", "Rebase", "ParticleFilter"}
    assert set(tts.selections.__all__) >= {"Majority", "Weighted", "Best", "BestOfMajority", "Borda", "Rpc"}
    assert set(tts.stop_rules.__all__) >= {"Unanimous", "Posterior", "Entropy"}


@pytest.mark.parametrize(("code", "allowed"), [("import tts", set[str]()), ("import tts; tts.solve", {"numpy"})])
def test_an_import_loads_no_library_that_it_does_not_need(code: str, allowed: set[str]) -> None:
    heavy = (
        "{'numpy', 'scipy', 'torch', 'transformers', 'numba', 'httpx', 'pandas', 'networkx', 'pydantic', 'matplotlib'}"
    )
    code = f"{code}; import sys; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= allowed
