from __future__ import annotations

import re
import warnings

from tts.cli.boundary import boundary
from tts.experiments.datasets import DATASETS, load


def test_every_data_set_is_listed_with_its_source_and_licence(tts):
    result = tts("datasets")
    assert result.exit_code == 0
    for name in DATASETS.names():
        assert re.search(rf"^│ {name} +│ \S", result.stdout, re.MULTILINE)
    assert re.search(r"gsm8k +│ openai/gsm8k on the Hub +│ MIT ", result.stdout)


def test_one_is_shown_with_what_it_takes_and_what_is_to_be_known(tts):
    shown = tts("datasets", "gpqa_diamond").stdout
    assert re.search(r"licence +│ CC-BY-4\.0", shown)
    assert re.search(r"note +│ the Hub gives it to those who accept its conditions", shown)
    assert re.search(r"parameter +│ limit = None", shown)
    assert re.search(r"split = 'test' \(of train, validation, test\)", tts("datasets", "countdown").stdout)
    assert re.search(r"parameter +│ operations = \(1, 2, ", tts("datasets", "arithmetic").stdout)


def test_an_unknown_name_is_refused_with_the_nearest(tts, assert_error):
    assert_error(tts("datasets", "gsm8"), 2, "data set is 'gsm8', but no data set has that name", "did you mean gsm8k?")


def test_rows_left_out_are_one_line_of_a_warning(tmp_path, capsys):
    (tmp_path / "mine.jsonl").write_text('{"problem": "1 + 1?"}\n{\n', encoding="utf-8")
    shown = warnings.showwarning
    with warnings.catch_warnings(), boundary(debug=False):
        warnings.simplefilter("default")
        load("file", path=str(tmp_path / "mine.jsonl"))
    assert warnings.showwarning is shown
    assert capsys.readouterr().err.startswith("warning: mine.jsonl: rows left out: 1. line 2: it is no JSON: ")
