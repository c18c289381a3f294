"""A study of a model on a server, under a name that only the server knows, is killed and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from tests.backends.openai.server import ToyServer, serving
from tests.experiments.run.test_crash import killed
from tests.experiments.studies import final, toy
from tts.backends.openai.errors import ServerError
from tts.backends.openai.http import HttpClient
from tts.errors import TTSError
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store


@pytest.mark.slow  # test_crash.py has the same of a model without a server
def test_a_killed_study_of_a_served_name_comes_to_the_same_table(tmp_path: Path) -> None:
    with serving(ToyServer(model="gpt-4o-mini", pause_s=0.001)) as url:
        models = {"srv": {"model": "gpt-4o-mini", "url": url, "usd_in": "0.15/M", "usd_out": "0.60/M"}}
        config = toy(
            models=models,
            verifiers="none",
            strategies="best_of_n | majority",
            limit=6,
            seeds=2,
            concurrency=4,
        )
        plain = json.dumps({**config.plain_settings(), "concurrency": config.concurrency})
        with Store(tmp_path / "unbroken.sqlite") as store, PreparedStudy(config) as prepared:
            unbroken = final(store.results(run(prepared, store).study))
        broken = tmp_path / "broken.sqlite"
        assert not killed(plain, broken, 3)
        with Store(broken) as store, PreparedStudy(config) as prepared:
            kept = {result.cell.key: result.seconds_at for result in store.results(store.studies()[0].id)}
            assert kept
            ended = run(prepared, store, lease_s=2.0)
            results = list(store.results(ended.study))
        assert ended.counts.pending == ended.counts.leased == 0
        assert len(results) == 24
        assert final(results) == unbroken
        assert {result.cell.key: result.seconds_at for result in results if result.cell.key in kept} == kept


@pytest.mark.parametrize("limit", [2, 40])
def test_cells_that_no_server_took_stay_open_and_the_same_command_runs_them(tmp_path: Path, limit: int) -> None:
    """A server that goes while a study runs costs no cell its result: 50 of them in a row end the run."""
    gone = mock.AsyncMock(side_effect=ServerError("ConnectionFailed", "nobody is there"))
    with serving(ToyServer(model="srv")) as url, Store(tmp_path / "store.sqlite") as store:
        models = {"srv": {"model": "srv", "url": url}}
        config = toy(
            models=models,
            verifiers="none",
            strategies="best_of_n | majority",
            limit=limit,
            concurrency=4,
        )
        with PreparedStudy(config) as prepared, mock.patch.object(HttpClient, "_send_once", gone):
            if limit < 25:
                ended = run(prepared, store)
                assert (ended.counts.done, ended.counts.failed, ended.counts.pending, ended.unpaid) == (
                    0,
                    0,
                    2 * limit,
                    2 * limit,
                )
                assert "ConnectionFailed" in ended.not_reached
            else:
                with pytest.raises(TTSError, match=r"request.*cells: EngineError: .*ConnectionFailed") as refused:
                    run(prepared, store)
                assert refused.value.hint == "what is done is kept; once the server answers, the same command goes on"
        with PreparedStudy(config) as prepared:
            again = run(prepared, store)
        assert (again.counts.done, again.counts.failed, again.unpaid, again.not_reached) == (2 * limit, 0, 0, "")
