"""Values that cross processes and notebooks: paths, errors and usage."""

from __future__ import annotations

import copy
import pickle

import pytest

import tts
from tts.errors import CapabilityError, EngineError, KVBudgetError, TTSError

ERRORS = [
    TTSError("a cause"),
    tts.ConfigError("a cause", hint="a cure"),
    CapabilityError("a cause", hint="a cure"),
    tts.MissingDependency("a cause", hint="a cure"),
    tts.VerifierError("a cause"),
    KVBudgetError("a cause", hint="a cure"),
    EngineError("a cause", kind="network"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "copied", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickled", "copied"]
)
def test_an_error_keeps_all_that_it_holds(copied, error: TTSError) -> None:
    again = copied(error)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_solution_keeps_its_error_when_it_is_pickled() -> None:
    error = tts.VerifierError("a cause", hint="a cure")
    error.partial = tts.solve("3 + 4 - 2", 400, model="toy", strategy="single")
    assert pickle.loads(pickle.dumps(error)).partial == error.partial


def path_of(*texts: str) -> tts.Trajectory:
    path = None
    for depth, text in enumerate(texts):
        path = tts.Trajectory(path, text, (depth,), (-0.5,), "active", 7, depth, depth, depth, handle=object())
    assert path is not None
    return path


def test_a_pickled_path_is_equal_and_without_its_handles() -> None:
    before = path_of("", *(f"step {i}\n" for i in range(3000)))  # deeper than Python's recursion goes
    after = pickle.loads(pickle.dumps(before))
    assert after == before
    assert after is not before
    assert hash(after) == hash(before)
    assert [node.handle for node in after.path] == [None] * 3001
    assert after.full_text == before.full_text


def test_paths_differ_by_any_piece() -> None:
    path = path_of("", "a", "b")
    assert path == path.path[-1]
    assert path == path_of("", "a", "b")
    assert path not in (path_of("", "a", "c"), path_of("", "c", "b"), path_of("", "a"), "ab")


def test_usage_is_a_table_in_notebooks_and_a_line_elsewhere() -> None:
    usage = tts.Usage(generated_tokens=12_345, usd=None, seconds=1.25, estimated=True)
    assert repr(usage) == "Usage(generated_tokens=12345, usd=None, seconds=1.25, estimated=True)"
    rows = usage._repr_html_().replace(' style="text-align:left"', "")
    for name, value in (("generated tokens", "12,345"), ("usd", "unknown"), ("seconds", "1.25"), ("estimated", "True")):
        assert f"<tr><th>{name}</th><td>{value}</td></tr>" in rows
