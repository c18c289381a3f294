"""Archon, Mind Evolution and forest of thought: what each call is shown, what it decides, and how often they are right,
by exact laws.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tts
from tests.search.strategies.community.test_compositions import Valuing, answered, near, solved, text_of
from tests.support.repeats import repeats
from tests.support.runs import check_books, make_run, solve_and_show
from tts.backends.function import Answer, FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.search.needs import needs_of
from tts.search.plan import parse
from tts.types import Problem, Solution
from tts.verifiers.function import FunctionVerifier
from tts.verifiers.genrm import QUESTION
from tts_addons.zoo.archon import CRITIQUE, RANK, order_of
from tts_addons.zoo.forest_of_thought import EXPERT

Say = Callable[[str, float], str]


# Archon ---------------------------------------------------------------------------------------------------------------


class Layered:
    """A model whose solutions are numbered, which tells what it was asked."""

    def __init__(self, rank: str = "", right: Callable[[int], bool] = lambda one: True) -> None:
        self.rank, self.right = rank, right
        self.asked: list[tuple[str, list[int]]] = []
        self.drawn = 0

    def __call__(self, text: str, draw: float) -> str:
        shown = answered(text)
        if CRITIQUE in text:
            self.asked.append(("critique", shown))
            return f"It says {shown[0]}."
        if RANK in text:
            assert [f"Critique of it:\nIt says {one}." in text for one in shown] == [True] * len(shown)
            self.asked.append(("rank", shown))
            return self.rank
        if QUESTION in text:
            self.asked.append(("verify", shown))
            return f"Verdict: {'Yes' if self.right(shown[0]) else 'No'}"
        self.asked.append(("fuse" if shown else "generate", shown))
        self.drawn += 1
        return f"\\boxed{{{10 * self.drawn}}}"


def run(model: Layered, plan: str) -> Solution:
    return solved(plan, model)


def test_each_layer_reads_what_the_one_before_left() -> None:
    model = Layered(rank="I compare them.\n[3] > [1] > [3] > [9]", right=lambda one: one != 10)
    solution = run(model, "archon(n=4, layers=['generate', 'verify', 'critique', 'rank', 'fuse'], keep=2)")
    by = {kind: [shown for one, shown in model.asked if one == kind] for kind, _ in model.asked}
    first = sorted(one for (one,) in by["verify"])
    assert first == [10, 20, 30, 40]
    (ranked,) = by["rank"]
    assert sorted(ranked) == [20, 30, 40], "what was called wrong is gone"
    assert sorted(one for (one,) in by["critique"]) == [20, 30, 40]
    (fused,) = by["fuse"]
    assert fused == [ranked[2], ranked[0]], "the ranker's order, of which two stay"
    assert (solution.answer, solution.confidence) == ("50", 1.0), "the layers before have no vote"
    assert solution.usage.samples == 4 + 4 + 3 + 1 + 1


def test_where_all_are_called_wrong_all_stay() -> None:
    model = Layered(right=lambda one: False)
    run(model, "archon(n=3, layers=['generate', 'verify', 'fuse'])")
    assert sorted(model.asked[-1][1]) == [10, 20, 30]


def test_a_rank_that_all_pass_orders_them_for_the_next_layer() -> None:
    model = Layered(rank="[3] > [1] > [2]")
    run(model, "archon(n=3, layers=['generate', 'critique', 'rank', 'fuse'], keep=5)")
    by = dict(model.asked)
    assert by["fuse"] == [by["rank"][2], by["rank"][0], by["rank"][1]]


def test_a_single_solution_is_not_ranked() -> None:
    model = Layered()
    run(model, "archon(n=1, layers=['generate', 'critique', 'rank', 'fuse'])")
    assert "rank" not in {kind for kind, _ in model.asked}


def test_layers_that_read_leave_solutions_as_they_are_where_all_were_cut_short() -> None:
    class Short(FunctionBackend):
        context = 60

    model = Short(lambda ask: Answer("w ", tokens=min(10, ask.max_tokens), finished=False))
    end = solve_and_show(
        make_run("3 + 4", Budget(samples=50), "archon(n=2, layers=['generate', 'verify', 'rank'])", model)
    )
    check_books(end.search)
    assert [c.trajectory.status for c in end.solution.candidates] == ["truncated"] * 2
    assert end.solution.usage.samples == 2, "nobody is asked about them"


def test_one_solution_of_one_layer_is_what_the_model_writes() -> None:
    plans = ("archon(n=1, layers=['generate'])", "single")
    one, single = (solved(plan, lambda text, draw: f"\\boxed{{{draw:.4f}}}", seed=3) for plan in plans)
    assert one.answer == single.answer


def test_roles_write_what_they_are_named_for() -> None:
    seen: dict[str, set[str]] = {"policy": set(), "second": set(), "third": set()}

    def of(role: str) -> Say:
        def say(text: str, draw: float) -> str:
            seen[role].add("judge" if CRITIQUE in text or RANK in text else "fuse" if answered(text) else "generate")
            return "[1] > [2]" if RANK in text else f"\\boxed{{{int(draw * 10**6)}}}"

        return say

    def model(role: str) -> FunctionBackend:
        return FunctionBackend(lambda ask: of(role)(text_of(ask), np.random.default_rng(ask.seed).random()))

    others = {role: model(role) for role in ("second", "third")}
    solved(
        "archon(n=2, keep=2, writers=['policy', 'second'], judge='second', aggregator='third')",
        of("policy"),
        others=others,
    )
    assert seen == {"policy": {"generate"}, "second": {"generate", "judge"}, "third": {"fuse"}}


@pytest.mark.slow
@repeats(60, 200)
def test_layers_that_know_what_is_right_are_right_as_often_as_the_exact_law_says(runs: int) -> None:
    """A verifier that knows, and an aggregator that copies what it is shown: one of three is right with the chance 1 -
    (1 - p)^3.
    """
    p = 0.3

    def say(text: str, draw: float) -> str:
        shown = answered(text)
        if QUESTION in text:
            return f"Verdict: {'Yes' if shown == [7] else 'No'}"
        return f"\\boxed{{{shown[0] if shown else 7 if draw < p else 8}}}"

    right = sum(
        solved("archon(n=3, layers=['generate', 'verify', 'fuse'])", say, seed=seed).answer == "7"
        for seed in range(runs)
    )
    assert right / runs == near(1 - (1 - p) ** 3, runs)


@pytest.mark.parametrize(
    ("reply", "order"),
    [
        ("[2] > [1]", [1, 0, 2]),
        ("[3] is best.\nSo: [3] > [3] > [2] > [1]", [2, 1, 0]),
        ("none of them", [0, 1, 2]),
        ("", [0, 1, 2]),
        ("[0] > [4] > [2]", [1, 0, 2]),
    ],
)
def test_what_a_ranker_leaves_out_follows_in_order(reply: str, order: list[int]) -> None:
    assert order_of(reply, 3) == order


# Mind Evolution -------------------------------------------------------------------------------------------------------


def evolved(plan: str, say: Say, fitness: Callable[[str], float], seed: int = 0) -> Any:
    model = FunctionBackend(lambda ask: say(text_of(ask), np.random.default_rng(ask.seed).random()))
    verifier = FunctionVerifier(lambda problem, text: fitness(text))
    end = solve_and_show(
        make_run(
            "What is 3 + 4?", Budget(samples=10**3), plan, model, seed=seed, verifiers={"main": verifier}, task="math"
        )
    )
    assert end.search is not None
    check_books(end.search)
    assert end.solution.error is None
    return end


@pytest.mark.slow
@repeats(60, 150)
@pytest.mark.parametrize(
    ("generations", "islands"),
    [pytest.param(1, 1, marks=pytest.mark.slow), (2, 1), pytest.param(3, 2, marks=pytest.mark.slow)],
)
def test_evolution_is_right_as_often_as_the_exact_law_says(generations: int, islands: int, runs: int) -> None:
    """Children are right with a chance q, whoever their parents are: 1 - (1 - p)^(n islands) (1 - q)^(n islands
    (generations - 1)).
    """
    p, q, n = 0.15, 0.2, 2

    def say(text: str, draw: float) -> str:
        if "Name the first step that is wrong" in text:
            return "It is wrong."
        return f"\\boxed{{{7 if draw < (q if answered(text) else p) else 8}}}"

    plan = f"mind_evolution(n={n}, generations={generations}, islands={islands}, orphans=0)"
    ends = [evolved(plan, say, lambda text: float("{7}" in text), seed) for seed in range(runs)]
    law = 1 - (1 - p) ** (n * islands) * (1 - q) ** (n * islands * (generations - 1))
    assert sum(end.solution.answer == "7" for end in ends) / runs == near(law, runs)
    for end in ends:
        made = len(end.solution.candidates)
        assert (
            end.solution.stopped_by == "a solution has the greatest score that the verifier gives"
            or made == n * islands * generations
        )
        assert end.solution.usage.samples == made + max(0, made - n * islands), "a critique for each child"


def test_the_fittest_become_parents_and_wander_to_the_next_island() -> None:
    """Each child is one more than its fittest parent. Of two islands one begins high: its best becomes a parent on the
    other.
    """
    begun = iter([0.50, 0.51, 0.10, 0.11])
    shown: list[list[float]] = []

    def say(text: str, draw: float) -> str:
        seen = [float(one) for one in re.findall(r"boxed\{([.\d]+)\}", text)]
        if "Name the first step that is wrong" in text:
            return f"{seen[0]} is too small."
        if not seen:
            return f"\\boxed{{{next(begun)}}}"
        assert text.count(f"Critique of it:\n{max(seen)} is too small.") == 1, "the critic reads the fittest"
        shown.append(seen)
        return f"\\boxed{{{max(seen) + 0.01:.2f}}}"

    model = FunctionBackend(lambda ask: say(text_of(ask), 0.0), concurrency=1)
    verifier = FunctionVerifier(lambda problem, text: float(re.findall(r"boxed\{([.\d]+)\}", text)[-1]))
    plan = "mind_evolution(n=2, generations=2, islands=2, pressure=0.001, migrants=1, orphans=0)"
    end = solve_and_show(
        make_run("What is 3 + 4?", Budget(samples=99), plan, model, verifiers={"main": verifier}, task="math")
    )
    assert [max(one) for one in shown] == [0.51] * 4, "on the second island the best of the first is the fittest"
    assert {len(one) for one in shown} <= {1, 2}
    assert end.solution.answer == "0.52"


@pytest.mark.slow
@repeats(40, 120)
def test_an_orphan_is_a_plain_solution_without_a_critique(runs: int) -> None:
    """A child is shown no parent with the chance of an orphan, and nobody criticizes for it."""
    shown: list[bool] = []

    def say(text: str, draw: float) -> str:
        if "Name the first step that is wrong" not in text:
            shown.append(bool(answered(text)))
        return "It is wrong." if "Name the first step that is wrong" in text else f"\\boxed{{{int(9 * draw)}}}"

    for chance in (1 / 6, 0.7):
        shown.clear()
        plan = (
            f"mind_evolution(n=4, generations=2, islands=1, orphans={chance})"
            if chance != 1 / 6
            else "mind_evolution(n=4, generations=2, islands=1)"
        )
        samples = sum(evolved(plan, say, lambda text: 0.5, seed).solution.usage.samples for seed in range(runs))
        orphans = shown.count(False) - 4 * runs
        assert orphans / (4 * runs) == near(chance, 4 * runs)
        assert samples == 8 * runs + (4 * runs - orphans), "a critique for each child that has parents"


def test_one_generation_takes_no_other_prompt() -> None:
    assert needs_of(parse("mind_evolution(n=3, generations=1)").strategy).prompts == ()
    alone = evolved(
        "mind_evolution(n=3, islands=2, generations=1)",
        lambda text, draw: f"\\boxed{{{int(draw * 9)}}}",
        lambda text: 0.5,
    )
    assert alone.solution.usage.samples == 6


def test_without_migration_islands_stay_apart() -> None:
    begun = iter([0.50, 0.51, 0.10, 0.11])

    def say(text: str, draw: float) -> str:
        seen = [float(one) for one in re.findall(r"boxed\{([.\d]+)\}", text)]
        if "Name the first step that is wrong" in text:
            return "It is too small."
        return f"\\boxed{{{max(seen) + 0.01:.2f}}}" if seen else f"\\boxed{{{next(begun)}}}"

    model = FunctionBackend(lambda ask: say(text_of(ask), 0.0), concurrency=1)
    verifier = FunctionVerifier(lambda problem, text: float(re.findall(r"boxed\{([.\d]+)\}", text)[-1]))
    plan = "mind_evolution(n=2, generations=2, islands=2, pressure=0.001, migrants=0, orphans=0)"
    end = solve_and_show(
        make_run("What is 3 + 4?", Budget(samples=99), plan, model, verifiers={"main": verifier}, task="math")
    )
    made = [c.answer for c in sorted(end.solution.candidates, key=lambda c: c.index)]
    assert made[4:] == ["0.52", "0.52", "0.12", "0.12"]


# Forest of thought ----------------------------------------------------------------------------------------------------


@repeats(60, 150)
@pytest.mark.parametrize(
    ("branching", "corrections"),
    [pytest.param(1, 0, marks=pytest.mark.slow), (1, 1), pytest.param(2, 1, marks=pytest.mark.slow)],
)
def test_a_tree_with_true_values_is_right_as_often_as_the_exact_law_says(
    branching: int, corrections: int, runs: int
) -> None:
    """One state is kept: a level is right where one of its k (1 + corrections) samples is. A slip is never undone."""
    accuracy, right = 0.4, 0
    for seed in range(runs):
        plan = f"forest_of_thought(n=1, branching={branching}, corrections={corrections})"
        end = solve_and_show(make_run("3 + 4 - 2", Budget(tokens=4000), plan, Valuing(accuracy), seed=seed))
        assert end.search is not None
        check_books(end.search)
        right += (end.solution.answer, end.solution.stopped_by) == ("5", "1 of 1 trees agree")
    assert right / runs == near((1 - (1 - accuracy) ** (branching * (1 + corrections))) ** 2, runs)


def test_trees_are_grown_until_more_than_half_agree() -> None:
    for seed in range(6):
        end = solve_and_show(
            make_run("3 + 4 - 2", Budget(tokens=9000), "forest_of_thought(n=5, branching=4)", Valuing(0.9), seed=seed)
        )
        assert (end.solution.answer, end.solution.stopped_by) == ("5", "3 of 5 trees agree")
        weights = [c.weight for c in end.solution.candidates]
        assert sorted(one for one in weights if one) == [1.0] * 3, "one vote a tree"


class Expert(Valuing):
    """Two trees that do not agree, as all lines look right; the expert's reply is given."""

    def __init__(self, reply: str) -> None:
        super().__init__(0.5)
        self.reply, self.shown = reply, ""

    async def open(self, prompts: Any) -> Any:
        for prompt in prompts:
            if not isinstance(prompt, str) and EXPERT in prompt[-1].content:
                self.shown = prompt[-1].content
        plain = [p if isinstance(p, str) or EXPERT not in p[-1].content else "1 + 1" for p in prompts]
        replies = await super().open(plain)
        self.experts = [
            *getattr(self, "experts", []),
            *(r.value for r, p in zip(replies, prompts, strict=True) if p not in plain),
        ]
        return replies

    def sample(self, request: Any) -> Any:
        from tts.backends.base import RowSet, Sample

        if any(request.handle is one for one in getattr(self, "experts", [])):
            said = self.reply
        elif any(request.handle is one for one, _ in self.asked):
            said = "sure"
        else:
            return ToyBackend.sample(self, request)
        rows = RowSet(request)
        for index in range(len(request.rows)):
            self.counters.generated_tokens += 1
            rows.resolve(index, Sample(said, (), (), "eos", request.handle.child(), 1))
        return rows


def test_where_trees_do_not_agree_an_expert_chooses() -> None:
    chosen = set[tuple[bool, bool]]()
    for seed in range(12):
        answers: list[str | None] = []
        for reply in ("I take [1].", "Not [1], but [2].", "none"):
            backend = Expert(reply)
            end = solve_and_show(
                make_run("3 + 4 - 2", Budget(tokens=9000), "forest_of_thought(n=2, branching=1)", backend, seed=seed)
            )
            answers.append(end.solution.answer)
            if not backend.shown:
                assert end.solution.stopped_by == "2 of 2 trees agree"
                break
            first, second = re.findall(r"A: (-?\d+)", backend.shown)
            assert answers[-1] == {"I take [1].": first, "Not [1], but [2].": second, "none": first}[reply]
        chosen.add((len(answers) > 1, len(set(answers)) > 1))
    assert chosen == {(False, False), (True, True)}


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("archon(layers=[])", "layers is .*, but must be a list of generate, critique, rank, verify, fuse"),
        ("archon(layers=['generate', 'debate'])", "layers is .*, but must be a list of generate"),
        ("archon(layers=['fuse'])", "layers is .*, but must begin with 'generate', and have it nowhere else"),
        (
            "archon(layers=['generate', 'generate'])",
            "layers is .*, but must begin with 'generate', and have it nowhere else",
        ),
        (
            "archon(layers=['generate', 'critique', 'verify'])",
            "a critique must be followed by 'rank' or 'fuse', which reads it",
        ),
        ("archon(keep=0)", "keep is 0, but must be a whole number of at least 1"),
        ("archon(writers=['a', 'a'])", "writers is .*, but must name each role once"),
        ("mind_evolution(pressure=0)", "pressure is 0, but must be above 0"),
        ("mind_evolution(n=2, migrants=3)", "migrants is 3, but an island has 2 solutions"),
        ("mind_evolution(islands=0)", "islands is 0, but must be a whole number of at least 1"),
        ("forest_of_thought(n=0)", "n is 0, but must be a whole number of at least 1"),
        ("forest_of_thought(corrections=-1)", "corrections is -1, but must be a whole number of at least 0"),
    ],
)
def test_what_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


def test_what_cannot_run_is_refused_before_anything_is_spent() -> None:
    policy = ToyBackend()
    with pytest.raises(ConfigError, match=r"'fuse',.*'pocket' lacks"):
        tts.solve("3 + 4", 100, model=policy, strategy="archon(n=2)", task="pocket")
    with pytest.raises(ConfigError, match=r"writes.*'other'"):
        tts.solve("3 + 4", 100, model=policy, strategy="archon(judge='other')", task="math")
    with pytest.raises(ConfigError, match=r"scores.*'main'"):
        tts.solve(Problem("3 + 4"), 100, model=policy, strategy="mind_evolution(n=2)", task="math")
    assert policy.counters.prompt_tokens == 0
