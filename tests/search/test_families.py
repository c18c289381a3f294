"""What strategies need, which one stands in for one that cannot run, and the table of methods, which says the same."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.runs import make_run, solve_and_show
from tts.backends.base import Caps
from tts.backends.toy.backend import ToyBackend
from tts.errors import CapabilityError, ConfigError, TTSError
from tts.registry import parse_call
from tts.search.families import COMMUNITY, FAMILIES, RunSetting, lacking, nearest
from tts.search.needs import needs_of
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.search.plan import parse
from tts.solver.settings import setting_of
from tts.verifiers import VERIFIERS
from tts.verifiers.compatibility import GIVE_VERIFIER

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "methods.md"
PLAIN = RunSetting(caps=Caps(), roles=())  # plain chat, and no verifier


def rows() -> dict[str, list[str]]:
    """Return the cells of each row of the page behind its name."""
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len({name for name, _ in found}) == len(found)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}


def test_the_tables_of_methods_have_every_part_and_no_other() -> None:
    assert rows().keys() == {*STRATEGIES.entries, *STOP_RULES.entries, *SELECTIONS.entries, *VERIFIERS.entries}
    assert all(len(cells) == 5 and all(cells) for cells in rows().values())


@pytest.mark.parametrize("name", STRATEGIES.entries)
def test_it_states_what_a_strategy_needs(name: str) -> None:
    strategy = parse(name).strategy
    needs = needs_of(strategy)
    named = [*needs.capabilities, *(["verifier"] if needs.verifiers else []), *needs.prompts]
    assert rows()[name][1] == ("; ".join(named) or "chat only")


@pytest.mark.parametrize("name", STOP_RULES.entries)
def test_it_states_what_a_stop_rule_needs(name: str) -> None:
    assert rows()[name][1] == ("verifier" if needs_of(STOP_RULES.get(name)()).verifiers else "chat only")


@pytest.mark.parametrize("name", SELECTIONS.entries)
def test_it_states_what_a_selection_needs(name: str) -> None:
    needs = needs_of(SELECTIONS.get(name)())
    assert rows()[name][1] == (f"verifier{' that compares' if needs.pairs else ''}" if needs.verifiers else "chat only")


@pytest.mark.parametrize("name", sorted(set(VERIFIERS.entries) - {"ensemble"}))  # which needs what its members need
def test_it_states_what_a_verifier_needs(name: str) -> None:
    assert rows()[name][1] == ("; ".join(parse_call(VERIFIERS, name).needs) or "chat only")


def test_every_strategy_is_in_one_family() -> None:
    listed = [name for names in FAMILIES.values() for name in names]
    assert sorted(listed) == sorted(STRATEGIES.entries)


def test_a_family_stands_in_one_room_which_names_its_families() -> None:
    # not measured; `auto`; add-ons
    elsewhere = {"tts.search.strategies.community", "tts.allocator", "tts_addons.code", "tts_addons.zoo"}
    families: dict[str, list[str]] = defaultdict(list)
    for family, names in FAMILIES.items():
        rooms = {STRATEGIES.entries[name].partition(":")[0].rpartition(".")[0] for name in names} - elsewhere
        assert len(rooms) <= 1, family
        for room in rooms:
            families[room].append(family)
    assert "tts.search.strategies" not in families
    assert families == {
        room: re.findall(r"^- (.+)$", importlib.import_module(room).__doc__ or "", re.MULTILINE) for room in families
    }


@pytest.mark.parametrize("name", STRATEGIES.entries)
def test_what_is_nearest_can_run(name: str) -> None:
    other = nearest(parse(name).strategy, PLAIN)
    assert other is not None
    assert lacking(parse(other).strategy, PLAIN) == []


def test_the_nearest_is_of_the_same_family_where_one_can_run() -> None:
    steps = RunSetting(caps=Caps(steps="native"))
    assert nearest(parse("budget_forcing").strategy, steps) == "best_of_n"
    assert nearest(parse("answer_convergence").strategy, steps) == "early_pruning"
    assert nearest(parse("beam").strategy, PLAIN) == "best_of_n"
    revises = RunSetting(caps=Caps(), task=setting_of("engine pocket").task)
    assert nearest(parse("pacore").strategy, revises) == "sequential_revision"


def test_a_refusal_names_the_nearest_strategy_that_can_run() -> None:
    def refused(plan: str, backend: object, task: str = "arithmetic") -> TTSError:
        end = solve_and_show(make_run("3 + 4", 100, plan, backend, task=task))  # type: ignore[arg-type]
        assert isinstance(end.solution, TTSError)
        return end.solution

    toy = ToyBackend()
    thoughts = refused("budget_forcing(thought_tokens=8)", toy)
    assert isinstance(thoughts, CapabilityError)
    assert thoughts.hint == "the model toy-thinking has thoughts; the nearest strategy that can run here is best_of_n"
    assert refused("beam(n=4)", toy).hint == f"{GIVE_VERIFIER}; or the nearest strategy that can run here is best_of_n"
    assert refused("pacore(widths=[4])", toy, "pocket").hint == (
        "give prompt='revise', or the nearest strategy that can run here is sequential_revision"
    )
    assert toy.counters.prompt_tokens == 0


def test_forks_at_a_token_need_the_text_of_single_tokens() -> None:
    caps = Caps(extend="native", token_ids=True)
    forks = parse("fractured").strategy
    assert lacking(forks, RunSetting(caps=caps)) == []
    assert lacking(forks, RunSetting(caps=caps, shows_tokens=False)) == ["the text of single tokens"]


# Settings in words ----------------------------------------------------------------------------------------------------


def runs(words: str) -> set[str]:
    setting = setting_of(words)
    return {name for name in STRATEGIES.entries if not lacking(parse(name).strategy, setting)}


def test_plain_chat_runs_whole_solutions() -> None:
    plain = {
        "archon", "auto", "best_of_n", "cascade", "mixture_of_agents", "pacore", "recursive_self_aggregation",
        "self_consistency", "self_refine", "self_verification", "semantic_entropy", "sequential_revision", "single",
    }  # fmt: skip
    assert runs("server chat-only no-verifier") == plain
    assert runs("server") == runs("server chat-only") == plain | {"ab_mcts", "adaptive", "mind_evolution"}
    assert runs("server continued-chat") >= runs("server chat-only") | {"beam"}
    assert "budget_forcing" in runs("server text thinking") - runs("server text")


def test_a_task_has_its_prompts() -> None:
    assert runs("toy") - runs("toy pocket") == {
        "archon",
        "mind_evolution",
        "mixture_of_agents",
        "pacore",
        "program_aided",
        "recursive_self_aggregation",
        "self_refine",
        "semantic_entropy",
    }
    assert runs("toy") - runs("toy countdown") >= {"sequential_revision"}
    lacks = {"token_ids", "logprobs", "next_logprobs"}
    assert runs("function") == {
        name for name in runs("toy") if not lacks & {*needs_of(parse(name).strategy).capabilities}
    }


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("", "which has no backend, but must have one"),
        ("chat-only", "which has no backend, but must have one"),
        ("toy function", "which has toy and function, but must have one"),
        ("server text tokens", "which asks the server as text and tokens, but must name one of them"),
        ("toy chat-only", "but may only have one task beside its backend, and words that are known"),
        ("toy pocket countdown", "but may only have one task beside its backend"),
    ],
)
def test_other_words_are_refused(words: str, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        setting_of(words)


def test_what_was_not_measured_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The column "measured" of the table of methods and the command agree."""
    from tts.cli.strategies import strategies

    text = (Path(__file__).parents[2] / "docs/reference/methods.md").read_text(encoding="utf-8")
    table = text.partition("## Strategies")[2].partition("\n## ")[0]
    said = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", table, re.MULTILINE))
    assert set(said) == set(STRATEGIES.names())
    assert {name for name, measured in said.items() if measured == "community"} == COMMUNITY
    assert "no" not in said.values()
    strategies("archon")
    assert "Community: its gain was not measured." in capsys.readouterr().out
    strategies("beam")
    assert "Community" not in capsys.readouterr().out
