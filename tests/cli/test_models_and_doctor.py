from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tts import __version__
from tts.cli.doctor import EXTRAS, device, engine, find_namesake, installed_version
from tts.cli.models import shorten_count
from tts.errors import ConfigError
from tts.models import registry

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_version(tts):
    assert tts("--version").stdout == f"tts {__version__}\n"


def test_models_lists_every_record(tts):
    result = tts("models")
    assert result.exit_code == 0
    for name in registry.names():
        assert re.search(rf"^│ {name} ", result.stdout, re.MULTILINE)
    for name, does in (("pocket", "writes"), ("pocket-process", "scores")):
        assert re.search(rf"{name} +│ {does} +│ engine +│ +3\.2 M │ Apache-2\.0", result.stdout)
    assert re.search(r"smollm2 +│ writes +│ engine +│ +134\.5 M │ Apache-2\.0", result.stdout)
    assert re.search(r"toy +│ writes +│ toy +│ +none │ Apache-2\.0 │ present", result.stdout)


def test_models_gives_the_command_for_what_is_missing(tts, monkeypatch):
    def missing(record):
        raise ConfigError("it is not here", hint=f"get {record.name}")

    monkeypatch.setattr(registry, "locate", missing)
    monkeypatch.setattr("tts.cli.doctor.device", lambda: "none")
    monkeypatch.setattr("tts.cli.doctor.engine", list)  # modules of the engine would keep the function above
    assert "get smollm2" in tts("models").stdout
    assert "get smollm2" in tts("doctor").stdout


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999"), (1500, "1.5 K"), (134_515_008, "134.5 M"), (7_600_000_000, "7.6 B")]
)
def test_counts_as_people_say_them(count, text):
    assert shorten_count(count) == text


@pytest.mark.slow
def test_the_log_goes_to_standard_error_from_a_level_on_and_shows_no_text(tts):
    asked = ("solve", "30 + 4", "--model", "toy", "--budget", "100", "--json")
    quiet, some, all_ = tts(*asked), tts("--log", "info", *asked), tts("--log", "debug", *asked)
    assert [json.loads(each.stdout)["answer"] for each in (quiet, some, all_)] == ["34", "34", "34"]
    assert quiet.stderr == "" == tts(*asked).stderr
    assert " INFO a problem: begins, auto, tokens=100, model toy" in some.stderr
    assert " DEBUG " not in some.stderr
    assert " DEBUG a problem: expand policy" in all_.stderr
    assert "30 + 4" not in all_.stderr
    assert tts("--log", "loud", *asked).exit_code == 2


def test_doctor_names_versions_and_commands(tts, monkeypatch):
    versions = {"torch": None, "transformers": "5.1"}
    monkeypatch.setattr("tts.cli.doctor.installed_version", lambda distribution: versions.get(distribution, "1.0"))
    result = tts("doctor")
    assert result.exit_code == 0
    assert re.search(r"^│ engine +│ torch +│ missing", result.stdout, re.MULTILINE)
    assert re.search(r"^│ +│ transformers +│ 5\.1", result.stdout, re.MULTILINE)
    assert result.stdout.count("pip install 'test-time-search[engine]'") == 1
    assert "pip install 'test-time-search[math]'" not in result.stdout
    assert "without torch" in result.stdout


@pytest.mark.slow
def test_doctor_names_text_to_speech_beside_it(tts, monkeypatch):
    version = importlib.metadata.version
    assert "conflict" not in tts("doctor").stdout
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.22" if name == "TTS" else version(name))
    told = " ".join(tts("doctor").stdout.replace("│", " ").split())
    assert "conflict TTS 0.22 (text to speech) has a command tts too; give each an environment" in told
    monkeypatch.setattr(Path, "exists", lambda _: True)  # as on a disk without case
    assert "folder TTS is this folder tts" in find_namesake()


@pytest.mark.skipif(not PYPROJECT.is_file(), reason="the project's file is not beside the tests")
def test_the_doctor_s_extras_are_those_of_the_project():
    extras = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    declared = {
        extra: [re.match(r"[\w.-]+", requirement)[0] for requirement in needed]
        for extra, needed in extras.items()
        if extra not in ("dev", "docs", "all")
    }
    assert {extra: list(distributions) for extra, distributions in EXTRAS.items()} == declared


def test_installed_without_importing():
    assert installed_version("rich") == importlib.metadata.version("rich")
    assert installed_version("nothing-of-that-name") is None
    assert installed_version("json") == "present, version unknown"  # a module of no distribution


def test_a_broken_torch_is_reported(monkeypatch):
    monkeypatch.setattr("tts.cli.doctor.installed_version", lambda *_: "2.0")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch does not start" in device()
    monkeypatch.setitem(sys.modules, "tts.backends.engine.loading", None)
    ((name, told),) = engine()
    assert (name, told.partition(":")[0]) == ("engine", "does not start")


def test_each_gpu_is_named(monkeypatch):
    monkeypatch.setattr("tts.cli.doctor.installed_version", lambda *_: "2.0")
    cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2, get_device_name=lambda i: f"GPU {i}")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert device() == "CUDA: GPU 0, CUDA: GPU 1"


@pytest.mark.slow
def test_doctor_says_how_the_engine_runs(tts):
    pytest.importorskip("torch")
    pytest.importorskip("numba")
    shown = " ".join(tts("doctor").stdout.replace("│", " ").split())
    assert " engine attention by the executor strict " in shown


@pytest.mark.slow
def test_doctor_lists_the_bounds_of_programs(tts, monkeypatch):
    from tts_addons.code import bounds

    told = bounds.SandboxBound("all memory", "", "no control group can be made", required=False)
    monkeypatch.setattr(bounds, "bounds", lambda: [bounds.SandboxBound("files", "Landlock"), told])
    shown = " ".join(tts("doctor").stdout.replace("│", " ").split())
    assert "code files holds: Landlock" in shown
    assert "all memory absent: no control group" in shown
