"""The contract of backends on real servers, started here: vLLM with the pocket model, llama.cpp with SmolLM2. Minutes each."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.backends.openai_making import samples_of
from tests.contracts.backend_contract import GREEDY, BackendContract
from tts.backends.base import Backend, Row, SampleRequest, Stop
from tts.backends.openai import OpenAIBackend
from tts.errors import ConfigError
from tts.models import registry
from tts.models.registry import ModelRecord

pytestmark = pytest.mark.slow

VLLM, LLAMA = "TTS_VLLM_PYTHON", "TTS_LLAMA_PYTHON"  # interpreters that have the server, where that of the tests has none
STARTS_S = 540.0
POCKET = registry.SHIPPED / "policy"
SUMS = [f"{3 + i} + {40 - i} * {2 + i % 5} - {i}\n" for i in range(20)]


def interpreter(variable: str, module: str) -> str:
    named = os.environ.get(variable) or (sys.executable if importlib.util.find_spec(module) else "")
    if not named:
        pytest.skip(f"{module} is not installed, and {variable} names no interpreter that has it")
    return named


@contextmanager
def served(command: Sequence[str], log: Path, path: str) -> Iterator[str]:
    """Start a server, wait until it answers, and end it; gives the url."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    command = [*command, "--host", "127.0.0.1", "--port", port]
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=log.parent) as server:
        try:
            end = time.monotonic() + STARTS_S
            while not answers(url + path):
                if server.poll() is not None or time.monotonic() > end:
                    pytest.skip(f"the server did not start: {log.read_text()[-400:]}")
                time.sleep(1.0)
            yield url
        finally:
            server.terminate()
            server.wait(60)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [
        interpreter(VLLM, "vllm"),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(POCKET),
        "--served-model-name",
        "pocket",
    ]
    command += ["--dtype", "float32", "--max-model-len", "1024", "--enforce-eager", "--enable-prompt-tokens-details"]
    with served(command, tmp_path_factory.mktemp("vllm") / "log", "/health") as url:
        yield url


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = interpreter(LLAMA, "llama_cpp")
    try:
        weights = registry.locate(registry.get("smollm2"))
    except ConfigError as missing:
        pytest.skip(missing.hint)
    command = [python, "-m", "llama_cpp.server", "--model", str(weights), "--model_alias", "smollm2", "--n_ctx", "1024"]
    with served(command, tmp_path_factory.mktemp("llama") / "log", "/v1/models") as url:
        yield url


class OnAServer(BackendContract):
    """What a server does not promise is not asked of it: draws that do not depend on what else it works on."""

    name = "openai"
    url: str
    model: str

    def make(self) -> Backend:
        return OpenAIBackend.from_record(ModelRecord(name=self.model, backend="openai", url=self.url))

    def test_opening_counts_the_prompt(self) -> None:
        pytest.skip("every row reads its prompt: tests/contracts/test_backends.py")

    def run(self, check: Any, *needs: str) -> None:
        repeats = ("test_a_row_", "test_eight_rows", "test_text_that_is_appended", "test_forks_are", "test_log_probabilities_do_not")
        name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2]
        backend: Any = self.make()
        if name.startswith(repeats) and not backend.findings.seeds:
            pytest.skip("this server takes no seeds, so its draws repeat nothing")
        super().run(check, *needs)


class TestVLLM(OnAServer):
    model = "pocket"
    prompts = SUMS[:3]
    pieces = ("Restart?", " yes", "\n")

    @pytest.fixture(autouse=True)
    def _url(self, vllm: str) -> None:
        self.url = vllm

    def test_what_one_look_finds(self) -> None:
        found = self.make().findings  # type: ignore[attr-defined]
        assert (found.mode, found.streams, found.usage, found.cached, found.logprobs, found.stops) == (
            "tokens",
            True,
            True,
            True,
            True,
            True,
        )
        assert (found.n, found.filters, found.context) == (True, True, 1024)

    def test_greedy_paths_are_those_of_the_transformers_backend_token_by_token(self) -> None:
        pytest.importorskip("torch")
        from tts.backends.transformers import TransformersBackend

        async def paths(backend: Any) -> list[tuple[int, ...]]:
            handles = [reply.value for reply in await backend.open(SUMS)]
            asked = [backend.sample(SampleRequest(handle, (Row(1, 0, 64),), GREEDY, Stop())) for handle in handles]
            samples = [(await samples_of(rows))[0] for rows in asked]
            await backend.close()
            return [sample.token_ids for sample in samples]

        ours = asyncio.run(paths(self.make()))
        assert ours == asyncio.run(paths(TransformersBackend.from_record(registry.get("pocket"))))
        assert max(map(len, ours)) > 16


class TestLlama(OnAServer):
    model = "smollm2"
    prompts = ("Count: one, two,", "The capital of France is", "12 + 12 =")
    pieces = (" one", " two", " three")
    step = (" ",)

    @pytest.fixture(autouse=True)
    def _url(self, llama: str) -> None:
        self.url = llama

    def test_what_one_look_finds(self) -> None:
        found = self.make().findings  # type: ignore[attr-defined]
        assert (found.mode, found.streams, found.usage, found.logprobs, found.n) == ("chat", False, True, False, False)
