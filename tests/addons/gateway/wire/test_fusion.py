"""A fusion: several models write, another one fuses, and each is booked to its own name and price."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

import tts
from tts.backends.function import FunctionBackend
from tts.budget.budget import Rates
from tts.errors import ConfigError
from tts_addons.gateway.config import gateway_config

QUESTION = [{"role": "user", "content": "What is 2 + 2?"}]


def small(ask: tts.Ask) -> tts.Answer:
    return tts.Answer("small: \\boxed{5}", tokens=10)


def large(ask: tts.Ask) -> tts.Answer:
    return tts.Answer("large: \\boxed{4}", tokens=20)


def judge(ask: tts.Ask) -> tts.Answer:
    text = str(ask.prompt)
    return tts.Answer("fused: \\boxed{4}" if "small: " in text and "large: " in text else "nothing to fuse", tokens=30)


class Priced(FunctionBackend):
    """A function with a price, in dollars per million tokens."""

    function: Any = None
    price = 0

    @classmethod
    def from_record(cls, record: Any) -> Priced:
        made = cls(cls.function)
        usd = cls.price * 10**9
        made.rates = Rates(flops=None, usd_in=usd, usd_reused=usd, usd_out=usd)
        return made


class Small(Priced):
    function, price = staticmethod(small), 1


class Large(Priced):
    function, price = staticmethod(large), 3


class Judge(Priced):
    function, price = staticmethod(judge), 10


def model(name: str) -> dict[str, object]:
    return {"backend": f"tests.addons.gateway.wire.test_fusion:{name}", "strategy": "single", "task": "math"}


MODELS = {"small": model("Small"), "large": model("Large"), "judge": model("Judge")}
FUSION = {"models": ["small", "large"], "judge": "judge"}


def test_each_arm_is_booked_to_its_model_and_price(client):
    gateway = client(models={**MODELS, "panel": {"fusion": FUSION, "budget": {"tokens": 2000, "samples": 3}}})
    body = gateway.post("/v1/chat/completions", json={"model": "panel", "messages": QUESTION, "seed": 1}).json()
    assert body["tts"]["answer"] == "4", body
    assert "fused" in body["choices"][0]["message"]["content"]
    phases = {one["role"]: one for one in body["tts"]["receipt"]["phases"]}
    assert {*phases} == {"small", "large", "policy"}
    assert [phases[role]["tokens"] for role in ("small", "large", "policy")] == [10, 20, 30]
    for role, price in (("small", 1), ("large", 3), ("policy", 10)):
        phase = phases[role]
        assert phase["usd"] == pytest.approx((phase["prompt_tokens"] + phase["tokens"]) * price * 1e-6)
    assert sum(one["usd"] for one in phases.values()) == pytest.approx(body["tts"]["usage"]["usd"])


class Failing(Priced):
    function, price = staticmethod(lambda ask: 1 / 0), 3


def test_a_fusion_that_lost_a_member_says_so(client):
    panel = {"fusion": {"models": ["failing", "large"], "judge": "judge"}, "budget": {"samples": 9}}
    gateway = client(models={**MODELS, "failing": model("Failing"), "panel": panel})
    asked = {"model": "panel", "messages": QUESTION, "seed": 1, "max_tokens": 100}
    body = gateway.post("/v1/chat/completions", json=asked).json()
    assert body["tts"]["answer"] == "4", "of the member that is left"
    assert any("'failing' is missing" in line for line in body["tts"]["warnings"]), body["tts"]


def test_a_fusion_that_lost_its_judge_says_so(client):
    panel = {"fusion": {"models": ["small", "large"], "judge": "failing"}, "budget": {"samples": 9}}
    gateway = client(models={**MODELS, "failing": model("Failing"), "panel": panel})
    asked = {"model": "panel", "messages": QUESTION, "seed": 1, "max_tokens": 100}
    body = gateway.post("/v1/chat/completions", json=asked).json()
    assert body["tts"]["answer"] in ("4", "5"), "of the members alone"
    assert any("'policy' is missing" in line for line in body["tts"]["warnings"]), body["tts"]


@pytest.mark.parametrize(
    ("panel", "told"),
    [
        ({"fusion": {"models": ["small"], "judge": "judge"}}, "models is ['small'], but"),
        ({"fusion": {"models": ["small", "lerge"], "judge": "judge"}}, "model of a fusion is 'lerge', but"),
        ({"fusion": FUSION, "strategy": "single"}, "strategy of panel is given beside its fusion"),
        ({"fusion": {**FUSION, "n": 0}}, "n is 0, but"),
    ],
)
def test_what_is_wrong_in_a_fusion_is_named(panel, told):
    with pytest.raises(ConfigError) as refusal:
        gateway_config({"models": {**MODELS, "panel": panel}})
    assert told in str(refusal.value)
