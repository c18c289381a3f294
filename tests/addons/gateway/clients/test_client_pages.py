"""The page of clients: each client runs the program of its section through `tts serve`, and prints what that shows.

`TTS_CLIENTS_FOLDER` names the folder into which `make test-clients` installs the clients: one environment of Python,
one of Node, and one for each client that fits into neither.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

import yaml

from scripts import document_commands as script
from tests.addons.gateway.clients.replies import reply
from tests.addons.gateway.wire.started import started
from tests.addons.gateway.wire.upstream import serving_script

PAGE = script.ROOT / "docs" / "how-to" / "clients.md"
TEXT = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
HEAD, *SECTIONS = re.split(r"^## ", TEXT.partition("\n## Other clients")[0], flags=re.MULTILINE)
OWN = {"LlamaIndex": "llama_index", "Instructor": "instructor", "LiteLLM proxy": "litellm", "Open WebUI": "open_webui"}
INSTALLS = ("pip install", "npm install", "tts serve")
MODEL = {"model": "Qwen/Qwen3-8B", "url": "http://gpu-1:8000"}

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the documents are not here")


@pytest.fixture(scope="module")
def clients() -> Path:
    """The folder of the clients."""
    folder = os.environ.get("TTS_CLIENTS_FOLDER")
    if folder is None:
        pytest.skip("TTS_CLIENTS_FOLDER names no folder with clients (make test-clients makes one)")
    return Path(folder)


@pytest.fixture(scope="module")
def port(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The port of a gateway with the configuration of the page, where a script stands for the model with tools."""
    configured = next(one for one in script.commands(str(PAGE)) if one.file == "gateway.yaml")
    config: dict[str, Any] = yaml.safe_load(configured.code)
    assert MODEL.items() <= config["models"]["qwen"].items()
    with serving_script(reply) as upstream:
        config["models"]["qwen"].update(model="scripted", url=upstream.url)
        with started(tmp_path_factory.mktemp("gateway"), config) as url:
            yield url.rpartition(":")[2]


@pytest.fixture
def session(section: str, clients: Path, tmp_path: Path, port: str) -> Iterator[script.Session]:
    """An empty folder with an empty home, where the clients are found."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (work / "node_modules").symlink_to(clients / "node" / "node_modules")  # where Node looks for what a program imports
    bins = (f"{OWN.get(section.splitlines()[0], 'python')}/bin", "python/bin", "node/node_modules/.bin")
    path = os.pathsep.join([*(str(clients / one) for one in bins), os.environ["PATH"]])
    with script.Session(work, {"PATH": path, "HOME": str(home)}) as made:
        made.port = port
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.splitlines()[0])
def test_the_program_of_a_client_prints_what_its_section_shows(section: str, session: script.Session) -> None:
    place = Path(session.environ["HOME"]) / "section.md"
    place.write_text(HEAD + section, encoding="utf-8")
    for command in script.commands(str(place)):
        if not command.code.startswith(INSTALLS):
            assert session.run(command) == "", command.code


def test_every_client_is_in_the_table_and_shows_something() -> None:
    for section in SECTIONS:
        assert f"| [{section.splitlines()[0]}](#" in HEAD
        assert '```text title="Output"' in section, section.splitlines()[0]
