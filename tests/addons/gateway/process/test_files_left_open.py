"""A gateway that cannot begin, or cannot end as it should, leaves none of its files open."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest
from starlette.testclient import TestClient

from tests.addons.connections import is_open, note_connections
from tests.addons.gateway.asking import TOY
from tts.errors import ConfigError
from tts_addons.gateway.app import create_app
from tts_addons.gateway.archive import Archive
from tts_addons.gateway.config import GatewayConfig, gateway_config
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.spending.books import SharedBooks


def fail(*_: object) -> NoReturn:
    raise sqlite3.OperationalError("disk I/O error")


@pytest.fixture
def config(tmp_path: Path) -> GatewayConfig:
    return gateway_config({**TOY, "store": str(tmp_path / "store.sqlite")})


@pytest.mark.parametrize(
    "make", [lambda path: Archive(path, kept=3), lambda path: SharedBooks(time.time, path)], ids=["archive", "books"]
)
def test_a_file_of_another_kind_is_closed(make: Any, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("something else, of some length" * 100)
    with note_connections() as connections, pytest.raises(ConfigError, match="cannot be opened"):
        make(str(tmp_path / "notes"))
    assert [is_open(one) for one in connections] == [False]


def test_a_gateway_without_books_closes_its_archive(config: GatewayConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts_addons.gateway.gateway.SharedBooks", fail)
    with note_connections() as connections, pytest.raises(sqlite3.Error):
        Gateway(config)
    assert [is_open(one) for one in connections] == [False]


def test_a_gateway_whose_models_cannot_be_loaded_is_closed(config: GatewayConfig) -> None:
    with note_connections() as connections:
        gateway = Gateway(config)
        gateway.offers.load = fail
        with pytest.raises(sqlite3.Error), TestClient(create_app(config, gateway=gateway)):
            pass
    assert [is_open(one) for one in connections] == [False, False]


def test_a_gateway_whose_books_cannot_be_ended_is_closed(config: GatewayConfig) -> None:
    with note_connections() as connections:
        gateway = Gateway(config)
        gateway.books.bury = fail
        with pytest.raises(sqlite3.Error):
            asyncio.run(gateway.close())
    assert [is_open(one) for one in connections] == [False, False]
