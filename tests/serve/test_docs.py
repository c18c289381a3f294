"""The configuration in the documentation is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.asking import gateway_config
from tts.budget.budget import USD_UNIT
from tts.serve.spending.accounts import Accounts

PAGE = Path(__file__).parents[2] / "docs/how-to/gateway.md"
ACCOUNTS = PAGE.with_name("gateway_accounts.md")


def test_the_configuration_is_valid():
    yaml = pytest.importorskip("yaml")
    if not PAGE.exists():
        pytest.skip("the documentation is not here")
    block = PAGE.read_text().partition("## The configuration")[2].partition("```yaml\n")[2].partition("```")[0]
    config = gateway_config(yaml.safe_load(block))
    assert [*config.models] == ["pocket", "qwen"]
    assert config.models["qwen"].records()["policy"].task == "math"
    assert len(config.models["qwen"].url) == 2


def test_the_accounts_are_valid():
    yaml = pytest.importorskip("yaml")
    if not ACCOUNTS.exists():
        pytest.skip("the documentation is not here")
    config = gateway_config({"models": {"toy": {}}, **yaml.safe_load(ACCOUNTS.read_text().partition("```yaml\n")[2].partition("```")[0])})
    accounts = Accounts(config, ["anna", "bert", "olga"])
    assert [one.name for one in accounts.for_client("bert")] == ["bert", "project"]
    assert accounts.of("anna").limits == {"tokens": 5_000_000, "usd": 10 * USD_UNIT}
    assert accounts.of("bert").limits == {"tokens": 1_000_000}
