from __future__ import annotations

import asyncio
import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tts
import tts.verifiers
from tests.contracts.verifier_contract import VerifierContract
from tests.contracts.walk import classes_with, descendants, missing
from tests.support import pair
from tests.support.judging import ApprovingToy, JudgingToy
from tests.support.pair import home  # noqa: F401 - a fixture
from tests.support.programs import Judge as WritingJudge
from tts.backends.base import Backend, Counters
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import VerifierError
from tts.registry import parse_call
from tts.search.ends import END, STEP
from tts.search.search import Search
from tts.types import Problem, Trajectory
from tts.verifiers import VERIFIERS
from tts.verifiers.base import Verifier
from tts.verifiers.checker import Checker
from tts.verifiers.confidence import Confidence
from tts.verifiers.ensemble import Ensemble
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.genrm import GenRm, MultiAspect
from tts.verifiers.grader import Grader
from tts.verifiers.heads import Probe, ProcessVerifier
from tts.verifiers.judge import Judge
from tts.verifiers.reward import loading as reward_loading
from tts.verifiers.reward.verifier import Reward
from tts.verifiers.rules.verifier import Rules
from tts.verifiers.self_evaluation import SelfEvaluation
from tts.verifiers.toy import ToyVerifier


def variant(base: type, make: Callable[[], Verifier], **more: Any) -> type:
    """Return a contract class for the verifiers that a function makes, with these attributes."""
    return type(f"Test_{make}", (base,), {"make": lambda _self: make(), **more})


TestChecker = variant(VerifierContract, Checker, name="checker")
TestConfidence = variant(VerifierContract, Confidence, name="confidence")
TestConfidenceOfGroups = variant(TestConfidence, lambda: Confidence(measure="logprob", over="lowest", window=8))
# The problem of the contract is an expression, whose value is computed.
TestRules = variant(VerifierContract, Rules, name="rules")
TestToyPerfect = variant(VerifierContract, lambda: ToyVerifier(error=0.0), name="toy")
TestToyFair = variant(TestToyPerfect, lambda: ToyVerifier(error=0.1, seed=4))
TestToyConstant = variant(TestToyPerfect, lambda: ToyVerifier(error=0.5))


def length(problem: Problem, text: str) -> float:
    return min(1.0, len(text) / 100)


def each_line(problem: Problem, text: str) -> Sequence[float]:
    return [-len(line) / 50 for line in text.splitlines()]


async def later(problem: Problem, text: str) -> float:
    await asyncio.sleep(0)
    return math.nan if "7" in text else 0.25


TestCallableOfTheWhole = variant(VerifierContract, lambda: FunctionVerifier(length), name="callable")
TestCallableOfSteps = variant(TestCallableOfTheWhole, lambda: FunctionVerifier(each_line, range=(-1.0, 0.0)))
TestCallableAsync = variant(TestCallableOfTheWhole, lambda: FunctionVerifier(later))


class TestProcess(VerifierContract):
    """On a tiny random policy with a process model of another size."""

    name = "process"
    cut = len("3 + 4 = 7\n")

    def backend(self) -> Backend:
        return pair.shared_engine()

    def make(self) -> Verifier:
        return ProcessVerifier()


TestProbe = variant(TestProcess, Probe, name="probe", rounding=1e-6)
TestSelfEvaluation = variant(
    TestProcess,
    lambda: SelfEvaluation().fill(pair.record(), pair.shared_engine()),
    name="self_evaluation",
    rounding=1e-6,
)
# With its texts given, and its question bounded by its bytes.
TestSelfEvaluationThatNobodyCounted = variant(
    TestSelfEvaluation, lambda: SelfEvaluation(question="th?", yes="y", no="n")
)


class TestEnsemble(TestProcess):
    """Of a process model, the policy asked about its solution, and what it was sure of: one score of the whole."""

    name = "ensemble"
    rounding = 1e-6

    def make(self) -> Verifier:
        members = (ProcessVerifier(), SelfEvaluation(), Confidence())
        return Ensemble(members=members, caution=0.5).fill(pair.record(), pair.shared_engine())


TestEnsembleOfSteps = variant(TestEnsemble, lambda: Ensemble(members=("process", "probe"), how="min"))


class TestReward(VerifierContract):
    """The shipped process model, told the toy's solutions as text."""

    name = "reward"
    cut = len("3 + 4 = 7\n")

    @staticmethod
    @cache
    def served() -> Any:
        pytest.importorskip("torch")
        return reward_loading.reward_model("pocket-process")

    def own_counters(self) -> Counters:
        return self.served().counters

    def make(self) -> Verifier:
        self.served()
        return Reward().fill(None, ToyBackend())


@cache
def run_once(program: str, tests: str, limits: Any, *, isolated: bool) -> Any:
    """Run a program, each once: a process takes its time, and many tests ask for the same."""
    from tts_addons.code import sandbox

    return sandbox.run(program, tests, limits, isolated=isolated)


class TestCode(VerifierContract):
    """Solutions of the toy language are no Python that passes a test, but they are run."""

    name = "code"

    @pytest.fixture(autouse=True)
    def few_processes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tts_addons.code import verifier as code

        monkeypatch.setattr(code, "run", run_once)

    async def some(self, search: Search) -> list[Trajectory]:
        [first] = await search.expand([search.root], 2, STEP)
        [ended] = await search.expand([search.root], 2, END)
        return [*first, *ended, *await search.extend(first[:1], "so, then\n")]

    def make(self) -> Verifier:
        from tts_addons.code.verifier import Code

        return Code(tests="assert True", sandbox="none", seconds=30.0)


class TestPatchTests(VerifierContract):
    """Solutions of the toy language have no patch, so the suite runs once, on the folder as it is."""

    name = "tests"

    @pytest.fixture(autouse=True)
    def workspace(self, tmp_path: Path) -> Iterator[None]:
        from tts_addons.agents.backend import AgentRuns

        (tmp_path / "add.py").write_text("def add(a, b):\n    return a - b\n")
        with AgentRuns(tmp_path, agent="toy") as self.repository:
            yield

    def make(self) -> Verifier:
        from tts_addons.agents.patch_tests import PatchTests

        return PatchTests(command="grep -q def add.py").fill(None, self.repository)


class TestJudge(VerifierContract):
    """A judge whose replies are a function of the prompt and the vote; some of them cannot be read."""

    name = "judge"

    def backend(self) -> Backend:
        return JudgingToy(ToyLanguage(accuracy=0.5, mute=0.2))

    def make(self) -> Verifier:
        return Judge(votes=3, max_tokens=16, prompt_tokens=400)


class TestJudgeWhosePromptIsReadOnce(TestJudge):
    def make(self) -> Verifier:
        return Judge(votes=3, max_tokens=16, prompt_tokens=400).fill(None, self.backend())


class TestGenRm(VerifierContract):
    """Reasons thrice, and is asked for its verdict each time."""

    name = "genrm"

    def backend(self) -> Backend:
        return ApprovingToy(ToyLanguage(accuracy=0.5, mute=0.2))

    def make(self) -> Verifier:
        return GenRm(votes=3, max_tokens=16, prompt_tokens=400, yes="1", no="2")


class TestGenRmWithoutReasons(TestGenRm):
    def make(self) -> Verifier:
        return GenRm(votes=0, prompt_tokens=400, yes="1", no="2").fill(None, self.backend())


class TestGenRmInWords(TestGenRm):
    def make(self) -> Verifier:
        return GenRm(votes=2, max_tokens=16, prompt_tokens=400, verdict="words").fill(None, self.backend())


TestMultiAspect = variant(
    TestGenRm,
    lambda: MultiAspect(aspects=("logic", "Is it short?"), max_tokens=16, prompt_tokens=400),
    name="multi_aspect",
)


class TestGrader(VerifierContract):
    """Reads the law of the digits after its question."""

    name = "grader"

    def make(self) -> Verifier:
        return Grader(prompt_tokens=400, missing=0.999).fill(None, self.backend())


CLASSES = {
    "Checker", "ToyVerifier", "FunctionVerifier", "Code", "Confidence", "Ensemble", "Judge", "ProcessVerifier", "Probe",
    "Reward", "SelfEvaluation", "Rules", "GenRm", "Grader", "MultiAspect", "PatchTests",
}  # fmt: skip


def test_every_verifier_has_a_contract_class() -> None:
    pytest.importorskip("yaml", reason="records of reward models need it")
    assert missing(VERIFIERS, {contract.name for contract in descendants(VerifierContract)}) == []
    for module in pkgutil.walk_packages(tts.verifiers.__path__, "tts.verifiers."):
        importlib.import_module(module.name)
    for name in VERIFIERS.entries:
        VERIFIERS.get(name)
    bases = {"Verifier", "AskingVerifier", "_HeadVerifier", "ReplyingVerifier", "VerdictVerifier"}
    own = {one.__name__ for one in descendants(Verifier) if one.__module__.split(".")[0] in ("tts", "tts_addons")}
    assert own - bases == CLASSES
    assert set(classes_with("verifiers", ("score",)).values()) <= CLASSES | bases
    for name in VERIFIERS.names():
        assert isinstance(parse_call(VERIFIERS, name), Verifier)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda problem, text: math.inf, r"returned inf, but states the range"),
        (lambda problem, text: [0.5] * 7, "returned 7 step scores for a trajectory of"),
        (lambda problem, text: {}[text], "failed: KeyError"),
    ],
)
def test_what_breaks_the_contract_is_named(fn: object, message: str) -> None:
    class Broken(VerifierContract):
        def make(self) -> Verifier:
            return FunctionVerifier(fn)  # type: ignore[arg-type]

    async def check(search: object) -> None:
        [ts] = await search.expand([search.root], 2)  # type: ignore[attr-defined]
        await search.score(ts)  # type: ignore[attr-defined]

    with pytest.raises(VerifierError, match=message):
        Broken().run(check)  # type: ignore[arg-type]


def test_a_judges_score_does_not_depend_on_what_is_scored_with_it() -> None:
    class OfJudge(VerifierContract):
        def make(self) -> Verifier:
            return WritingJudge()

    OfJudge().test_a_score_depends_neither_on_the_order_nor_on_what_is_scored_with_it()
