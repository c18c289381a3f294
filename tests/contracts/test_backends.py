from __future__ import annotations

import asyncio
import dataclasses
import runpy
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.backends.greedy import SUMS
from tests.backends.openai_server import ToyServer, serving
from tests.backends.vllm_fake import faked
from tests.backends.vllm_lent import lent
from tests.chaos import ChaosBackend
from tests.contracts.backend_contract import BackendContract
from tests.contracts.spreads_contract import SpreadsContract
from tests.contracts.walk import classes_with, missing
from tts.backends import BACKENDS
from tts.backends.base import Backend
from tts.backends.callable import Answer, Ask, CallableBackend
from tts.backends.openai import OpenAIBackend
from tts.backends.openai_findings import Findings
from tts.backends.toy import ToyBackend, ToyLanguage
from tts.randomness import hash64


class TestToy(SpreadsContract):
    name = "toy"
    prompts = ("3 + 4 - 2 + 9", "10 - 7 + 5", "1 + 1")
    pieces = ("3", " + ", "4", " = ", "8", "\n")

    def make(self) -> Backend:
        return ToyBackend(ToyLanguage(accuracy=0.4, mute=0.2))


class TestToyInsideALine(TestToy):
    """The same, with steps that end in the middle of the toy's lines."""

    step = (" = ", " - ")

    def test_a_value_has_one_reading_a_step(self) -> None:
        pytest.skip("the toy's value head reads lines")


class TestChaos(TestToy):
    """The tests' own wrapper keeps the contract too."""

    def make(self) -> Backend:
        return ChaosBackend(ToyBackend(ToyLanguage(accuracy=0.4, mute=0.2)), seed=5, slow=6)

    def test_closing_fails_what_is_under_way_and_what_is_asked_later(self) -> None:
        pytest.skip("the wrapper drops what is under way")


def write(asked: Ask) -> Answer:
    """Write lines that follow from the seed and the text so far: a word is a token."""
    seed = 0 if asked.temperature == 0 else asked.seed
    words: list[str] = []
    for _ in range(asked.max_tokens):
        drawn = hash64(seed, str(asked.prompt), asked.text + "".join(words))
        if drawn % 17 == 0 and words:
            return Answer("".join(words), len(words) + 1 if len(words) < asked.max_tokens else len(words))
        words.append("\n" if drawn % 4 == 0 else f"w{drawn % 7} ")
        if asked.stop and words[-1].endswith(asked.stop):
            break
    return Answer("".join(words), len(words), finished=False)


async def write_later(asked: Ask) -> str:
    await asyncio.sleep(0)
    return write(asked).text


class TestCallable(BackendContract):
    name = "callable"
    prompts = ("a b c", "d", "e f")

    def make(self) -> Backend:
        return CallableBackend(write)


class TestCallableThatCountsNothing(TestCallable):
    """A function that returns bare text: every row is charged what its text can be at most."""

    def make(self) -> Backend:
        return CallableBackend(write_later)


class TestTransformers(SpreadsContract):
    name = "transformers"
    prompts = ("the cat and the other one", "12 + 12 =", "a")
    step = ("a", "th", "\n", "1", "e")
    pieces = ("z", "k", "7", "?")
    max_tokens = 10

    def make(self) -> Backend:
        pytest.importorskip("torch").set_num_threads(1)
        pytest.importorskip("transformers")
        helper = Path(__file__).parents[1] / "backends" / "conftest.py"
        if not helper.exists():
            pytest.skip("tests/backends/conftest.py, which makes the tiny model, is not there")
        return self.tiny(runpy.run_path(str(helper)))

    def tiny(self, made: dict[str, Any]) -> Backend:
        return made["tiny_backend"](context=256, tile_rows=4)


class TestEngine(TestTransformers):
    name = "engine"

    def tiny(self, made: dict[str, Any]) -> Backend:
        return made["tiny_engine"](context=256, threads=1, heads={self.head: self.value_head()})

    def value_head(self) -> Any:
        np = pytest.importorskip("numpy")
        from tts.backends.engine.heads import ValueHead

        return ValueHead(np.linspace(-1, 1, 64, dtype=np.float32), step=self.step)


class TestEngineThatIsShortOfMemory(TestEngine):
    """The same with room for a few paths at a time: work gives way and is computed again."""

    def tiny(self, made: dict[str, Any]) -> Backend:
        return made["tiny_engine"](context=256, threads=1, kv_budget=28 * 16 * 512, heads={self.head: self.value_head()})


class TestOpenAI(TestToy):
    """The toy model behind HTTP, which takes and gives token ids."""

    name = "openai"
    findings = Findings(
        root="", model="toy", mode="tokens", streams=True, usage=True, cached=True, logprobs=True, seeds=True, stops=True, filters=True
    )

    @pytest.fixture(autouse=True)
    def _served(self) -> Any:
        with ExitStack() as self.servers:
            yield

    def make(self) -> Backend:
        url = self.servers.enter_context(serving(ToyServer(prompts=self.prompts)))
        return OpenAIBackend(dataclasses.replace(self.findings, root=f"{url}/v1"))

    def test_opening_counts_the_prompt(self) -> None:
        """Every row reads its prompt, for opening computes nothing; it is never more than what was counted."""

        async def check(backend: Any) -> None:
            handles = [reply.value for reply in await backend.open(list(self.prompts))]
            assert backend.counters.prompt_tokens == 0
            for handle, prompt in zip(handles, self.prompts, strict=True):
                rows = self.ask(backend, handle, self.rows(1))
                await rows.drain()
                assert 0 < rows.prompt_tokens + (rows.reused_tokens or 0) <= backend.count(prompt)

        self.run(check, "usage")


@pytest.mark.slow
class TestOpenAIInsideALine(TestOpenAI):
    """The same, with steps that end inside of what the server writes at once."""

    step = (" = ", " - ")


@pytest.mark.slow
class TestOpenAIByText(TestOpenAI):
    """A server that takes text, shows no tokens, reports no reuse, and leaves it to us to end a step."""

    findings = dataclasses.replace(TestOpenAI.findings, mode="text", logprobs=False, cached=False, stops=False, template=False)


@pytest.mark.slow
class TestOpenAIContinuedChat(TestOpenAI):
    """A chat whose last message is continued."""

    findings = dataclasses.replace(TestOpenAI.findings, mode="continued chat")


class TestOpenAIChat(TestOpenAI):
    """Plain chat: no steps, no texts behind a path."""

    findings = dataclasses.replace(TestOpenAI.findings, mode="chat", streams=False)


class TestVLLM(SpreadsContract):
    """The backend on an engine that stands in for vLLM. What it emulates keeps the promises of what is native."""

    name = "vllm"
    prompts = ("the cat and the other one", "12 + 12 =", "a")
    step = ("a", "th", "\n", "1", "e")
    pieces = ("z", "k", "7", "?")
    max_tokens = 10
    test_opening_counts_the_prompt = TestOpenAI.test_opening_counts_the_prompt

    def make(self) -> Backend:
        return faked()[0]

    def run(self, check: Any, *needs: str) -> None:
        super().run(check, *(need.rstrip("!") for need in needs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # vLLM's own
class TestVLLMItself(TestVLLM):
    """The embedded model in vLLM, which one test after another is lent."""

    prompts = SUMS[:3]
    step = ("\n",)
    pieces = ("Restart?", " yes", "\n")
    max_tokens = 24

    def make(self) -> Backend:
        return lent("pocket")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestVLLMItselfInsideALine(TestVLLMItself):
    """The same, with steps that end inside of lines, and within tokens."""

    step = (" = ", "=", "1")


CONTRACTS = {contract.name: contract for contract in (TestToy, TestCallable, TestTransformers, TestEngine, TestOpenAI, TestVLLM)}
CLASSES = {"ToyBackend", "CallableBackend", "TransformersBackend", "EngineBackend", "OpenAIBackend", "VLLMBackend"}


def test_every_backend_has_a_contract_class() -> None:
    assert missing(BACKENDS, [name for name in CONTRACTS if name]) == []
    written = classes_with("backends", ("open", "sample", "extend", "fork", "release"))
    assert written, "the walk found no backend at all"
    assert {way for way, name in written.items() if name not in CLASSES} == set()
    assert set(written.values()) >= CLASSES
