"""What scores where nothing was said: the verifier that the policy's record names, left out where it cannot be had."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tts
from tests.support import pair
from tests.support.pair import home  # noqa: F401 - a fixture
from tts.backends.toy.backend import ToyBackend
from tts.errors import CapabilityError, ConfigError
from tts.models import registry
from tts.models.record import ModelRecord, Question
from tts.solver.solver import DEFAULT_MODEL, Solver
from tts.types import Problem
from tts.verifiers.heads import ProcessVerifier
from tts.verifiers.self_evaluation import SelfEvaluation
from tts.verifiers.toy import ToyVerifier

PROBLEM = "3 + 4 - 2"
TOY = dataclasses.replace(registry.get("toy"), verifier="toy(error=0.1)")


def scored(solution: Any) -> bool:
    return any("main" in c.scores for c in solution.candidates)


def test_the_default_model_is_the_pair() -> None:
    assert DEFAULT_MODEL == "pocket"
    assert registry.get(DEFAULT_MODEL).verifier == "process"


def test_the_records_verifier_scores_where_none_is_given() -> None:
    solution = tts.solve(PROBLEM, 600, model=TOY)
    assert solution.strategy == "auto | weighted"
    assert scored(solution)
    assert solution.usage.verifier_tokens > 0
    assert not any("left out" in note for note in solution.warnings)
    assert tts.solve(PROBLEM, 600, model=TOY, strategy="best_of_n(n=3)").strategy == "best_of_n(n=3) | weighted"


def test_a_record_may_name_another_verifier_for_a_task() -> None:
    record = dataclasses.replace(TOY, task_verifiers=(("arithmetic", "toy(error=0.5)"), ("text", "toy(error=0.3)")))
    solution = tts.solve(PROBLEM, 600, model=record)
    assert solution.strategy.endswith(" | weighted")
    assert {c.scores["main"] for c in solution.candidates} == {0.5}
    other = tts.solve(PROBLEM, 600, model=dataclasses.replace(record, task_verifiers=(("text", "toy(error=0.3)"),)))
    assert {c.scores["main"] for c in other.candidates} <= {0.1, 0.9}
    given = tts.solve(PROBLEM, 600, model=record, verifier="toy(error=0.2)")
    assert {c.scores["main"] for c in given.candidates} <= {0.2, 0.8}


@pytest.mark.slow
def test_countdowns_of_the_pair_are_scored_by_a_process_model_of_their_own() -> None:
    for module in ("torch", "transformers", "numba"):
        pytest.importorskip(module)
    problem = Problem("Reach 39 with 17 22.", task="countdown")
    own = tts.solve(problem, 400, seed=3)
    named, other = (
        tts.solve(problem, 400, seed=3, verifier=one, strategy=own.strategy)
        for one in ("process(head='reach')", "process")
    )
    scores = [{c.index: c.scores["main"] for c in one.candidates} for one in (own, named, other)]
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]
    assert own.strategy.endswith(" | weighted")
    assert own.usage.verifier_tokens > 0
    assert (own.usage.flops or 0) < (other.usage.flops or 0)  # a token of the smaller process model costs less


@pytest.mark.parametrize("none", [{}, {"verifier": {}}, {"verifier": "none"}])
def test_none_is_asked_for_by_its_name_with_an_empty_mapping_or_where_the_record_names_none(
    none: dict[str, Any],
) -> None:
    solution = tts.solve(PROBLEM, 600, model=TOY if none else "toy", **none)
    assert solution.strategy == "auto | majority"
    assert not scored(solution)
    assert solution.usage.verifier_calls == 0
    assert not any("left out" in note for note in solution.warnings)


def test_what_is_given_goes_before_the_records() -> None:
    solution = tts.solve(PROBLEM, 600, model=TOY, verifier=lambda problem, text: 0.25)
    assert {c.scores["main"] for c in solution.candidates} == {0.25}


@pytest.mark.slow
def test_the_records_verifier_is_left_out_with_a_note_where_the_backend_lacks_it() -> None:
    solution = tts.solve(PROBLEM, 300, model=dataclasses.replace(TOY, verifier="process"))
    assert "needs the value head 'process', but the model on the backend 'toy' has truth" in solution.warnings[0]
    assert (solution.strategy, solution.answer) == ("auto | majority", "5")
    record = pair.record()
    solution = tts.solve(PROBLEM, 300, model=record, backend="transformers")
    assert solution.strategy == "auto | majority"
    assert not scored(solution)
    left = solution.warnings[0]
    assert left == (
        "the model's own verifier was left out: the verifier 'process' needs the capability 'value', which the "
        "backend 'transformers' lacks"
    )
    for strategy, told in (("best_of_n(n=2)", True), ("best_of_n(n=2) | majority", False)):
        warnings = tts.solve(PROBLEM, 300, model=record, backend="transformers", strategy=strategy).warnings
        assert any("left out" in note for note in warnings) == told


def test_one_that_was_asked_for_is_refused_where_the_backend_lacks_it() -> None:
    with pytest.raises(CapabilityError, match=r"'value',.*'transformers' lacks.*have.*engine"):
        tts.solve(PROBLEM, 300, model=pair.record(), backend="transformers", verifier="process")


@pytest.mark.slow
def test_a_pair_of_a_users_own_is_solved_with_and_scored() -> None:
    solution = tts.solve(PROBLEM, 600, model=pair.record())
    assert solution.strategy == "auto | weighted"
    assert solution.error is None
    assert scored(solution)
    assert solution.reproducible
    again = tts.solve(PROBLEM, 600, model=pair.record())
    assert solution.trace.canonical() == again.trace.canonical()
    for verifier in ("probe", "self_evaluation", "process"):
        end = tts.solve(PROBLEM, 600, model=pair.record(), verifier=verifier, strategy="best_of_n(n=3) | best")
        assert end.error is None
        assert scored(end)
        assert (end.usage.verifier_tokens == 0) == (verifier == "probe")


@pytest.mark.slow
def test_a_problem_of_another_task_goes_without_it_and_the_others_do_not() -> None:
    with Solver(pair.record()) as solver:
        plain, other = solver.solve_many([PROBLEM, Problem(PROBLEM, task="text")], each=400)
        assert (plain.error, other.error) == (None, None)
        assert (scored(plain), scored(other)) == (True, False)
        assert "but those of the task 'text'" in other.warnings[0]
        with pytest.raises(CapabilityError, match="task 'text'"):
            Solver(pair.record(), verifiers="process").solve(Problem(PROBLEM, task="text"), 400)


# Parameters that stand in a record ------------------------------------------------------------------------------------


def test_self_evaluation_takes_what_is_left_out_from_the_models_record() -> None:
    backend = pair.shared_engine()
    assert SelfEvaluation().fill(pair.record(), backend) == SelfEvaluation(question="s?", yes="y", no="n", tokens=2)
    assert SelfEvaluation(yes="o").fill(pair.record(), backend) == SelfEvaluation(
        question="s?", yes="o", no="n", tokens=2
    )
    assert SelfEvaluation(question="then?", tokens=9).fill(pair.record(), backend).bound(5, 5) == 9
    with pytest.raises(ConfigError, match=r"tokens.*1,.*question 's\?'"):
        SelfEvaluation(tokens=1).fill(pair.record(), backend)


def test_its_tokens_are_bounded_where_a_backend_does_not_count_texts() -> None:
    class Words(ToyBackend):
        def count(self, prompt: Any) -> int:
            return 1

    record = ModelRecord(
        name="words", backend="toy", self_evaluation=Question(question="Wäre es besser?", yes="ja", no="nein")
    )
    assert SelfEvaluation().fill(record, Words()).tokens == len("Wäre es besser?".encode())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("toy", "needs question, yes, no, but the record of the model 'toy' does not state them"),
        (ToyBackend(), "needs question, yes, no, but the model does not state them"),
    ],
)
def test_what_no_record_says_is_an_error_before_anything_is_spent(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        Solver(model, verifiers="self_evaluation")
    assert "self_evaluation(question=" in refused.value.hint


def test_an_answer_of_several_tokens_is_refused_before_anything_is_spent() -> None:
    record = dataclasses.replace(pair.record(), self_evaluation=Question(question="s?", yes="yes", no="n"))
    with pytest.raises(ConfigError, match=r"yes.*'yes', which.*exactly"):
        Solver(record, verifiers="self_evaluation")


def test_a_verifier_without_such_parameters_is_taken_as_it_is() -> None:
    with Solver(pair.record(), verifiers={"main": ProcessVerifier(), "final": "probe"}) as solver:
        solution = solver.solve(PROBLEM, 400, strategy="best_of_n(n=2) | best(verifier='final')")
        assert {tuple(c.scores) for c in solution.candidates} == {("final",)}


class Cautious(ToyVerifier):
    """Holds four times what it needs."""

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 4 * new_tokens


@pytest.mark.parametrize("strategy", ["best_of_n | weighted", "best_of_n(n=500) | best"])
def test_what_was_held_for_scores_and_not_needed_pays_more_samples(strategy: str) -> None:
    problem = "3 + 4 - 2 + 9"
    exact = tts.solve(problem, 1000, model="toy", verifier=ToyVerifier(), strategy=strategy)
    cautious = tts.solve(problem, 1000, model="toy", verifier=Cautious(), strategy=strategy)
    for solution in (exact, cautious):
        assert solution.usage.verifier_calls == len(solution.candidates)
        assert solution.usage.tokens > 900
        assert not any("held" in warning for warning in solution.warnings)
    shared = [c.trajectory.text for c in cautious.candidates][:10]
    assert shared == [c.trajectory.text for c in exact.candidates][:10]


def test_a_solution_says_what_was_held_for_scores_and_not_needed() -> None:
    solution = tts.solve(
        "3 + 4 - 2 + 9", 1000, model="toy", verifier=Cautious(), strategy="best_of_n | best_of_majority(alpha=0.125)"
    )
    (said,) = [warning for warning in solution.warnings if "held for scores that cost less" in warning]
    assert 0.7 * solution.remaining["tokens"] <= 10 * int(said.partition("%")[0]) <= solution.remaining["tokens"]


def test_a_solution_says_apart_what_was_held_for_scores_that_were_not_asked_for() -> None:
    solution = tts.solve(
        "3 + 4 - 2 + 9", 1000, model="toy", verifier=Cautious(), strategy="best_of_n | best_of_majority"
    )
    said = [warning for warning in solution.warnings if "of the tokens were held for" in warning]
    # of rare answers, and of what scored ones have in common
    assert ["did not make" in warning for warning in said] == [True, False]
    assert (
        0.7 * solution.remaining["tokens"]
        <= 10 * sum(int(warning.partition("%")[0]) for warning in said)
        <= solution.remaining["tokens"]
    )


def test_a_verifier_of_a_model_that_is_not_there_is_refused() -> None:
    class JudgeVerifier(ToyVerifier):
        model = "large"

    with pytest.raises(ConfigError, match=r"'main' calls.*'large'"):
        tts.solve(PROBLEM, 600, model="toy", verifier=JudgeVerifier(), strategy="best_of_n(n=2) | best")
