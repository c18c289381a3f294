"""Keys as accounts: other units than tokens, accounts that keys share, totals by key and period, and what a restart
leaves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.addons.gateway.asking import QUESTION, bearer, refused, write_keys
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.budget.budget import Rates
from tts.budget.units import USD_UNIT
from tts.errors import ConfigError
from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import gateway_config
from tts_addons.gateway.gateway import Gateway

NAMES = ("anna", "bert", "olga")
ANNA, BERT, OLGA = map(bearer, NAMES)
DAY_S = 24 * 3600.0


def ten(ask: Ask) -> Answer:
    """Write ten tokens."""
    return Answer("A: 5", tokens=10)


class PricedBackend(FunctionBackend):
    """`ten` at a cent for an answer."""

    rates = Rates(usd_in=0, usd_out=USD_UNIT // 1000)

    @classmethod
    def from_record(cls, record: Any) -> PricedBackend:
        return cls(ten)


HERE = "tests.addons.gateway.spending.test_accounts"
PRICED = {"backend": f"{HERE}:PricedBackend", "strategy": "best_of_n(n=2) | majority", "budget": 40}


class Serving:
    """Gateways on one store, one after the other, with a clock that stands until it is set."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        keys, store = write_keys(folder, *NAMES), str(folder / "store")
        self.config = {"models": {"ten": PRICED}, "keys": keys, "operators": ["olga"], "store": store, **settings}
        self.seconds = 10 * DAY_S

    def __enter__(self) -> TestClient:
        gateway = Gateway(gateway_config(self.config), now=lambda: self.seconds)
        self.client = TestClient(create_app(gateway_config(self.config), gateway=gateway), base_url="http://127.0.0.1")
        return self.client.__enter__()

    def __exit__(self, *failure: Any) -> None:
        self.client.__exit__(*failure)


def ask(client: TestClient, key: dict[str, str], **options: Any) -> Any:
    body = {"model": "ten", "messages": QUESTION, "tts": options}
    return client.post("/v1/chat/completions", json=body, headers=key)


def statement(client: TestClient, key: dict[str, str], name: str) -> dict[str, Any]:
    return client.get(f"/v1/accounts/{name}", headers=key).json()


@pytest.mark.parametrize(
    ("unit", "limit", "spent", "left"),
    [
        ("usd", 0.05, 0.02, "0.03 usd"),
        ("samples", 5, 2, "3 samples"),
        ("generated_tokens", 50, 20, "30 generated_tokens"),
        ("tokens", 90, 20, "70 tokens"),
    ],
)
def test_a_key_may_spend_what_its_account_limits(tmp_path, unit, limit, spent, left):
    """The second request is paid from what the first has left, and a third that asks for more than that is refused with
    the remainder.
    """
    account = {"budget": {unit: limit}, "request": {} if unit == "tokens" else {unit: limit}}
    with Serving(tmp_path, accounts={"anna": account}) as client:
        first = ask(client, ANNA).json()
        assert first["tts"]["budget"] == {"tokens": 40, **account["request"]}
        assert statement(client, ANNA, "anna")["spent"][unit] == spent
        amount = left.partition(" ")[0]
        message = refused(ask(client, ANNA, budget={unit: limit}), 429, f"tts.budget.{unit}", "insufficient_quota")
        assert f"of the account 'anna', {limit}, {amount} are left to this key; ask for less" in message
        assert "wait" not in message  # its period does not end
        assert ask(client, ANNA, budget={unit: float(amount) if unit == "usd" else int(amount)}).status_code == 200
        assert ask(client, BERT, budget={"usd": 1.0}).status_code == 200  # a key without an account of its own


def test_seconds_of_searches_add_up(tmp_path):
    with Serving(tmp_path, accounts={"anna": {"budget": {"seconds": 60}, "request": {"seconds": 60}}}) as client:
        assert ask(client, ANNA).json()["tts"]["budget"] == {"tokens": 40, "seconds": 60}
        told = statement(client, ANNA, "anna")
        assert 0 < told["spent"]["seconds"] < 60
        assert told["left"]["seconds"] == pytest.approx(60 - told["spent"]["seconds"])
        refused(ask(client, ANNA, budget={"seconds": 60}), 429, "tts.budget.seconds", "insufficient_quota")


def test_a_request_names_accounts_that_are_listed_for_its_key_alone(tmp_path):
    accounts = {
        "team": {"budget": {"tokens": 100}, "keys": ["anna", "bert"]},
        "secret": {"budget": {"tokens": 100}, "keys": ["olga"]},
    }
    with Serving(tmp_path, accounts=accounts, limits={"client_tokens": 40}) as client:
        assert ask(client, ANNA, account="team").status_code == 200
        assert ask(client, BERT, account="team").status_code == 200
        assert ask(client, ANNA).status_code == 200  # its own account has paid nothing
        for name in ("secret", "bert", "nobody"):
            message = refused(ask(client, ANNA, account=name), 400, "tts.account", "invalid_value")
            assert message.startswith(f"account is {name!r}, but no account has that name")
            assert "secret" not in message.replace(repr(name), "")
        refused(client.get("/v1/accounts/secret", headers=ANNA), 404, None, "account_not_found")
        message = refused(ask(client, BERT, account="team", budget=70), 429, "tts.budget.tokens", "insufficient_quota")
        assert "of the account 'team', 100, 60 are left" in message
        assert [one["id"] for one in client.get("/v1/accounts", headers=ANNA).json()["data"]] == ["anna", "team"]
        assert [one["id"] for one in client.get("/v1/accounts", headers=OLGA).json()["data"]] == [
            *NAMES,
            "secret",
            "team",
        ]


def test_totals_are_kept_by_key_and_period_over_a_restart(tmp_path):
    serving = Serving(tmp_path, accounts={"team": {"budget": {"tokens": 100}, "hours": 24, "keys": ["anna", "bert"]}})
    with serving as client:
        for key in (ANNA, BERT, ANNA):
            assert ask(client, key, account="team").status_code == 200
    with serving as client:  # a restart
        refused(ask(client, ANNA, account="team", budget=50), 429, "tts.budget.tokens", "insufficient_quota")
        serving.seconds += DAY_S
        assert ask(client, BERT, account="team", budget=50).status_code == 200
        told = statement(client, OLGA, "team")
        assert (told["begins"], told["ends"]) == (11 * DAY_S, 12 * DAY_S)
        assert (told["spent"]["tokens"], told["left"], told["held"]) == (20, {"tokens": 80}, {})
        spends = [(one["key"], one["begins"], one["spent"]["tokens"]) for one in told["spends"]]
        assert spends == [("bert", 11 * DAY_S, 20), ("anna", 10 * DAY_S, 40), ("bert", 10 * DAY_S, 20)]
        assert {one["key"] for one in statement(client, ANNA, "team")["spends"]} == {"anna"}


def test_a_model_alone_is_paid_in_the_units_of_the_account(tmp_path):
    settings = {"accounts": {"anna": {"budget": {"usd": 0.05, "samples": 4}, "request": {"usd": 0.04, "samples": 3}}}}
    with Serving(tmp_path, **settings) as client:
        body = {"model": "ten", "prompt": "3 + 4", "max_tokens": 10}
        assert client.post("/v1/completions", json={**body, "n": 3}, headers=ANNA).status_code == 200
        told = statement(client, ANNA, "anna")["spent"]
        assert (told["samples"], told["usd"]) == (3, pytest.approx(0.03))
        for more, unit in (({"n": 2}, "samples"), ({"max_tokens": 30}, "usd")):
            reply = client.post("/v1/completions", json={**body, **more}, headers=ANNA)
            refused(reply, 429, f"tts.budget.{unit}", "insufficient_quota")
        for more, amount in (({"n": 4}, "4 samples"), ({"max_tokens": 50}, "0.05 usd")):
            reply = client.post("/v1/completions", json={**body, **more}, headers=ANNA)
            assert amount in refused(reply, 400, "prompt", "too_long")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"accounts": {"anna": {"budget": {"usd": 1.0}, "request": {"usd": 0.1}}}}, "accounts.anna"),
        ({"limits": {"usd": 0.1}}, "no request to ten"),
    ],
)
def test_dollars_need_prices_at_the_start(tmp_path, settings, name):
    models = {"models": {"ten": {**PRICED, "backend": f"{HERE}:ten"}}}
    with pytest.raises(ConfigError, match=name) as failure, Serving(tmp_path, **models, **settings):
        pass
    assert "the record of the model 'policy'" in failure.value.cause
    assert "usd_in=" in (failure.value.hint or "")


def test_the_least_limit_of_a_request_holds_in_every_unit(tmp_path):
    """The model, the operator and the account limit a request. A request replaces the model's limits that it names."""
    own = {"tokens": 40, "seconds": 30, "usd": 0.3}
    model = {**PRICED, "budget": own, "presets": {"one": {"budget": 20}}}
    request = {"usd": 0.2, "samples": 4, "seconds": 50}
    settings = {"models": {"ten": model}, "accounts": {"anna": {"budget": {"usd": 1.0}, "request": request}}}
    with pytest.raises(ConfigError, match=r"limits\.usd is 0\.2"), Serving(tmp_path, **settings, limits={"usd": 0.2}):
        pass
    with Serving(tmp_path, **settings, limits={"usd": 0.3, "tokens": 90}) as client:

        def budget(key: dict[str, str], name: str = "ten", **options: Any) -> Any:
            body = {"model": name, "messages": QUESTION, "tts": options}
            return client.post("/v1/chat/completions", json=body, headers=key).json()["tts"]["budget"]

        assert budget(BERT) == own
        assert budget(BERT, "ten:one") == {**own, "tokens": 20}
        assert budget(BERT, budget=80) == {**own, "tokens": 80}
        assert budget(BERT, budget={"seconds": 40, "usd": None}) == {**own, "seconds": 40}
        assert budget(ANNA) == {**own, "usd": 0.2, "samples": 4}
        assert budget(ANNA, budget={"usd": 0.1}) == {**own, "usd": 0.1, "samples": 4}
        message = refused(ask(client, ANNA, budget={"samples": 5}), 400, "tts.budget.samples", "invalid_value")
        assert "the account 'anna'" in message
        assert "at most 0.3" in refused(ask(client, BERT, budget={"usd": 0.4}), 400, "tts.budget", "invalid_value")


@pytest.mark.parametrize("hours", [None, 24])
def test_a_quota_says_when_it_renews(tmp_path, hours):
    with Serving(tmp_path, accounts={"anna": {"budget": 50, "hours": hours}}) as client:
        assert ask(client, ANNA).status_code == 200
        headers = ask(client, ANNA, budget=50).headers
        assert (headers.get("retry-after"), headers["x-should-retry"]) == (hours and "86400", "false")
        assert "retry-after" not in ask(client, ANNA, budget=60).headers  # more than any period has


def test_limits_above_64_bits_are_exact(tmp_path):
    """A limit of 10,000 dollars is more than SQLite counts in units of 1e-15."""
    with Serving(tmp_path, accounts={"anna": {"budget": {"usd": 10_000.0}, "request": {"usd": 9_999.99}}}) as client:
        assert ask(client, ANNA).status_code == 200
        assert statement(client, ANNA, "anna")["left"]["usd"] == 9_999.98


@pytest.mark.parametrize(
    ("accounts", "message"),
    [
        (
            {"anna": {"budget": {"usd": 1.0}}},
            "accounts.anna limits usd, but does not say how much a request takes that names none",
        ),
        (
            {"anna": {"budget": {"usd": 1.0}, "request": {"usd": 2.0}}},
            "accounts.anna.request.usd is 2, but the account's budget has 1",
        ),
        ({"anna": {"budget": {"dollars": 1.0}}}, "budget unit is 'dollars', but no budget unit has that name"),
        (
            {"team": {"budget": 10, "keys": ["berta"]}},
            "name in accounts.team.keys is 'berta', but no name in accounts.team.keys has that name",
        ),
        ({"team": {"budget": 10}}, "accounts.team is for no key: it has no keys, and no key has its name"),
        ({"anna": {"budget": 10, "hours": 0}}, "accounts.anna.hours is 0"),
        ({"a team": {"budget": 10, "keys": ["anna"]}}, "name of an account is 'a team'"),
    ],
)
def test_accounts_that_are_not_valid_are_named(tmp_path, accounts, message):
    with pytest.raises(ConfigError) as failure, Serving(tmp_path, accounts=accounts):
        pass
    assert message in failure.value.cause


def test_accounts_need_a_store(tmp_path):
    with pytest.raises(ConfigError, match=r"accounts.*there"):
        Serving(tmp_path, accounts={"anna": {"budget": 10}}, store=None).__enter__()
