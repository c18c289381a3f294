"""The names of strategies, stop rules, selections and embedders, each with its place."""

from __future__ import annotations

from tts.registry import Registry

STRATEGIES = Registry(
    "strategy",
    "tts.strategies",
    {
        "ab_mcts": "tts.search.strategies.ab_mcts:AbMcts",
        "a_star": "tts.search.strategies.a_star:AStar",
        "adaptive": "tts.search.strategies.adaptive:Adaptive",
        "answer_convergence": "tts.search.strategies.answer_convergence:AnswerConvergence",
        "archon": "tts.search.strategies.archon:Archon",
        "auto": "tts.allocator.auto:Auto",
        "beam": "tts.search.strategies.beam:Beam",
        "best_of_n": "tts.search.strategies.best_of_n:BestOfN",
        "budget_forcing": "tts.search.strategies.budget_forcing:BudgetForcing",
        "cascade": "tts.search.strategies.cascade:Cascade",
        "deepconf_online": "tts.search.strategies.deepconf_online:DeepConfidenceOnline",
        "dvts": "tts.search.strategies.dvts:Dvts",
        "early_pruning": "tts.search.strategies.early_pruning:EarlyPruning",
        "entropic_particle_filter": "tts.search.strategies.entropic_particle_filter:EntropicParticleFilter",
        "entropy_switching": "tts.search.strategies.entropy_switching:EntropySwitching",
        "ets": "tts.search.strategies.ets:Ets",
        "fractured": "tts.search.strategies.fractured:Fractured",
        "forest_of_thought": "tts.search.strategies.forest_of_thought:ForestOfThought",
        "guided_by_gut": "tts.search.strategies.guided_by_gut:GuidedByGut",
        "mcts": "tts.search.strategies.mcts:Mcts",
        "pacore": "tts.search.strategies.pacore:PaCoRe",
        "mind_evolution": "tts.search.strategies.mind_evolution:MindEvolution",
        "mixture_of_agents": "tts.search.strategies.mixture_of_agents:MixtureOfAgents",
        "mur": "tts.search.strategies.mur:Mur",
        "parallel_tempering": "tts.search.strategies.parallel_tempering:ParallelTempering",
        "particle_filter": "tts.search.strategies.particle_filter:ParticleFilter",
        "particle_gibbs": "tts.search.strategies.particle_gibbs:ParticleGibbs",
        "phi_decoding": "tts.search.strategies.phi_decoding:PhiDecoding",
        "program_aided": "tts.search.strategies.program_aided:ProgramAided",
        "power_sampling": "tts.search.strategies.power_sampling:PowerSampling",
        "rebase": "tts.search.strategies.rebase:Rebase",
        "recursive_self_aggregation": "tts.search.strategies.recursive_self_aggregation:RecursiveSelfAggregation",
        "self_consistency": "tts.search.strategies.best_of_n:self_consistency",
        "self_refine": "tts.search.strategies.self_refine:SelfRefine",
        "self_verification": "tts.search.strategies.self_verification:SelfVerification",
        "semantic_entropy": "tts.search.strategies.semantic_entropy:SemanticEntropy",
        "sequential_revision": "tts.search.strategies.sequential_revision:SequentialRevision",
        "single": "tts.search.strategies.single:Single",
        "spec_reason": "tts.search.strategies.spec_reason:SpecReason",
        "tree_of_thoughts": "tts.search.strategies.tree_of_thoughts:TreeOfThoughts",
    },
)


STOP_RULES = Registry(
    "stop rule",
    "tts.stop_rules",
    {
        "cges": "tts.search.stop_rules.cges:CGES",
        "entropy": "tts.search.stop_rules.entropy:Entropy",
        "in_a_row": "tts.search.stop_rules.in_a_row:InARow",
        "mixture_sprt": "tts.search.stop_rules.mixture_sprt:MixtureSPRT",
        "never": "tts.search.stop_rules.never:Never",
        "posterior": "tts.search.stop_rules.posterior:Posterior",
        "reasc": "tts.search.stop_rules.reasc:ReASC",
        "score_threshold": "tts.search.stop_rules.score_threshold:ScoreThreshold",
        "sprt": "tts.search.stop_rules.sprt:SPRT",
        "unanimous": "tts.search.stop_rules.unanimous:Unanimous",
    },
)


EMBEDDERS = Registry(
    "embedder",
    "tts.embedders",
    {
        "endpoint": "tts.search.algorithms.embedding_endpoint:Endpoint",
        "ngrams": "tts.search.algorithms.embedding:HashedNgrams",
        "sentences": "tts.search.algorithms.embedding:Sentences",
    },
)


SELECTIONS = Registry(
    "selection",
    "tts.selections",
    {
        "best": "tts.search.selections.best:Best",
        "best_of_majority": "tts.search.selections.best_of_majority:BestOfMajority",
        "borda": "tts.search.selections.borda:Borda",
        "codet": "tts.search.selections.codet:CodeT",
        "deepconf": "tts.search.selections.deepconf:DeepConfidence",
        "hierarchical": "tts.search.selections.hierarchical:Hierarchical",
        "knockout": "tts.search.selections.knockout:Knockout",
        "league": "tts.search.selections.league:League",
        "majority": "tts.search.selections.majority:Majority",
        "majority_of_bests": "tts.search.selections.majority_of_bests:MajorityOfBests",
        "medoid": "tts.search.selections.medoid:Medoid",
        "pairwise": "tts.search.selections.pairwise:Pairwise",
        "rpc": "tts.search.selections.rpc:Rpc",
        "selective": "tts.search.selections.selective:Selective",
        "weighted": "tts.search.selections.weighted:Weighted",
    },
)
