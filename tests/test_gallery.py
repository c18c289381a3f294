"""The scripts of `examples/`: short, listed, and run as they stand. Those of servers get one."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = [pytest.mark.docs, pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not here")]
LONG = {"own_parts", "serve_on_ray"}
PRINTED = {  # of scripts that need nothing: what their last line is
    "first_solve": r"3 14 '3 \+ 4 = 7",
    "auto_or_best_of_n": r"auto \| weighted +\d+% ",
    "own_verifier": r"beam\(n=4\) \| best -> 19 in \d+ tokens",
    "own_strategy": r"\S+:SmallBeam \| best -> 13 in \d+ tokens",
    "own_task": r"3 May 1921 \d+% \['1921-05-03', '3 May 1921'",
    "many_problems": r"in all: 160 of 160 samples",
    "one_total": r"[89]\d of 100 right; spent (1\d,\d{3}|20,000) of 20,000 tokens",
    "replay_logs": r"best_of_n \| posterior \| majority +12\.1 +1,207 +61\.1 % \[",  # the last row
    "thinking_budgets": r"thoughts of at most 40 tokens: \d+ of 40 right",
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_script_is_short_listed_and_tested() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")} - LONG
    assert len(names) >= 10
    # first_curve: tests/experiments  # noqa: ERA001
    assert names == {*PRINTED, "countdown", "own_client", "gateway_client", "train_pocket", "first_curve"}
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in EXAMPLES.iterdir():
        assert path.suffix not in (".py", ".yaml") or listed.count(f"({path.name})") == 1, path.name
    for name in names:
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 40, name


@pytest.mark.parametrize("name", PRINTED)
def test_a_script_of_the_core_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    script(name).main()
    assert re.match(PRINTED[name], capsys.readouterr().out.strip().splitlines()[-1].strip())


def test_a_copy_of_the_embedded_model_is_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    from tts.models import registry

    script("train_pocket").main(str(tmp_path / "made"), steps=1, prompts=4, held_out=6, n=8)
    assert re.search(r"right of one sample: [01]\.\d{3} before, [01]\.\d{3} after 1 steps", capsys.readouterr().out)
    first = registry.locate(registry.resolve("pocket"))
    assert first is not None
    before, after = (load_file(folder / "model.safetensors") for folder in (first, tmp_path / "made"))
    assert any(not torch.equal(before[name].float(), after[name].float()) for name in before)


def test_a_countdown_leaves_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script("countdown").main(str(tmp_path), "toy", "3 + 4 - 2", "arithmetic")
    assert "beam(n=8, branching=4) | weighted -> 5 in" in capsys.readouterr().out
    assert (tmp_path / "countdown.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_client_of_ones_own_is_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openai")
    from tests.backends.openai.anywhere import Anywhere, serving

    with serving(Anywhere(model="toy")) as url:
        script("own_client").main(f"{url}/v1", "toy")
    assert re.match(r"14 \d+% 8 samples \d+ tokens", capsys.readouterr().out)


def test_a_search_through_the_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("openai", "starlette", "uvicorn", "httptools", "yaml"):
        pytest.importorskip(needed)
    from tests.addons.gateway.asking import serving, url_of

    with serving(
        models={"toy": {"strategy": "single", "presets": {"vote": {"strategy": "best_of_n(n=8) | majority"}}}}
    ) as server:
        script("gateway_client").main(url_of(server))
    printed = capsys.readouterr().out
    assert "answer: 5 by best_of_n(n=8) | majority in" in printed
    assert printed.endswith("A: 5")
