"""The table of verifiers, resolved on use. A new verifier is one file with one class, and one line here."""

from __future__ import annotations

from tts.plugins import Table

VERIFIERS = Table(
    "verifier",
    "tts.verifiers",
    {
        "checker": "tts.verifiers.checker:Checker",
        "code": "tts.verifiers.code:Code",
        "confidence": "tts.verifiers.confidence:Confidence",
        "ensemble": "tts.verifiers.ensemble:Ensemble",
        "judge": "tts.verifiers.judge:Judge",
        "probe": "tts.verifiers.probe:Probe",
        "process": "tts.verifiers.process:ProcessVerifier",
        "reward": "tts.verifiers.reward:Reward",
        "self_evaluation": "tts.verifiers.self_evaluation:SelfEvaluation",
        "toy": "tts.verifiers.toy:ToyVerifier",
    },
)
