"""Presets with a risk: less sure answers are passed on along the chain, and abstention is said on each API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from typer.testing import CliRunner

from tests.addons.gateway.asking import question
from tts.cli.app import app
from tts.errors import ConfigError
from tts.solver.thresholds import Thresholds
from tts_addons.gateway.config import gateway_config, read_config

SUM = "3 + 4 - 2 + 9"
PRESETS = {
    "two": {"strategy": "best_of_n(n=2) | majority", "budget": 200},
    "eight": {"strategy": "best_of_n(n=8) | majority", "budget": 800},
}
REQUESTS = question(SUM)


def models(calibration: Path) -> dict[str, Any]:
    sure = {
        "risk": 0.3,
        "calibration": str(calibration),
        "escalate": ["eight"],
        "strategy": PRESETS["two"]["strategy"],
        "budget": 200,
    }
    return {"toy": {"presets": {**PRESETS, "sure": sure}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the configuration of a gateway, and the calibration of its chain by the command."""
    folder = tmp_path_factory.mktemp("risk")
    sums = [
        (f"{a} + {b} - {c} + {d}", str(a + b - c + d))
        for a in range(3, 9)
        for b in range(1, 6)
        for c in (1, 2)
        for d in (4, 7)
    ]
    (folder / "problems.jsonl").write_text("\n".join(json.dumps({"question": q, "answer": a}) for q, a in sums))
    (folder / "gateway.yaml").write_text(json.dumps({"models": models(Path("thresholds.json"))}))
    given = (
        "--config",
        str(folder / "gateway.yaml"),
        "--problems",
        str(folder / "problems.jsonl"),
        "--out",
        str(folder / "thresholds.json"),
    )
    done = CliRunner().invoke(app, ["calibrate", "toy:sure", "--risk", "0.3", *given])
    assert done.exit_code == 0, done.output
    return folder


def with_thresholds(folder: Path, *thresholds: float | None) -> Path:
    """Return a file with other thresholds, for the same use."""
    data = json.loads((folder / "thresholds.json").read_text())
    for link, threshold in zip(data["links"], thresholds, strict=True):
        link["threshold"] = threshold
    data["digest"] = Thresholds.model_validate(data).content_digest
    path = folder / f"{thresholds}.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.slow
def test_the_command_calibrates_the_chain_as_a_whole(folder: Path) -> None:
    found = Thresholds.read(folder / "thresholds.json")
    assert [link.strategy for link in found.links] == [one["strategy"] for one in PRESETS.values()]
    assert (found.n, found.level) == (120, 0.3)
    assert found.bound <= 0.3


@pytest.mark.slow
@pytest.mark.parametrize("path", REQUESTS)
def test_a_sure_answer_is_given_and_others_are_passed_on(client, folder, path):
    for thresholds, links in (((0.0, None), ["toy:two"]), ((None, 0.0), ["toy:two", "toy:eight"])):
        gateway = client(models=models(with_thresholds(folder, *thresholds)))
        reply = gateway.post(path, json={"model": "toy:sure", **REQUESTS[path], "tts": {"seed": 3}})
        assert reply.status_code == 200, reply.text
        told = reply.json()["tts"]
        assert told["abstained"] == ""
        assert told["answer"] == "14"
        assert told["candidates"] == (2 if len(links) == 1 else 8)
        assert told["budget"]["tokens"] == 1000
        assert told["receipt"]["tokens"] == told["usage"]["generated_tokens"] == 21 * (2 if len(links) == 1 else 10)
        assert len(told["receipt"]["phases"]) == len(links)
        assert any("toy:sure: no answer is given" in line for line in told["warnings"]) == (len(links) == 2)


@pytest.mark.slow
@pytest.mark.parametrize("path", REQUESTS)
@pytest.mark.parametrize("stream", [False, True])
def test_abstention_is_explicit_on_each_api(client, folder, path, stream):
    gateway = client(models=models(with_thresholds(folder, None, None)))
    reply = gateway.post(path, json={"model": "toy:sure", **REQUESTS[path], "stream": stream, "tts": {"seed": 3}})
    sentence = "No answer is given: the confidence is "
    assert reply.status_code == 200
    if stream:
        assert sentence in reply.text
        assert "A: 14" not in reply.text
        assert '"abstained"' in reply.text
        return
    body = reply.json()
    assert body["tts"]["abstained"].startswith("no answer is given: the confidence is ")
    assert body["tts"]["answer"] is None
    if path == "/v1/chat/completions":
        (choice,) = body["choices"]
        assert choice["message"]["content"].startswith(sentence)
        assert choice["finish_reason"] == "stop"
    elif path == "/v1/responses":
        assert body["output"][-1]["content"][0]["text"].startswith(sentence)
        assert body["status"] == "completed"
    else:
        assert body["content"][-1]["text"].startswith(sentence)
        assert body["stop_reason"] == "refusal"


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_cannot_use_a_calibration_for_something_else_or_name_a_file(client, folder, path):
    gateway = client(models=models(folder / "thresholds.json"))
    for options, told in (
        ({"strategy": "single"}, "the calibration is for the strategy"),
        ({"budget": 100}, "the calibration is for the budget"),
        ({"calibration": "/etc/passwd"}, "calibration"),
        ({"risk": 0.5}, "risk"),
    ):
        reply = gateway.post(path, json={"model": "toy:sure", **REQUESTS[path], "tts": options})
        assert reply.status_code == 400, reply.text
        assert told in reply.text
    found = gateway.post(
        path, json={"model": "toy:sure", **REQUESTS[path], "temperature": 0.5, "tts": {"seed": 3}}
    ).json()
    assert "temperature had no effect: the risk of this preset holds for its own sampling" in found["tts"]["warnings"]


@pytest.mark.parametrize(
    ("preset", "told"),
    [
        ({"risk": 0.1}, "calibration is missing, but a preset has both or neither of risk and calibration"),
        ({"calibration": "a.json"}, "risk is missing, but a preset has both or neither"),
        ({"escalate": ["eight"]}, "escalate is ['eight'], but without a risk no answer is passed on"),
        ({"risk": 0.1, "calibration": "a", "escalate": ["seven"]}, "model in escalate of toy:sure is 'seven', but"),
        (
            {"risk": 0.1, "calibration": "a", "escalate": ["toy"]},
            "toy:sure has a risk, but toy has no budget of its own",
        ),
        (
            {"risk": 0.1, "calibration": "a", "budget": 90_000, "escalate": ["large"]},
            "tokens together, but limits.tokens is 100000",
        ),
    ],
)
def test_what_is_wrong_in_a_chain_is_named(preset, told):
    large = {"strategy": "single", "budget": 90_000}
    with pytest.raises(ConfigError) as refusal:
        gateway_config(
            {"models": {"toy": {"presets": {**PRESETS, "large": large, "sure": {**PRESETS["two"], **preset}}}}}
        )
    assert told in str(refusal.value)


def test_files_begin_in_the_folder_of_the_configuration_and_must_be_there(client, folder, tmp_path):
    found = read_config(folder / "gateway.yaml")
    assert found.models["toy"].presets["sure"].calibration == str(folder / "thresholds.json")
    with pytest.raises(ConfigError, match=r"calibration.*missing\.json.*,.*read"):
        client(models=models(tmp_path / "missing.json"))


def test_the_command_refuses_bad_input_in_one_line(folder, tmp_path):
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"question": "3 + 4"}')
    config = ("--config", str(folder / "gateway.yaml"))
    for given, told in (
        (("toy:sure", *config), "--problems is missing, but a preset needs it"),
        (config, "--config and --problems belong to a preset, but none is named"),
        (("toy:sure", *config, "--run", "a"), "--run belongs to a study, but the preset 'toy:sure' is named"),
        (("toy:sure", *config, "--problems", str(bare)), "1 of 1 problems have no reference answer"),
    ):
        done = CliRunner().invoke(app, ["calibrate", "--risk", "0.3", *given])
        assert done.exit_code == 2, done.output
        assert told in done.output
