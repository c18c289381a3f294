"""Names of columns in documents: each is a column that the code writes or reads."""

from __future__ import annotations

import pytest

from tests.documents.columns import Columns, column_faults, known_columns
from tests.documents.test_names import PAGES, ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the documents are not here")


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Columns:
    return known_columns(tmp_path_factory.mktemp("columns"))


@pytest.mark.parametrize("page", PAGES)
def test_each_column_of_a_page_exists(columns: Columns, page: str) -> None:
    assert column_faults((ROOT / page).read_text(encoding="utf-8"), columns) == []


FORMS = "| form | columns |\n|---|---|\n"
WRONG = {
    "The column `cut_short` has tokens.": "cut_short: nothing has such a column",
    "The columns `run_answer` and\n`run_right` are new.": "run_right: nothing has such a column",
    "Its `verdict` column is empty.": "verdict: nothing has such a column",
    f"{FORMS}| `trl-kto` | `prompt`, `completion`, `labels` |\n": "labels: the form trl-kto has no such column",
    f"{FORMS}| of yours | `prompts` |\n": "prompts: nothing has such a column",
    "`--columns strategy,budgets`": "budgets: no table has such a column",
    "```bash\ntts show --columns 'strategy,cut short,loss'\n```\n": "loss: no table has such a column",
    '`study.table("latex", columns=("strategy", "precision"))`': "precision: no table has such a column",
    '```json\n{"problem": "1 + 1", "gold": "2", "replies": ["2"]}\n```\n': "replies: no file of rows has such a column",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_column_is_found(columns: Columns, text: str) -> None:
    assert column_faults(text, columns) == [WRONG[text]]


RIGHT = (
    "The columns `cut short`, `lost`, `run_answer` and `accuracy_low`; a column `pred` or `prediction`.",
    f"{FORMS}| `trl-prm` | `prompt`, `completions`, `labels`, `soft_labels` |\n| `tokens` | `ids`, `mask`, … |\n",
    "`--columns strategy,budget,accuracy`, `columns=('A right', 'p (Holm)')`",
    '```json\n{"problem": "p1", "prompt": "2 + 2?", "reference": "4", "text": ["4"]}\n```\n',
    "| `share` |\n|---|\n| 0.5 |\n\nThe column `share` is one of this page.",
)


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_column_is_not(columns: Columns, text: str) -> None:
    assert column_faults(text, columns) == []
