"""Right programs of every habit score 1, as a real module would let them run."""

from __future__ import annotations

import pytest

from tests.addons.code.programs import every
from tts_addons.code import sandbox
from tts_addons.code.sandbox import ProgramOutcome, SandboxLimits, run

ISOLATED = not sandbox.why_not()


@pytest.mark.slow
@pytest.mark.parametrize(
    "isolated", [pytest.param(True, marks=pytest.mark.skipif(not ISOLATED, reason="no sandbox here")), False]
)
@pytest.mark.parametrize("name", every())
def test_all_right_programs_pass(name: str, isolated: bool) -> None:
    program, tests = every()[name]
    result = run(program, tests, SandboxLimits(seconds=60.0), isolated=isolated)
    assert result.outcome is ProgramOutcome.PASSED, result
    assert result.passed == result.total > 0
