"""The models in this package: their checksums, and, where the files are there, what their records say of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tts.errors import ConfigError
from tts.models import registry
from tts.models.registry import CHECKSUMS, REINSTALL, SHIPPED, ModelRecord, get, head_path, locate, process_records
from tts.tasks.arithmetic import pocket

HERE = (SHIPPED / CHECKSUMS).is_file()
shipped = pytest.mark.skipif(not HERE, reason="the shipped models are not in this checkout")


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins of the shipped files, with their checksums."""
    for name in (
        "policy/config.json",
        "policy/model.safetensors",
        "process/model.safetensors",
        "heads/probe.safetensors",
        "heads/process.safetensors",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() * 100)
    pin(tmp_path)
    monkeypatch.setattr(registry, "SHIPPED", tmp_path)
    return tmp_path


def pin(folder: Path) -> None:
    """Write the checksums of what lies in a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != CHECKSUMS]
    pins = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (folder / CHECKSUMS).write_text(json.dumps(pins))


def test_shipped_models_lie_in_the_package(copies: Path) -> None:
    assert locate(get("pocket")) == copies / "policy"
    assert locate(get("pocket-process")) == copies / "process"
    assert head_path(get("pocket"), "heads/probe.safetensors") == copies / "heads" / "probe.safetensors"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")


@pytest.mark.parametrize("asked", ["pocket", "pocket-process"])
@pytest.mark.parametrize(
    "file", ["policy/config.json", "policy/model.safetensors", "process/model.safetensors", "heads/probe.safetensors"]
)
@pytest.mark.parametrize(
    ("damage", "words"), [(cut, "has the SHA-256"), (change, "has the SHA-256"), (Path.unlink, "is missing")]
)
def test_a_damaged_file_is_named_with_the_cure_whichever_model_is_asked_for(
    copies: Path, asked: str, file: str, damage: Callable[[Path], None], words: str
) -> None:
    assert locate(get(asked)) is not None
    damage(copies / file)
    with pytest.raises(ConfigError) as refused:
        locate(get(asked))
    assert refused.value.cause.startswith(f"{copies / file} {words}")
    assert refused.value.hint == REINSTALL
    assert "--force-reinstall" in REINSTALL


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '"x"', "\xff"])
def test_checksums_that_cannot_be_read_are_named(copies: Path, text: str | None) -> None:
    (copies / CHECKSUMS).unlink()
    if text is not None:
        (copies / CHECKSUMS).write_bytes(text.encode("latin-1"))
    with pytest.raises(
        ConfigError, match=rf"{CHECKSUMS}, which has the checksums of the shipped models, (is missing|cannot be read)"
    ):
        locate(get("pocket"))


@pytest.mark.parametrize("file", ["policy/model.safetensors", "heads/probe.safetensors"])
def test_a_file_that_no_checksum_vouches_for_is_refused(copies: Path, file: str) -> None:
    pins = json.loads((copies / CHECKSUMS).read_text())
    del pins[file]
    (copies / CHECKSUMS).write_text(json.dumps(pins))
    with pytest.raises(ConfigError, match=f"has no checksum of {file}, but model 'pocket' needs"):
        locate(get("pocket"))


def test_a_file_beside_the_shipped_ones_is_refused_since_it_could_be_loaded_instead(copies: Path) -> None:
    (copies / "policy" / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"policy/model\.safetensors\.index\.json,.*shipped") as refused:
        locate(get("pocket"))
    assert refused.value.hint == REINSTALL


def test_a_file_that_changes_back_is_as_good_as_before(copies: Path) -> None:
    path = copies / "process" / "model.safetensors"
    shutil.copy(path, copies.parent / "kept")
    cut(path)
    with pytest.raises(ConfigError):
        locate(get("pocket"))
    shutil.copy(copies.parent / "kept", path)
    assert locate(get("pocket")) is not None


def test_the_pair_names_its_parts() -> None:
    record = get("pocket")
    assert (record.backend, record.task, record.verifier, record.licence) == (
        "engine",
        "pocket",
        "process",
        "Apache-2.0",
    )
    assert process_records(record)["process"] == get("pocket-process")
    assert record.context == get("pocket-process").context == 1024
    asked = record.self_evaluation
    assert asked is not None
    assert (asked.question, asked.yes, asked.no) == (pocket.RESTART, pocket.YES, pocket.NO)
    assert record.step == get("pocket-process").step == pocket.PocketTask.step_stop
    hash(record)


def test_what_is_no_process_model_is_not_served_as_one() -> None:
    assert process_records(get("toy")) == {}
    other = ModelRecord(name="mine", backend="engine", process_model="smollm2")
    with pytest.raises(ConfigError, match=r"process_model.*'mine'.*'smollm2',.*readout"):
        process_records(other)
    with pytest.raises(ConfigError, match="did you mean"):
        process_records(dataclasses.replace(other, process_model="pocket-proces"))


def test_further_process_models_are_found_by_their_value_heads() -> None:
    record = ModelRecord(name="mine", backend="engine", process_models=(("other", "pocket-process"),))
    assert process_records(record) == {"other": get("pocket-process")}
    assert process_records(dataclasses.replace(record, process_model="pocket-process")).keys() == {"process", "other"}
    with pytest.raises(ConfigError, match=r"process_models.*'mine' names.*'process'"):
        process_records(
            dataclasses.replace(record, process_model="pocket-process", process_models=(("process", "pocket-process"),))
        )
    with pytest.raises(ConfigError, match=r"process_models.*'mine'.*'smollm2',.*readout"):
        process_records(dataclasses.replace(record, process_models=(("other", "smollm2"),)))


# The files themselves -------------------------------------------------------------------------------------------------


@shipped
def test_every_shipped_file_has_a_checksum_and_together_they_are_small() -> None:
    pins = json.loads((SHIPPED / CHECKSUMS).read_text())
    found = {
        p.relative_to(SHIPPED).as_posix()
        for d in ("policy", "process", "countdown", "reader", "heads")
        for p in (SHIPPED / d).rglob("*")
        if p.is_file()
    }
    assert set(pins) == found
    assert sum((SHIPPED / name).stat().st_size for name in pins) <= 24 * 2**20
    assert locate(get("pocket")) == SHIPPED / "policy"


@shipped
def test_the_record_says_what_is_loaded() -> None:
    for module in ("torch", "transformers", "numba"):
        pytest.importorskip(module)
    from tts.backends.capabilities import text_bound
    from tts.backends.engine import build

    backend = build(get("pocket"), device="cpu", threads=1)
    process = backend.reward_models["process"].runner
    assert (backend.context, process.context) == (get("pocket").context, get("pocket-process").context)
    assert backend.runner.decoder.parameters == get("pocket").parameters
    assert process.decoder.parameters == get("pocket-process").parameters
    assert sorted(backend.metadata.value_heads) == ["likelihood", "probe", "process", "reach"]
    assert backend.reward_models["reach"].runner.decoder.parameters == get("pocket-countdown").parameters
    assert [text_bound(backend, text) for text in (pocket.RESTART, pocket.YES, pocket.NO)] == [1, 1, 1]
