"""Keys of other variables, and headers and queries of gateways, with secrets that stand nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.backends.openai.making import PROMPT
from tests.backends.openai.saying import Asked, Saying, whole
from tests.backends.openai.server import ToyServer, serving
from tests.backends.openai.test_look import good
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.errors import Key
from tts.cli.app import app
from tts.errors import ConfigError
from tts.models import registry

SECRET = "sk-of-nobody-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TTS_API_KEY", "TTS_API_KEY_FILE", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def told(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        app, ["solve", PROMPT, "--model", "toy", "--task", "arithmetic", "--budget", "samples=1", *arguments]
    )
    return result.exit_code, result.stderr


@pytest.fixture
def url() -> Iterator[str]:
    with serving(ToyServer(key=SECRET)) as found:
        yield found


@pytest.mark.slow
def test_the_key_of_others_is_named_and_not_sent(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, error = told("--url", url)
    assert code == 2
    assert "TTS_API_KEY" in error
    assert "OPENAI_API_KEY" not in error
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    code, error = told("--url", url)
    assert code == 2
    assert "Incorrect API key provided: none" in error
    assert "is not sent unless key_variable=OPENAI_API_KEY (--model-option, or its record) says so" in error
    assert told("--url", url, "--model-option", "key_variable=OPENAI_API_KEY")[0] == 0
    monkeypatch.setenv("TTS_API_KEY", "sk-another-key-0123")
    assert "OPENAI_API_KEY" not in told("--url", url)[1]


def test_a_variable_that_is_named_and_not_set_is_told(url: str) -> None:
    code, error = told("--url", url, "--model-option", "key_variable=OPENAI_API_KEY")
    assert code == 2
    assert "the variable OPENAI_API_KEY was named for the key, but holds none" in error


# Headers and queries --------------------------------------------------------------------------------------------------


def gateway(asked: Asked) -> Any:
    """Answer as a gateway that wants its key in a header of its own, and a version in the query."""
    path, _, query = asked.path.partition("?")
    if asked.headers.get("api-key") != SECRET:
        return whole({"error": {"message": f"who is {asked.headers.get('api-key')}?"}}, 401)
    if query != "api-version=2024-10-21" or path == "/deployments/x/models":
        return whole({"error": {"message": "Resource not found"}}, 404)
    return good(Asked(asked.method, path.replace("/deployments/x", "/v1"), asked.headers, asked.body))


SETTINGS = {"headers": {"api-key": "${GATEWAY_KEY}", "X-Title": "tests"}, "query": {"api-version": "2024-10-21"}}


def test_a_gateway_has_headers_and_a_query(monkeypatch: pytest.MonkeyPatch, users_files: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("GATEWAY_KEY", SECRET)
    server = Saying(gateway)
    trace = tmp_path / "trace.json"
    with serving(server) as url:
        added = ["models", "add", "azure", "--url", f"{url}/deployments/x", "--served-as", "toy"]
        for name, value in SETTINGS.items():
            added += ["--model-option", f"{name}={json.dumps(value)}"]
        assert CliRunner().invoke(app, added).exit_code == 0
        solved = ["solve", PROMPT, "--model", "azure", "--task", "text", "--strategy", "best_of_n"]
        result = CliRunner().invoke(app, [*solved, "--budget", "samples=2", "--trace", str(trace), "--json"])
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["candidates"]) == 2
    assert all(asked.headers["x-title"] == "tests" for asked in server.asked)
    assert "authorization" not in server.asked[-1].headers
    kept = [file.read_text() for file in users_files.rglob("*.json")]
    assert kept
    assert SECRET not in "".join([result.output, trace.read_text(), *kept])


def test_a_secret_of_a_header_stands_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", f"{SECRET}-wrong")
    with serving(Saying(gateway)) as url, pytest.raises(ConfigError) as caught:
        ServerAccess.of(registry.resolve("toy", f"{url}/deployments/x", SETTINGS)).capabilities()
    assert "who is ***?" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"headers": {"api-key": SECRET}}, "the header api-key holds a secret as it is"),
        ({"headers": {"Authorization": f"Bearer {SECRET}"}}, "the header Authorization holds a secret as it is"),
        ({"query": {"api_key": SECRET}}, "holds a secret as it is"),
        ({"headers": {"X-Key": "${NOT_SET_ANYWHERE}"}}, "names the variable NOT_SET_ANYWHERE, which is not set"),
        ({"headers": {"X-Title": "a\nb"}}, "has characters that cannot be sent"),
    ],
)
def test_a_header_that_cannot_be_is_named(settings: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerAccess.of(registry.resolve("toy", "http://127.0.0.1:9", settings))
    assert cause in caught.value.cause
    assert SECRET not in str(caught.value)


def test_every_secret_is_hidden_in_texts_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "first-secret-0123")
    key = Key(SECRET, "a test").with_parameters((("X-One", "a ${ONE}"),), ())
    assert key.headers == {"Authorization": f"Bearer {SECRET}", "X-One": "a first-secret-0123"}
    text = json.dumps({"a": [f"{SECRET} first-secret-0123"]})
    assert key.hidden(text) == '{"a": ["*** ***"]}'
    assert key.hide(json.loads(text), text) == {"a": ["*** ***"]}
    assert SECRET not in repr(key)


def test_a_query_in_a_url_has_its_place_told() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerAccess.of(registry.resolve("toy", "http://host/v1?api-version=2024")).capabilities()
    assert "query: {name: value}" in caught.value.hint
