from __future__ import annotations

from tests.contracts.strategy_contract import StrategyContract
from tests.contracts.walk import classes_with, missing
from tts.search.registry import STRATEGIES


class TestSingle(StrategyContract):
    name = "single"
    texts = ("single", "single(temperature=0.7)", "single(temperature=0.0)")
    width = False


class TestBestOfN(StrategyContract):
    name = "best_of_n"
    texts = ("best_of_n(n=6)", "best_of_n(n=3, temperature=0.5)", "best_of_n(n=1)")
    unsized = "best_of_n"


class TestSelfConsistency(StrategyContract):
    name = "self_consistency"
    texts = ("self_consistency(n=6)", "self_consistency(n=3, temperature=0.5)")
    unsized = "self_consistency"

    def plan(self, which: int = 0):  # type: ignore[no-untyped-def]
        plan = super().plan(which)
        assert str(plan.selection) == "majority"
        return type(plan)(plan.strategy, plan.stopping)  # its strategy, free to be joined with any selection

    def test_its_text_form_parses_back(self) -> None:
        from tts.search.registry import parse

        plan = parse("self_consistency(n=6) | unanimous")
        assert parse(str(plan)) == plan
        assert str(plan) == "best_of_n(n=6) | unanimous | majority"


class TestParticleFilter(StrategyContract):
    name = "particle_filter"
    texts = ("particle_filter(n=4)", "particle_filter(n=3, resampling='residual', weight_temperature=2.0, max_steps=3)")
    unsized = "particle_filter"


CONTRACTS = (
    TestSingle,
    TestBestOfN,
    TestSelfConsistency,
    TestParticleFilter,
)


def test_every_strategy_has_a_contract_class() -> None:
    assert missing(STRATEGIES, [contract.name for contract in CONTRACTS]) == []
    written = classes_with("search", ("run", "size", "default_selection"))
    listed = set(STRATEGIES.entries.values())
    assert written, "the walk found no strategy at all"
    assert {way for way in written if way not in listed} == set()
