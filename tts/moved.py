"""Import paths of the last version: each still works, with a DeprecationWarning that names the new one. To be removed in 0.3."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader


def _from(old: str, new: str, names: str) -> dict[str, str]:
    """Return old to new module; a name of the form "old>new" was renamed."""
    pairs = [name.partition(">") for name in names.split()]
    return {f"{old}.{before}": f"{new}.{after or before}" for before, _, after in pairs}


# old module -> the module that has its names now; several, separated by spaces, where it was divided
MOVED: dict[str, str] = {
    **_from("tts", "tts", "plugins>registry ledger>budget.ledger recording>trace.nodes trace_page>trace.html"),
    **_from("tts", "tts.solver", "run>problem_run kept>model_cache scorers>verifier_roles many>shared_budget"),
    "tts.background": "tts.solver.event_loop tts.threads",
    "tts.search.base": (
        "tts.search.parts tts.search.plan tts.search.ends tts.search.protocols tts.search.parameters tts.checks tts.text_form"
    ),
    "tts.search.registry": "tts.search.plan tts.text_form",
    "tts.search.selection": "tts.search.selections",
    "tts.search.stopping": "tts.search.stop_rules tts.search.stop_rules.posterior tts.search.stop_rules.entropy",
    **_from("tts.search", "tts.search", "writing>rows wave>row_batch spending>accounting classes>answers calls>metered_calls"),
    **_from("tts.search", "tts.search", "opening>prompts reading>prompts"),
    **_from(
        "tts.search",
        "tts.search.strategies",
        "a_star adaptive answer_convergence beam best_of_n deep_confidence_online>deepconf_online dvts early_pruning "
        "entropic_particle_filter ets mcts parallel_tempering particle_filter particle_gibbs rebase semantic_entropy "
        "sequential_revision single",
    ),
    **_from("tts.search", "tts.search.strategies._common", "guided judged particles stepping showing>earlier_solutions"),
    **_from("tts.search", "tts.search.selections", "borda deep_confidence>deepconf pairwise perplexity_consistency>rpc selective"),
    **_from("tts.search", "tts.search.selections", "choosing>_common"),
    **_from(
        "tts.search", "tts.search.algorithms", "aggregation apportion>apportioning clustering embedding pruning resampling calibration"
    ),
    **_from("tts.verifiers", "tts.verifiers", "callable>function fitting>compatibility probe>heads process>heads"),
    **_from(
        "tts.verifiers",
        "tts.verifiers.reward",
        "reward_head>head reward_loading>loading reward_model>model reward_reader>renderer reward_record>record pooling pooling_vllm",
    ),
    **_from("tts.verifiers", "tts.verifiers.code", "sandbox sandbox_child container"),
    **_from("tts.backends", "tts.backends", "callable>function toy_language>toy.language"),
    "tts.backends.facts": "tts.backends.metadata tts.backends.protocol tts.backends.text.tokenized_text",
    **_from("tts.backends", "tts.backends.text", "detokenizer rendering stops row_state lengths"),
    **_from(
        "tts.backends",
        "tts.backends.openai",
        "openai_asker>probe_client openai_call>call openai_events>events openai_fault>errors openai_findings>capabilities openai_http>http "
        "openai_probe>probe openai_prompt>prompt openai_reply>reply openai_rows>rows",
    ),
    **_from(
        "tts.backends",
        "tts.backends.vllm",
        "vllm_build>loading vllm_draw>draw vllm_engine>engine vllm_files>files vllm_processor>processor",
    ),
    **_from("tts.backends", "tts.backends.transformers", "causal_model decoding"),
    "tts.backends.engine.device_operations": "tts.backends.engine.device.operations",
    "tts.backends.engine.probe": "tts.backends.engine.machine_limits",
    **_from("tts.experiments", "tts.experiments.study", "config study_file>file grid snapshot record"),
    **_from("tts.experiments", "tts.experiments.run", "runner executors local_executor ray_executor progress forecast"),
    **_from("tts.experiments", "tts.experiments.store", "schema rows merging"),
    **_from(
        "tts.experiments",
        "tts.experiments.analysis",
        "averaging comparing curves gathering>curves laws recorded>recorded_search replay fit>performance_fit",
    ),
    "tts.experiments.points": "tts.experiments.analysis.points tts.experiments.output.tables",
    "tts.experiments.pool": "tts.experiments.analysis.pools tts.experiments.run.candidates",
    "tts.experiments.sharing": "tts.experiments.analysis.scoring_cost tts.experiments.run.candidates",
    "tts.experiments.table": "tts.experiments.analysis.table tts.experiments.output.tables",
    **_from("tts.experiments", "tts.experiments.output", "plots report export"),
    **_from("tts.experiments", "tts.experiments", "trust>verifier_report"),
    **_from(
        "tts.experiments.trust",
        "tts.experiments.verifier_report",
        "advice answering>thresholds choosing>selection_effect figure gathering>scores measuring>measures report steps",
    ),
    **_from("tts.allocator", "research.allocation", "greedy"),
    **_from("tts.models.pocket", "research.pocket", "train evaluate"),
    **_from("tts.models.pocket.train", "research.pocket.train", "__main__"),
    **_from("tts.models.pocket.evaluate", "research.pocket.evaluate", "__main__"),
}
_PACKAGES = {module.rpartition(".")[0] for module in MOVED} & MOVED.keys()
# names that mean something else now, or are written differently, by their old module
RENAMED: dict[str, dict[str, str]] = {
    "tts.search.base": {"Stop": "StopDecision", "whole": "check_int", "number": "check_number", "nonempty_text": "check_text"},
    "tts.run": {"Run": "ProblemRun", "Outcome": "SearchOutcome"},
    "tts.kept": {"Kept": "ModelCache"},
    "tts.many": {"Purse": "SharedBudget", "Served": "BudgetShare"},
    "tts.scorers": {"Scorers": "VerifierRoles"},
    "tts.plugins": {"Table": "Registry"},
    "tts.backends.callable": {"CallableBackend": "FunctionBackend"},
    "tts.backends.facts": {"Spelled": "TokenizedText", "ValueFacts": "ValueHeadMetadata", "value_facts": "value_head_metadata"},
    "tts.backends.decoding": {"Decoder": "RowDecoder", "Ended": "FinishedRow", "Path": "CachedPath", "Request": "RowRequest"},
    "tts.backends.engine.probe": {"Probe": "MachineLimits"},
    "tts.backends.openai_asker": {"Asker": "ProbeClient"},
    "tts.backends.openai_call": {"Call": "ServerCall"},
    "tts.backends.openai_fault": {
        "Fault": "ServerError",
        "fault_of": "status_error",
        "fault_in": "event_error",
        "broken": "connection_error",
        "wait_of": "retry_after",
    },
    "tts.backends.openai_findings": {"Findings": "Capabilities"},
    "tts.backends.openai_http": {"Http": "HttpClient", "Patience": "Timeouts"},
    "tts.backends.openai_probe": {"look": "probe_server", "LOOK_S": "PROBE_TIMEOUT_S"},
    "tts.backends.openai_reply": {"Reply": "ServerReply", "Usage": "ReportedUsage"},
    "tts.backends.openai_rows": {"Handle": "ServerHandle", "Rows": "ServerRows", "Lost": "LostTries"},
    "tts.backends.row_state": {"said": "error_line"},
    "tts.backends.vllm_build": {"build": "load_parts"},
    "tts.backends.vllm_engine": {"Engine": "VLLMEngine"},
    "tts.backends.vllm_files": {"Files": "ModelFiles"},
    "tts.verifiers.callable": {"CallableVerifier": "FunctionVerifier"},
    "tts.verifiers.reward_reader": {"Reader": "SolutionRenderer", "Reading": "RenderedSolution"},
    "tts.verifiers.sandbox": {"Outcome": "ProgramOutcome", "Result": "ProgramResult", "Limits": "SandboxLimits"},
    "tts.experiments.averaging": {"Reading": "ReplaySettings", "Mean": "RunMeans"},
    "tts.experiments.comparing": {"Difference": "CurveDifference"},
    "tts.experiments.config": {"study": "study_config"},
    "tts.experiments.executors": {"Done": "CellResult"},
    "tts.experiments.fit": {"Measured": "PerformanceData", "Sampled": "PlainSampling"},
    "tts.experiments.forecast": {"Expected": "RowForecast", "Earlier": "EarlierResults"},
    "tts.experiments.gathering": {"Line": "CurveKey"},
    "tts.experiments.grid": {"Scoring": "ScoringCost"},
    "tts.experiments.laws": {"in_words": "describe_laws"},
    "tts.experiments.pool": {"right_of": "judge_answer", "drawn_of": "record_candidates"},
    "tts.experiments.progress": {"shown": "show_progress"},
    "tts.experiments.ray_executor": {"Worker": "RayWorker"},
    "tts.experiments.record": {"Drawn": "RecordedSample", "Run": "StoredRun", "Study": "StoredStudy"},
    "tts.experiments.recorded": {"Recorded": "RecordedSearch", "Outcome": "ReplayOutcome"},
    "tts.experiments.replay": {"Replayed": "ReplayedCurve"},
    "tts.experiments.runner": {"Prepared": "PreparedStudy", "Ended": "RunSummary"},
    "tts.experiments.sharing": {"beginnings": "shared_beginnings"},
    "tts.experiments.study_file": {"read": "read_study"},
    "tts.experiments.trust.answering": {"Answering": "AnswerThreshold", "answering": "answer_thresholds"},
    "tts.experiments.trust.choosing": {"Choosing": "SelectionEffect", "choosing": "selection_effect"},
    "tts.experiments.trust.gathering": {"Scored": "VerifierScores", "Gathered": "CollectedScores", "gathered": "collect_scores"},
    "tts.experiments.trust.measuring": {"Measured": "VerifierMeasures", "measured": "measure_verifier"},
    "tts.experiments.trust.report": {"Trust": "VerifierReport", "trust": "verifier_report"},
}


class _Finder:
    """Finds what no other finder has found: a module under its old name."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        if fullname not in MOVED:
            return None
        new = MOVED[fullname].split()
        if new[0].startswith("research.") and find_spec("research") is None:
            raise ModuleNotFoundError(f"{fullname} has moved to {new[0]}, which is run from a checkout of the repository", name=fullname)
        warnings.warn(f"{fullname} has moved to {' and '.join(new)}; the old path ends with 0.3", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, cast("Loader", _Loader(fullname, new)), is_package=fullname in _PACKAGES)


class _Loader:
    """Makes a module whose names are those of its successors."""

    def __init__(self, old: str, new: Sequence[str]) -> None:
        self._old = old
        self._new = new

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the making of the module to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        def of_successor(name: str) -> Any:
            own = name.startswith("__") and name != "__all__"  # of the module itself, such as __path__
            for home in () if own else map(importlib.import_module, self._new):
                for now in (RENAMED.get(self._old, {}).get(name, name), name):
                    if hasattr(home, now):
                        return getattr(home, now)
            raise AttributeError(f"module {self._old!r} has no attribute {name!r}")

        module.__dict__["__getattr__"] = of_successor

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that `python -m` runs."""
        del fullname
        spec = find_spec(self._new[0])
        return None if spec is None or spec.loader is None else spec.loader.get_code(spec.name)  # type: ignore[attr-defined]


def install() -> None:
    """Serve the old paths, after all other finders."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
