"""The searches of a study as rows for trainers: from recorded texts, or drawn again from their seeds."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

import tts
from tests.backends.openai.server import ToyServer, serving
from tests.experiments.studies import SUMS
from tts import tasks
from tts.backends.function import FunctionBackend
from tts.cli.app import app
from tts.errors import ConfigError
from tts.experiments.store.store import Store
from tts_addons.training.forms import FORMS


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tts.Study:
    made = tts.Study(
        name="sums",
        models="toy",
        verifiers="toy(error=0.2)",
        problems={**SUMS, "limit": 3},
        strategies=["best_of_n | majority", "particle_filter(n=3) | weighted"],
        budgets={"samples": [6]},
    )
    made.run(tmp_path_factory.mktemp("store") / "store.sqlite", progress=False)
    return made


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(store: Path) -> list[Any]:
    with Store.existing(store) as opened:
        return [result.cell.key for found in opened.studies() for result in opened.results(found.id)]


@pytest.mark.parametrize("form", list(FORMS))
def test_every_form_is_written_and_the_store_stays_as_it_was(form: str, study: tts.Study, tmp_path: Path) -> None:
    keys = contents(study.store)
    written = study.export_training(tmp_path / "rows.jsonl", form, licence="CC0")
    assert written.rows == len(rows_of(tmp_path / "rows.jsonl")) > 0
    assert written.searches == 6
    assert (
        "| licence | CC0 |" in (tmp_path / "rows.md").read_text()
        or "| study | sums |" in (tmp_path / "rows.md").read_text()
    )
    assert contents(study.store) == keys


def test_searches_are_drawn_again_as_they_were_and_the_cost_is_said_first(
    study: tts.Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tts.runs"):
        study.export_training(tmp_path / "rows.jsonl", "tokens", strategy="particle_filter(n=3) | weighted")
    spent = sum(result.usage.tokens for result in study.results() if result.cell.strategy.startswith("particle"))
    assert (
        f"3 searches are drawn again from their seeds; they cost {spent:,} tokens when they were first drawn"
        in caplog.text
    )
    rows = rows_of(tmp_path / "rows.jsonl")
    study.export(tmp_path / "samples.jsonl", "samples")
    texts = {
        (row["problem"], text)
        for row in rows_of(tmp_path / "samples.jsonl")
        if row["strategy"].startswith("particle")
        for text in row["text"]
    }
    assert {(row["problem"], row["text"]) for row in rows} == texts
    assert all(
        len(row["ids"]) == len(row["logprobs"]) == len(row["sampling_logprobs"]) == len(row["mask"]) for row in rows
    )


@pytest.mark.parametrize("split", ["test", "train"])
def test_the_card_names_data_and_labels_and_warns_of_a_split_for_tests(
    split: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = tts.Study(
        name=split,
        models="toy",
        problems={**SUMS, "name": "mine", "limit": 2, "split": split},
        strategies="best_of_n",
        budgets={"samples": [2]},
    )
    made.run(tmp_path / "store.sqlite", progress=False)
    with caplog.at_level(logging.WARNING, logger="tts.runs"):
        made.export_training(tmp_path / "rows.jsonl", "trl-prm")
    card = (tmp_path / "rows.md").read_text()
    assert f"| data set mine | arithmetic (limit=2, split='{split}', " in card
    assert "| labels | soft: the share of right samples" in card
    told = "come from the split 'test': train on another"
    assert (told in card, f"rows of mine {told}" in caplog.text) == (split == "test",) * 2


def test_scores_of_steps_are_those_of_the_search(study: tts.Study, tmp_path: Path) -> None:
    study.export_training(tmp_path / "text.jsonl", "trl-prm", judge="score", strategy="particle_filter(n=3) | weighted")
    study.export_training(tmp_path / "tokens.jsonl", "tokens", strategy="particle_filter(n=3) | weighted")
    scores = [row["soft_labels"][-1] for row in rows_of(tmp_path / "text.jsonl")]
    assert scores == [row["score"] for row in rows_of(tmp_path / "tokens.jsonl")]
    assert len(set(scores)) == 2


def test_recorded_texts_have_the_prompt_that_the_model_read(tmp_path: Path) -> None:
    rows = [{"id": "one", "problem": "What is 3 + 4?", "answer": "7"}]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for texts in (True, False):
        made = tts.Study(
            name=f"written {texts}",
            models={"mine": {"backend": f"{__name__}:Sayer"}},
            task="math",
            record={"texts": texts},
            problems={"dataset": str(tmp_path / "problems.jsonl")},
            strategies="single",
            budgets={"samples": [1]},
        )
        made.run(tmp_path / "store.sqlite", progress=False)
        made.export_training(tmp_path / "rows.jsonl", "trl-sft")
        (row,) = rows_of(tmp_path / "rows.jsonl")
        asked = tasks.get("math").prompt(tts.Problem("What is 3 + 4?"))
        assert row["prompt"] == [
            {"role": turn.role, "content": turn.content} for turn in asked if isinstance(turn, tts.Message)
        ]
        assert row["completion"] == [{"role": "assistant", "content": "The answer is \\boxed{7}."}]
        num_asked = len(Sayer.asked)
        with pytest.raises(ConfigError, match="'mine' gives"):
            made.export_training(tmp_path / "x.jsonl", "tokens")
        assert len(Sayer.asked) == num_asked


@pytest.mark.parametrize("form", ["tokens", "tree"])
def test_a_server_without_token_ids_is_asked_nothing(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTS_TRUST_PLACES", "1")
    store = tmp_path / "store.sqlite"
    with serving(server := ToyServer(model="served", ids=False)) as url:
        made = tts.Study(
            name="served",
            models={"served": {"url": url}},
            problems={**SUMS, "limit": 1},
            strategies="best_of_n",
            budgets={"samples": [2]},
        )
        made.run(store, progress=False)
        num_requests = len(server.headers)
        told = CliRunner().invoke(
            app, ["export", "--store", str(store), "--form", form, "--out", str(tmp_path / "rows.jsonl")]
        )
        assert (told.exit_code, len(server.headers) - num_requests) == (2, 0)
    assert "the model 'served' gives no token ids" in told.stderr


class Sayer(FunctionBackend):
    """A model without token ids."""

    asked: ClassVar[list[Any]] = []

    @classmethod
    def from_record(cls, record: Any) -> Sayer:
        return cls(lambda ask: cls.asked.append(ask) or tts.Answer("The answer is \\boxed{7}.", tokens=12))


def test_imported_samples_have_texts_but_no_tokens(study: tts.Study, tmp_path: Path) -> None:
    study.export(
        tmp_path / "samples.jsonl",
        "samples",
    )
    tts.Pool.from_rows(rows_of(tmp_path / "samples.jsonl")[:1], name="pool", task="arithmetic").save(
        tmp_path / "pool.sqlite"
    )
    imported = tts.Study.from_store(store=tmp_path / "pool.sqlite")
    assert imported.export_training(tmp_path / "sft.jsonl", "trl-kto").rows > 0
    with pytest.raises(ConfigError, match=r"'pool'.*imported"):
        imported.export_training(tmp_path / "x.jsonl", "tokens")


@pytest.mark.parametrize("form", ["trl-prm", "trl-sft"])
def test_an_export_by_scores_of_a_study_without_is_refused_before_the_spend(
    form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = tts.Study(
        name="votes",
        models="toy",
        verifiers="toy(error=0.2)",
        problems={**SUMS, "name": form, "limit": 1},
        strategies="best_of_n | majority",
        budgets={"samples": [2]},
    )
    made.run(tmp_path / "store.sqlite", progress=False)
    with caplog.at_level(logging.INFO, logger="tts.runs"), pytest.raises(ConfigError, match=r"scor.*\| weighted"):
        made.export_training(tmp_path / "rows.jsonl", form, judge="score")
    assert "drawn again" not in caplog.text


def test_what_a_study_cannot_export_is_named(study: tts.Study, tmp_path: Path) -> None:
    for given, told in (
        ({"form": "trl-sft", "model": "tooy"}, "tooy"),
        ({"form": "trl-sft", "strategy": "beam"}, "beam"),
        ({"form": "trl-sft", "margin": 1.0}, "margin was given, but the form trl-sft does not use it"),
    ):
        with pytest.raises(ConfigError, match=told):
            study.export_training(tmp_path / "x.jsonl", **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_several_models_need_a_name(tmp_path: Path) -> None:
    two = tts.Study(
        name="two",
        models={"a": "toy", "b": "pocket"},
        problems={**SUMS, "limit": 1},
        strategies="single",
        budgets={"samples": [1]},
    )
    two.run(tmp_path / "store.sqlite", progress=False)
    with pytest.raises(ConfigError, match=r"searches.*'a'.*'b'"):
        two.export_training(tmp_path / "rows.jsonl", "trl-kto")
    assert two.export_training(tmp_path / "rows.jsonl", "trl-kto", model="a").rows == 1
