from __future__ import annotations

import asyncio
import dataclasses
import functools
import runpy
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import tts
from tests.backends.greedy import SUMS
from tests.backends.openai.server import ToyServer, serving
from tests.backends.vllm.fake import faked
from tests.backends.vllm.lent import lent
from tests.contracts.backend_contract import TO_END, WARM, BackendContract, awaited, on_backend
from tests.contracts.prompt_logprobs_contract import PromptLogprobsContract
from tests.contracts.spreads_contract import SpreadsContract
from tests.contracts.walk import classes_with, descendants, missing
from tests.support.chaos import ChaosBackend
from tts.backends import BACKENDS
from tts.backends.base import Backend, Caps, Counters, Finish, Reply, RowSet, Sample, SampleRequest
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.metadata import BackendMetadata, metadata_of
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Rates
from tts.errors import CapabilityError, ConfigError
from tts.models import registry
from tts.randomness import hash64
from tts.tasks.patch import PatchTask
from tts.types import Message, Prompt


class TestToy(SpreadsContract, PromptLogprobsContract):
    name = "toy"
    prompts = ("3 + 4 - 2 + 9", "10 - 7 + 5", "1 + 1")
    pieces = ("3", " + ", "4", " = ", "8", "\n")
    reads = (
        "3 + 4 - 2\n3 + 4 = 8\n8 - 2 = 6\nA: 6",
        "3 + 4 - 2\n3 + 4 = 7\n7 - 3 = 4",
        "3 + 4 - 2\n3 + 4 = 7\n",
        "1 + 1\n1 + 1 = 99\n?",
    )

    async def stepwise(self, backend: Any, found: PromptLogprobs) -> list[float]:
        """By hand: a result is right with probability 0.4, each slip has its share of the rest, and an answer ends 0.8
        of the solutions.
        """
        del backend
        right, slip, ends, dumb, never = np.log([0.4, 0.3, 0.8, 0.2, 1e-300]).tolist()
        given = found.texts.index("\n") + 1
        known = {
            self.reads[0]: [0, 0, 0, 0, slip, 0, 0, 0, 0, 0, right, 0, ends, 0],
            self.reads[1]: [0, 0, 0, 0, right, 0, 0, 0, never, never, never],
            self.reads[2]: [0, 0, 0, 0, right, 0],
            self.reads[3]: [0, 0, 0, 0, never, 0, dumb],
        }["".join(found.texts)]
        return [np.nan] * given + [found.logprobs[given + at] if one == never else one for at, one in enumerate(known)]

    def test_what_may_follow_a_prompt_is_what_greedy_drawing_writes(self) -> None:
        """The language opens a prompt at its sum alone, so that the law is known by hand."""

        async def check(backend: Any) -> None:
            prompts = (self.reads[2], "3 + 4\n3 + 4 = 7\nA: 7", "3 + 4\n3 + 4 = ")
            line, answer, result = [(await self.one(backend, prompt, 2)).value.behind for prompt in prompts]
            assert [tuple(top)[:2] for top in line] == [("7", 0.0)]
            assert [tuple(top)[:2] for top in answer] == [("", 0.0)]
            assert answer[0].ends == (backend.name == "toy")
            assert [top.text for top in result] == ["7", "8"]
            np.testing.assert_allclose([top.logprob for top in result], np.log([0.4, 0.3]))

        self.run(check, self.needs)

    def test_what_the_language_cannot_write_has_probability_zero(self) -> None:
        async def check(backend: Any) -> None:
            found = (await self.one(backend, self.reads[3])).value
            assert found.logprobs[found.texts.index("99")] < -9000

        self.run(check, self.needs)

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
        return FunctionBackend(write)


class TestCallableThatCountsNothing(TestCallable):
    """A function that returns bare text: every row is charged what its text can be at most."""

    def make(self) -> Backend:
        return FunctionBackend(write_later)


class Counting(Backend):
    """A backend as an author's first one is: `open`, `sample`, and what it claims."""

    caps = Caps(fork="emulated", usage=True)

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        self.counters.prompt_tokens += sum(map(self.count, prompts))
        return [Reply(str(prompt), self.count(prompt)) for prompt in prompts]

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            made = write(
                Ask(request.handle, request.text, row.max_tokens, request.sampling.temperature, (), row.stream)
            )
            finish: Finish = "eos" if made.finished else "length"
            tokens = made.tokens or 0
            self.counters.generated_tokens += tokens
            rows.resolve(index, Sample(made.text, (), (), finish, request.handle, tokens))
        return rows


class Claiming(Counting):
    """The same, but that it claims what it does not implement."""

    caps = Caps(score="native", fork="absent")


class TestCounting(BackendContract):
    """A minimal subclass of `Backend` keeps the promises that it makes."""

    prompts = ("a b c", "d", "e f")

    def make(self) -> Backend:
        return Counting()

    def test_closing_fails_what_is_under_way_and_what_is_asked_later(self) -> None:
        pytest.skip("its rows are resolved at once, so that nothing is under way")

    def test_it_is_named_after_its_class_and_counts_for_itself(self) -> None:
        one, other = Counting(), Counting()
        assert (one.name, one.identity, Claiming().name) == ("counting", "counting", "claiming")
        assert (one.context, one.kv_bytes_per_token, one.rates, metadata_of(one)) == (
            None,
            None,
            Rates(),
            BackendMetadata(),
        )
        one.counters.prompt_tokens += 1
        assert (other.counters, one.count("a b"), one.count((Message("user", "a b"), Message("user", "c")))) == (
            Counters(),
            2,
            3,
        )

    def test_it_solves_and_is_refused_what_it_cannot_do(self) -> None:
        solved = tts.solve("a b c", budget=400, model=Counting(), task="text", strategy="best_of_n(n=4)")
        assert len(solved.candidates) == 4
        with pytest.raises(
            CapabilityError,
            match=r"capability 'steps',.*'counting' lacks.*backends",
        ):
            tts.solve("a b c", budget=400, model=Counting(), task="text", strategy="answer_convergence")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: Counting().score([0], ["x"]),
            "Counting has no capability 'score' .hint: backends that have it: .*toy",
        ),
        (lambda: Counting().hidden([0]), "Counting has no capability 'hidden'"),
        (lambda: Claiming().fork(0, 2), "Claiming has no capability 'fork'"),
        (
            lambda: Claiming().score([0], ["x"]),
            "Claiming does not implement score, but its caps say score='native'.*define Claiming.score",
        ),
        (
            lambda: Backend().open(["x"]),
            "Backend does not implement open, but every backend needs it .hint: define Backend.open",
        ),
        (lambda: Backend().sample(SampleRequest(0, (), WARM, TO_END)), "Backend does not implement sample"),
        (
            lambda: Counting.from_record(registry.get("toy")),
            "Counting cannot be made from a model's record, here of 'toy'",
        ),
        (
            lambda: metadata_of(SimpleNamespace(metadata={"value_heads": {}})),
            "metadata of SimpleNamespace is .* must be a BackendMetadata",
        ),
        (
            lambda: tts.solve("a", 100, model=cast("Any", SimpleNamespace(sample=0)), task="text"),
            r"but must be a name, a record, a backend or a function \(hint: write class "
            r"SimpleNamespace\(tts\.Backend\)\)",
        ),
    ],
)
def test_what_a_backend_of_ones_own_lacks_is_named_in_one_line(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        asyncio.run(awaited(call))
    assert "\n" not in str(refused.value)


@functools.cache
def makers() -> dict[str, Any]:
    """Return the makers of tiny models, which are read once."""
    helper = Path(__file__).parents[1] / "backends" / "conftest.py"
    if not helper.exists():
        pytest.skip("tests/backends/conftest.py, which makes the tiny model, is not there")
    return runpy.run_path(str(helper))


class TestTransformers(SpreadsContract, PromptLogprobsContract):
    name = "transformers"
    prompts = ("the cat and the other one", "12 + 12 =", "a")
    step = ("a", "th", "\n", "1", "e")
    pieces = ("z", "k", "7", "?")
    max_tokens = 10

    def make(self) -> Backend:
        pytest.importorskip("torch").set_num_threads(1)
        pytest.importorskip("transformers")
        return self.tiny(makers())

    def tiny(self, made: dict[str, Any]) -> Backend:
        return made["tiny_backend"](context=256)


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
        return made["tiny_engine"](
            context=256, threads=1, kv_budget=28 * 16 * 512, heads={self.head: self.value_head()}
        )


class TestOpenAI(TestToy):
    """The toy model behind HTTP, which takes and gives token ids."""

    name = "openai"
    capabilities = Capabilities(
        root="",
        model="toy",
        mode="tokens",
        streams=True,
        usage=True,
        cached=True,
        logprobs=True,
        seeds=True,
        stops=True,
        filters=True,
        echo=True,
    )

    @pytest.fixture(autouse=True)
    def _served(self) -> Any:
        with ExitStack() as self.servers:
            yield

    def make(self) -> Backend:
        url = self.servers.enter_context(serving(ToyServer(prompts=self.prompts)))
        return OpenAIBackend(dataclasses.replace(self.capabilities, root=f"{url}/v1"))

    @on_backend("usage")
    async def test_opening_counts_the_prompt(self, backend: Any) -> None:
        """Every row reads its prompt, for opening computes nothing; it is never more than what was counted."""
        handles = [reply.value for reply in await backend.open(list(self.prompts))]
        assert backend.counters.prompt_tokens == 0
        for handle, prompt in zip(handles, self.prompts, strict=True):
            rows = self.ask(backend, handle, self.rows(1))
            await rows.drain()
            assert 0 < rows.prompt_tokens + (rows.reused_tokens or 0) <= backend.count(prompt)


@pytest.mark.slow
class TestOpenAIInsideALine(TestOpenAI):
    """The same, with steps that end inside of what the server writes at once."""

    step = (" = ", " - ")


@pytest.mark.slow
class TestOpenAIByText(TestOpenAI):
    """A server that takes text, shows no tokens, reports no reuse, and leaves it to us to end a step."""

    capabilities = dataclasses.replace(
        TestOpenAI.capabilities, mode="text", logprobs=False, cached=False, stops=False, template=False
    )


@pytest.mark.slow
class TestOpenAIContinuedChat(TestOpenAI):
    """A chat whose last message is continued."""

    capabilities = dataclasses.replace(TestOpenAI.capabilities, mode="continued chat")


class TestOpenAIChat(TestOpenAI):
    """Plain chat: no steps, no texts behind a path."""

    capabilities = dataclasses.replace(TestOpenAI.capabilities, mode="chat", streams=False)


class TestVLLM(SpreadsContract, PromptLogprobsContract):
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

    begins = "<bos>"
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


class TestWorkspace(BackendContract):
    """The toy agent in forks of a folder."""

    name = "workspace"
    prompts = ("Fix it.", "Mend one.py", "Fix it, please.")
    step = PatchTask.step_stop
    max_tokens = 30

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.repo = tmp_path
        for name, text in (
            ("one.py", "def add(a, b):\n    return a - b\n"),
            ("two.py", "def top(a, b):\n    return a if a < b else b\n"),
        ):
            (tmp_path / name).write_text(text)

    def make(self) -> Backend:
        from tts_addons.agents.backend import AgentRuns

        return AgentRuns(self.repo, agent="toy")


class TestRepositories(TestWorkspace):
    """The same folder for each prompt of a data set."""

    name = "repositories"

    def make(self) -> Backend:
        from tts_addons.agents.repositories import Repositories

        data = Path(tempfile.mkdtemp(dir=self.repo.parent))
        for number, prompt in enumerate(self.prompts):
            folder = data / str(number)
            shutil.copytree(self.repo, folder / "repo")
            (folder / "task.yaml").write_text(f"prompt: {prompt!r}\ntests: 'true'\n")
        return Repositories(data, agent="toy")


CLASSES = {
    "ToyBackend",
    "FunctionBackend",
    "TransformersBackend",
    "EngineBackend",
    "OpenAIBackend",
    "VLLMBackend",
    "AgentRuns",
    "Repositories",
}


def test_every_backend_has_a_contract_class() -> None:
    assert missing(BACKENDS, {contract.name for contract in descendants(BackendContract)}) == []
    written = classes_with("backends", ("open", "sample"))
    assert written.pop("tts.backends.base:Backend"), "the walk found not even the base class"
    assert {way for way, name in written.items() if name not in CLASSES} == set()
    assert set(written.values()) >= CLASSES
