from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.addons.connections import note_connections


@pytest.fixture
def client() -> Iterator[Callable[..., Any]]:
    """Make clients of gateways in this process, with these settings beside the toy."""
    from starlette.testclient import TestClient

    from tests.addons.gateway.asking import TOY
    from tts_addons.gateway.app import create_app
    from tts_addons.gateway.config import gateway_config

    with ExitStack() as held:

        def make(headers: Any = None, **settings: Any) -> TestClient:
            app = create_app(gateway_config({**TOY, **settings}))
            return held.enter_context(TestClient(app, base_url="http://127.0.0.1", headers=headers))

        yield make


@pytest.fixture
def closing_files() -> Iterator[None]:
    """Close the files of books, archives and gateways that a test makes without a server around them."""
    with note_connections() as connections:
        yield
    for connection in connections:
        connection.close()
