"""Files of a model: from this machine first, then from the Hub, with one line where they cannot be had."""

from __future__ import annotations

import io
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from typing import Any

import pytest

pytest.importorskip("transformers")

from huggingface_hub import constants

from tts.backends.loading import hub
from tts.errors import ConfigError
from tts.models.registry import ModelRecord

ON_THE_HUB = ModelRecord(name="mine", backend="engine", source="hub", location="some-one/some-model")
HERE = ModelRecord(name="mine", backend="engine", source="folder", location="some-folder")


def reader(*missing: bool) -> tuple[Callable[..., str], list[bool]]:
    """Return what reads a model's files but where `local_files_only` is one of `missing`, and how it was called."""
    calls: list[bool] = []

    def read(*, local_files_only: bool) -> str:
        calls.append(local_files_only)
        if local_files_only in missing:
            raise OSError("no such file\nin any place")
        return "local" if local_files_only else "downloaded"

    return read, calls


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Set whether the Hub answers."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return lambda there: monkeypatch.setattr(hub, "hub_answers", lambda: there)


def test_nothing_is_downloaded_that_is_here() -> None:
    read, calls = reader()
    assert hub.local_first(ON_THE_HUB, read) == "local"
    assert calls == [True]


def test_what_is_not_here_is_downloaded_if_the_hub_answers(answers: Callable[[bool], None]) -> None:
    answers(True)
    read, calls = reader(True)
    assert hub.local_first(ON_THE_HUB, read) == "downloaded"
    assert calls == [True, False]
    with pytest.raises(ConfigError, match=r"'mine'.*loaded:.*\(hint:.*local"):
        hub.local_first(ON_THE_HUB, reader(True, False)[0])
    answers(False)
    read, calls = reader(True)
    with pytest.raises(ConfigError, match=r"'mine'.*cache"):
        hub.local_first(ON_THE_HUB, read)
    assert calls == [True]


@pytest.mark.parametrize("record", [ON_THE_HUB, HERE], ids=["offline", "a folder"])
def test_nothing_is_downloaded_of_a_folder_or_offline(
    record: ModelRecord, answers: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", record is ON_THE_HUB)
    read, calls = reader(True)
    with pytest.raises(ConfigError, match=r"loaded:.*file"):
        hub.local_first(record, read)
    assert calls == [True]


def test_the_hub_answers_if_any_reply_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = urllib.error.HTTPError(constants.ENDPOINT, 405, "no such method", Message(), None)
    for failure, there in ((refused, True), (OSError("unreachable"), False), (TimeoutError(), False)):

        def fails(*_: Any, failure: Exception = failure, **__: Any) -> Any:
            raise failure

        monkeypatch.setattr(urllib.request, "urlopen", fails)
        assert hub.hub_answers() is there
    reply = io.BytesIO()
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: reply)
    assert hub.hub_answers()
    assert reply.closed


def test_progress_bars_that_were_off_stay_off() -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        with hub.quiet():
            assert logging.get_verbosity() == logging.ERROR
        assert not logging.is_progress_bar_enabled()
    finally:
        logging.enable_progress_bar()
    assert logging.get_verbosity() != logging.ERROR
