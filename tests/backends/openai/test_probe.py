"""What a probe finds out, in few requests and in its time; and what a record declares in its place."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.addons.gateway.wire.upstream import Refusal, call, serving_script
from tests.backends.openai.making import PROMPT, WARM, drawn
from tests.backends.openai.saying import MODELS, Asked, Saying, whole
from tests.backends.openai.server import ToyServer, serving
from tts.backends.base import Sampling
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import Key
from tts.backends.openai.probe import probe_server
from tts.backends.openai.rows import check_sampling, tempering
from tts.cli.app import app
from tts.errors import CapabilityError, ConfigError
from tts.models import registry
from tts.models.record import ModelRecord
from tts.solver.solver import Solver

NEUTRAL = {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
UNKNOWN: dict[str, Any] = {"owner": ""}
PLAIN: dict[str, Any] = {"owner": "", "completions": False, "ids": False, "continues": False, "logprobs": False}
WHOLE = {
    "mode": "tokens", "server": "vLLM", "streams": True, "usage": True, "cached": True, "logprobs": True,
    "seeds": True, "n": True, "stops": True, "filters": True, "tempers": True, "reasoning": False, "template": True,
    "context": None, "tops": False, "echo": True, "forms": True, "tools": False,
}  # fmt: skip
# of a server that is not recognised
LACKING = {"server": "", "seeds": False, "stops": False, "filters": False, "echo": False, "forms": False}


class Choosy(ToyServer):
    """A server that refuses some parameters, and some pairs of them.

    Attributes:
        refused: The parameters.
        names: Whether its refusal names them.
        apart: Whether it refuses a temperature beside top_p.
    """

    refused: tuple[str, ...] = ()
    names = True
    apart = False

    def check(self, body: Any) -> None:
        super().check(body)
        found = [name for name in self.refused if name in body]
        if found:
            raise ConfigError(f"Unrecognized request argument supplied: {found[0]}" if self.names else "Bad request")
        if self.apart and {"temperature", "top_p"} <= body.keys():
            raise ConfigError("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")


def choosy(*refused: str, names: bool = True, apart: bool = False, **features: Any) -> Choosy:
    server = Choosy(**PLAIN | features)
    server.refused, server.names, server.apart = refused, names, apart
    return server


def found_at(server: Any, mode: Any = "auto") -> Capabilities:
    with serving(server) as url:
        return probe_server(url, "toy", Key(), mode)


def sent_by(found: Capabilities, server: ToyServer, sampling: Sampling = WARM) -> dict[str, Any]:
    """Draw a row, and return the body of its call."""

    async def draw() -> None:
        backend = OpenAIBackend(found)
        [sample] = await drawn(backend, 1, sampling=sampling)
        await backend.close()
        assert not sample.error

    asyncio.run(draw())
    return server.bodies[-1]


@pytest.mark.parametrize(
    ("lacks", "differs"),
    [
        ({}, {}),
        ({"ids": False}, {"mode": "continued chat"}),
        ({"ids": False, "continues": False}, {"mode": "chat", "stops": False}),
        ({"ids": False, "chat": False}, {"mode": "text", "template": False}),
        ({"completions": False, "reasoning": 3}, {"mode": "chat", "reasoning": True, "stops": False}),
        (
            {"usage": False, "cached": False, "logprobs": False, "n": False},
            {"usage": False, "cached": False, "logprobs": False, "n": False},
        ),
        ({"streams": False, "context": 512}, {"streams": False, "context": 512}),
        (
            {"tempers": False},  # and nothing can be concluded of what shows at other temperatures alone
            {"tempers": False, "logprobs": False, "seeds": False, "stops": False},
        ),
        ({"ids": False, "cap_name": "max_completion_tokens"}, {"mode": "continued chat"}),
        ({"version": "0.32.0"}, {"seeds": False}),
        ({"tops": True}, {"tops": True}),
        (UNKNOWN, {**LACKING, "mode": "continued chat"}),
        ({**UNKNOWN, "tops": True, "continues": False}, {**LACKING, "tops": True, "mode": "chat"}),
        ({**UNKNOWN, "strict": True}, {**LACKING, "mode": "chat"}),
        ({**UNKNOWN, "owner": "llamacpp", "continues": False}, {**LACKING, "server": "llama.cpp", "mode": "chat",
         "seeds": True, "filters": True}),
    ],
)  # fmt: skip
def test_what_a_server_lacks_is_found(lacks: dict[str, Any], differs: dict[str, Any]) -> None:
    server = ToyServer(**lacks)
    found = found_at(server)
    assert {name: getattr(found, name) for name in WHOLE} == WHOLE | differs
    assert found.cap_name == lacks.get("cap_name", "max_tokens")
    assert len(server.bodies) <= 11, "a request may be refused for each parameter"


@pytest.mark.parametrize("thought", [3, 2000])
def test_a_model_that_thinks_is_probed_by_few_tokens(thought: int) -> None:
    server = ToyServer(reasoning=thought)
    found = found_at(server)
    assert (found.mode, found.reasoning, found.efforts, found.n) == ("chat", True, True, True)
    assert (found.thought_limit, found.thought_switch) == (
        "thinking_token_budget",
        "chat_template_kwargs.enable_thinking",
    )
    assert len(server.bodies) <= 3
    assert found_at(ToyServer()).thought_limit == ""


def test_a_model_that_thinks_in_secret_first_is_found_to_write_and_to_think() -> None:
    def say(asked: Asked) -> list[bytes]:
        if asked.path.endswith("/models"):
            return whole(MODELS)
        if "chat" not in asked.path:
            return whole({"detail": "Not Found"}, 404)
        choice = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "length"}
        return whole({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 13}})

    found = found_at(Saying(say))
    assert (found.mode, found.reasoning, found.streams, found.tempers) == ("chat", True, False, True)


@pytest.mark.parametrize("trims", [True, False])
def test_a_template_that_trims_cannot_continue_behind_a_line(trims: bool) -> None:
    class Trimming(ToyServer):
        def text_of(self, body: Any) -> str:
            if "messages" in body:
                body = {**body, "messages": [{**one, "content": one["content"].strip()} for one in body["messages"]]}
            return super().text_of(body)

    server = (Trimming if trims else ToyServer)(completions=False)
    assert found_at(server).mode == ("chat" if trims else "continued chat")


@pytest.mark.parametrize(
    ("version", "blocks", "risky"),
    [("0.32.0", 32, True), ("0.32.0", None, True), ("0.32.0", 16, False), ("0.33.1", 128, False)],
)
def test_seeds_are_not_sent_where_they_may_end_the_server(version: str, blocks: int | None, risky: bool) -> None:
    page = f'vllm:cache_config_info{{mamba_block_size="None",block_size="{blocks}",engine="0"}} 1.0' if blocks else ""
    server = ToyServer(version=version, metrics=page)
    found = found_at(server)
    assert (found.version, found.seeds, "no seeds" in dict(found.lines())) == (version, not risky, risky)
    assert not any("seed" in body for body in server.bodies)


def test_a_mode_that_does_not_work_is_refused_with_one_that_does() -> None:
    server = ToyServer(ids=False, continues=False)
    for mode in ("tokens", "continued chat"):
        with pytest.raises(CapabilityError, match=f"mode is '{mode}'") as refused:
            found_at(server, mode)
        assert "chat works" in (refused.value.hint or "")
    assert found_at(server, "text").mode == "text"
    with pytest.raises(ConfigError, match=r"mode.*'songs',.*continued"):
        probe_server("http://127.0.0.1:9", "toy", Key(), "songs")  # type: ignore[arg-type]


# Parameters of every request --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "apart", "takes"),
    [
        ((), False, (True, True, True)),
        ((), True, (True, True, False)),
        (("top_p",), False, (True, False, True)),
        (("temperature",), False, (False, True, True)),
        (("temperature", "top_p"), False, (False, False, True)),
    ],
)
def test_temperature_and_top_p_are_probed_apart(refused: tuple[str, ...], apart: bool, takes: tuple[bool, ...]) -> None:
    found = found_at(choosy(*refused, apart=apart))
    assert (found.tempers, found.cuts, found.both) == takes


def test_a_server_that_takes_one_of_both_is_sent_the_one_that_is_not_1() -> None:
    server = choosy(apart=True)
    with serving(server) as url:
        found = probe_server(url, "toy", Key())
        for temperature, top_p, told in ((0.5, 1.0, {"temperature": 0.5}), (1.0, 0.5, {"top_p": 0.5})):
            body = sent_by(found, server, Sampling(temperature=temperature, top_p=top_p))
            assert {name: body[name] for name in ("temperature", "top_p") if name in body} == told
        with pytest.raises(CapabilityError, match="takes only one of them"):
            sent_by(found, server, Sampling(temperature=0.5, top_p=0.5))


@pytest.mark.parametrize("tempers", [True, False])
@pytest.mark.parametrize("cuts", [True, False])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("top_p", [0.5, 1.0])
def test_what_is_sent_has_the_law_that_was_asked_for_or_is_refused(
    tempers: bool, cuts: bool, both: bool, temperature: float, top_p: float
) -> None:
    takes = Capabilities(root="r", model="m", mode="chat", tempers=tempers, cuts=cuts, both=both)
    sampling = Sampling(temperature=temperature, top_p=top_p)
    try:
        check_sampling(sampling, takes)
    except CapabilityError:
        assert (temperature != 1 and not tempers) or (top_p != 1 and not cuts) or not both
        return
    sent = tempering(sampling, takes)
    assert {"temperature": 1.0, "top_p": 1.0} | sent == {"temperature": temperature, "top_p": top_p}
    assert ("temperature" in sent) <= tempers
    assert ("top_p" in sent) <= cuts
    assert len(sent) < 2 or both


@pytest.mark.parametrize("refused", [(), ("repeat_penalty",), ("top_k", "repeat_penalty"), tuple(NEUTRAL)])
def test_what_a_server_does_to_the_law_by_default_is_switched_off_as_far_as_it_can_be(refused: tuple[str, ...]) -> None:
    server = choosy(*refused, owner="vllm")
    with serving(server) as url:
        found = probe_server(url, "toy", Key())
        assert NEUTRAL & sent_by(found, server).keys() == NEUTRAL - {*refused}
    assert found.filters == ("top_k" not in refused)
    assert [type(dict(found.neutral).get("top_k", 0)), *map(type, dict(found.neutral).values())][0] is int


def test_members_that_a_refusal_does_not_name_are_left_out() -> None:
    found = found_at(choosy("repeat_penalty", names=False))
    assert (found.neutral, found.n, found.streams) == ((), True, True)


def test_penalties_and_biases_are_sent_and_tell_samplings_apart() -> None:
    server = choosy()
    changed = Sampling(presence_penalty=0.5, frequency_penalty=-1, logit_bias={7: -100, 3: 2})

    with serving(server) as url:
        body = sent_by(probe_server(url, "toy", Key()), server, changed)
    assert (body["presence_penalty"], body["frequency_penalty"], body["logit_bias"]) == (0.5, -1, {"3": 2, "7": -100})
    assert changed == Sampling(presence_penalty=0.5, frequency_penalty=-1, logit_bias=((7, -100), (3, 2)))
    assert len({changed, Sampling(), Sampling(logit_bias={3: 2}), Sampling(presence_penalty=0.5)}) == 4


@pytest.mark.parametrize("taken", ["forced and free", "forced", "none"])
def test_tools_are_found_by_a_call(taken: str) -> None:
    """A server may pass tools over, or take them only where a call is forced."""

    def script(body: dict[str, Any]) -> dict[str, Any]:
        if body.get("tool_choice") == "auto" and taken == "forced":
            raise Refusal(400, '"auto" tool choice requires --enable-auto-tool-choice')
        return call("ready", {}) if "tools" in body and taken != "none" else {"content": "one, two, three"}

    with serving_script(script, owner="") as upstream:
        found = probe_server(upstream.url, "scripted", Key())
    assert (found.mode, found.tools, found.forms) == ("chat", taken == "forced and free", False)
    with serving_script(script) as upstream:
        found = probe_server(upstream.url, "scripted", Key())
    assert (found.server, found.tools, found.forms, found.caps.pictures) == ("OpenAI", True, True, True)


# Its time ---------------------------------------------------------------------------------------------------------


def test_a_search_in_seconds_is_over_in_them_though_its_server_hangs(caplog: pytest.LogCaptureFixture) -> None:
    server = ToyServer(prompts=(PROMPT,), pause_s=0.02)
    server.fault = lambda number, _body: "hang" if number > 1 else ""  # all but the first reply never end
    with serving(server) as url:
        began = time.monotonic()
        budget = tts.Budget(seconds=2.0)
        solution = tts.Solver("toy", url=url, task="arithmetic", budget=budget).solve(PROMPT, budget, strategy="single")
        took = time.monotonic() - began
    assert solution.stopped_by == "budget: seconds"
    assert 1.0 <= solution.usage.seconds <= took  # of which the probe took its half
    assert "its time limit: plain chat is assumed" in caplog.text


def test_the_command_and_the_function_give_their_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    probed = ServerAccess.probe_url

    def spy(self: ServerAccess, most_s: float) -> Capabilities:
        limits.append(most_s)
        return probed(self, most_s)

    monkeypatch.setattr(ServerAccess, "probe_url", spy)
    with serving(ToyServer(prompts=(PROMPT,))) as url:
        record = registry.resolve("toy", url)
        for seconds in (60.0, None):
            limit = {} if seconds is None else {"seconds": seconds}
            tts.solve(PROMPT, tts.Budget(samples=1, **limit), model=record, task="arithmetic")
            tts.close()
        CliRunner().invoke(app, ["doctor", "--url", url])
        with Solver(registry.resolve("toy", url, {"probe_s": 11.0}), task="arithmetic", clock=lambda: 7.0) as solver:
            assert solver.prepare(PROMPT, 100).started is None
        made = Solver("toy", url=url, task="arithmetic", budget=tts.Budget(seconds=1e6), clock=lambda: 7.0)
        with made as solver:  # the time of the probe counts once
            assert [solver.prepare(PROMPT, 100).started for _ in range(2)] == [7.0, None]
    assert limits == [30.0, 300.0, math.inf, 11.0, 5e5]


# A record's access ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, "the backend 'openai' calls a server, but the model 'm' has no url"),
        ({"url": "http://a", "options": {"probe": "often"}}, "probe is 'often', but must be always or never"),
        *[({"url": "http://a", "options": {"probe_s": wrong}}, "probe_s is") for wrong in (0, -1.0, True, "soon")],
    ],
)
def test_a_record_that_does_not_say_how_its_server_is_reached_is_refused(fields: Any, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        ServerAccess.of(ModelRecord(name="m", backend="openai", **fields))


def test_without_a_probe_plain_chat_is_used_and_nothing_else_is_asked() -> None:
    server = ToyServer(prompts=(PROMPT,))
    with serving(server) as url:
        command = ["solve", PROMPT, "--url", url, "--model", "toy", "--task", "arithmetic", "--budget", "samples=2"]
        result = CliRunner().invoke(app, [*command, "--model-option", "probe=never", "--json"])
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["candidates"]) == 2
    assert len(server.headers) == 2
    assert all("messages" in body and "stream" not in body for body in server.bodies)


def test_declared_capabilities_are_used_as_they_are() -> None:
    server = ToyServer(prompts=(PROMPT,))
    declared = {"mode": "continued chat", "streams": True, "usage": True, "neutral": {"top_k": 0}}
    with serving(server) as url:
        found = ServerAccess.of(registry.resolve("toy", url, {"capabilities": declared})).capabilities()
        assert server.headers == []
        assert (found.mode, found.neutral) == ("continued chat", (("top_k", 0),))
        assert (found.streams, found.usage, found.seeds) == (True, True, False)
        record = registry.resolve("toy", url, {"capabilities": declared})
        with Solver(record, lambda _, text: 1 / (1 + len(text)), task="arithmetic") as solver:
            assert solver.solve(PROMPT, tts.Budget(samples=2), strategy="beam").candidates  # which continues paths
    assert all(body.get("stream") for body in server.bodies)


@pytest.mark.parametrize(
    ("declared", "cause"),
    [
        ({"strems": True}, "capability is 'strems', but no capability has that name"),
        ({"streams": "often"}, "the capability streams is 'often'"),
        ({"mode": "telepathy"}, "the capability mode is 'telepathy'"),
        ({"version": "1"}, "the capability version cannot be declared"),
    ],
)
def test_what_cannot_be_declared_is_named(declared: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerAccess.of(registry.resolve("toy", "http://127.0.0.1:9", {"capabilities": declared})).capabilities()
    assert cause in caught.value.cause


def test_the_note_comes_before_the_wait_and_what_was_spent_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tts.servers")
    noted: list[bool] = []

    class Watched(ToyServer):
        def check(self, body: Any) -> None:
            noted.append("probing http" in caplog.text)
            super().check(body)

    with serving(Watched(prompts=(PROMPT,))) as url:
        OpenAIBackend.from_record(ModelRecord(name="toy", backend="openai", url=url))
        assert noted
        assert all(noted)
        command = ["solve", PROMPT, "--url", url, "--task", "arithmetic", "--budget", "samples=1"]
        result = CliRunner().invoke(app, command)
    [note] = [line for line in result.stderr.splitlines() if line.startswith("note: probed ")]
    assert "tokens reported" in note
    assert "charged to no problem" in note
    assert logging.getLogger("tts.servers").handlers == []


def test_the_doctor_prints_the_findings_and_what_works() -> None:
    with serving(ToyServer(ids=False, continues=False, context=512)) as url:
        result = CliRunner().invoke(app, ["doctor", "--url", url])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for part in ("plain chat: whole solutions only", "512 tokens", "best_of_n", "beam (steps)", f"{url}/v1 vLLM"):
        assert part in text
    result = CliRunner().invoke(app, ["doctor", "--model", "toy"])
    assert result.exit_code == 2
    assert "which no server runs, and only servers are probed" in result.stderr
