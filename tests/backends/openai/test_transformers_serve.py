"""The server of transformers, which lists no models without the Hub: a model that is named is used through chat."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.support.guard import LIMIT_S
from tests.support.servers import OFFLINE, serving
from tts.cli.app import app
from tts.models import registry

pytestmark = pytest.mark.slow

NEEDED = ("torch", "transformers", "fastapi", "uvicorn", "openai")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
START = "import sys; from transformers.cli.transformers import main; sys.argv[0] = 'transformers'; main()"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded policy with a chat template."""
    if MISSING:
        pytest.skip(f"transformers serve needs {', '.join(MISSING)}, which is not installed")
    located = registry.locate(registry.get("pocket"))
    assert located is not None
    folder = tmp_path_factory.mktemp("serve") / "model"
    shutil.copytree(located, folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    command = (sys.executable, "-c", START, "serve", str(model), "--device", "cpu")
    with serving(command, "/health", model.parent / "log", OFFLINE) as found:
        yield found


def test_a_named_model_is_used_though_the_list_of_models_fails(url: str, model: Path) -> None:
    assert httpx.get(f"{url}/v1/models", timeout=LIMIT_S).status_code == 500
    asked = ["12 + 7 * 3", "--url", url, "--model", str(model)]
    command = ["solve", *asked, "--task", "pocket", "--budget", "samples=2", "--max-tokens", "60"]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["candidates"]) == 2
    assert "note: probed" in result.stderr
