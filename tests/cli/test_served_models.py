"""Models on servers under any name, in every command; the user's own records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.openai.server import ToyServer, serving
from tts.experiments.store.store import Store

pytest.importorskip("yaml")
STUDY = """
name: served
models: {{srv: {{model: gpt-4o-mini, url: "{url}", usd_in: 0.15/M, usd_out: 0.60/M, parameters: 8B, expected_tokens: 30}}}}
problems: {{dataset: arithmetic, limit: 2, operators: +-, parentheses: false}}
strategies: best_of_n | majority
budgets: [{{usd: 0.0005, samples: 2}}, {{flops: 1.0e+13, samples: 2}}]
"""  # noqa: E501


@pytest.fixture
def server() -> ToyServer:
    return ToyServer(model="gpt-4o-mini")


@pytest.fixture
def url(server: ToyServer) -> Iterator[str]:
    with serving(server) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_study_of_any_served_name_has_prices_and_sizes(
    tts: Callable[..., Any], url: str, folder: Path, server: ToyServer
) -> None:
    (folder / "study.yaml").write_text(STUDY.format(url=url))
    told = tts("run", "study.yaml", "--dry-run")
    assert told.exit_code == 0, told.stderr
    said = f"note: probing {url} for what it can do: three to twenty requests of some 50 tokens each"
    assert told.stderr.startswith(said)
    assert 3 <= len(server.headers) <= 12
    ran = tts("run", "study.yaml")
    assert ran.exit_code == 0, ran.stderr
    with Store(folder / ".tts" / "store.sqlite") as store:
        results = list(store.results(store.studies()[0].id))
    assert len(results) == 4
    assert all(result.error is None and result.usage.usd > 0 and result.usage.flops > 0 for result in results)


@pytest.mark.slow
def test_another_price_is_another_cell(tts: Callable[..., Any], url: str, folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY.format(url=url))
    for more in (
        (),
        ("--model-option", "rpm=6000"),
        ("--model-option", "usd_out=1.20/M"),
        ("--set", "models.srv.usd_out=1.20/M"),
    ):
        assert tts("run", "study.yaml", *more).exit_code == 0
    with Store(folder / ".tts" / "store.sqlite") as store:
        keys = [{result.cell.key for result in store.results(one.id)} for one in store.studies()]
    assert len(keys) == 2  # both ways to say it are one study, and a pace is no part of it
    assert keys[0].isdisjoint(keys[1])


@pytest.mark.slow
def test_without_a_name_the_only_served_model_is_taken(
    tts: Callable[..., Any], url: str, folder: Path, server: ToyServer
) -> None:
    (folder / "problem.txt").write_text("3 + 4")
    # as README has it
    told = tts("solve", "problem.txt", "--url", url, "--budget", "2000", "--task", "arithmetic", "--json")
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["model"] == "gpt-4o-mini"
    server.others = ("other",)
    several = tts("solve", "problem.txt", "--url", url)
    assert several.exit_code == 2
    assert "serves gpt-4o-mini, other" in several.stderr


@pytest.mark.slow
def test_a_record_is_added_and_read_by_every_command(tts: Callable[..., Any], url: str, folder: Path) -> None:
    added = tts(
        "models", "add", "fast", "--url", url, "--served-as", "gpt-4o-mini", "--usd-in", "0.15/M", "--usd-out", "0.6/M"
    )
    assert added.exit_code == 0, added.stderr
    assert "fast" in tts("models").stdout
    solved = tts(
        "solve", "3 + 4", "--model", "fast", "--task", "arithmetic", "--budget", "usd=0.001,samples=2", "--json"
    )
    assert solved.exit_code == 0, solved.stderr
    assert json.loads(solved.stdout)["usage"]["usd"] > 0
    table = tts("solve", "3 + 4", "--model", "fast", "--task", "arithmetic", "--budget", "usd=0.001,samples=2").stdout
    assert re.search(r"│ dollars +│ \$0\.0000\d+ \(\$0\.000\d+ left\)", table)
    assert (
        "dollars"
        not in tts("solve", "3 + 4", "--model", "fast", "--task", "arithmetic", "--budget", "samples=2").stdout
    )
    assert "gpt-4o-mini" in tts("doctor", "--model", "fast").stdout
    (folder / "study.yaml").write_text(
        "name: a\nmodels: fast\nproblems: {dataset: arithmetic, limit: 1}\n"
        "strategies: best_of_n\nbudgets: {usd: 0.001, samples: 1}\n"
    )
    ran = tts("run", "study.yaml")
    assert ran.exit_code == 0, ran.stderr
    assert tts("models", "remove", "fast").exit_code == 0
    assert "fast" not in tts("models").stdout


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (
            ("models", "add", "fast", "--url", "http://h", "--usd-in", "0.15"),
            "is '0.15', a price without a unit",
            "0.15/M",
        ),
        (("models", "add", "toy", "--url", "http://h"), "is that of a shipped model", "choose another name"),
        (("models", "add", "fast"), "has neither a server nor weights", "--url"),
        (("models", "remove", "fast"), "has none of that name", "it has: none"),
        (("solve", "1 + 1", "--model", "toy", "--model-option", "usd_out=1"), "a price without a unit", "/M"),
        (("solve", "1 + 1", "--model", "toy", "--model-option", "usd_out"), "must be KEY=VALUE", "usd_out=0.60/M"),
        (("doctor", "--model-option", "usd_out=1/M"), "neither its server nor its name", "--url or --model"),
    ],
)
def test_what_is_not_valid_ends_with_2_and_its_cure(
    tts: Callable[..., Any], arguments: tuple[str, ...], error: str, hint: str
) -> None:
    told = tts(*arguments)
    assert told.exit_code == 2
    first, second = told.stderr.splitlines()
    assert error in first
    assert hint in second


def test_an_option_that_no_backend_has_is_named_with_the_nearest(tts: Callable[..., Any], url: str) -> None:
    told = tts("solve", "1 + 1", "--url", url, "--model-option", "usd_outt=1/M")
    assert told.exit_code == 2
    assert "did you mean usd_out" in told.stderr


def test_a_damaged_file_of_records_is_one_line_before_anything_is_asked(
    tts: Callable[..., Any], url: str, users_files: Path, server: ToyServer
) -> None:
    users_files.mkdir()
    (users_files / "models.json").write_text("{")
    told = tts("solve", "1 + 1", "--url", url, "--model", "gpt-4o-mini")
    assert told.exit_code == 2
    assert "is damaged" in told.stderr
    assert "remove it" in told.stderr
    assert server.headers == []


def test_a_model_that_a_server_does_not_have_has_nearest_names(
    tts: Callable[..., Any], url: str, server: ToyServer
) -> None:
    told = tts("solve", "1 + 1", "--url", url, "--model", "gpt-4o-mimi")
    assert told.exit_code == 2
    assert "--model gpt-4o-mini" in told.stderr
    assert server.served == []


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (
            ("--budget", "usd=0.0001"),
            "the budget limits usd, but the record of the model 'policy' (openai) has no rate for it",
        ),
        (
            ("--budget", "flops=1e9"),
            "the budget limits flops, but the record of the model 'policy' (openai) has no rate for it",
        ),
        (("--task", "nothing"), "task is 'nothing', but no task has that name"),
        (("--strategy", "nothing"), "strategy is 'nothing', but no strategy has that name"),
    ],
)
def test_what_is_wrong_is_told_before_the_server_is_probed(
    tts: Callable[..., Any], server: ToyServer, url: str, wrong: tuple[str, ...], cause: str
) -> None:
    told = tts("solve", "3 + 4", "--url", url, "--model", "gpt-4o-mini", *wrong)
    assert told.exit_code == 2
    assert told.stderr.startswith(f"error: {cause}\n")
    assert not server.headers


def test_a_server_whose_list_fails_is_told_to_need_a_name(tts: Callable[..., Any], server: ToyServer, url: str) -> None:
    server.list_reply = (500, {"error": {"message": "no list"}})
    told = tts("solve", "3 + 4", "--url", url)
    assert "hint: try again later, or name the model (--model NAME), which needs no list" in told.stderr
    assert (
        tts(
            "solve", "3 + 4", "--url", url, "--model", "gpt-4o-mini", "--model-option", "probe=never", "--budget", "100"
        ).exit_code
        == 0
    )
