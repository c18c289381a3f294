"""Evaluation frameworks on a gateway, each in an environment of its own (`make test-clients`): they measure what
`tts run` measures.

The same 50 problems, task and seed give the same solutions, and so the same accuracy. Log-likelihoods are those of the
engine itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("numba", reason="the extra engine is not installed")

import tts
from tests.addons.gateway.asking import serving, url_of
from tts.backends.capabilities import prompt_logprobs
from tts.backends.engine import EngineBackend
from tts.backends.text.tokenized_text import TokenizedText
from tts.experiments.datasets import arithmetic
from tts.models import registry

pytestmark = pytest.mark.slow

STRATEGY, BUDGET, SEED, CAP = "best_of_n(n=4) | weighted", 1000, 1234, 200
SETTINGS: dict[str, Any] = {"models": {"pocket": {"presets": {"vote": {"strategy": STRATEGY, "budget": BUDGET}}}}}
WRITTEN = "def add(a, b):\n    return a + b\n"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def client_of(variable: str) -> str:
    """Return the Python of a client, or skip."""
    python = os.environ.get(variable)
    if not python or not Path(python).exists():
        pytest.skip(f"{variable} names no Python with this client (make test-clients makes them)")
    return python


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The base url of a gateway."""
    with serving(**SETTINGS) as server:
        yield url_of(server)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 50 problems to solve, and 50 of one operation whose first line is to be chosen from four."""
    made = tmp_path_factory.mktemp("clients")
    solve = arithmetic.load(limit=50, split="validation", seed=11, operations=[2, 3, 4])
    # streams follow from ids, or from prompts
    rows = [{"id": one.prompt, "question": one.prompt, "answer": one.answer} for one in solve]
    (made / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    choose = arithmetic.load(limit=50, split="validation", seed=12, operations=1)
    rows = [
        {
            "context": f"{one.prompt}\n",
            "choices": [f"{one.prompt} = {int(str(one.answer)) + slip}\n" for slip in (1, 0, -1, 10)],
            "label": 1,
        }
        for one in choose
    ]
    (made / "choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


@pytest.fixture(scope="module")
def accuracy(folder: Path) -> float:
    """The accuracy of a study of the same problems with the same strategy, budget and seed."""
    study = tts.Study(
        name="sums",
        models={"pocket": {"model": "pocket", "sampling": {"max_tokens": CAP}}},
        problems={"dataset": "file", "path": str(folder / "sums.jsonl"), "task": "pocket"},
        strategies=[STRATEGY],
        budgets=[BUDGET],
        seeds=[SEED],
    )
    study.run(folder / "study.sqlite", progress=False)
    [row] = study.rows()
    assert row.accuracy is not None
    assert 0.5 < row.accuracy.value < 1, "the problems tell nothing apart"
    return row.accuracy.value


def ran(python: str, *arguments: str, folder: Path, **more: str) -> str:
    """Run a client in the folder; returns what it printed."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={**known, **OFFLINE, "HF_HOME": str(folder / "hf"), **more},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def lm_eval(folder: Path, task: dict[str, Any], *arguments: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a local task of lm-evaluation-harness; returns its results, and its samples by document."""
    (folder / f"{task['task']}.yaml").write_text(json.dumps(task))  # which is YAML too
    out = folder / f"{task['task']}-out"
    ran(
        client_of("TTS_LM_EVAL_PYTHON"),
        "-m",
        "lm_eval",
        "--tasks",
        task["task"],
        "--include_path",
        str(folder),
        "--output_path",
        str(out),
        "--log_samples",
        *arguments,
        folder=folder,
    )
    [results], [samples] = out.rglob("results_*.json"), out.rglob("samples_*.jsonl")
    found = [json.loads(line) for line in samples.read_text().splitlines()]
    return json.loads(results.read_text())["results"][task["task"]], sorted(found, key=lambda one: one["doc_id"])


def test_lm_evals_chat_has_the_accuracy_of_a_study(served: str, folder: Path, request: pytest.FixtureRequest) -> None:
    client_of("TTS_LM_EVAL_PYTHON")
    task = {
        "task": "sums_chat",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "sums.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": [], "max_gen_toks": CAP, "temperature": 0},
        "filter_list": [
            {
                "name": "answer",
                "filter": [{"function": "regex", "regex_pattern": r"A: (-?\d+)"}, {"function": "take_first"}],
            }
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    arguments = f"model=pocket:vote,base_url={served}/chat/completions,num_concurrent=8,seed={SEED}"
    results, samples = lm_eval(
        folder, task, "--model", "local-chat-completions", "--model_args", arguments, "--apply_chat_template"
    )
    assert results["exact_match,answer"] == pytest.approx(request.getfixturevalue("accuracy"))
    assert len(samples) == 50
    first = samples[0]
    with tts.Solver("pocket", sampling=tts.Sampling(max_tokens=CAP)) as solver:
        solution = solver.solve(first["doc"]["question"], BUDGET, strategy=STRATEGY, seed=SEED)
    assert first["resps"][0][0] == solution.text


def test_lm_evals_log_likelihoods_are_those_of_the_engine(served: str, folder: Path) -> None:
    client_of("TTS_LM_EVAL_PYTHON")
    task = {
        "task": "first_line",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "choices.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_target": "label",
        "doc_to_choice": "choices",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    arguments = f"model=pocket,base_url={served}/completions,tokenizer_backend=remote,num_concurrent=4,max_length=1024"
    results, samples = lm_eval(
        folder, task, "--model", "local-completions", "--model_args", arguments, "--batch_size", "8"
    )
    values, greedy = _directly([json.loads(line) for line in (folder / "choices.jsonl").read_text().splitlines()])
    told = np.array([[float(value) for [[value, _]] in sample["resps"]] for sample in samples])
    np.testing.assert_allclose(told, values, rtol=0, atol=1e-9)
    assert ([[best == "True" for [[_, best]] in sample["resps"]] for sample in samples] == greedy).all()
    assert results["acc,none"] == pytest.approx(float((values.argmax(1) == 1).mean()))
    assert results["acc,none"] > 0.5, "the policy tells right from wrong"


def _directly(rows: list[Any]) -> tuple[Any, Any]:
    """Return the log-likelihood of each choice behind its context [rows, choices], and whether it is greedy, from the
    engine.

    As lm-eval has it, spaces and newlines at the end of a context belong to the choice.
    """

    async def read() -> list[Any]:
        backend = EngineBackend.from_record(registry.get("pocket"))
        try:
            encode = backend._renderer.text
            asked = [TokenizedText.of(encode(row["context"] + choice)) for row in rows for choice in row["choices"]]
            sizes = [len(encode(row["context"].rstrip())) for row in rows for _ in row["choices"]]
            replies = await prompt_logprobs(backend, asked, 1)
            return [(reply.value, size) for reply, size in zip(replies, sizes, strict=True)]
        finally:
            await backend.close()

    found = asyncio.run(read())
    values = [found.logprobs[size:].sum() for found, size in found]
    greedy = [
        all(found.logprobs[i] == found.tops[i][0].logprob for i in range(size, len(found.texts)))
        for found, size in found
    ]
    return np.array(values).reshape(len(rows), -1), np.array(greedy).reshape(len(rows), -1)


INSPECT = r"""
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate

rows = [json.loads(line) for line in open("sums.jsonl")]
samples = [Sample(input=row["question"], target=row["answer"]) for row in rows]
task = Task(dataset=samples, solver=generate(), scorer=pattern(r"A: (-?\d+)"))
options = dict(seed=int(sys.argv[1]), max_tokens=int(sys.argv[2]), max_connections=8)
[log] = eval(task, model="openai-api/tts/pocket:vote", display="none", log_dir="inspect-logs", **options)
[usage] = log.stats.model_usage.values()
texts = {sample.input: sample.output.completion for sample in log.samples}
accuracy = log.results.scores[0].metrics["accuracy"].value
print(json.dumps({"status": log.status, "accuracy": accuracy, "reasoning": usage.reasoning_tokens, "texts": texts}))
"""
LITELLM = r"""
import json, re, sys
import litellm

rows = [json.loads(line) for line in open("sums.jsonl")]
common = dict(model="openai/pocket:vote", api_base=sys.argv[3], api_key="none", seed=int(sys.argv[1]), max_tokens=int(sys.argv[2]))
asked = [[{"role": "user", "content": row["question"]}] for row in rows]
replies = litellm.batch_completion(messages=asked, **common)
texts = {row["question"]: reply.choices[0].message.content for row, reply in zip(rows, replies)}
answers = [re.search(r"A: (-?\d+)", texts[row["question"]] or "") for row in rows]
right = [found is not None and found[1] == row["answer"] for found, row in zip(answers, rows)]
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(messages=asked[0], stream=True, **common))
reasoning = sum(reply.usage.completion_tokens_details.reasoning_tokens for reply in replies)
same = streamed == replies[0].choices[0].message.content
print(json.dumps({"status": "success" if same else streamed, "accuracy": sum(right) / len(right), "reasoning": reasoning, "texts": texts}))
"""  # noqa: E501
DSPY = r"""
import json, re, sys
import dspy


class Plain(dspy.Adapter):  # the question alone, as the embedded policy was trained on it
    def format(self, signature, demos, inputs):
        return [{"role": "user", "content": inputs["question"]}]

    def parse(self, signature, completion):
        found = re.search(r"A: (-?\d+)", completion)
        return {"answer": found[1] if found else ""}


rows = [json.loads(line) for line in open("sums.jsonl")]
options = dict(seed=int(sys.argv[1]), max_tokens=int(sys.argv[2]), temperature=None, cache=False)
lm = dspy.LM("openai/pocket:vote", api_base=sys.argv[3], api_key="none", **options)
dspy.configure(lm=lm, adapter=Plain())
examples = [dspy.Example(question=row["question"], answer=row["answer"]).with_inputs("question") for row in rows]
same = lambda example, found, trace=None: example.answer == found.answer
result = dspy.Evaluate(devset=examples, metric=same, num_threads=8, display_progress=False)(dspy.Predict("question -> answer"))
texts = {one["messages"][-1]["content"]: one["outputs"][0] for one in lm.history}
texts = {row["question"]: texts[row["question"]] for row in rows}
reasoning = sum(dict(one["usage"]["completion_tokens_details"])["reasoning_tokens"] for one in lm.history)
print(json.dumps({"status": "success", "accuracy": result.score / 100, "reasoning": reasoning, "texts": texts}))
"""  # noqa: E501


@pytest.mark.parametrize(
    ("variable", "script"),
    [("TTS_INSPECT_PYTHON", INSPECT), ("TTS_LITELLM_PYTHON", LITELLM), ("TTS_DSPY_PYTHON", DSPY)],
)
def test_a_framework_has_the_accuracy_of_a_study(
    variable: str, script: str, served: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    python = client_of(variable)
    (folder / "client.py").write_text(script)
    out = ran(python, "client.py", str(SEED), str(CAP), served, folder=folder, TTS_API_KEY="none", TTS_BASE_URL=served)
    told = json.loads(out.strip().splitlines()[-1])
    assert told["status"] == "success"
    assert told["accuracy"] == pytest.approx(request.getfixturevalue("accuracy"))
    assert not told["reasoning"]  # the answers have no thoughts
    solve: Callable[..., Any] = tts.solve
    question = next(iter(told["texts"]))
    assert told["texts"][question] == solve(question, BUDGET, model="pocket", strategy=STRATEGY, seed=SEED).text


def edits(ask: Any) -> str:
    """Write a file in the form that aider reads; one sample in three is another."""
    EDITS.append(ask)
    wrong = len(EDITS) % 3 == 0
    return f"add.py\n```python\n{'pass' if wrong else WRITTEN}\n```\n"


EDITS: list[Any] = []


def test_aider_edits_a_file_by_what_most_samples_write(tmp_path: Path) -> None:
    python = client_of("TTS_AIDER_PYTHON")
    models = {
        "edits": {
            "backend": "tests.addons.gateway.test_evaluation_clients:edits",
            "strategy": "best_of_n(n=6) | majority",
            "budget": 20000,
        }
    }
    (tmp_path / "add.py").write_text("def add(a, b):\n    return a - b\n")
    plain = (
        "--no-git",
        "--yes-always",
        "--no-show-model-warnings",
        "--no-check-update",
        "--analytics-disable",
        "--no-pretty",
    )
    with serving(models=models) as server:
        served = ("--model", "openai/edits", "--openai-api-base", url_of(server), "--openai-api-key", "none")
        asked = ("--edit-format", "whole", "--message", "mend add", "add.py")
        out = ran(python, "-m", "aider", *plain, *served, *asked, folder=tmp_path)
    assert (tmp_path / "add.py").read_text().strip() == WRITTEN.strip(), out
    assert len(EDITS) == 6
    assert "mend add" in str(EDITS[0].prompt)
