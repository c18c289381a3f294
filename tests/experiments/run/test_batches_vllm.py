"""Files of requests are answered by the real `vllm run-batch`; skipped where vLLM is not installed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.servers import OFFLINE, STARTS_S, interpreter, vllm_flags
from tts.cli.app import app
from tts.errors import ConfigError
from tts.experiments.store.store import Store
from tts.models import registry

pytest.importorskip("yaml")
STUDY = """
name: sums
models: {small: {model: smollm2, url: "http://127.0.0.1:9", sampling: {max_tokens: 24}}}
problems: {dataset: arithmetic, limit: 2, operations: 2, operators: +-, parentheses: false}
strategies: best_of_n | majority
budgets: {samples: 2}
"""


@pytest.mark.slow
def test_vllm_answers_the_files_of_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tts.backends.vllm.loading import readable

    python, record = interpreter("vllm"), registry.get("smollm2")
    try:
        registry.locate(record)
    except ConfigError as missing:
        pytest.skip(f"{missing.cause}; {missing.hint}")
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY)
    sample = ["sample", "study.yaml", "--n", "3", "--model-option", "probe=never", "--batch-files", "files"]
    written = CliRunner().invoke(app, sample)
    assert written.exit_code == 0, written.stderr
    [requests] = Path("files").glob("*.requests.jsonl")
    output = requests.with_name(requests.name.replace(".requests.", ".output."))
    with readable(record) as location:
        command = [python, "-m", "vllm.entrypoints.openai.run_batch", *vllm_flags(record, location, python)]
        done = subprocess.run(
            [*command, "-i", str(requests), "-o", str(output)],
            env={**os.environ, **OFFLINE},
            capture_output=True,
            text=True,
            timeout=STARTS_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["response"]["status_code"] for line in lines] == [200] * 6
    read = CliRunner().invoke(app, sample)
    assert read.exit_code == 0, read.stderr
    with Store(Path(".tts/store.sqlite")) as store:
        results = list(store.results(store.studies()[-1].id))
    assert [(one.error, len(one.drawn or ()), dict(one.failures)) for one in results] == [(None, 3, {})] * 2
    said = sum(line["response"]["body"]["usage"]["completion_tokens"] for line in lines)
    assert sum(one.usage.generated_tokens for one in results) == said
