"""Settings of models as files and command lines write them, and the user's own records."""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tts.errors import ConfigError, TTSError
from tts.models import registry
from tts.models.registry import ModelRecord
from tts.models.settings import from_texts
from tts.models.user_records import read_records, remove_record, write_record

BASE = ModelRecord(name="srv", backend="openai", url="http://host")


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("usd_in=0.15/M", "usd_in", Decimal("0.15")),
        ("usd_out=$0.60 / 1M tokens", "usd_out", Decimal("0.60")),
        ("usd_out=0.6 usd/k", "usd_out", Decimal(600)),
        ("usd_reused=1e-7/token", "usd_reused", Decimal("0.1")),
        ("parameters=8B", "parameters", 8 * 10**9),
        ("parameters=8.03e9", "parameters", 8_030_000_000),
        ("expected_tokens=300", "expected_tokens", 300),
        ("context=null", "context", None),
        ("task=text", "task", "text"),
        ("description=8", "description", "8"),
        (r'step=["\n\n", "\n"]', "step", ("\n\n", "\n")),
        ('heads={"probe": "a.safetensors"}', "heads", (("probe", "a.safetensors"),)),
        ("process_model=other", "process_model", "other"),
    ],
)
def test_each_kind_of_field_is_read_from_text(setting: str, field: str, value: Any) -> None:
    record = registry.with_settings(BASE, from_texts([setting]))
    assert record == dataclasses.replace(BASE, **{field: value})


def test_a_price_by_text_costs_what_a_number_does() -> None:
    texts = registry.with_settings(BASE, {"usd_in": "0.15/M", "usd_out": "0.0006/K"})
    assert registry.rates(texts) == registry.rates(dataclasses.replace(BASE, usd_in=0.15, usd_out=0.6))


def test_other_names_are_options_of_the_backend_and_are_added() -> None:
    first = registry.with_settings(BASE, {"tries": 3, "options": {"mode": "chat"}})
    second = registry.with_settings(first, {"tries": 4, "extra": {"b": 1, "a": [2]}})
    assert dict(second.options) == {"mode": "chat", "tries": 4, "extra": '{"a": [2], "b": 1}'}
    hash(second)


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"usd_in": 0.15}, "usd_in of model 'srv' is 0.15, a price without a unit"),
        ({"usd_in": "0.15"}, "a price without a unit"),
        ({"usd_in": "cheap"}, "but must be a price"),
        ({"usd_in": "-1/M"}, "but must be a price"),
        ({"usd_in": True}, "but must be a price"),
        ({"usd_in": "1.2.3/M"}, "but must be a price"),
        ({"parameters": "8X"}, "parameters of model 'srv' is '8X', but must be a whole number of weights"),
        ({"parameters": "8.5"}, "but must be a whole number of weights"),
        ({"parameters": "1.2.3B"}, "but must be a whole number of weights"),
        ({"context": 0}, "context of model 'srv' is 0, but must be at least 1"),
        ({"expected_tokens": 1.5}, "expected_tokens of model 'srv' is 1.5, but must be a valid integer"),
        ({"source": "moon"}, "source of model 'srv' is 'moon', but must be 'none', 'shipped'"),
        ({"heads": 5}, "heads of model 'srv' is 5, but must be a valid tuple"),
        ({"name": "x"}, "name of model 'srv' cannot be set"),
        ({"options": 5}, "options of model 'srv' is 5, but must have values by name"),
    ],
)
def test_what_is_not_valid_is_named_with_its_field(settings: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.with_settings(BASE, settings)
    assert cause in caught.value.cause


@pytest.mark.parametrize(
    ("texts", "cause"), [(["a"], "must be KEY=VALUE"), (["=1"], "must be KEY=VALUE"), (["a=1", "a=2"], "gives a twice")]
)
def test_texts_have_one_form(texts: list[str], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        from_texts(texts)


def test_a_record_of_the_users_is_found_by_its_name(users_files: Path) -> None:
    path = write_record("fast", {"url": "http://host", "usd_out": "0.6/M", "tries": 2})
    assert path == users_files / "models.json"
    found = registry.get("fast")
    assert (found.backend, found.url, found.usd_out, found.options) == (
        "openai",
        "http://host",
        Decimal("0.6"),
        (("tries", 2),),
    )
    assert "fast" in registry.names()
    assert registry.resolve("fast", "http://other", {"usd_out": "1/M"}) == dataclasses.replace(
        found, url="http://other", usd_out=Decimal(1)
    )
    remove_record("fast")
    assert read_records() == {}
    with pytest.raises(ConfigError, match="has none of that name"):
        remove_record("fast")


@pytest.mark.parametrize("content", ["{", "[]", '{"fast": 5}', '{"fast": {"usd_in": 0.15, "url": "http://h"}}'])
def test_a_damaged_file_of_records_is_one_error_with_its_cure(content: str, users_files: Path) -> None:
    users_files.mkdir()
    (users_files / "models.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        registry.get("fast")
    assert str(users_files / "models.json") in caught.value.cause
    assert caught.value.hint
    assert registry.get("toy").backend == "toy"  # what needs no file is found without it


def test_a_file_of_records_is_never_half_written(users_files: Path) -> None:
    for number in range(3):
        write_record(f"m{number}", {"url": "http://host"})
    assert set(json.loads((users_files / "models.json").read_text())) == {"m0", "m1", "m2"}
    assert [one.name for one in users_files.iterdir()] == ["models.json"]


def test_behind_a_url_any_name_is_a_model_and_a_known_one_keeps_its_record() -> None:
    assert registry.resolve("gpt-4o-mini", "http://host") == ModelRecord(
        name="gpt-4o-mini", backend="openai", url="http://host"
    )
    assert registry.resolve("org/model", "http://host").source == "none"
    pocket = registry.resolve("pocket", "http://host")
    assert (pocket.backend, pocket.url, pocket.parameters) == (
        "openai",
        "http://host",
        registry.get("pocket").parameters,
    )
    with pytest.raises(ConfigError) as caught:
        registry.resolve("gpt-4o-mini")
    assert caught.value.hint.endswith("a model on a server needs its url")


def test_a_file_of_records_that_cannot_be_read_or_written_is_named(users_files: Path) -> None:
    (users_files / "models.json").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"'.*models\.json'.*read:.*directory"):
        read_records()
    (users_files / "models.json").rmdir()
    users_files.rmdir()
    users_files.symlink_to(users_files.parent / "nowhere")
    with pytest.raises(TTSError, match=r"models\.json.*written:.*permissions"):
        write_record("fast", {"url": "http://host"})
