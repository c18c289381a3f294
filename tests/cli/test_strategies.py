from __future__ import annotations

import inspect
import re

import pytest

from tts.errors import MissingDependency
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.verifiers import VERIFIERS

TABLES = (STRATEGIES, STOP_RULES, SELECTIONS)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "600")


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
def test_every_name_is_listed_with_its_parameters_and_one_line(tts):
    rows = {}
    for line in tts("strategies").stdout.splitlines():
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        if line.startswith("│") and cells[0]:
            rows[cells[0]] = cells[1:]
    for table in TABLES:
        for name in table.names():
            parameters, says = rows[name]
            assert sorted(re.findall(r"(\w+)=", parameters)) == sorted(inspect.signature(table.get(name)).parameters)
            assert says.endswith(".")


@pytest.mark.parametrize("name", ["beam", "unanimous", "best_of_majority", "self_consistency"])
def test_one_is_shown_with_everything_it_says_of_itself(tts, name):
    result = tts("strategies", name)
    made = next(table for table in TABLES if name in table).get(name)
    flat = " ".join(result.stdout.split())
    assert result.exit_code == 0
    for parameter in inspect.signature(made).parameters.values():
        assert f"{parameter.name}={parameter.default!r}" in flat
    assert " ".join(inspect.getdoc(inspect.getmodule(made)).split()) in flat
    before, _, rest = inspect.getdoc(made).partition("Args:\n")
    after = rest[rest.index("\n\n") :] if rest else ""
    for said in (before, after):
        assert " ".join(said.split()) in flat


def test_what_it_inherits_is_shown_behind_its_own(tts):
    flat = " ".join(tts("strategies", "rebase").stdout.split())
    assert flat.startswith("strategy rebase(balance_temperature=0.2, n=None, temperature=None, max_steps=40,")
    assert " n: The continuations at the first level, and the paths to bring to an end" in flat
    assert " max_steps: The most steps of a path, the last of which" in flat
    assert "as in `" not in flat.lower()


def test_an_unknown_name_is_answered_with_the_nearest(tts, assert_error):
    assert_error(
        tts("strategies", "bean"),
        2,
        "part is 'bean', but no part has that name",
        "did you mean beam?",
    )


@pytest.mark.slow
@pytest.mark.usefixtures("wide")
def test_a_part_of_another_package_that_cannot_be_loaded_is_listed_with_the_reason(tts, monkeypatch):
    get = STRATEGIES.get

    def broken(name: str) -> object:
        if name == "beam":
            raise MissingDependency("strategy 'beam' of the package acme cannot be loaded")
        return get(name)

    monkeypatch.setattr(STRATEGIES, "get", broken)
    lines = tts("strategies").stdout.splitlines()
    assert any(line.startswith("│ beam ") and "of the package acme cannot be loaded" in line for line in lines)
    assert any(line.startswith("│ best_of_n ") for line in lines)


def test_its_line_is_in_the_help(tts):
    assert "strategies" in tts("--help").stdout


@pytest.mark.usefixtures("wide")
def test_what_can_run_in_a_setting_is_listed_with_what_the_others_lack(tts):
    lines = tts("strategies", "--for", "server chat-only no-verifier").stdout.splitlines()
    rows = {
        cells[0]: cells[1:]
        for line in lines
        if len(cells := [cell.strip() for cell in line.strip("│").split("│")]) == 4
    }
    assert set(STRATEGIES.names()) <= rows.keys()
    assert rows["auto"] == rows["best_of_n"] == ["not measured", "", ""]  # without the verifier of the figures
    assert rows["beam"] == ["+0.7", "steps, a verifier 'main'", "best_of_n"]
    order = list(rows)[1:]
    places = [order.index(name) for name in ("auto", "best_of_n", "archon", "a_star", "beam")]
    assert places == sorted(places)  # what can run comes first, by evidence
    assert any(line.startswith("extend: server continued-chat, server text, server tokens") for line in lines)


def test_a_model_stands_for_its_backend(tts):
    assert tts("strategies", "--for", "pocket").stdout == tts("strategies", "--for", "engine pocket").stdout


def test_a_setting_that_is_none_is_refused(tts, assert_error):
    for setting in ("chat", "http://localhost:8000"):
        cause = f"the setting is '{setting}', which has no backend, but must have one"
        hint = "for example 'server chat-only' or 'engine'; `tts doctor --url URL` asks a server what runs there"
        assert_error(tts("strategies", "--for", setting), 2, cause, hint)
    cause = "--for is 'toy', but a name was given too: 'beam'"
    assert_error(tts("strategies", "beam", "--for", "toy"), 2, cause, "leave one of them out")


@pytest.mark.usefixtures("wide")
def test_verifiers_are_listed(tts):
    lines = tts("verifiers").stdout.splitlines()
    for name in VERIFIERS.names():
        assert any(line.startswith(f"│ {name} ") for line in lines), name


@pytest.mark.parametrize(
    ("name", "kind"), [("judge", "verifier"), ("math", "task"), ("openai", "backend"), ("majority", "selection")]
)
def test_any_part_is_shown_by_its_name(tts, name: str, kind: str):
    result = tts("strategies", name)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{kind} {name}(")


def test_a_name_of_several_parts_shows_each(tts):
    shown = tts("strategies", "toy").stdout
    assert "verifier toy(" in shown
    assert "backend toy(" in shown
