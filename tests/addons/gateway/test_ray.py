"""`examples/serve_on_ray.py` with two replicas, in an environment that has Ray Serve (`make test-clients` makes it)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.guard import LIMIT_S

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


@contextmanager
def started(config: Path) -> Iterator[str]:
    """Run the example; gives the base url."""
    python = os.environ.get("TTS_RAY_PYTHON")
    if not python or not Path(python).exists():
        pytest.skip("TTS_RAY_PYTHON names no Python with Ray Serve (make test-clients makes one)")
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
        killed = threading.Timer(LIMIT_S, process.kill)
        killed.start()
        try:
            assert process.stdout is not None
            line = next((line for line in process.stdout if line.startswith("ready: ")), "")
            killed.cancel()
            assert line, (config.parent / "log").read_text()[-4000:]
            yield line.removeprefix("ready: ").strip()
        finally:
            killed.cancel()
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT_S)


def ask(url: str, model: str, timeout_s: float, **fields: Any) -> Any:
    body = {"model": model, "messages": QUESTION, **fields}
    return httpx.post(f"{url}/chat/completions", json=body, timeout=httpx.Timeout(LIMIT_S, read=timeout_s))


def test_two_replicas_share_searches_and_the_store(tmp_path: Path) -> None:
    """A replica takes one request. So two that never end are in two, and others are answered only if those end with
    their clients.
    """
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    with started(tmp_path / "gateway.yaml") as url:
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
