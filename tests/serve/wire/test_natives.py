"""Tools and pictures reach a served model natively through the gateway, however its server is called otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")

from tests.serve.asking import refused
from tests.serve.wire.frames import PATHS, read, read_stream
from tests.serve.wire.test_equal_searches import CITY, PIXEL
from tests.serve.wire.upstream import PICTURE_TOKENS, Upstream, call, serving_script
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.serve.offers import chat_records

TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
URL = f"data:image/png;base64,{PIXEL}"


def script(body: dict[str, Any]) -> dict[str, Any]:
    """Call the weather of Oslo twice and of Rome once in three; else say what is seen."""
    if "tools" in body:
        cities = ("Oslo", "Rome", "Oslo")
        return call("weather", {"city": cities[hash(str(body.get("seed"))) % 3]})
    return {"content": "It is sunny." if isinstance(body["messages"][-1]["content"], str) else "A point."}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with serving_script(script) as made:
        yield made


@pytest.fixture
def gateway(client: Any, upstream: Upstream, monkeypatch: Any, tmp_path: Any) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = {"model": "scripted", "url": [upstream.url], "strategy": "best_of_n(n=5) | majority"}
    return client(models={"scripted": model, "toy": {}})


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": "Weather?"}], **fields}


def test_calls_of_the_server_are_voted_on(gateway: Any, upstream: Upstream) -> None:
    reply = gateway.post("/v1/chat/completions", json=chat(tools=[TOOL], seed=1))
    found = read("chat", reply)
    assert found.finish == "calls"
    bodies = upstream.bodies[-5:]
    assert all(body["tools"] == [TOOL] and body["tool_choice"] == "auto" for body in bodies)
    votes = [call["function"]["arguments"] for body in bodies for call in script(body)["tool_calls"]]
    assert found.calls == [("weather", {"city": "Oslo" if sum("Oslo" in one for one in votes) > 2 else "Rome"})]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("chat/completions", {"type": "image_url", "image_url": {"url": URL}}),
        ("responses", {"type": "input_image", "image_url": URL}),
        ("messages", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}),
    ],
)
def test_a_picture_reaches_the_model(gateway: Any, upstream: Upstream, path: str, content: Any) -> None:
    turns = [{"role": "user", "content": [content]}]
    body = {"model": "scripted", ("input" if path == "responses" else "messages"): turns}
    wire = path.partition("/")[0]
    found = read(wire, gateway.post(f"/v1/{path}", json={**body, **({"max_tokens": 50} if wire == "messages" else {})}))
    assert found.text == "A point."
    assert found.usage[0] > PICTURE_TOKENS
    assert upstream.bodies[-1]["messages"] == [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}
    ]


def seen(url: str, **fields: Any) -> dict[str, Any]:
    return {
        **chat(**fields),
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}],
    }


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "http://pictures.example/a.png", "https://pictures.example/a.png",
        "https://pictures.example:8443/a.png", "data:text/html;base64,AAAA", "data:image/png;base64,@@@@", "",
        "https://user@pictures.example/a.png",
    ],
)  # fmt: skip
def test_other_pictures_are_refused_before_anything_is_spent(gateway: Any, upstream: Upstream, url: str) -> None:
    before = len(upstream.bodies)
    refused(
        gateway.post("/v1/chat/completions", json=seen(url)),
        400,
        "messages[0].content[0].image_url.url",
        "invalid_value",
    )
    assert len(upstream.bodies) == before


def test_hosts_and_sizes_of_pictures_are_the_operators(
    client: Any, upstream: Upstream, monkeypatch: Any, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = {"model": "scripted", "url": [upstream.url], "strategy": "single"}
    gateway = client(models={"scripted": model}, limits={"image_hosts": ["pictures.example"], "image_bytes": 100})
    assert gateway.post("/v1/chat/completions", json=seen("https://pictures.example/a.png")).status_code == 200
    for url in (
        "http://pictures.example/a.png",
        "https://pictures.example.evil/a.png",
        "https://pictures.example@evil/a.png",
    ):
        assert gateway.post("/v1/chat/completions", json=seen(url)).status_code == 400
    place = "messages[0].content[0].image_url.url"
    refused(gateway.post("/v1/chat/completions", json=seen(URL + "A" * 400)), 400, place, "too_long")


def test_a_picture_is_refused_by_the_name_of_a_model_of_text(gateway: Any) -> None:
    cause = refused(
        gateway.post("/v1/chat/completions", json={**seen(URL), "model": "toy"}), 400, "messages", "unsupported"
    )
    assert cause == "messages has a picture, but the model 'toy' reads text alone; leave it out"


def test_a_server_that_continues_tokens_is_called_by_chats_for_tools(gateway: Any, monkeypatch: Any) -> None:
    """Where the strategy works on whole solutions; one of steps is shown the tools as text."""
    offers = gateway.app.state.gateway.offers
    policy = offers.backends(offers.get("scripted"))["policy"]
    assert isinstance(policy, OpenAIBackend)
    monkeypatch.setattr(
        policy, "capabilities", Capabilities(root=policy.capabilities.root, model="scripted", mode="tokens", tools=True)
    )
    from tts.serve.config import GatewayLimits
    from tts.serve.orders import order_of
    from tts.serve.wire import chat as wire

    def chats(**fields: Any) -> bool:
        return order_of(wire.read(chat(**fields), GatewayLimits()), gateway.app.state.gateway).chats

    assert chats(tools=[TOOL])
    assert not chats()
    assert not chats(tools=[TOOL], tts={"strategy": "beam(n=2)"})
    (record,) = offers.servers["scripted"].records
    assert dict(chat_records(record)["policy"].options)["mode"] == "chat"


@pytest.mark.parametrize("several", [True, False])
def test_a_prompt_counts_once_however_many_rows_read_it(
    client: Any, monkeypatch: Any, tmp_path: Any, several: bool
) -> None:
    """A server may count the prompt once for all choices of a call, or once for each call."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    counts: set[int] = set()
    with serving_script(lambda body: {"content": "It rains."}, several=several) as upstream:
        gateway = client(models={"scripted": {"model": "scripted", "url": [upstream.url]}})
        for wire, rows, streamed in itertools.product(PATHS, (1, 2, 5), (False, True)):
            body = {"model": "scripted", ("input" if wire == "responses" else "messages"): chat()["messages"]}
            body |= {"tts": {"strategy": f"best_of_n(n={rows}) | majority"}, "stream": streamed}
            body["max_output_tokens" if wire == "responses" else "max_tokens"] = 50
            body |= {"stream_options": {"include_usage": True}} if wire == "chat" and streamed else {}
            before = len(upstream.bodies)
            reply = gateway.post(PATHS[wire], json=body)
            found = read_stream(wire, reply) if streamed else read(wire, reply)
            assert not isinstance(found, str), found
            counts.add(found.usage[0])
            assert len(upstream.bodies) - before == (1 if several else rows)
    assert len(counts) == 1
    assert counts != {0}
