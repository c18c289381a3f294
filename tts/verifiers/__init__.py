"""The registry of verifiers: names and the classes that they stand for, imported on use."""

from __future__ import annotations

from tts.registry import Registry

VERIFIERS = Registry(
    "verifier",
    "tts.verifiers",
    {
        "checker": "tts.verifiers.checker:Checker",
        "code": "tts_addons.code.verifier:Code",
        "confidence": "tts.verifiers.confidence:Confidence",
        "ensemble": "tts.verifiers.ensemble:Ensemble",
        "genrm": "tts.verifiers.genrm:GenRm",
        "grader": "tts.verifiers.grader:Grader",
        "judge": "tts.verifiers.judge:Judge",
        "multi_aspect": "tts.verifiers.genrm:MultiAspect",
        "probe": "tts.verifiers.heads:Probe",
        "process": "tts.verifiers.heads:ProcessVerifier",
        "reward": "tts.verifiers.reward.verifier:Reward",
        "rules": "tts.verifiers.rules.verifier:Rules",
        "self_evaluation": "tts.verifiers.self_evaluation:SelfEvaluation",
        "tests": "tts_addons.agents.patch_tests:PatchTests",
        "toy": "tts.verifiers.toy:ToyVerifier",
    },
)
