from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.strategy_contract import StrategyContract
from tests.contracts.walk import missing, registered_in
from tests.support.judging import ApprovingToy
from tests.support.revising import revising  # noqa: F401 - a fixture
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage
from tts.search.parts import STRATEGIES


def contract(*texts: str, revises: bool = False, **more: Any) -> type[StrategyContract]:
    """Return the contract class of a strategy, whose form without sizes is its name where `unsized` says nothing else.

    Args:
        texts: Forms of the strategy, as `StrategyContract.texts`.
        revises: Whether its task needs prompts that show earlier solutions.
        more: Other attributes of the class.
    """
    name = texts[0].partition("(")[0]
    made = type(f"Test_{name}", (StrategyContract,), {"name": name, "texts": texts, "unsized": name, **more})
    return pytest.mark.usefixtures("revising")(made) if revises else made


TestSingle = contract("single", "single(temperature=0.7)", "single(temperature=0.0)", unsized=None, width=False)
TestBestOfN = contract("best_of_n(n=6)", "best_of_n(n=3, temperature=0.5)", "best_of_n(n=1)")


class TestSelfConsistency(StrategyContract):
    name = "self_consistency"
    texts = ("self_consistency(n=6)", "self_consistency(n=3, temperature=0.5)")
    unsized = "self_consistency"

    def plan(self, which: int = 0):  # type: ignore[no-untyped-def]
        plan = super().plan(which)
        assert str(plan.selection) == "majority"
        return type(plan)(plan.strategy, plan.stopping)  # its strategy, free to be joined with any selection

    def test_its_text_form_parses_back(self) -> None:
        from tts.search.plan import parse

        plan = parse("self_consistency(n=6) | unanimous")
        assert parse(str(plan)) == plan
        assert str(plan) == "best_of_n(n=6) | unanimous | majority"


TestAdaptive = contract("adaptive(n=5)", "adaptive(n=3, threshold=0.95, start=0.0)")


class TestAuto(StrategyContract):
    name = "auto"
    texts = ("auto(n=6)", "auto(n=3, pilots=1, price=0.0)")
    unsized = "auto"

    def test_it_does_not_depend_on_what_else_is_solved(self) -> None:
        from tests.contracts.strategy_contract import PROBLEMS, backend
        from tts.solver.solver import Solver

        with Solver(backend(), {}, task="arithmetic", strategy=self.plan()) as solver:
            alone = [solver.solve(problem, 900, seed=2).trace.canonical() for problem in PROBLEMS]
            together = [s.trace.canonical() for s in solver.solve_many(PROBLEMS, each=900, seed=2)]
        assert together == alone  # under one total they share, which is what it is for


TestAnswerConvergence = contract(
    "answer_convergence(n=3, k=2, tokens=1)", "answer_convergence(n=2, k=1, cue='so A: ', max_steps=3)"
)
TestBudgetForcing = contract(
    "budget_forcing(n=3, thought_tokens=4)",
    "budget_forcing(n=2, thought_tokens=6, waits=2)",
    r"budget_forcing(n=2, thought_tokens=5, waits=1, wait='Wait\n', cue='A: ')",
    unsized="budget_forcing(thought_tokens=4)",
    language=ToyLanguage(accuracy=0.5, mute=0.1, thoughts=True),
)
# Of one model, which is asked again where its samples differ.
TestCascade = contract(
    "cascade(models=['policy', 'policy'], samples=[2, 3], thresholds=[1.0])",
    "cascade(models=['policy', 'policy'], samples=[1, 2], thresholds=[0.7], verifier='main')",
    "cascade(models=['policy'], samples=[2])",
    unsized="cascade(models=['policy', 'policy'])",
)
TestDeepConfidenceOnline = contract(
    "deepconf_online(n=6, warmup=3)", "deepconf_online(n=7, warmup=2, keep=90, consensus=2, width=3, tokens=4)"
)
# at the toy all paths end in one call, behind which nothing can be cancelled
TestDiverseBeam = contract(
    "diverse_beam(n=3, groups=3, branching=1, strength=0.0)",
    "diverse_beam(n=4, groups=2, branching=2)",
    "diverse_beam(n=5, groups=2, branching=3, strength=9.0, max_steps=3)",
    unsized="diverse_beam(branching=2)",
    width=False,
)
TestParallelProbe = contract(
    "parallel_probe(n=4, every=6, stable=2, warmup=1, tokens=1)",
    "parallel_probe(n=6, every=4, stable=9, warmup=0, differing=1, share=0.4, least=2, cue='so A: ', tokens=1)",
    unsized="parallel_probe(every=6, stable=2, warmup=1, tokens=1)",
)
TestEarlyPruning = contract(
    "early_pruning(n=6)", "early_pruning(n=4, tokens=8, pruned=0.75)", "early_pruning(n=3, pruned=0.0)"
)
TestEntropicParticleFilter = contract(
    "entropic_particle_filter(n=4)", "entropic_particle_filter(n=3, annealing='entropy', horizon=9, least_ess=1.0)"
)
TestAbMcts = contract("ab_mcts(n=5)", "ab_mcts(n=4, posterior='mixed')", "ab_mcts(n=4, posterior='beta')", revises=True)
TestFractured = contract(
    "fractured(n=2, depths=3)", "fractured(n=2, depths=2, answers=2, cue='A: ')", "fractured(n=1, depths=1)"
)
TestMcts = contract(
    "mcts(n=8, width=2)", "mcts(n=3, width=3, value='rollout', exploration=0.5, max_steps=3)", looks=(100, 200)
)
TestParallelTempering = contract("parallel_tempering(n=2)", "parallel_tempering(n=2, chains=3, sweeps=2, hottest=9.0)")
TestParticleFilter = contract(
    "particle_filter(n=4)",
    "particle_filter(n=3, resampling='residual', weight_temperature=2.0, max_steps=3)",
    "particle_filter(n=3, resample_below=0.5, target='last', twist=0.5, lookahead=1)",
)
TestParticleGibbs = contract("particle_gibbs(n=3, sweeps=2)", "particle_gibbs(n=2, sweeps=3, returned='last')")
TestPowerSmc = contract(
    "power_smc(n=4)",
    "power_smc(n=3, alpha=1.5, block=4, resampling='residual', resample_below=1, ramp=8)",
    "power_smc(n=1)",
    unsized="power_smc",
    width=False,
    alone="single(temperature=0.25)",
)
TestSpecReason = contract(
    "spec_reason(n=3, draft='policy')",
    "spec_reason(n=2, draft='policy', threshold=10, first=1, grade='mean', question='Its digit is ')",
    "spec_reason(n=2, draft='policy', threshold=0, max_steps=2)",
    unsized="spec_reason(draft='policy')",
    looks=(100, 200),
)
TestEntropySwitching = contract(
    "entropy_switching(n=3, draft='policy')",
    "entropy_switching(n=2, draft='policy', threshold=0.1, window=4, max_steps=2)",
    unsized="entropy_switching(draft='policy')",
)
# at the toy all paths end in one call, behind which nothing can be cancelled
TestGuidedByGut = contract(
    "guided_by_gut(n=4)",
    "guided_by_gut(n=3, branching=3, novelty=0, cool=0.5, levels=1, max_steps=3)",
    "guided_by_gut(n=1)",
    width=False,
)
TestMur = contract(
    "mur(n=3, branching=3)",
    "mur(n=2, branching=2, gamma=5, momentum=0.5, verifier='main', max_steps=3)",
    "mur(n=2, branching=1)",
)
TestPhiDecoding = contract(
    "phi_decoding(n=3, beams=2, branching=2)",
    "phi_decoding(n=2, beams=2, branching=3, clusters=1, foresight=1, deviations=0, least=1, most=2, max_steps=3)",
    "phi_decoding(n=1, beams=1, branching=1)",
    unsized="phi_decoding(beams=2, branching=2)",
    looks=(100, 200),
)
# which always answers: behind a prompt of its own the draws are not those of a plain sample
TestProgramAided = contract(
    "program_aided(n=3)",
    "program_aided(n=2, programs=1, seconds=0.5, characters=10, max_steps=3)",
    "program_aided(n=1)",
    plain=False,
    language=ToyLanguage(accuracy=0.5),
    revises=True,
)
TestPowerSampling = contract(
    "power_sampling(chains=3, moves=2)",
    "power_sampling(chains=2, alpha=1.5, block=4, moves=1)",
    "power_sampling(chains=2, moves=0)",
    unsized="power_sampling(moves=2)",
    alone="single(temperature=0.25)",
    looks=(100, 200),
)
TestLookaheadPowerSampling = contract(
    "lookahead_power_sampling(n=2, branching=2, rollouts=2)",
    "lookahead_power_sampling(n=1, alpha=1.5, block=4, branching=3, rollouts=0)",
    "lookahead_power_sampling(n=2, block=6, branching=2, rollouts=1, horizon=2)",
    unsized="lookahead_power_sampling(branching=2, rollouts=1)",
    alone="single(temperature=0.25)",
    looks=(200, 400),
)
TestPaCoRe = contract(
    "pacore(widths=[3])",
    "pacore(widths=[2, 2], message='conclusion', prompt='revise')",
    "pacore(widths=[1])",
    revises=True,
)
TestRecursiveSelfAggregation = contract(
    "recursive_self_aggregation(n=3, rounds=2, subset=2)",
    "recursive_self_aggregation(n=2, rounds=3, prompt='revise')",
    "recursive_self_aggregation(n=1, rounds=3)",
    revises=True,
)
TestSelfRefine = contract(
    "self_refine(n=2, rounds=1)", "self_refine(n=1, rounds=2, stop='9')", "self_refine(n=3, rounds=0)", revises=True
)
TestMixtureOfAgents = contract(
    "mixture_of_agents(samples=3)", "mixture_of_agents(samples=2, layers=2, prompt='revise')", revises=True
)
# The toy's replies have no verdict and no order, so that all stay, in order.
TestArchon = contract(
    "archon(n=3)",
    "archon(n=4, layers=['generate', 'verify', 'critique', 'rank'], keep=2)",
    "archon(n=2, layers=['generate', 'fuse', 'fuse'], fused=2)",
    "archon(n=2, layers=['generate'])",
    revises=True,
)
TestMindEvolution = contract(
    "mind_evolution(n=2, generations=2)",
    "mind_evolution(n=3, islands=1, parents=3)",
    "mind_evolution(n=1, generations=1)",
    revises=True,
)
# The toy replies with no label, so that all states are equal but those that come again.
TestForestOfThought = contract(
    "forest_of_thought(n=3, branching=2)",
    "forest_of_thought(n=1, width=2, votes=2, max_steps=2, corrections=0)",
    looks=(300, 500),
)
# The toy replies with no label, so that all states are equal but those that come again.
TestTreeOfThoughts = contract(
    "tree_of_thoughts(n=1, branching=2, votes=1)",
    "tree_of_thoughts(n=2, branching=3, votes=2, max_steps=2)",
    looks=(300, 500),
)
# The toy replies to a question for a verdict with a solution: nothing is known of any.
TestSelfVerification = contract(
    "self_verification(n=3, verifications=2)",
    "self_verification(n=4, law=[0.5, 0.5])",
    "self_verification(n=2, verifications=0)",
)


class TestSelfVerificationWithVerdicts(TestSelfVerification):
    """Three replies in four have a verdict."""

    def backend(self) -> ToyBackend:
        return ApprovingToy(self.language)


TestSemanticEntropy = contract(
    "semantic_entropy(n=3, rounds=2)",
    "semantic_entropy(n=2, rounds=3, rule='secretary', prompt='revise', shown=1)",
    revises=True,
)
TestSequentialRevision = contract(
    "sequential_revision(chains=2, length=2)", "sequential_revision(chains=1, length=3, shown=1)", revises=True
)
TestBeam = contract(
    "beam(n=4, branching=2)",
    "beam(n=5, branching=4, lookahead=2, duplicates='keep')",
    "beam(n=1)",
    "beam(n=3, max_steps=2)",
)
TestDvts = contract(
    "dvts(n=4, branching=2)", "dvts(n=5, branching=4, lookahead=1)", "dvts(n=1)", "dvts(n=3, max_steps=2)"
)
TestRebase = contract("rebase(n=4)", "rebase(n=5, balance_temperature=0.01)", "rebase(n=1)", "rebase(n=3, max_steps=2)")
TestAStar = contract(
    "a_star(branching=3, expansions=9)",
    "a_star(branching=4, edge_cost='consistent', width=2, goals=None, expansions=30)",
    "a_star(branching=2, edge_cost='unit', frontier='local', expansions=2)",
    "a_star(branching=1, edge_cost='zero', max_steps=2, expansions=50)",
)
TestEts = contract(
    "ets(n=4)",
    "ets(n=5, cost='tokens', embedder='ngrams(size=2)', coverage=9.0)",
    "ets(n=1)",
    "ets(n=3, charge=0.0)",
    steady=False,
    looks=(100, 200),
)


CONTRACTS = tuple(StrategyContract.__subclasses__())


def test_every_strategy_has_a_contract_class() -> None:
    assert missing(STRATEGIES, [contract.name for contract in CONTRACTS]) == []
    written = registered_in("search/strategies")
    assert written, "the walk found no strategy at all"
    assert written - set(STRATEGIES.entries.values()) == set()
