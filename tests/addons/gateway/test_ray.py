"""`examples/serve_on_ray.py` with two replicas, in an environment that has Ray Serve (`make test-ray` makes it)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.guard import LIMIT_S, wait_for

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
QUESTION = [{"role": "user", "content": "3 + 4 - 2"}]
CONFIG = """
models:
  toy: {strategy: best_of_n(n=8) | majority, budget: 2000}
  forever: {backend: "tests.addons.gateway.on_ray:forever", strategy: single}
store: searches.sqlite
limits: {searches: 1, queue: 0}
"""
OLD = """
models:
  toy: {strategy: best_of_n(n=8) | majority, budget: 2000}
  held: {backend: "tests.addons.gateway.on_ray:held", strategy: single}
store: searches.sqlite
limits: {searches: 8, queue: 8}
"""
NEW = OLD.replace("models:", "models:\n  newer: {model: toy, strategy: single}")
SERVES_PATIENCE_S = 20.0  # for the requests of an old replica, unless a deployment says more


@contextmanager
def started(config: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the example; gives the base url, and the process."""
    python = os.environ.get("TTS_RAY_PYTHON")
    if not python or not Path(python).exists():
        pytest.skip("TTS_RAY_PYTHON names no Python with Ray Serve (make test-ray makes one)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, str(ROOT / "examples/serve_on_ray.py"), str(config), "--replicas", "2", "--port", str(port)]
    # on machines that others use too
    patience = {f"RAY_SERVE_PROXY_{kind}_CHECK_TIMEOUT_S": "120" for kind in ("READY", "HEALTH")}
    environment = {
        **os.environ,
        **patience,
        "PYTHONPATH": str(ROOT),
        "RAY_USAGE_STATS_ENABLED": "0",
        "TTS_TEST_FOLDER": str(config.parent),
    }
    with (
        (config.parent / "log").open("w+") as log,
        subprocess.Popen(
            command, cwd=config.parent, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            url = ready(process)
            assert url, (config.parent / "log").read_text()[-4000:]
            yield url, process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT_S)


def ready(process: subprocess.Popen[str]) -> str:
    """Wait until all replicas have the configuration; returns the base url, or "" if the process has ended."""
    assert process.stdout is not None
    killed = threading.Timer(LIMIT_S, process.kill)
    killed.start()
    try:
        line = next((line for line in process.stdout if line.startswith(("ready: ", "not changed: "))), "ready: ")
    finally:
        killed.cancel()
    assert line.startswith("ready: "), line
    return line.removeprefix("ready: ").strip()


def ask(url: str, model: str, timeout_s: float, **fields: Any) -> Any:
    body = {"model": model, "messages": QUESTION, **fields}
    return httpx.post(f"{url}/chat/completions", json=body, timeout=httpx.Timeout(LIMIT_S, read=timeout_s))


def test_two_replicas_share_searches_and_the_store(tmp_path: Path) -> None:
    """A replica takes one request. So two that never end are in two, and others are answered only if those end with
    their clients.
    """
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    with started(tmp_path / "gateway.yaml") as (url, _):
        first = ask(url, "toy", LIMIT_S, seed=1).json()
        assert first["tts"]["answer"] == "5"
        streamed = ask(url, "toy", LIMIT_S, seed=1, stream=True).text
        assert streamed.endswith("data: [DONE]\n\n")
        assert ask(url, "toi", LIMIT_S).json()["error"]["code"] == "model_not_found"
        both = [threading.Thread(target=_leaves, args=(url,)) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(LIMIT_S)
        assert len([*tmp_path.glob("*.asked")]) == 2  # processes
        again = [ask(url, "toy", LIMIT_S, seed=1) for _ in range(4)]
        assert [reply.json()["choices"] for reply in again] == [first["choices"]] * 4
        for _ in range(4):  # whichever replica is asked
            ended = {
                one["id"]
                for one in httpx.get(f"{url}/searches", timeout=LIMIT_S).json()["data"]
                if one["state"] == "done"
            }
            assert {first["tts"]["search"], *(reply.json()["tts"]["search"] for reply in again)} <= ended


def _leaves(url: str) -> None:
    with pytest.raises(httpx.ReadTimeout):
        ask(url, "forever", 20.0)


def test_no_request_fails_while_the_configuration_changes(tmp_path: Path) -> None:
    """Short requests come in all the time, and longer ones are running when their replicas are replaced."""
    config, changed = tmp_path / "gateway.yaml", threading.Event()
    config.write_text(OLD)
    with started(config) as (url, process), ThreadPoolExecutor(6) as pool:
        assert ask(url, "newer", LIMIT_S).status_code == 404
        long = [pool.submit(ask, url, "held", LIMIT_S) for _ in range(4)]
        short = [pool.submit(_ask_until, changed.is_set, url) for _ in range(2)]
        try:
            wait_for(lambda: any(tmp_path.glob("*.asked")))
            config.write_text(NEW)
            process.send_signal(signal.SIGHUP)
            end_s = time.monotonic() + 1.5 * SERVES_PATIENCE_S
            wait_for(lambda: time.monotonic() > end_s)
            (tmp_path / "go").touch()
            assert ready(process) == url
        finally:
            (tmp_path / "go").touch()
            changed.set()
        assert [reply.result().json()["tts"]["answer"] for reply in long] == ["5"] * 4
        assert min(count.result() for count in short) > 0
        assert [ask(url, "newer", LIMIT_S).status_code for _ in range(8)] == [200] * 8
        config.write_text("models: {toy: {strategi: single}}")
        process.send_signal(signal.SIGHUP)
        with pytest.raises(AssertionError, match=r"not changed: .*strategi"):
            ready(process)
        assert ask(url, "newer", LIMIT_S).status_code == 200


def _ask_until(condition: Callable[[], bool], url: str) -> int:
    """Ask again and again, with a stream and without, and return how often; each request must succeed."""
    count = 0
    while not condition():
        reply = ask(url, "toy", LIMIT_S, seed=1, stream=bool(count % 2))
        assert reply.status_code == 200, reply.text
        if count % 2:
            assert reply.text.endswith("data: [DONE]\n\n")
        else:
            assert reply.json()["tts"]["answer"] == "5"
        count += 1
    return count
