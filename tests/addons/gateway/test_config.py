"""The configuration of a gateway: what is wrong in it is named with its rule and cure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from starlette.testclient import TestClient

from tests.addons.gateway.asking import ask
from tests.backends.openai.server import ToyServer
from tests.backends.openai.server import serving as serving_models
from tests.support.guard import LIMIT_S
from tts.errors import ConfigError
from tts.solver.model_cache import ModelCache
from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import gateway_config, read_config
from tts_addons.gateway.offers import Offers

WRONG: dict[str, tuple[Any, str]] = {
    "a list of models": ({"models": ["toy"]}, "models is ['toy'], but must be a valid dictionary"),
    "no model": (
        {"models": {}},
        "models is empty, but a gateway needs at least one (hint: for example models: {",
    ),
    "no searches": (
        {"models": {"toy": {}}, "limits": {"searches": 0}},
        "limits.searches is 0, but must be greater than or equal to 1",
    ),
    "a name with a space": (
        {"models": {"toy": {"presets": {"a b": {}}}}},
        "models.toy.presets: name of a preset is 'a b'",
    ),
    "the effort of requests that name none": (
        {"models": {"toy": {}}, "efforts": {"none": 5}},
        "a key of efforts is 'none', but such a request names no effort (hint: leave it out)",
    ),
    "an effort of nothing": (
        {"models": {"toy": {}}, "efforts": {"low": 0}},
        "efforts.low is 0, but must be tokens of at least 1",
    ),
    "a preset above the limit": (
        {"models": {"toy": {"presets": {"big": {"budget": 50}}, "budget": 5}}, "limits": {"tokens": 20}, "efforts": {}},
        "the budget of toy:big is 50, but limits.tokens is 20 (hint: raise limits.tokens)",
    ),
    "a name with a colon": (
        {"models": {"a:b": {"model": "toy"}}},
        "name of a model is 'a:b', but may have letters, digits and _ . / - alone",
    ),
    "a temperature below 0": (
        {"models": {"toy": {"presets": {"a": {"temperature": -1}}}}},
        "models.toy.presets.a.temperature: ",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    data, told = WRONG[name]
    with pytest.raises(ConfigError) as refusal:
        gateway_config(data)
    assert str(refusal.value).startswith(told)


def test_a_file_is_a_mapping_and_its_paths_begin_in_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "gateway.yaml"
    path.write_text("- toy\n")
    with pytest.raises(ConfigError, match=r"configuration.*mapping"):
        read_config(path)
    path.write_text("models: {toy: {}}\nkeys: keys.txt\nstore: searches.sqlite\n")
    config = read_config(path)
    assert (config.keys, config.store) == (str(tmp_path / "keys.txt"), str(tmp_path / "searches.sqlite"))
    assert config.models["toy"].model == {"policy": "toy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "cause"),
    [
        (
            {"strategy": "best_of_n(n=4) | best"},
            "best_of_n(n=4) | best scores with the role 'main', but no verifier has it",
        ),
        ({"strategy": "beam(n=4)"}, "the strategy beam(n=4) scores with the role 'main', but no verifier has it"),
        ({"strategy": "budget_forcing(n=2)"}, "needs the capability 'thoughts', which the backend 'toy' lacks"),
        ({"strategy": "cascade(models=['policy', 'large'])"}, "writes with the role 'large', but no model has it"),
    ],
)
def test_a_preset_that_cannot_run_ends_the_start_of_the_server(tmp_path, preset, cause):
    config = tmp_path / "gateway.yaml"
    config.write_text(json.dumps({"models": {"toy": {"presets": {"better": preset}}}}))
    command = [sys.executable, "-m", "tts", "serve", "--port", "0", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert cause in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_of_one_temperature_is_told_at_the_start(caplog):
    """A plain model warns of it, and a model or preset with another temperature is refused."""
    with serving_models(ToyServer(ids=False, continues=False, tempers=False)) as url:
        model = {"model": "toy", "url": url, "budget": 100}

        def load(**settings: Any) -> None:
            Offers(gateway_config({"models": {"toy": {**model, **settings}}}), ModelCache(), {}).load()

        load()
        assert "no temperature is sent" in caplog.text
        for settings in ({"sampling": {"temperature": 0.5}}, {"presets": {"warm": {"temperature": 0.5}}}):
            with pytest.raises(ConfigError, match=r"temperature is 0\.5.*takes 1 alone"):
                load(**settings)


def test_a_plain_model_without_a_task_runs_on_a_server_of_one_temperature():
    """The default plan is greedy only where the server can be, and obeys a temperature that the client names."""
    for takes, asked, sent in ((False, None, None), (True, None, 0), (True, 0.9, 0.9), (True, 0, 0)):
        server = ToyServer(model="m", ids=False, continues=False, tempers=takes)
        with serving_models(server) as url:
            config = gateway_config({"models": {"toy": {"model": "m", "url": url, "budget": 200}}})
            with TestClient(create_app(config), base_url="http://127.0.0.1") as client:
                reply = ask(client, **({} if asked is None else {"temperature": asked})).json()["tts"]
        assert reply["usage"]["samples"] == 1
        assert server.bodies[-1].get("temperature") == sent
        assert any("no temperature is sent" in note for note in reply["warnings"]) == (not takes)


def test_a_temperature_of_a_strategy_that_no_server_takes_ends_the_start():
    with serving_models(ToyServer(ids=False, continues=False, tempers=False)) as url:
        models = {"toy": {"model": "toy", "url": url, "budget": 200, "strategy": "best_of_n(n=2, temperature=0.5)"}}
        with pytest.raises(ConfigError, match=r"temperature is 0\.5.*takes 1 alone"):
            Offers(gateway_config({"models": models}), ModelCache(), {}).load()
