"""The strategy of a request names parts of the library alone: nothing that it says imports, opens or runs anything."""

from __future__ import annotations

import ast
import inspect
import sys
import unicodedata
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import tts
from tests.addons.gateway.asking import ask, refused
from tests.support import audit
from tts._common.scopes import OPEN_TEXTS, RegisteredNames
from tts.errors import TTSError
from tts.search.parts import EMBEDDERS, SELECTIONS, STOP_RULES, STRATEGIES
from tts.search.plan import parse
from tts_addons.gateway.orders import RUNS_PROGRAMS, RequestScope

SCOPE = RequestScope(width=64, tokens=1000)
TABLES = (STRATEGIES, STOP_RULES, SELECTIONS)
PARTS = [(table, name) for table in TABLES for name in table.entries]
NEVER_OPEN = {"embedder", "model", "sandbox", "tests"}  # texts of parameters that reach files, servers or programs
STAND_INS = dict(
    zip(".:<>()'_=|", ["ǀ．․。", "ǃ：꞉ː∶", "ǁ＜‹", "ǂ＞›", "（", "）", "＇’", "＿", "＝", "｜"], strict=True)
)
LOOKALIKES = dict(zip("aeosinpmbt", ["аａɑ", "еｅ", "оｏο", "ѕｓ", "іｉ", "ｎ", "рｐ", "ｍ", "ｂƅ", "ｔ"], strict=True))
ATTACKS = (
    "os:system(command='id > made')", "os.path:exists(path='/etc/passwd')", "subprocess:getoutput(cmd='id > made')",
    "best_of_n | medoid(embedder=\"os:system(command='id > made')\")",
    "ets(embedder=\"builtins:open(file='made', mode='w')\")", "program_aided(sandbox='none')",
    "auto(model='/etc/passwd')", "best_of_n | builtins:exec(source='1')", "pathlib:Path.cwd",
    "best_of_n | medoid(embedder='endpoint(url=\"http://127.0.0.1:9\", model=\"m\")')",
    "medoid(embedder='sentences(model=\"/etc\")')", "best_of_n(writer=__import__('os').system('id > made'))",
    "best_of_n | codet(verifier=f'{open(\"made\")}')", "antigravity:fly_id",
)  # fmt: skip
NAMES = [name for _, name in PARTS] + [
    "os",
    "system",
    "builtins",
    "tts",
    "embedder",
    "sandbox",
    "model",
    "n",
    "m1",
    "é",
]
VALUES = ["1", "10**9", "2000", "'none'", "None", "(1, 2)", "'os:system'", "[3]", "{'a': 1}", "...", "'a|b'", "b'x'"]
VALUES += ["1e999", "lambda: 0"]
SIGNS = [*".:<>|(),='\" \n", *(one for group in STAND_INS.values() for one in group)]


def outcome(text: str) -> Any:
    try:
        return parse(text, SCOPE)
    except tts.ConfigError as failure:
        return failure


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """Load every part before anything is watched, and what errors and defaults load on first use."""
    for table, name in PARTS:
        table.get(name)
    for name in [name for _, name in PARTS if name not in RUNS_PROGRAMS]:
        str(outcome(name if name in STRATEGIES.entries else f"best_of_n | {name}"))
    outcome("best_of_m")


def spellings(text: str) -> list[str]:
    """Return a text with each letter and sign replaced by what looks like it or stands for it, one by one and all at
    once.
    """
    table = {**STAND_INS, **LOOKALIKES}
    single = [text[:at] + one + text[at + 1 :] for at, sign in enumerate(text) for one in table.get(sign, "")]
    whole = ["".join(options.get(sign, sign)[0] for sign in text) for options in (STAND_INS, LOOKALIKES)]
    # NFKC makes it the text again
    wide = "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)
    return [*single, *whole, wide, unicodedata.normalize("NFKD", text)]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_spelling_of_an_attack_reaches_anything(attack: str) -> None:
    with audit.events() as seen:
        for text in (attack, *spellings(attack)):
            assert isinstance(outcome(text), tts.ConfigError), text
    assert not seen


def test_every_registered_name_in_every_spelling_is_itself_or_refused() -> None:
    with audit.events() as seen:
        for table, name in PARTS:
            for spelling in (name, *spellings(name)):
                found = outcome(spelling if table is STRATEGIES else f"best_of_n | {spelling}")
                if spelling == name and name not in RUNS_PROGRAMS:
                    assert isinstance(found, tts.Plan), found
                else:
                    assert isinstance(found, tts.ConfigError) or unicodedata.normalize("NFKC", spelling) == name, (
                        spelling
                    )
    assert not seen


def random_text(draw: np.random.Generator) -> str:
    """Return a text of names, places, confusables and values, nested and broken."""

    def choose(among: list[str]) -> str:
        return among[int(draw.integers(len(among)))]

    def call(depth: int) -> str:
        name = choose(NAMES) + (choose([":", ".", "ǃ", "ǀ"]) + choose(NAMES) if draw.random() < 0.4 else "")
        if draw.random() < 0.4 or depth > 3:
            return name
        value = (
            repr(call(depth + 1)) if draw.random() < 0.3 else call(depth + 1) if draw.random() < 0.1 else choose(VALUES)
        )
        return f"{name}({choose(NAMES)}={value})"

    text = " | ".join(call(0) for _ in range(draw.integers(1, 4)))
    for _ in range(draw.integers(0, 4)):
        at = int(draw.integers(len(text) + 1))
        text = text[:at] + choose(SIGNS) + text[at + int(draw.integers(2)) :]
    return text


@pytest.mark.slow
def test_ten_thousand_random_texts_reach_nothing() -> None:
    draw = np.random.default_rng(0)
    before = set(sys.modules)
    with audit.events() as seen:
        for _ in range(10_000):
            outcome(random_text(draw))
    assert not seen
    assert set(sys.modules) == before


@pytest.mark.parametrize(("table", "name"), PARTS, ids=[name for _, name in PARTS])
def test_a_text_parameter_is_open_or_known_to_reach_outside(table: Any, name: str) -> None:
    kinds = get_type_hints(made := table.get(name))
    for parameter in inspect.signature(made).parameters.values():
        if "str" in str(kinds[parameter.name]):
            assert (parameter.name in OPEN_TEXTS) != (parameter.name in NEVER_OPEN), parameter.name
            if parameter.name in NEVER_OPEN:
                assert not SCOPE.allows(parameter.name, "none"), parameter.name


@pytest.mark.slow
def test_parts_that_run_programs_are_not_offered() -> None:
    """A part whose module imports the sandbox, subprocesses or files is listed, or its parameters that name one are
    closed.
    """
    reaching = set()
    for table, name in PARTS:
        tree = ast.parse(Path(inspect.getfile(table.get(name))).read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        if any(
            one.startswith(("tts_addons.code", "subprocess", "shutil", "pathlib", "httpx", "urllib"))
            for one in imported
        ):
            reaching.add(name)
    assert reaching == RUNS_PROGRAMS


def test_whole_numbers_of_a_request_have_a_bound() -> None:
    for text in (
        "best_of_n(n=65)",
        "pacore(widths=(2, 1000000000))",
        "best_of_n(n=4) | unanimous(window=100)",
        "budget_forcing(thought_tokens=1001)",
    ):
        assert "takes at most" in str(outcome(text)), text
    for text in ("best_of_n(n=64)", "pacore(widths=(2, 64))", "budget_forcing(thought_tokens=1000)"):
        assert isinstance(outcome(text), tts.Plan), text


def test_a_request_may_write_what_a_preset_writes(client: Any) -> None:
    own = "best_of_n(n=2) | medoid(embedder='ngrams')"
    gateway = client(models={"toy": {"presets": {"near": {"strategy": own}}}})
    assert ask(gateway, tts={"strategy": "best_of_n(n=3) | medoid(embedder='ngrams')"}).status_code == 200
    refused(
        ask(gateway, tts={"strategy": "best_of_n(n=3) | medoid(embedder='sentences')"}),
        400,
        "tts.strategy",
        "invalid_value",
    )


def test_parts_of_other_packages_are_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint, EntryPoints

    theirs = EntryPoints([EntryPoint("theirs", "tests.search.places:Pair", "tts.strategies")])
    monkeypatch.setattr(
        "tts.registry.entry_points", lambda group: theirs if group == "tts.strategies" else EntryPoints([])
    )
    assert "no strategy has that name" in str(outcome("theirs"))
    assert isinstance(parse("theirs", RequestScope(64, 1000, frozenset({("theirs", "[]")}))), tts.Plan)
    assert isinstance(parse("theirs", RegisteredNames()), tts.Plan)  # a data file may name it


def test_data_of_others_names_registered_parts_alone() -> None:
    scope = RegisteredNames()
    for text in ATTACKS:
        with pytest.raises(TTSError):
            parse(text, scope)
    for text in (
        "program_aided(n=2)",
        "best_of_n | medoid(embedder='ngrams')",
        "best_of_n(n=4096) | weighted(verifier='judge')",
    ):
        assert str(parse(text, scope))
    assert EMBEDDERS.entries.keys() >= {"ngrams", "sentences"}
