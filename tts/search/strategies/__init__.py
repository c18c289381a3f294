"""Strategies, one method a file, in packages by family. `auto` is in `tts.allocator.auto`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.search.strategies.community.budget_forcing import BudgetForcing as BudgetForcing
    from tts.search.strategies.community.deepconf_online import DeepConfidenceOnline as DeepConfidenceOnline
    from tts.search.strategies.community.mixture_of_agents import MixtureOfAgents as MixtureOfAgents
    from tts.search.strategies.community.pacore import PaCoRe as PaCoRe
    from tts.search.strategies.community.recursive_self_aggregation import (
        RecursiveSelfAggregation as RecursiveSelfAggregation,
    )
    from tts.search.strategies.community.self_refine import SelfRefine as SelfRefine
    from tts.search.strategies.community.spec_reason import SpecReason as SpecReason
    from tts.search.strategies.guided.mur import Mur as Mur
    from tts.search.strategies.models.cascade import Cascade as Cascade
    from tts.search.strategies.particles.parallel_tempering import ParallelTempering as ParallelTempering
    from tts.search.strategies.particles.particle_filter import ParticleFilter as ParticleFilter
    from tts.search.strategies.particles.particle_gibbs import ParticleGibbs as ParticleGibbs
    from tts.search.strategies.particles.power_smc import PowerSmc as PowerSmc
    from tts.search.strategies.revision.ab_mcts import AbMcts as AbMcts
    from tts.search.strategies.revision.sequential_revision import SequentialRevision as SequentialRevision
    from tts.search.strategies.samples.adaptive import Adaptive as Adaptive
    from tts.search.strategies.samples.answer_convergence import AnswerConvergence as AnswerConvergence
    from tts.search.strategies.samples.best_of_n import BestOfN as BestOfN
    from tts.search.strategies.samples.best_of_n import self_consistency as self_consistency
    from tts.search.strategies.samples.early_pruning import EarlyPruning as EarlyPruning
    from tts.search.strategies.samples.self_verification import SelfVerification as SelfVerification
    from tts.search.strategies.samples.single import Single as Single
    from tts.search.strategies.trees.a_star import AStar as AStar
    from tts.search.strategies.trees.beam import Beam as Beam
    from tts.search.strategies.trees.dvts import Dvts as Dvts
    from tts.search.strategies.trees.ets import Ets as Ets
    from tts.search.strategies.trees.mcts import Mcts as Mcts
    from tts.search.strategies.trees.rebase import Rebase as Rebase
    from tts_addons.code.program_aided import ProgramAided as ProgramAided
    from tts_addons.zoo.archon import Archon as Archon
    from tts_addons.zoo.diverse_beam import DiverseBeam as DiverseBeam
    from tts_addons.zoo.entropic_particle_filter import (
        EntropicParticleFilter as EntropicParticleFilter,
    )
    from tts_addons.zoo.entropy_switching import EntropySwitching as EntropySwitching
    from tts_addons.zoo.forest_of_thought import ForestOfThought as ForestOfThought
    from tts_addons.zoo.fractured import Fractured as Fractured
    from tts_addons.zoo.guided_by_gut import GuidedByGut as GuidedByGut
    from tts_addons.zoo.lookahead_power_sampling import LookaheadPowerSampling as LookaheadPowerSampling
    from tts_addons.zoo.mind_evolution import MindEvolution as MindEvolution
    from tts_addons.zoo.parallel_probe import ParallelProbe as ParallelProbe
    from tts_addons.zoo.phi_decoding import PhiDecoding as PhiDecoding
    from tts_addons.zoo.power_sampling import PowerSampling as PowerSampling
    from tts_addons.zoo.semantic_entropy import SemanticEntropy as SemanticEntropy
    from tts_addons.zoo.tree_of_thoughts import TreeOfThoughts as TreeOfThoughts

__getattr__, __dir__, __all__ = lazy_exports(__name__)
