"""Other packages' parts, installed as a distribution is: a folder on the path with modules and their entry points."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tts.search.strategies
import tts.tasks
from tts.backends import BACKENDS
from tts.backends.capabilities import require
from tts.backends.function import FunctionBackend
from tts.errors import CapabilityError, ConfigError, MissingDependency
from tts.models.registry import ModelRecord
from tts.registry import Registry, is_at_its_place, parse_call
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.search.plan import parse
from tts.search.selections.majority import Majority
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.solver.solver import Solver
from tts.verifiers import VERIFIERS

PARTS = '''
from dataclasses import dataclass, field
from typing import Any

import tts
from tts.backends.toy import ToyBackend
from tts.search.ends import StopDecision
from tts.search.selections import Majority
from tts.search.strategies import BestOfN
from tts.tasks.text import TextTask
from tts.verifiers.base import StepScores


@dataclass(frozen=True, kw_only=True)
class Twice(tts.Strategy):
    """A strategy: two samples, one after the other."""

    registered_as = "acme_twice"
    times: int = 2

    async def run(self, search):
        for _ in range(self.times):
            await search.complete([search.root])
        return search.candidates

    def default_selection(self, *, verified):
        return Majority()


@dataclass(frozen=True, kw_only=True)
class First(tts.StopRule):
    """A stop rule."""

    registered_as = "acme_first"

    def should_stop(self, candidates):
        return StopDecision("acme") if candidates else None


@dataclass(frozen=True, kw_only=True)
class Mine(Majority):
    """A selection."""

    registered_as = "acme_majority"


@dataclass(frozen=True)
class Length(tts.Verifier):
    """A verifier: longer is better."""

    most: int = 1000
    name: str = field(default="acme_length", init=False)
    range: Any = field(default=(0.0, 1.0), init=False)
    oracle: bool = field(default=False, init=False)
    needs: Any = field(default=(), init=False)
    model: str = field(default="policy", init=False)

    async def score(self, problem, trajectories, calls):
        return [StepScores(whole=min(1.0, len(t.full_text) / self.most)) for t in trajectories]

    def bound(self, prefix_tokens, new_tokens):
        return 0


class Trivia(TextTask):
    name = "acme_trivia"


class Sums(ToyBackend):
    @classmethod
    def from_record(cls, record):
        return cls()


class Needy(Twice):
    def __init__(self, width):
        self.width = width


class Half:
    async def run(self, search):
        return search.candidates


NUMBER = 5
'''  # fmt: skip

ENTRIES: Mapping[str, Mapping[str, str]] = {
    "tts.strategies": {
        "acme_twice": "acme_parts:Twice",
        "acme_needy": "acme_parts:Needy",
        "acme_half": "acme_parts:Half",
        "acme_broken": "acme_broken:Anything",
        "acme_gone": "acme_parts:Gone",
        "acme_number": "acme_parts:NUMBER",
        "best_of_n": "acme_parts:Twice",
        "majority": "acme_parts:Twice",
    },
    "tts.stop_rules": {"acme_first": "acme_parts:First"},
    "tts.selections": {"acme_majority": "acme_parts:Mine", "acme_first": "acme_parts:Mine"},
    "tts.verifiers": {
        "acme_length": "acme_parts:Length",
        "acme_broken": "acme_broken:Anything",
        "toy": "acme_parts:Length",
    },
    "tts.tasks": {
        "acme_trivia": "acme_parts:Trivia",
        "acme_broken": "acme_broken:Anything",
        "acme_twice": "acme_parts:Twice",
    },
    "tts.backends": {
        "acme_sums": "acme_parts:Sums",
        "acme_broken": "acme_broken:Anything",
        "toy": "acme_broken:Anything",
    },
}

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution with these modules and entry points on the path, until the test is over."""

    def put(name: str, entries: Mapping[str, Mapping[str, str]], **modules: str) -> None:
        info = tmp_path / name / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, of in entries.items()
            for line in (f"[{group}]", *(f"{one} = {value}" for one, value in of.items()), "")
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, text in modules.items():
            (tmp_path / name / f"{module}.py").write_text(text)
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(tmp_path / name)

    yield put
    for module in ("acme_parts", "acme_broken"):
        sys.modules.pop(module, None)


@pytest.fixture
def parts(install: Install) -> None:
    assert "acme_twice" not in STRATEGIES
    install("acme", ENTRIES, acme_parts=PARTS, acme_broken="import a_module_that_is_not_there")


@pytest.mark.usefixtures("parts")
def test_every_kind_of_part_is_listed_without_being_loaded() -> None:
    for table, name in (
        (STRATEGIES, "acme_twice"),
        (STOP_RULES, "acme_first"),
        (SELECTIONS, "acme_majority"),
        (VERIFIERS, "acme_length"),
        (BACKENDS, "acme_sums"),
        (BACKENDS, "acme_broken"),
    ):
        assert name in table.names()
        assert name in table
    assert "acme_trivia" in tts.tasks.names()
    assert "nobody" not in STRATEGIES
    assert "acme_parts" not in sys.modules


@pytest.mark.usefixtures("parts")
def test_parts_of_another_package_solve_a_problem() -> None:
    strategy = "acme_twice(times=3) | acme_majority(truncated='drop')"
    plan = parse(strategy)
    assert str(plan) == strategy
    assert parse(str(plan)) == plan
    model = ModelRecord(name="acme-model", backend="acme_sums", task="arithmetic")
    with Solver(model, "acme_length(most=50)") as solver:
        solution = solver.solve("3 + 4 - 2", 1000, strategy=plan)
        scored = solver.solve("3 + 4 - 2", 1000, strategy="acme_twice | weighted")
        stopped = solver.solve("3 + 4 - 2", 1000, strategy="best_of_n(n=5) | acme_first | majority")
    assert len(solution.candidates) == 3
    assert solution.strategy == strategy
    assert solution.answer is not None
    assert scored.usage.verifier_calls == 2
    assert stopped.stopped_by == "acme"
    with Solver(FunctionBackend(lambda asked: "blue"), task="acme_trivia") as solver:
        assert solver.solve("What colour is the sky?", 1000, strategy="acme_twice").answer == "blue"


@pytest.mark.usefixtures("parts")
def test_a_part_that_cannot_be_imported_is_one_line_and_breaks_no_other() -> None:
    for table, kind in ((STRATEGIES, "strategy"), (VERIFIERS, "verifier"), (BACKENDS, "backend")):
        with pytest.raises(MissingDependency) as caught:
            table.get("acme_broken")
        assert caught.value.cause == (
            f"{kind} 'acme_broken' of the package acme cannot be loaded: ModuleNotFoundError: No module named "
            "'a_module_that_is_not_there'"
        )
        assert caught.value.hint == "repair or uninstall acme"
    with pytest.raises(MissingDependency, match=r"'acme_broken'.*package"):
        parse("acme_broken(n=4) | majority")
    with pytest.raises(MissingDependency, match=r"'acme_broken'.*package"):
        tts.tasks.get("acme_broken")
    with pytest.raises(MissingDependency, match=r"'acme_gone'.*package.*loaded: AttributeError"):
        parse("acme_gone")
    assert parse("acme_twice | acme_majority")
    assert parse("best_of_n(n=2) | majority")
    assert tts.tasks.get("acme_trivia").name == "acme_trivia"


@pytest.mark.parametrize("text", ["def (", "raise RuntimeError('two\\nlines')", "1 / 0"])
def test_whatever_a_module_raises_is_one_line(install: Install, text: str) -> None:
    install("acme", ENTRIES, acme_parts=PARTS, acme_broken=text)
    with pytest.raises(MissingDependency, match=r"cannot be loaded: [A-Z][A-Za-z]*Error: ") as caught:
        STRATEGIES.get("acme_broken")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.usefixtures("parts")
def test_a_broken_backend_is_left_out_where_backends_are_compared() -> None:
    with pytest.raises(CapabilityError, match=r"lacks .*backends.*it: acme_sums"):
        require(FunctionBackend(lambda asked: ""), ["value"], "the verifier 'toy'")


@pytest.mark.usefixtures("parts")
def test_our_own_names_cannot_be_taken() -> None:
    assert parse("best_of_n(n=2)").strategy == BestOfN(n=2)
    assert parse("single | majority").selection == Majority()  # although another package has a strategy of that name
    assert parse_call(VERIFIERS, "toy(error=0.25)").error == 0.25
    assert BACKENDS.get("toy").__module__ == "tts.backends.toy.backend"
    assert STRATEGIES.names().count("best_of_n") == 1
    assert "acme_parts" not in sys.modules
    assert parse("single | acme_first").stopping is not None  # a stop rule before a selection


def test_a_name_that_two_packages_give_is_refused_only_where_it_is_asked_for(install: Install) -> None:
    install(
        "acme",
        {"tts.strategies": {"acme_twice": "acme_parts:Twice", "acme_once": "acme_parts:Twice"}},
        acme_parts=PARTS,
    )
    install("copy", {"tts.strategies": {"acme_twice": "acme_parts:Needy", "acme_once": "acme_parts:Twice"}})
    assert STRATEGIES.names().count("acme_twice") == 1
    with pytest.raises(ConfigError) as caught:
        parse("acme_twice(times=3)")
    assert caught.value.cause == "strategy 'acme_twice' is in the packages acme and copy, but only one may give it"
    assert caught.value.hint == "uninstall the others"
    assert parse("acme_once(times=3)")  # both mean the same


@pytest.mark.usefixtures("parts")
def test_what_stands_behind_a_name_but_is_no_part_is_named() -> None:
    with pytest.raises(
        ConfigError,
        match=r"'acme_number'.*acme.*acme_parts:NUMBER,.*func",
    ):
        parse("acme_number")
    with pytest.raises(ConfigError, match=r"Half.*but.*tts\.Strategy"):
        parse("acme_half")
    with pytest.raises(ConfigError, match=r"acme_needy.*made.*parameters: .*'width'"):
        parse("acme_needy")
    with pytest.raises(ConfigError, match=r"task 'acme_twice'.*,.*tts\.Task"):
        tts.tasks.get("acme_twice")
    with pytest.raises(ConfigError, match=r"'acme_majorit', .*character 14.*mean"):
        parse("acme_twice | acme_majorit")


@pytest.mark.parametrize(
    ("table", "package"),
    [(STRATEGIES, tts.strategies), (SELECTIONS, tts.selections), (STOP_RULES, tts.stop_rules)],
    ids=["strategies", "selections", "stop rules"],
)
def test_the_names_of_a_package_are_those_of_its_table(table: Registry, package: ModuleType) -> None:
    rooms = (f"{package.__name__}.", "tts_addons.")
    places = [place.partition(":") for place in table.entries.values() if place.startswith(rooms)]
    assert sorted(name for _, _, name in places) == package.__all__
    assert [getattr(package, name).__module__ for _, _, name in places] == [module for module, _, _ in places]


@pytest.mark.usefixtures("parts")
def test_a_name_stands_for_its_own_part_alone() -> None:
    assert STRATEGIES.is_name_of("best_of_n", BestOfN)
    assert not STRATEGIES.is_name_of("best_of_n", Majority)
    assert not STRATEGIES.is_name_of("acme_broken", BestOfN)
    assert not STRATEGIES.is_name_of("nobody", BestOfN)


@pytest.mark.parametrize("place", ["a module:Name", "module:a name", "module:", ":Name", "module:Name.1"])
def test_a_place_that_is_none_is_refused_with_its_form(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        STRATEGIES.get(place)
    assert (caught.value.cause, caught.value.hint) == (
        f"the strategy {place!r} cannot be read",
        "write package.module:name",
    )


def test_a_class_that_its_place_does_not_give_is_not_at_it() -> None:
    hidden = type("Hidden", (), {})
    assert is_at_its_place(BestOfN)
    assert not is_at_its_place(hidden)
    hidden.__module__ = "a_module_that_is_not_there"
    assert not is_at_its_place(hidden)


def test_parameters_of_what_is_written_in_c_are_checked_by_its_call() -> None:
    assert parse_call(STRATEGIES, "builtins:dict(width=3)") == {"width": 3}
    with pytest.raises(ConfigError, match="parameters: range"):
        parse_call(STRATEGIES, "builtins:range(width=3)")


def test_a_text_that_another_thread_kept_from_being_parsed_is_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parse_text, failures = ast.parse, [True, True]

    def parse_late(*arguments: Any, **options: Any) -> ast.AST:
        if failures:
            failures.pop()
            raise SystemError("AST constructor recursion depth mismatch (before=51, after=189)")
        return parse_text(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", parse_late)
        plan = parse("beam(n=3)")
    assert not failures
    assert plan == parse("beam(n=3)")
