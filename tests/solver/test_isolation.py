"""A strategy cannot reach the reference answer or the metadata, whatever it looks at."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from tests.support.runs import make_run, solve_and_show
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget
from tts.search.ends import STEP
from tts.search.needs import Needs
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.solver.checks import check
from tts.types import Candidate, Problem
from tts.verifiers.checker import Checker
from tts.verifiers.toy import ToyVerifier

ANSWER, NOTE = "secret reference 5", "secret note"


def attributes(value: Any) -> list[Any]:
    """Return everything that an object leads to by attributes and items: private ones and bound methods' objects
    too.
    """
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    found = [*getattr(value, "__dict__", {}).values()] if not isinstance(value, type | types.FunctionType) else []
    for kind in type(value).__mro__:
        names = kind.__dict__.get("__slots__", ())
        found += [
            getattr(value, name) for name in ([names] if isinstance(names, str) else names) if hasattr(value, name)
        ]
    if isinstance(value, types.MethodType):
        found.append(value.__self__)
    return found


def secrets_behind(start: Any) -> list[str]:
    """Return the ways from an object to a secret text."""
    seen: dict[int, Any] = {}
    queue: list[tuple[str, Any]] = [("search", start)]
    found: list[str] = []
    while queue:
        way, value = queue.pop()
        if id(value) in seen or isinstance(value, types.ModuleType | type):
            continue
        seen[id(value)] = value
        if isinstance(value, str | bytes) or value is None:
            if isinstance(value, str) and ("secret" in value):
                found.append(way)
            continue
        queue += [(f"{way} > {type(value).__name__}", one) for one in attributes(value)]
    assert len(seen) > 100, "the walk saw next to nothing"
    return found


@dataclass(frozen=True, kw_only=True)
class Spy(Strategy):
    registered_as: ClassVar[str] = "spy"
    found: list[str] = field(default_factory=list, compare=False, init=False)

    def needs(self) -> Needs:
        return Needs(verifiers=("main",))

    async def run(self, search: Search) -> Sequence[Candidate]:
        self.found.extend(secrets_behind(search))
        made = await search.complete([search.root], 3)
        await search.expand([search.root], 2, STEP)
        await search.score([c.trajectory for c in made])
        self.found.extend(secrets_behind(search))
        return search.candidates

    def default_selection(self, *, verified: bool) -> Selection:
        return Majority()


@pytest.mark.parametrize("verifier", [Checker(), ToyVerifier()])
@pytest.mark.parametrize("watched", [False, True])
def test_no_way_leads_from_a_search_to_the_reference_answer_or_the_metadata(verifier: Any, watched: bool) -> None:
    spy = Spy()
    problem = Problem("3 + 4 - 2", answer=ANSWER, id="p", metadata={"note": NOTE})
    events: list[Any] = []
    run = make_run(
        problem,
        Budget(tokens=2000),
        spy,
        ToyBackend(),
        verifiers={"main": verifier},
        allow_oracle=True,
        on_event=events.append if watched else None,
    )
    end = solve_and_show(run)
    assert end.solution.error is None
    assert bool(events) == watched
    assert spy.found == []


def test_the_walk_finds_what_is_there() -> None:
    problem = Problem("3 + 4", answer=ANSWER)
    holder = types.SimpleNamespace(deep=[{"x": (problem,)}], filler=list(map(str, range(200))))
    assert len(secrets_behind(holder)) == 1
    assert (
        len(
            secrets_behind(
                types.SimpleNamespace(
                    of=types.MethodType(check, make_run(problem, 5, "single", ToyBackend())),
                    filler=list(range(300, 600)),
                )
            )
        )
        == 1
    )
