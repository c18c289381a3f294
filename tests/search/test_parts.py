"""Parts of an author's own: one method is enough, the rest is read from the class."""

from __future__ import annotations

import pickle
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.search import places
from tts.search.needs import needs_of
from tts.search.selections import Best

SUM = "3 + 4 - 2 + 9 - 1"


class Twice(tts.Strategy):
    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        return await search.complete([search.root], n=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guided(tts.Strategy):
    """Steps, scored by a role of its own."""

    verifier: str = "judge"
    width: int = 2

    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        live = [search.root]
        while live:
            children = [child for of in await search.expand(live, n=self.width) for child in of]
            scores = await search.score(children, self.verifier)
            live = [child for child, score in zip(children, scores, strict=True) if score == max(scores)][:1]
            for t in live:
                search.finish(t)
            live = [t for t in live if t.status == "active"]
        return search.candidates


class Whole(tts.Strategy):
    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        for row in (await search.expand([search.root], n=2, until=tts.END))[0]:
            search.finish(row)
        return search.candidates


class Asking(tts.Strategy):
    async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
        await search.ask([search.root], "?", ["1"])
        await search.score([search.root])
        return search.candidates


class Second(tts.StopRule):
    def should_stop(self, candidates: Sequence[tts.Candidate]) -> tts.StopDecision | None:
        return tts.StopDecision("two are enough") if len(candidates) == 2 else None


class Last(tts.Selection):
    async def select(self, candidates: Sequence[tts.Candidate], search: tts.Search) -> tts.Selected:
        ranked = tuple(reversed(candidates))
        return tts.Selected(tuple(c.answer for c in ranked[:1] if c.answer is not None), ranked, 1.0)


def solved(strategy: Any, **options: Any) -> tts.Solution:
    return tts.solve(SUM, 600, model="toy", strategy=strategy, **options)


def test_a_strategy_is_its_run() -> None:
    for strategy in (Twice, Twice()):
        solution = solved(strategy)
        assert len(solution.candidates) == 2
        assert solution.answer is not None
    assert solved(Twice).candidates == solved("best_of_n(n=2) | majority").candidates


def test_without_a_declaration_only_its_verifier_is_known() -> None:
    assert (
        needs_of(Twice())
        == needs_of(Whole())
        == needs_of(Asking())
        == needs_of(Last())
        == needs_of(Second())
        == tts.Needs()
    )
    assert needs_of(Guided()) == tts.Needs(verifiers=("judge",))
    assert needs_of(Guided(verifier="main")) == tts.Needs(verifiers=("main",))


class Declaring(Asking):
    def needs(self) -> tts.Needs:
        return tts.Needs(capabilities=("next_logprobs",), verifiers=("main",))


def test_what_is_declared_is_refused_before_anything_is_spent_and_the_rest_when_it_is_asked_for() -> None:
    """The words are the same, and what was spent is said."""

    class Mute(tts.Strategy):
        async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
            await search.complete([search.root], n=2)
            await search.ask([search.root], "?", ["1"])
            return search.candidates

    class Told(Mute):
        def needs(self) -> tts.Needs:
            return tts.Needs(capabilities=("next_logprobs",))

    asked: list[str] = []

    def model(ask: tts.Ask) -> str:
        asked.append("x")
        return "A: 5"

    words = "needs the capability 'next_logprobs', which the backend 'callable' lacks"
    with pytest.raises(tts.CapabilityError, match=words):
        tts.solve("x", 100, backend=model, strategy=Told())
    assert not asked
    late = tts.solve("x", 100, backend=model, strategy=Mute())
    assert len(asked) == len(late.candidates) == 2
    assert late.error is not None
    assert f"{words}; until then, 2 samples took {late.usage.tokens} tokens" in late.error.cause
    assert late.error.hint.endswith(
        "a strategy that declares this in its method needs is refused before anything is spent"
    )


def test_what_is_no_needs_is_named() -> None:
    class Odd(Twice):
        needs = "steps"  # type: ignore[assignment]

    class Names(Twice):
        needs = ("steps",)  # type: ignore[assignment]

    with pytest.raises(tts.ConfigError, match=r"'steps',.*tts\.Needs"):
        solved(Odd)
    with pytest.raises(tts.ConfigError, match=r"Names.*\('steps',\),.*tts\.Needs"):
        solved(Names)
    with pytest.raises(tts.ConfigError, match=r"capabilities.*'steps',.*tuple"):
        tts.Needs(capabilities="steps")  # type: ignore[arg-type]
    with pytest.raises(tts.ConfigError, match=r"capability.*Needs.*'step',.*steps"):
        tts.Needs(capabilities=("step",))


@tts.as_strategy
async def two(search: tts.Search) -> Sequence[tts.Candidate]:
    return await search.complete([search.root], n=2)


def test_a_function_of_a_search_is_made_a_strategy() -> None:
    assert solved(two).candidates == solved(Twice).candidates
    assert solved(f"{__name__}:two").strategy == solved(two).strategy == f"{__name__}:two | majority"

    async def nothing(search: tts.Search) -> None:
        await search.complete([search.root], n=3)

    needing = tts.as_strategy(nothing, tts.Needs(verifiers=("main",)))
    assert len(solved(tts.as_strategy(nothing)).candidates) == 3
    with pytest.raises(tts.ConfigError, match=r"scores.*'main'"):
        solved(needing)
    with pytest.raises(tts.ConfigError, match=r"begin.*\(hint:.*tts\.as_strategy\(FUNCTION\)\)"):
        solved(nothing)
    with pytest.raises(tts.ConfigError, match=r"async.*\(hint:.*def\)"):
        tts.as_strategy(lambda search: search.candidates)


def test_the_default_selection_goes_by_whether_there_is_a_verifier() -> None:
    assert [str(Twice().default_selection(verified=verified)) for verified in (True, False)] == ["weighted", "majority"]
    assert solved(Twice, verifier="toy(error=0.1)").strategy.endswith("Twice | weighted")


def test_a_step_strategy_spends_and_scores_within_its_budget() -> None:
    solution = solved(Guided(verifier="main"), verifier="toy(error=0.05)")
    assert solution.usage.verifier_tokens > 0
    assert solution.usage.tokens <= 600
    with pytest.raises(tts.ConfigError, match=r"scores.*'judge'"):
        solved(Guided(), verifier="toy(error=0.05)")


def test_a_capability_that_is_missing_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(tts.CapabilityError, match=r"capability 'next_logprobs',.*'callable'"):
        tts.solve("x", 100, backend=lambda ask: "no", strategy=Declaring, verifier=lambda problem, text: 0.5)


def test_a_stop_rule_and_a_selection_are_one_method_each() -> None:
    solution = solved(tts.BestOfN(n=8) | Second | Last)
    assert (len(solution.candidates), solution.stopped_by) == (2, "two are enough")
    assert solution.answer == solution.candidates[0].answer

    class Scored(Last):
        verifier = "main"

    class Unread(Second):
        verifier = "main"  # without an aggregate no score is read

    class Watching(Unread):
        aggregate = "min"

    assert needs_of(Scored()) == tts.Needs(verifiers=("main",))
    assert needs_of(Watching()) == tts.Needs(verifiers=("main",), aggregate="min")
    assert needs_of(Unread()) == tts.Needs()
    assert Scored().may_score(solution.candidates[0], 0)


def test_what_a_class_says_is_sized_by_the_budget_must_be_bounded_by_it() -> None:
    class Wide(Twice):
        sized_by_budget = ("width", "depth")
        width = 3
        depth: int | None = None

    assert Wide().size(4) == Wide()
    with pytest.raises(tts.ConfigError, match=r"wide.*depth"):
        Wide().size(None)


def test_what_always_votes_votes_with_a_verifier_too() -> None:
    class Voting(Twice):
        always_votes = True

    assert [str(Voting().default_selection(verified=verified)) for verified in (False, True)] == [
        "majority",
        "majority",
    ]


def test_an_n_left_out_must_be_bounded_by_the_budget() -> None:
    @dataclass(frozen=True)
    class Sized(tts.Strategy):
        n: int | None = None

        async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
            return await search.complete([search.root], n=self.n)

    assert Sized().size(4) == Sized()
    with pytest.raises(tts.ConfigError, match=r"sized.*bound"):
        Sized().size(None)
    assert len(solved(Sized(n=3)).candidates) == 3


# Text forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "tests.search.places:Pair",
        "tests.search.places:Pair(n=3)",
        "tests.search.places:Pair(word='a.b:C') | unanimous(window=2) | majority",
        "best_of_n(n=4) | tests.search.places:Enough(k=3) | tests.search.places:Newest",
        "best_of_n(n=4) | tests.search.places:Newest",
        "tests.search.places:Init",
        "tests.search.places:Init(n=2) | majority",
        "tests.search.places:init(n=1, more=2) | majority",
        "tests.search.places:Outer.Inner(n=2) | majority",
        "tests.search.places:BestOfN(n=2) | majority",
        "best_of_n(n=4) | tests.search.places:Few(k=2) | tests.search.places:Nth(place=-1)",
    ],
)
def test_a_part_is_named_by_its_place_and_written_back(text: str) -> None:
    plan = tts.parse(text)
    assert str(plan) == text
    assert tts.parse(str(plan)) == plan
    assert solved(text).candidates


def test_what_a_function_at_a_place_returns_is_written_so_that_it_is_read_back() -> None:
    assert str(tts.parse("tests.search.places:ours(n=3)")) == "best_of_n(n=3)"
    assert str(tts.parse("tests.search.places:Bare")) == "tests.search.places:Bare"
    # it keeps no text
    assert str(tts.parse("tests.search.places:local(n=3)")) == "tests.search.places:local.<locals>.Local(n=3)"


def test_a_class_with_a_name_that_nobody_registered_is_written_by_its_place() -> None:
    assert str(places.Pair()) == "tests.search.places:Pair"
    assert places.Pair().registered_as == "pair"
    assert str(Best()) == "best"

    class Local(tts.Strategy):
        async def run(self, search: tts.Search) -> Sequence[tts.Candidate]:
            return search.candidates

    here = f"{__name__}:test_a_class_with_a_name_that_nobody_registered_is_written_by_its_place.<locals>.Local"
    assert str(Local()) == here
    with pytest.raises(tts.ConfigError, match=r"Local'.*defined.*\(hint"):
        tts.parse(f"{here} | majority")


def test_the_name_of_another_class_is_not_taken() -> None:
    """A copy of one of ours, and a class whose name in snake case is one of ours."""
    assert str(places.BestOfN(n=3)) == "tests.search.places:BestOfN(n=3)"
    assert str(places.Single()) == "tests.search.places:Single"
    assert (str(tts.BestOfN(n=3)), str(tts.parse("single"))) == ("best_of_n(n=3)", "single")
    assert tts.parse(str(places.BestOfN(n=3))).strategy != tts.BestOfN(n=3)


@pytest.mark.parametrize("module", ["__main__", "__mp_main__"])
def test_a_class_of_the_main_module_is_written_as_such(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, and in a process that multiprocessing spawned."""
    single = type("Single", (places.Single,), {"__module__": module})
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    monkeypatch.setattr(sys.modules[module], "Single", single, raising=False)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[module])
    assert str(single()) == "__main__:Single"
    assert isinstance(tts.parse("__main__:Single").strategy, single)


def test_parameters_that_are_no_fields_are_written_as_they_were() -> None:
    assert len(solved("tests.search.places:Init(n=3)").candidates) == 3
    assert solved("tests.search.places:Init(n=3)").strategy == "tests.search.places:Init(n=3) | majority"
    assert str(places.Init(3)) == "tests.search.places:Init(...)"  # who made it knows
    assert solved(places.Init(3)).strategy == "tests.search.places:Init(...) | majority"
    assert solved(places.Init).strategy == "tests.search.places:Init | majority"
    with pytest.raises(tts.ConfigError, match=r"tests.search.places:Init.*known.*a.*dataclass"):
        tts.parse("tests.search.places:Init(...) | majority")


def test_parts_that_are_no_dataclasses_are_equal_by_class_and_content() -> None:
    assert places.Init(3) == places.Init(3) == pickle.loads(pickle.dumps(places.Init(3)))
    assert places.Init(3) == tts.parse("tests.search.places:Init(n=3)").strategy
    assert len({places.Init(3), places.Init(3), places.Init(4), places.Single()}) == 3
    assert places.Init(3) != places.Init(4)
    assert places.Init() != places.Outer.Inner()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nowhere.at_all:Thing", r"no module 'nowhere.at_all' is in the current folder or installed"),
        ("tests.search.nowhere:Thing", "no module 'tests.search.nowhere'"),
        ("tests.search.places:Pear", r"'tests.search.places' \(.*places.py\) has no 'Pear' \(hint: it has Pair"),
        ("tests.search.places:NUMBER", "is a int, but must be a class or a function"),
        ("tests.search.broken_place:Thing", "cannot be loaded: ZeroDivisionError: division by zero"),
        (
            "tests.search.places:Runless",
            r"places:Runless has no method run, but must define it \(hint: it has runs; see tts.Strategy",
        ),
        ("tests.search.places:Newest", "must begin with a strategy"),
        (
            "best_of_n | tests.search.places:Pair",
            r"'tests.search.places:Pair' is a strategy, but only the first part may be one \(character 13 of "
            r"'best_of_n \| tests",
        ),
        (
            "best_of_n | tests.search.places:Spoken",
            r"places:Spoken' \(a Spoken\) is neither a stop rule nor a selection: it has no should_stop and no select",
        ),
        ("tests.search.places:Spoken", r"places:Spoken' \(a Spoken\), but must begin with a strategy"),
        ("tests.search.places:NUMBER", r"but must be a class or a function \(hint: write a function that returns it\)"),
        ("tests.search.places:Gone", r"has no 'Gone' \(hint: it has .*Constant"),
        ("tests.search.places:Outer.Iner", r"'tests.search.places:Outer' \(.*\) has no 'Iner' \(hint: it has Inner\)"),
        ("tests.search.exiting_place:Thing", "cannot be loaded: SystemExit: 3"),
        ("tests.search.places.Pair", r"a name belongs here \(hint: a place is written tests.search.places:Pair\)"),
        ("tests/search/places.py:Pair", "a name belongs here"),
        ("places.py:Pair", r"no module 'places.py' .* \(hint: write places:Pair, without .py\)"),
        (
            "best_of_n | tests.search.places:Gone",
            "the stop rule or selection 'tests.search.places:Gone' cannot be loaded",
        ),
        ("best_of_n | math:floor", "math:floor cannot be made with these parameters"),
        ("tests.search.places:Pair(m=3)", "no parameter of the strategy tests.search.places:Pair has that name"),
        ("a.b:", "cannot be read here"),
        ("maj@8", r"a name belongs here \(hint: maj@k is best_of_n \| majority\)"),
    ],
)
def test_a_place_that_holds_no_such_part_is_one_line(text: str, why: str) -> None:
    with pytest.raises(tts.TTSError, match=why) as caught:
        solved(text)
    assert "\n" not in str(caught.value)
    assert not any(character in str(caught.value) for character in "ǀǃ")


def test_the_nearest_module_of_the_current_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_parts.py").write_text("import os\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tts.ConfigError, match=r"module 'my_own_prats' .*did.*my_own_parts:Two\?"):
        tts.parse("my_own_prats:Two")


def test_the_file_of_a_module_that_hides_one_of_the_current_folder_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wave.py").write_text("import tts\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tts.ConfigError, match=r"'wave' \(.*wave\.py\) has no 'Two'"):
        tts.parse("wave:Two")


def test_an_error_points_at_the_character_of_the_text_as_written() -> None:
    text = "tests.search.places:Pair(n=2) | unanimos"
    with pytest.raises(tts.ConfigError) as caught:
        tts.parse(text)
    assert f"(character {text.index('unanimos') + 1} of {text!r})" in str(caught.value)
