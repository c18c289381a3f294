from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_curve.py"


@pytest.mark.slow
def test_the_first_curve_ends_in_a_table_and_a_figure(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("first_curve", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(example, "SIZES", [1, 2])
    example.main("curve.png", limit=2)
    cells = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    rows = [row for row in cells if row[1:2] in (["live"], ["replayed"])]
    assert [row[0] for row in rows[::2]] == ["particle_filter | best", *example.REPLAYED]
    assert [row[1] for row in rows] == ["live"] * 2 + ["replayed"] * 8
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    example.main("curve.png", limit=2)
    assert "first_curve: 12 of 12 · 0 tokens" in capsys.readouterr().err
