"""`tts serve` at SIGHUP, at the end of its terminal, and where its supervisor is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

from tests.addons.gateway.asking import QUESTION
from tests.addons.gateway.wire.started import clients, server
from tests.support.guard import LIMIT_S, wait_for

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
PROCESS = {"backend": "tests.addons.gateway.parts:process"}
KEY, OTHER = "key-of-anna-0123456789", "key-of-bert-0123456789"


def status(client: httpx.Client, key: str) -> int:
    return client.get("models", headers={"authorization": f"Bearer {key}"}).status_code


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_keys_are_read_again_at_sighup(tmp_path, workers):
    keys = tmp_path / "keys.txt"
    keys.write_text(f"anna {KEY}\n")
    config = {
        "models": {"process": PROCESS},
        "keys": str(keys),
        "operators": ["anna"],
        "store": str(tmp_path / "store"),
    }
    with (
        server(tmp_path, config, "--workers", str(workers)) as found,
        clients(found, workers, {"authorization": f"Bearer {KEY}"}) as by_process,
    ):
        asked = by_process.values()
        keys.write_text(f"bert {OTHER}\n")  # an operator is gone with it
        found.process.send_signal(signal.SIGHUP)
        wait_for(lambda: all((status(one, KEY), status(one, OTHER)) == (401, 200) for one in asked))
        keys.write_text("bert short\n")
        found.process.send_signal(signal.SIGHUP)
        wait_for(
            lambda: (
                found.log.read_text().count("the keys were not read again, and stay as they are: line 1 of the keys")
                == workers
            )
        )
        assert "short" not in found.log.read_text()
        assert {(status(one, KEY), status(one, OTHER)) for one in asked} == {(401, 200)}


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("model", ["process", pytest.param("held", marks=pytest.mark.slow)])
def test_workers_end_where_their_supervisor_is_killed(tmp_path, model):
    """Also one that a part keeps from reacting to anything."""
    config = {
        "models": {"process": PROCESS, "held": {"backend": "tests.addons.gateway.parts:held"}},
        "store": str(tmp_path / "store"),
    }
    with server(tmp_path, config, "--workers", "2") as found, clients(found, 2) as by_process:
        if model == "held":
            body = {"model": "held", "messages": QUESTION}
            with pytest.raises(httpx.ReadTimeout):
                next(iter(by_process.values())).post(
                    "chat/completions", json=body, timeout=httpx.Timeout(LIMIT_S, read=1.0)
                )
        os.kill(found.process.pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_alive, by_process)))
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{found.url}/health", timeout=LIMIT_S)


ON_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "tts", *sys.argv[1:]])
"""


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_server_ends_with_its_terminal(tmp_path, workers):
    """Closing a terminal sends SIGHUP too, which must not leave a server behind."""
    keys, config = tmp_path / "keys.txt", tmp_path / "gateway.yaml"
    keys.write_text(f"anna {KEY}\n")
    config.write_text("models: {toy: {}}\nkeys: keys.txt\nstore: store\n")
    master, terminal = os.openpty()
    arguments = ["serve", "--port", "0", "--config", str(config), "--workers", str(workers)]
    command = [sys.executable, "-c", ON_A_TERMINAL, *arguments]
    with subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        os.close(terminal)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready: ")
            os.close(master)
            process.wait(LIMIT_S)
        finally:
            process.kill()
