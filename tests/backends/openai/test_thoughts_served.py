"""Thoughts of served models: in the forms that servers show them, with budgets where paths continue, and efforts where
not.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.backends.openai.making import on
from tests.backends.openai.server import ToyServer, serving
from tests.support.runs import change_setup, make_run, solve
from tts.backends.openai.prompt import extra_members
from tts.backends.toy.language import ToyLanguage
from tts.cli.app import app
from tts.errors import CapabilityError, ConfigError
from tts.models.registry import ModelRecord
from tts.solver.run import solve_problem
from tts.thoughts import ThoughtMarks

PROBLEM = "3 + 4 - 2 + 7"
LANGUAGE = ToyLanguage(thoughts=True)


def solved_on(server: ToyServer, plan: str, sampling: tts.Sampling | None = None, **found: Any) -> tts.Solution:
    """Solve the problem on a backend of a server."""

    async def check(url: str) -> Any:
        backend = on(url, **found)
        made = make_run(PROBLEM, 2000, plan, backend)
        try:
            return await solve_problem(made if sampling is None else change_setup(made, sampling=sampling))
        finally:
            await backend.close()

    with serving(server) as url:
        return asyncio.run(check(url))


@pytest.mark.slow
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("form", ["reasoning_content", "reasoning", "content", ""])
def test_thoughts_of_a_server_are_no_part_of_its_response(form: str, streams: bool) -> None:
    server = ToyServer(prompts=[PROBLEM], reasoning=7, streams=streams, shown_as=form, language=ToyLanguage(mute=0.0))
    found: dict[str, Any] = {"mode": "chat", "reasoning": form != "content", "streams": streams, "efforts": True}
    solution = solved_on(server, "best_of_n(n=3, effort='low')", **found)
    assert len(solution.candidates) == 3
    for candidate in solution.candidates:
        t = candidate.trajectory
        assert t.thought == ("I think. " * 7 if form else "").strip()
        assert "think" not in t.response
        assert t.response.startswith("3 + 4")
        assert candidate.answer is not None
    assert solution.usage.generated_tokens == sum(one.generated for one in server.served)
    assert {body["reasoning_effort"] for body in server.bodies} == {"low"}


def test_a_server_that_hides_its_thoughts_cannot_have_them_forced() -> None:
    server = ToyServer(prompts=[PROBLEM], reasoning=7)
    with serving(server) as url:
        backend = on(url, mode="chat", reasoning=True, efforts=True)
        with pytest.raises(CapabilityError) as refused:
            solve(make_run(PROBLEM, 2000, "budget_forcing(thought_tokens=100)", backend))
        assert "best_of_n(effort='low')" in (refused.value.hint or "")
        assert server.bodies == []
        with pytest.raises(CapabilityError, match="'efforts'"):
            solve(make_run(PROBLEM, 2000, "best_of_n(n=2, effort='low')", on(url, mode="chat", reasoning=True)))


def test_a_served_model_that_thinks_in_its_text_can_have_its_thoughts_forced() -> None:
    server = ToyServer(prompts=[PROBLEM], language=LANGUAGE)
    plan = r"budget_forcing(n=3, thought_tokens=15, waits=1, wait='Wait\n')"
    solution = solved_on(server, plan, thoughts=ThoughtMarks("<think>\n", "</think>\n"))
    assert [c.answer is not None for c in solution.candidates] == [True] * 3
    assert all(c.trajectory.thought and c.trajectory.response.startswith("A: ") for c in solution.candidates)


@pytest.mark.parametrize(
    ("mode", "plan"), [("chat", "best_of_n(n=3)"), ("continued chat", "budget_forcing(n=3, thought_tokens=15)")]
)
def test_a_template_that_opens_the_thought_is_told_by_the_record(mode: str, plan: str) -> None:
    """No server's parser takes the thought away, and no text shows where it begins."""
    server = ToyServer(prompts=[PROBLEM], language=LANGUAGE, opens="<think>\n")
    with serving(server) as url:
        known = (("mode", mode), ("usage", True))
        record = ModelRecord(
            name="toy", backend="openai", url=url, task="arithmetic", thought=("", "\n</think>\n"), capabilities=known
        )
        with tts.Solver(record) as solver:
            solution = solver.solve(PROBLEM, 2000, strategy=plan)
        with tts.Solver(record, sampling=tts.Sampling(max_tokens=6)) as solver:
            cut = solver.solve(PROBLEM, 400, strategy="best_of_n(n=2)")
    assert (len(solution.candidates), len(cut.candidates)) == (3, 2)
    for candidate in solution.candidates:
        t = candidate.trajectory
        assert not t.full_text.startswith("<think>")
        assert t.thought == t.full_text.partition("</think>")[0].strip()
        assert candidate.answer is not None
        assert t.response.strip() == f"A: {candidate.answer}"
    for candidate in cut.candidates:
        assert candidate.trajectory.is_thinking
        assert (candidate.trajectory.response, candidate.answer) == ("", None)
    assert not any("<think>" in str(body) for body in server.bodies)


def test_options_of_a_server_travel_in_every_request() -> None:
    server = ToyServer(prompts=[PROBLEM])
    kwargs = 'chat_template_kwargs={"enable_thinking": false}'
    command = ["solve", PROBLEM, "--task", "arithmetic", "--strategy", "single", "--budget", "200"]
    command += ["--model-option", "reasoning_effort=high", "--model-option", kwargs, "--model-option"]
    with serving(server) as url:
        assert CliRunner().invoke(app, [*command, 'extra_body={"user": "me"}', "--url", url]).exit_code == 0
        refused = CliRunner().invoke(app, [*command, 'extra_body={"n": 2}', "--url", url])
    written = [body for body in server.bodies if "max_tokens" in body]
    assert all(body["reasoning_effort"] == "high" and body["user"] == "me" for body in written)
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in written)
    assert refused.exit_code == 2
    assert "sets n, but a search sets that itself" in " ".join(refused.output.split())


@pytest.mark.parametrize(
    "given", ["[1]", "{", '{"n": 3}', '{"messages": []}', 7, {"x": {1, 2}}, pytest.param("[" * 100_000, id="deep")]
)
def test_an_extra_body_that_cannot_be_sent_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a JSON object|sets that itself"):
        extra_members(given)


def test_a_field_that_is_not_known_is_refused_with_a_cure() -> None:
    with serving(ToyServer(reasoning=7)) as url:
        backend = on(url, mode="chat", reasoning=True)
        for plan in ("best_of_n(n=2, thought_tokens=50)", "best_of_n(n=2, thought_tokens=0)"):
            with pytest.raises(CapabilityError, match="needs the capability 'thought_") as refused:
                solve(make_run(PROBLEM, 2000, plan, backend))
            assert "declare thought_limit or thought_switch" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "plan", ["best_of_n(n=3, thought_tokens=20)", "budget_forcing(n=3, thought_tokens=20)", "best_of_n(n=3)"]
)
def test_thoughts_are_limited_by_the_field_that_holds(plan: str) -> None:
    server = ToyServer(
        prompts=[PROBLEM], reasoning=90, thinking=["thinking.budget_tokens"], language=ToyLanguage(mute=0.0)
    )
    sampling = tts.Sampling() if "thought_tokens" in plan else tts.Sampling(thought_tokens=20)
    found: dict[str, Any] = {"mode": "chat", "reasoning": True, "thought_limit": "thinking.budget_tokens"}
    solution = solved_on(server, plan, sampling, **found)
    assert [one.trajectory.thought for one in solution.candidates] == [("I think. " * 20).strip()] * 3
    assert solution.usage.generated_tokens == sum(one.generated for one in server.served)
    assert all(body["thinking"] == {"type": "enabled", "budget_tokens": 20} for body in server.bodies)


@pytest.mark.parametrize("tokens", [0, 20])
def test_a_field_that_is_ignored_is_told(tokens: int) -> None:
    record_of = {"mode": "chat", "reasoning": True, "usage": True}
    for field in ("thinking_budget", "reasoning_budget_tokens"):  # which the server takes, or passes over
        server = ToyServer(prompts=[PROBLEM], reasoning=90, thinking=["thinking_budget", "thinking.type"])
        known = {
            **record_of,
            "thought_limit": field,
            "thought_switch": "thinking.type" if "think" in field else "reasoning.enabled",
        }
        with serving(server) as url:
            record = ModelRecord(name="toy", backend="openai", url=url, capabilities=tuple(known.items()))
            with tts.Solver(record, task="arithmetic") as solver:
                found = solver.solve(PROBLEM, 2000, strategy=f"best_of_n(n=2, thought_tokens={tokens})")
        assert any("ignores its field" in line for line in found.warnings) == (field != "thinking_budget")


def test_a_switch_joins_the_options_of_the_server() -> None:
    field, options = (
        "chat_template_kwargs.enable_thinking",
        {"chat_template_kwargs": {"language": "en", "enable_thinking": True}},
    )
    server = ToyServer(prompts=[PROBLEM], reasoning=90, language=ToyLanguage(mute=0.0))
    found: dict[str, Any] = {"mode": "chat", "reasoning": True, "thought_switch": field, "extra": json.dumps(options)}
    solved_on(server, "best_of_n(n=1, thought_tokens=0)", **found)
    assert server.bodies[-1]["chat_template_kwargs"] == {"language": "en", "enable_thinking": False}


@pytest.mark.parametrize(
    "strategy", ["budget_forcing(n=1, thought_tokens=20, waits=1)", "budget_forcing(n=1, thought_tokens=20, cue='A: ')"]
)
def test_waits_and_cues_need_texts_that_go_on(strategy: str) -> None:
    with serving(ToyServer(prompts=[PROBLEM], reasoning=90)) as url:
        backend = on(url, mode="chat", reasoning=True, thought_limit="thinking_budget")
        with pytest.raises(CapabilityError, match="needs the capability 'steps'") as refused:
            solve(make_run(PROBLEM, 2000, strategy, backend))
    assert "best_of_n(thought_tokens=…)" in refused.value.hint


@pytest.mark.parametrize("given", [{"effort": "low"}, {"thought_tokens": 9}, {"thought_tokens": 0}])
def test_a_sampling_that_the_model_does_not_obey_is_refused(given: dict[str, Any]) -> None:
    [(name, value)] = given.items()
    with pytest.raises(CapabilityError, match=f"{name} is {value!r}, but the backend 'toy' does not take it"):
        tts.solve(PROBLEM, 200, model="toy", strategy="single", sampling=tts.Sampling(**given))


def test_a_limit_of_thoughts_is_a_whole_number() -> None:
    for wrong in (-1, 1.5, True, "9"):
        with pytest.raises(ConfigError, match=r"thought_tokens.*,.*whole.*0"):
            tts.Sampling(thought_tokens=wrong)
    assert "thought_tokens" not in tts.Sampling().members()
    assert tts.Sampling(thought_tokens=0).members()["thought_tokens"] == 0
