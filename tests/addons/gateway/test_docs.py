"""The configuration in the documentation is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.addons.gateway.asking import gateway_config
from tts.budget.units import USD_UNIT
from tts_addons.gateway.spending.accounts import Accounts

PAGE = Path(__file__).parents[3] / "docs/how-to/gateway.md"


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
    if not PAGE.exists():
        pytest.skip("the documentation is not here")
    block = PAGE.read_text().partition("## Keys and accounts")[2].partition("```yaml\n")[2].partition("```")[0]
    config = gateway_config({"models": {"toy": {}}, **yaml.safe_load(block)})
    accounts = Accounts(config, ["anna", "bert", "olga"])
    assert [one.name for one in accounts.visible_accounts("bert")] == ["bert", "project"]
    assert accounts.paying_account("anna").limits == {"tokens": 5_000_000, "usd": 10 * USD_UNIT}
    assert accounts.paying_account("bert").limits == {"tokens": 1_000_000}


def test_usage_on_the_page_is_that_of_a_reply(client):
    if not PAGE.exists():
        pytest.skip("the documentation is not here")
    gateway = client(
        models={"pocket": {"presets": {"vote": {"strategy": "best_of_n(n=8) | majority", "budget": 1000}}}}
    )
    ask = {"messages": [{"role": "user", "content": "What is 12 + 7 * 3?"}], "seed": 0}
    vote = gateway.post("/v1/chat/completions", json={**ask, "model": "pocket:vote"}).json()
    usage, page = vote["usage"], PAGE.read_text()
    told = ", ".join(f'"{name}": {usage[name]}' for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    assert f'"usage": {{{told}, …}}' in page
