"""Verifiers of a user's own: one method is enough, traits are used, and what is no verifier is refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import pytest

import tts
from tests.contracts.verifier_contract import VerifierContract
from tts.errors import ConfigError, VerifierError
from tts.types import Problem, Trajectory
from tts.verifiers.base import Calls, PairComparison, StepScores, Traits, Verifier, traits_of


class Brevity(Verifier):
    """A verifier of one's own, as small as one can be."""

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        return [StepScores(whole=1 / (1 + len(t.full_text))) for t in trajectories]


class TestBrevity(VerifierContract):
    def make(self) -> Verifier:
        return Brevity()


@pytest.mark.parametrize("given", [Brevity(), f"{__name__}:Brevity"])
@pytest.mark.parametrize("strategy", ["best_of_n(n=4) | best", "beam(n=4, branching=2) | best"])
def test_one_method_is_a_verifier(given: Any, strategy: str) -> None:
    found = tts.solve("3 + 4 - 2", tts.Budget(samples=8), model="toy", verifier=given, strategy=strategy)
    assert found.error is None
    assert len(found.candidates) > 1
    for candidate in found.candidates:
        text = candidate.trajectory.full_text
        assert candidate.scores == {"main": 1 / (1 + len(text))}
    best = max(found.candidates, key=lambda candidate: candidate.scores["main"])
    assert found.answer == best.answer


def test_its_defaults() -> None:
    made = Brevity()
    assert (made.name, made.range, made.oracle, made.needs, made.model) == ("brevity", (0.0, 1.0), False, (), "policy")
    assert made.bound(3, 5) == 0
    assert made.traits == traits_of(made) == Traits()


class Longer(Brevity):
    """Prefers the longer of two, and has nothing to do with a problem that is a question."""

    async def compare(
        self, problem: Problem, pairs: Sequence[tuple[Trajectory, Trajectory]], calls: Calls
    ) -> list[float]:
        return [1.0 if len(a.full_text) > len(b.full_text) else 0.0 for a, b in pairs]

    def check(self, problem: Problem) -> None:
        if problem.text.endswith("?"):
            raise ConfigError("it is a question")

    @property
    def traits(self) -> Traits:
        return Traits(comparison=PairComparison(self.compare, pair_bound=0), check=self.check)


def test_its_traits_are_used() -> None:
    asked = {"model": "toy", "budget": tts.Budget(samples=4), "strategy": "best_of_n(n=4) | pairwise"}
    found = tts.solve("3 + 4 - 2", verifier=Longer(), **asked)  # type: ignore[arg-type]
    longest = max(found.candidates, key=lambda candidate: len(candidate.trajectory.full_text))
    assert found.answer == longest.answer
    with pytest.raises(ConfigError, match=r"compares.*'brevity'"):
        tts.solve("3 + 4 - 2", verifier=Brevity(), **asked)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it is a question"):
        tts.solve("3 + 4 - 2?", verifier=Longer(), **asked)  # type: ignore[arg-type]


class Unfinished(Verifier):
    """Has no `score`."""


class Half:
    """Has `score` alone, and no base class."""

    score = Brevity.score


class OddTraits(Brevity):
    traits: Any = MappingProxyType({"window": 3})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Unfinished, r"the class .*:Unfinished has no method score, but must define it"),
        (f"{__name__}:Unfinished", r"the class .*:Unfinished has no method score, but must define it"),
        (Brevity, "make an object of the class"),
        (
            Half(),
            r"the verifier Half is .*Half.*, but must be a tts.Verifier \(hint: write class Half\(tts.Verifier\)\)",
        ),
        (f"{__name__}:Half", "the verifier '.*:Half' is .*, but must be a tts.Verifier"),
        (OddTraits(), r"the verifier 'odd_traits' has the traits mappingproxy.*, but they must be of the class Traits"),
        (f"{__name__}:OddTraits", "the verifier 'odd_traits' has the traits"),
    ],
)
def test_what_is_no_verifier_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        tts.Solver("toy", given)
    assert "\n" not in str(refused.value)
    assert refused.value.hint


def test_a_class_without_score_makes_no_object() -> None:
    with pytest.raises(TypeError, match=r"Unfinished .*score"):
        Unfinished()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"head": ""}, "the trait head is '', but must be a text that is not empty"),
        ({"head": 3}, "the trait head is 3"),
        ({"window": 0}, "the trait window is 0, but must be a whole number of at least 1"),
        ({"window": "5"}, "the trait window is '5'"),
        ({"prompt_bound": 5}, "the trait prompt_bound is 5, but must be a function or None"),
        ({"filled": ()}, r"the trait filled is \(\), but must be a function or None"),
        ({"check": True}, "the trait check is True"),
        ({"comparison": max}, "the trait comparison is .*, but must be a PairComparison or None"),
        ({"choice": max}, "the trait choice is .*, but must be a ListChoice or None"),
        ({"composition": ("a",)}, "the trait composition is .*, but must be a Composition or None"),
        ({"own_model": 1.0}, "the trait own_model is 1.0, but must be a OwnModel or None"),
    ],
)
def test_a_trait_of_the_wrong_type_is_named(traits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Traits(**traits)


class Floats(Brevity):
    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        return [0.5 for _ in trajectories]  # type: ignore[misc]


def test_a_score_that_is_no_step_scores_is_named() -> None:
    with pytest.raises(VerifierError) as caught:
        tts.solve("3 + 4", tts.Budget(samples=2), model="toy", verifier=Floats(), strategy="best_of_n(n=2) | best")
    assert str(caught.value).startswith(
        "the verifier 'floats' returned 0.5 for a trajectory, but must return StepScores"
    )
