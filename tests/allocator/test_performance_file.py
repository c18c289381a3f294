"""The file of a performance model: whatever is damaged in it is one line that names file, field, value, rule and
cure.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.allocator.test_performance import COVERAGE, model
from tts.allocator import shipped
from tts.allocator.auto import Auto
from tts.allocator.gauges import Gauge, PromptProbe
from tts.allocator.length_forecast import LengthForecast
from tts.allocator.performance import PerformanceModel
from tts.errors import ConfigError

PLAIN, BEAM = "best_of_n | majority", "beam | weighted"
GAUGE = Gauge(0.0, 1.0, 0.05, 0.0, 0.0, 1.0)
WHOLE = json.loads(
    dataclasses.replace(
        model(**{PLAIN: COVERAGE, BEAM: COVERAGE}),
        verifiers={"main": "process"},
        first=0.0,
        gauges={"probe": GAUGE},
        probe=PromptProbe(np.array([0.5, -2.0]), 0.25),
    ).to_json()
)
CURVE = ("curves", PLAIN)


def damaged(path, value):
    """The whole file with another value at a path; a value of `...`: without what stands there."""
    data = copy.deepcopy(WHOLE)
    at = data
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return data


def refused(data, tmp_path):
    file = tmp_path / "model.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(ConfigError) as caught:
        PerformanceModel.load(file)
    assert "\n" not in str(caught.value)
    assert str(file) in caught.value.cause
    assert "make it again with tts fit" in caught.value.hint
    return caught.value.cause.removeprefix(f"the performance model {str(file)!r}: ")


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [
        (("format",), 99, "format: it is 99, but must be 1, the format that this version reads"),
        (("format",), True, "format is True, but must be a valid integer"),
        (("model",), "", "model is '', but must have at least 1 character"),
        (("task",), None, "task is None, but must be a valid string"),
        (("verifiers",), ["process"], "verifiers is ['process'], but must be an object"),
        (("verifiers", "main"), 3, "verifiers.main is 3, but must be a valid string"),
        (("problems",), 2.5, "problems is 2.5, but must be a valid integer"),
        (("tokens",), math.nan, "tokens is nan, but must be a finite number"),
        (("tokens",), -3, "tokens is -3, but must be greater than 0"),
        (("first",), 101, "first is 101, but must be less than or equal to 100"),
        (("populatoin",), {}, "key of the file is 'populatoin', but no key of the file has that name"),
        (("curves",), ..., "curves is missing, but must be given"),
        (("population", "rates"), [0.5], "population.rates is [0.5], but must have at least 25 items"),
        (
            ("population", "rates", 1),
            0.5,
            "population: rates[1] is 0.5, but must be 0.004278, the success rate that this version has there",
        ),
        (("population", "share", 3), [1.0], "population.share[3] is [1.0], but must have at least 6 items"),
        (("population", "share", 3, 2), -0.1, "population.share[3][2] is -0.1, but must be greater than or equal to 0"),
        (("population", "share", 3, 2), 5.0, "population: share sums to "),
        (("population", "problems"), -1, "population.problems is -1, but must be greater than or equal to 0"),
        (("curves",), {}, "the file: curves is of nothing, but must have one of best_of_n, which draws plain samples"),
        (
            CURVE,
            ...,
            "the file: curves is of beam | weighted, but must have one of best_of_n, which draws plain samples",
        ),
        (
            ("curves", "beem"),
            WHOLE["curves"][BEAM],
            "the file: curves.beem is of no strategy that is here: strategy is 'beem', but no ",
        ),
        (
            ("curves", "beam | wieghted"),
            WHOLE["curves"][BEAM],
            "the file: curves.beam | wieghted is of no strategy that is here: ",
        ),
        (
            ("curves", "auto"),
            WHOLE["curves"][BEAM],
            "the file: curves.auto is of auto, but must be of a strategy that auto may choose",
        ),
        ((*CURVE, "error"), ..., f"curves['{PLAIN}'].error is missing, but must be given"),
        ((*CURVE, "sizes"), [], f"curves['{PLAIN}'].sizes is [], but must have at least 1 item"),
        ((*CURVE, "sizes", 0), 0, f"curves['{PLAIN}'].sizes[0] is 0, but must be greater than 0"),
        (
            (*CURVE, "sizes", 2),
            1.0,
            f"curves['{PLAIN}']: sizes is [1.0, 2.0, 1.0, 8.0, 16.0, 32.0], but each must be above the size before",
        ),
        ((*CURVE, "sizes", 2), math.nan, f"curves['{PLAIN}'].sizes[2] is nan, but must be a finite number"),
        ((*CURVE, "sizes"), [1, 2, 4], f"curves['{PLAIN}']: accuracy[0] has 6 values, but must have 3, one a size"),
        (
            (*CURVE, "accuracy", 7, 1),
            1.5,
            f"curves['{PLAIN}'].accuracy[7][1] is 1.5, but must be less than or equal to 1",
        ),
        ((*CURVE, "accuracy", 24), ..., f"curves['{PLAIN}'].accuracy is [[0.0, "),
        (
            (*CURVE, "error", 0, 0),
            -0.5,
            f"curves['{PLAIN}'].error[0][0] is -0.5, but must be greater than or equal to 0",
        ),
        ((*CURVE, "error", 0, 0), "0.1", f"curves['{PLAIN}'].error[0][0] is '0.1', but must be a valid number"),
        ((*CURVE, "limits"), [1.0], f"curves['{PLAIN}']: limits has 1 values, but must have 6, one a size"),
        (
            (*CURVE, "limits"),
            [1.0, 2.0, 3.5, 8.0, 16.0, 32.0],
            f"curves['{PLAIN}']: limits[2] is 3.5, but must be at least 4, the size that it allowed",
        ),
        ((*CURVE, "limits"), [0.0] * 6, f"curves['{PLAIN}'].limits[0] is 0.0, but must be greater than 0"),
        (("gauges", "score"), [0] * 6, "gauges.score is 'score', but must be 'logprob' or 'probe'"),
        (("gauges", "probe"), [0] * 5, "gauges.probe is [0, 0, 0, 0, 0], but must have at least 6 items"),
        (
            ("gauges", "probe", 2),
            0,
            "gauges.probe: a gauge has the numbers (0.0, 1.0, 0.0, 0.0, 0.0, 1.0), but they must be finite, with a dev",
        ),
        (
            ("gauges", "probe", 5),
            -1,
            "gauges.probe: a gauge has the numbers (0.0, 1.0, 0.05, 0.0, 0.0, -1.0), but they must be finite, with",
        ),
        (("probe",), [0.5], "probe is [0.5], but must have at least 2 items"),
        (("probe", 1), math.nan, "probe[1] is nan, but must be a finite number"),
        (("probe",), ..., "the file: it has gauges.probe and no probe, but the gauge reads what the probe says"),
        (("gauges",), ..., "the file: it has probe and no gauges.probe, but the gauge reads what the probe says"),
    ],
)
def test_a_field_that_is_damaged_is_named(tmp_path, path, value, cause):
    assert refused(damaged(path, value), tmp_path).startswith(cause)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "it is no JSON: EOF while parsing an object"),
        ("[" * 100_000, "it is no JSON: recursion limit exceeded"),
        ("[]", "the file is [], but must be an object"),
        ("{}", "format is missing, but must be given"),
        ('{"format": 0}', "format: it is 0, but must be 1"),
    ],
)
def test_a_text_that_is_no_model_is_named(tmp_path, text, cause):
    assert refused(text, tmp_path).startswith(cause)


def leaves(value, path=()):
    """The paths of a file's values; of lists, their first and last ones."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list):
        for place in {0, len(value) - 1} if value else ():
            yield from leaves(value[place], (*path, place))


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", [math.nan, -math.inf, True, -7.5, 10**400, "x", {}, ..., [[0.5]]], ids=lambda value: str(value)[:9]
)
def test_no_value_anywhere_is_let_through_or_breaks_what_reads_it(tmp_path, value):
    harmless = {  # places where such a value may stand
        -7.5: {("gauges", "probe", 0), ("gauges", "probe", 1), ("gauges", "probe", 4), ("probe", 0), ("probe", 2)},
        "x": {("model",), ("task",), ("source",), ("verifiers", "main")},
        "{}": {("verifiers",)},
        "Ellipsis": {
            ("verifiers", "main"),
            ("first",),
            ("population", "others"),
            ("curves", BEAM),
            ("probe", 0),
            ("probe", 2),
        },
    }
    allowed = harmless.get(value if isinstance(value, str | float) else str(value), set())
    for path in list(leaves(WHOLE))[1:]:
        if path in allowed:
            PerformanceModel.from_json(json.dumps(damaged(path, value)))
        else:
            refused(damaged(path, value), tmp_path)


def test_a_model_that_ships_is_mended_by_installing_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    for cached in (shipped.names, shipped._load_model):
        cached.cache_clear()
    (tmp_path / "pocket.json").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        shipped.load("pocket")
    assert caught.value.hint.startswith("pip install --force-reinstall")
    monkeypatch.undo()
    for cached in (shipped.names, shipped._load_model):
        cached.cache_clear()


@pytest.mark.slow
def test_models_of_other_policies_that_ship_are_not_loaded():
    code = "import sys, tts; tts.solve('3 + 4', 60, model='toy'); print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"model": null}'])
def test_a_model_that_ships_and_names_no_policy_is_refused_for_each(content, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shipped, "FOLDER", tmp_path)
        shipped.names.cache_clear()
        (tmp_path / "pocket.json").write_text(content)
        with pytest.raises(ConfigError, match="the performance model"):
            shipped.fitting("toy", "arithmetic", {})
    shipped.names.cache_clear()


def test_a_path_that_no_file_can_have_is_refused():
    with pytest.raises(ConfigError, match=r"cannot be read: .*embedded null"):
        PerformanceModel.load("model\0.json")


def test_a_file_that_is_fitted_again_is_read_again(tmp_path):
    file = tmp_path / "own.json"
    PerformanceModel.from_json(json.dumps(WHOLE)).save(file)
    auto = Auto(model=str(file))
    before = shipped.load(str(file)), auto.values()
    assert shipped.load(str(file)) is before[0]
    assert auto.values() is before[1]
    again = copy.deepcopy(WHOLE)
    again["first"] = 0.25
    again["population"]["share"] = again["population"]["share"][::-1]
    PerformanceModel.from_json(json.dumps(again)).save(file)
    assert shipped.load(str(file)).first == 0.25
    assert auto.values() is not before[1]
    file.unlink()
    with pytest.raises(ConfigError, match=r"read:.*file"):
        shipped.load(str(file))


def test_saving_replaces_the_file_as_a_whole(tmp_path, monkeypatch):
    file, found = tmp_path / "own.json", PerformanceModel.from_json(json.dumps(WHOLE))
    found.save(file)
    (tmp_path / "link.json").symlink_to(file)
    whole, write = file.read_text(), Path.write_text

    def half(path, text, **more):
        write(path, text[: len(text) // 2], **more)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(ConfigError, match="No space left"):
        found.save(file)
    monkeypatch.undo()
    assert file.read_text() == whole
    found.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "own.json"]


def test_only_a_small_regular_file_is_read(tmp_path: Path) -> None:
    large, pipe = tmp_path / "large.json", tmp_path / "pipe.json"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    os.mkfifo(pipe)  # opening it would wait for a writer
    for place, why in (
        (Path("/dev/zero"), "no regular file"),
        (pipe, "no regular file"),
        (tmp_path, "no regular file"),
        (large, "more than 64 MiB"),
    ):
        with pytest.raises(ConfigError, match=f"{place}' cannot be read: it .*{why}"):
            shipped.load(str(place))
        with pytest.raises(ConfigError, match=f"{place}' cannot be read: it .*{why}"):
            LengthForecast.load(place)
