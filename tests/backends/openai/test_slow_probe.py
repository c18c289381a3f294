"""A probe has its time: within it everything is found, what it misses is absent, and it is part of a first budget in
seconds.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.backends.openai.making import PROMPT
from tests.backends.openai.server import ToyServer, serving
from tts.backends.openai import probe_client
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.capabilities import Capabilities
from tts.cli.app import app
from tts.errors import ConfigError
from tts.models import registry
from tts.solver.solver import Solver


class Clock:
    """A clock that moves on by itself, one second a reading."""

    def __init__(self) -> None:
        self.ticks = itertools.count()

    def monotonic(self) -> float:
        return float(next(self.ticks))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def found_within(url: str, most_s: float, monkeypatch: pytest.MonkeyPatch) -> Capabilities:
    """Return what a probe finds that ends at a reading of its clock, which moves with every request."""
    with monkeypatch.context() as patch:
        patch.setattr(probe_client, "time", Clock())
        patch.setattr("tts.backends.openai.probe.time", Clock())
        patch.setattr("tts.backends.openai.reaching.time", Clock())
        return ServerAccess.of(registry.resolve("toy", url)).probe_anew(most_s)


@pytest.mark.parametrize("most_s", [1.0, 8.0, 20.0, 30.0, 40.0])
def test_what_a_probe_has_not_found_in_its_time_is_absent_and_nothing_is_kept(
    most_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(ToyServer()) as url:
        whole = ServerAccess.of(registry.resolve("toy", url)).probe_anew()
        access = ServerAccess.of(registry.resolve("toy", url))
        access.kept.drop("of the test")
        part = found_within(url, most_s, monkeypatch)
        assert access.kept.read() is None
    plain = Capabilities(root=part.root, model="toy", mode="chat", served=part.served)
    for name in (
        "streams",
        "logprobs",
        "seeds",
        "n",
        "stops",
        "cached",
        "filters",
        "efforts",
        "echo",
        "opened",
        "usage",
    ):
        assert getattr(part, name) in (getattr(whole, name), False), name
    assert part != whole
    if most_s == 1.0:
        assert part == plain


def test_a_probe_with_enough_time_is_whole_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ToyServer()) as url:
        found = found_within(url, 100_000.0, monkeypatch)
        assert ServerAccess.of(registry.resolve("toy", url)).kept.read() == found


def test_a_search_in_seconds_is_over_in_them_though_its_server_was_never_probed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = ToyServer(prompts=(PROMPT,), pause_s=0.02)
    server.fault = lambda number, _body: "hang" if number > 2 else ""  # all but the first replies to a probe never end
    with serving(server) as url:
        began = time.monotonic()
        budget = tts.Budget(seconds=2.0)
        solution = tts.Solver("toy", url=url, task="arithmetic", budget=budget).solve(PROMPT, budget, strategy="single")
        took = time.monotonic() - began
    assert solution.stopped_by == "budget: seconds"
    assert solution.usage.seconds <= took
    assert solution.usage.seconds >= 1.0  # of which the probe took its half
    assert "its time limit" in caplog.text


def test_seconds_begin_before_the_probe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = itertools.count(100.0)
    made = partial(Solver, "toy", task="arithmetic", budget=tts.Budget(seconds=1e6), clock=lambda: 7.0)
    with serving(ToyServer(prompts=(PROMPT,))) as url, made(url=url) as solver:
        assert solver.prepare(PROMPT, 100).started == 7.0
        assert solver.prepare(PROMPT, 100).started is None
        with Solver("toy", url=url, task="arithmetic", clock=lambda: next(readings)) as other:
            assert other.prepare(PROMPT, 100).started is None
    with Solver("toy", budget=tts.Budget(seconds=5.0)) as local:
        assert local.prepare(PROMPT, 100).started is None


@pytest.mark.slow
def test_the_command_and_the_function_give_their_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    probed = ServerAccess.probe_anew

    def spy(self: ServerAccess, most_s: float = math.inf) -> Capabilities:
        limits.append(most_s)
        return probed(self, most_s)

    monkeypatch.setattr(ServerAccess, "probe_anew", spy)
    with serving(ToyServer(prompts=(PROMPT,))) as url:
        record = registry.resolve("toy", url, {"probe": "new"})
        tts.solve(PROMPT, tts.Budget(samples=1, seconds=60.0), model=record, task="arithmetic")
        tts.close()
        tts.solve_many([PROMPT], tts.Budget(samples=1, seconds=80.0), model=record, task="arithmetic")
        tts.close()
        tts.solve(PROMPT, tts.Budget(samples=1), model=record, task="arithmetic")
        tts.close()
        command = [
            "solve",
            PROMPT,
            "--url",
            url,
            "--model",
            "toy",
            "--task",
            "arithmetic",
            "--budget",
            "samples=1,seconds=100",
            "--json",
        ]
        result = CliRunner().invoke(app, [*command, "--model-option", "probe=new"])
        assert json.loads(result.stdout)["error"] is None
        CliRunner().invoke(app, ["doctor", "--url", url])
        Solver(registry.resolve("toy", url, {"probe": "new", "probe_s": 11.0}), task="arithmetic").close()
    assert limits == [30.0, 40.0, 300.0, 50.0, math.inf, 11.0]


@pytest.mark.parametrize("given", [0, -1.0, True, "soon"])
def test_a_time_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="probe_s is"):
        ServerAccess.of(registry.resolve("toy", "http://127.0.0.1:9", {"probe_s": given}))
