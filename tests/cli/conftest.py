from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from typer.testing import CliRunner, Result

from tts.backends.base import RowSet, SampleRequest
from tts.backends.toy.backend import ToyBackend
from tts.cli.app import app


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A screen of 80 columns without colour, whatever the caller's own is."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tts() -> Callable[..., Result]:
    """`tts` with these arguments, in this process."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin)

    return run


@pytest.fixture
def solve(tts) -> Callable[..., Result]:
    """`tts solve` on the toy."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return tts("solve", *arguments, "--model", "toy", stdin=stdin)

    return run


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Sequence[SampleRequest]:
    """Every request for samples that the toy gets from here on."""
    seen: list[SampleRequest] = []
    sample = ToyBackend.sample

    def spy(self: ToyBackend, request: SampleRequest) -> RowSet:
        seen.append(request)
        return sample(self, request)

    monkeypatch.setattr(ToyBackend, "sample", spy)
    return seen


@pytest.fixture
def assert_error() -> Callable[..., None]:
    """Check exit code, the first line on standard error, the hint, an empty standard output, and that there is no
    traceback.
    """

    def check(result: Result, code: int, error: str, hint: str | None) -> None:
        first, *rest = result.stderr.splitlines()
        assert result.exit_code == code
        assert first == f"error: {error}"
        assert rest == ([] if hint is None else [f"hint: {hint}"])
        assert result.stdout == ""
        assert "Traceback" not in result.output

    return check
