"""The configuration in the documentation is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.asking import gateway_config

PAGE = Path(__file__).parents[2] / "docs/how-to/gateway.md"


def test_the_configuration_is_valid():
    yaml = pytest.importorskip("yaml")
    if not PAGE.exists():
        pytest.skip("the documentation is not here")
    block = PAGE.read_text().partition("## The configuration")[2].partition("```yaml\n")[2].partition("```")[0]
    config = gateway_config(yaml.safe_load(block))
    assert [*config.models] == ["pocket", "qwen"]
    assert config.models["qwen"].records()["policy"].task == "math"
    assert len(config.models["qwen"].url) == 2
