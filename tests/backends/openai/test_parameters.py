"""Which parameters a server takes: temperature and top_p apart, neutral values one by one, in few requests; spellings
of a url; notes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.backends.openai.making import drawn
from tests.backends.openai.server import ToyServer, serving
from tts.backends.base import Sampling
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import Key
from tts.backends.openai.http import roots
from tts.backends.openai.kept_capabilities import KeptCapabilities
from tts.backends.openai.probe import ProbeCost, probe_server
from tts.backends.openai.rows import check_sampling, tempering
from tts.errors import CapabilityError, ConfigError
from tts.models.record import ModelRecord


class Choosy(ToyServer):
    """A server that refuses some parameters, and some pairs of them.

    Attributes:
        refused: The parameters.
        names: Whether its refusal names them.
        named: How many of them a refusal names.
        apart: Whether it refuses a temperature beside top_p.
    """

    refused: tuple[str, ...] = ()
    names = True
    named = 1
    apart = False

    def check(self, body: Any) -> None:
        super().check(body)
        found = [name for name in self.refused if name in body]
        if found:
            raise ConfigError(
                f"Unrecognized request arguments supplied: {', '.join(found[: self.named])}"
                if self.names
                else "Bad request"
            )
        if self.apart and {"temperature", "top_p"} <= body.keys():
            raise ConfigError("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")


def choosy(*refused: str, names: bool = True, apart: bool = False, **features: Any) -> Choosy:
    server = Choosy(**features)
    server.refused, server.names, server.apart = refused, names, apart
    return server


def found_at(server: ToyServer) -> tuple[Capabilities, ProbeCost]:
    costs: list[ProbeCost] = []
    with serving(server) as url:
        return probe_server(url, "toy", Key(), told=costs.append), costs[0]


HOSTED: dict[str, Any] = {"completions": False, "ids": False, "continues": False, "seeds": False, "logprobs": False}


@pytest.mark.parametrize(
    ("refused", "apart", "takes"),
    [
        ((), False, (True, True, True)),
        ((), True, (True, True, False)),
        (("top_p",), False, (True, False, False)),
        (("temperature",), False, (False, True, False)),
        (("temperature", "top_p"), False, (False, False, False)),
    ],
)
def test_temperature_and_top_p_are_probed_apart(refused: tuple[str, ...], apart: bool, takes: tuple[bool, ...]) -> None:
    found, _ = found_at(choosy(*refused, apart=apart, **HOSTED))
    assert (found.tempers, found.cuts, found.both) == takes


def test_a_server_that_takes_one_of_both_is_sent_the_one_that_is_not_1() -> None:
    server = choosy(apart=True, **HOSTED)
    with serving(server) as url:
        found = probe_server(url, "toy", Key())

        async def draw(sampling: Sampling) -> Any:
            backend = OpenAIBackend(found)
            [sample] = await drawn(backend, 1, sampling=sampling)
            await backend.close()
            assert not sample.error
            return {name: server.bodies[-1].get(name) for name in ("temperature", "top_p")}

        assert asyncio.run(draw(Sampling(temperature=0.5))) == {"temperature": 0.5, "top_p": None}
        assert asyncio.run(draw(Sampling(temperature=1.0, top_p=0.5))) == {"temperature": None, "top_p": 0.5}
        assert asyncio.run(draw(Sampling(temperature=1.0))) == {"temperature": 1.0, "top_p": None}
        with pytest.raises(CapabilityError, match="takes only one of them"):
            asyncio.run(draw(Sampling(temperature=0.5, top_p=0.5)))


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


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    "refused",
    [
        (),
        ("repeat_penalty",),
        ("min_p",),
        ("top_k", "repeat_penalty"),
        ("top_k", "min_p", "repetition_penalty", "repeat_penalty"),
    ],
)
def test_every_neutral_value_is_sent_that_is_taken(refused: tuple[str, ...], names: bool) -> None:
    found, _ = found_at(choosy(*refused, names=names, **HOSTED))
    assert {name for name, _ in found.neutral} == {"top_k", "min_p", "repetition_penalty", "repeat_penalty"} - set(
        refused
    )
    assert found.filters == (not {"top_k", "min_p"} & set(refused))


def test_a_plain_server_is_probed_by_few_requests() -> None:
    for server in (
        choosy(
            "top_k",
            "min_p",
            "repetition_penalty",
            "repeat_penalty",
            "continue_final_message",
            "seed",
            "logprobs",
            **HOSTED,
        ),
        choosy("repeat_penalty", "min_p", "top_k", "repetition_penalty", names=True, reasoning=3, **HOSTED),
    ):
        server.named = 9
        found, cost = found_at(server)
        assert found.mode == "chat"
        assert cost.requests <= 16, [sorted(body) for body in server.bodies]


@pytest.mark.parametrize("thought", [3, 100, 2000])
def test_a_model_that_thinks_is_probed_by_few_requests_on_a_server_that_takes_everything(thought: int) -> None:
    server = choosy(reasoning=thought)
    found, cost = found_at(server)
    assert (found.mode, found.reasoning, found.n, found.efforts, found.seeds, found.filters) == (
        "chat",
        True,
        True,
        True,
        True,
        True,
    )
    assert {name for name, _ in found.neutral} == {"top_k", "min_p", "repetition_penalty", "repeat_penalty"}
    assert cost.requests <= 18, [sorted(body) for body in server.bodies]


# Spellings, and the note ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1", True),
        ("http://localhost:8000", "http://127.0.0.1:8000/", True),
        ("HTTP://Example.COM/v1", "http://example.com:80/v1/", True), ("https://a.b:443//v1", "https://a.b/v1", True),
        ("https://a.b/API/v1", "https://a.b/api/v1", False), ("http://a.b:443", "https://a.b:443", False),
        ("http://localhost.example:1", "http://127.0.0.1.example:1", False), ("http://a:1", "http://a:2", False),
    ],
)  # fmt: skip
def test_spellings_of_one_url_have_one_file(one: str, other: str, same: bool) -> None:
    assert (KeptCapabilities.of(one, "m", "auto") == KeptCapabilities.of(other, "m", "auto")) is same
    assert roots("HTTPS://A.b:443/v1//") == ("https://a.b/v1",)
    assert roots(" http://A.b:8080/x/ ") == ("http://a.b:8080/x/v1", "http://a.b:8080/x")


def test_the_note_comes_before_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tts.servers")
    noted: list[bool] = []

    class Watched(ToyServer):
        def check(self, body: Any) -> None:
            noted.append("probing http" in caplog.text)
            super().check(body)

    with serving(Watched()) as url:
        OpenAIBackend.from_record(ModelRecord(name="toy", backend="openai", url=url))
        assert noted
        assert all(noted)
        assert caplog.text.index("probing http") < caplog.text.index("probed http")
        caplog.clear()
        OpenAIBackend.from_record(ModelRecord(name="toy", backend="openai", url=f"{url}/v1/"))
    assert "prob" not in caplog.text, "one server under two spellings is probed once"


@pytest.mark.parametrize(
    ("refused", "takes"),
    [
        ((), (True, True)),
        (("logit_bias",), (True, False)),
        (("frequency_penalty",), (False, True)),
        (("presence_penalty", "logit_bias"), (False, False)),
    ],
)
def test_penalties_and_biases_are_probed(refused: tuple[str, ...], takes: tuple[bool, bool]) -> None:
    found, _ = found_at(choosy(*refused, **HOSTED))
    assert (found.penalties, found.biases) == (found.caps.penalties, found.caps.biases) == takes


def test_penalties_and_biases_are_sent_and_tell_samplings_apart() -> None:
    server = ToyServer()
    changed = Sampling(presence_penalty=0.5, frequency_penalty=-1, logit_bias={7: -100, 3: 2})

    async def draw(url: str) -> None:
        backend = OpenAIBackend(Capabilities(root=f"{url}/v1", model="toy", mode="chat", penalties=True, biases=True))
        [sample] = await drawn(backend, 1, sampling=changed)
        await backend.close()
        assert not sample.error

    with serving(server) as url:
        asyncio.run(draw(url))
    body = server.bodies[-1]
    assert (body["presence_penalty"], body["frequency_penalty"], body["logit_bias"]) == (0.5, -1, {"3": 2, "7": -100})
    assert changed == Sampling(presence_penalty=0.5, frequency_penalty=-1, logit_bias=((7, -100), (3, 2)))
    assert len({changed, Sampling(), Sampling(logit_bias={3: 2}), Sampling(presence_penalty=0.5)}) == 4
