from __future__ import annotations

import json

import pytest

from tests.golden.traces import FOLDER, PLANS, path, record, written


@pytest.mark.parametrize("name", PLANS)
def test_the_search_is_the_one_that_was_recorded(name: str) -> None:
    made, kept = record(PLANS[name]), path(name).read_text(encoding="utf-8")
    assert json.loads(written(made)) == json.loads(kept)
    assert written(made) == kept, "renewed by hand: python -m tests.golden.traces"


def test_every_record_is_of_a_plan() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(PLANS)
