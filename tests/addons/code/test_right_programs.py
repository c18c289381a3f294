"""Right programs of every habit score 1, as a real module would let them run."""

from __future__ import annotations

import pytest

from tests.addons.code.programs import every, few
from tts_addons.code import sandbox
from tts_addons.code.sandbox import ProgramOutcome, SandboxLimits, run

ISOLATED = not sandbox.why_not()


def test_there_are_two_hundred_different_ones() -> None:
    assert len(set(every().values())) >= 200


@pytest.mark.slow
@pytest.mark.parametrize("name", few())
def test_a_right_program_passes(name: str) -> None:
    program, tests = few()[name]
    result = run(program, tests, SandboxLimits(seconds=30.0), isolated=ISOLATED)
    assert result.outcome is ProgramOutcome.PASSED, result
    assert result.passed == result.total > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "isolated", [pytest.param(True, marks=pytest.mark.skipif(not ISOLATED, reason="no sandbox here")), False]
)
@pytest.mark.parametrize("name", every())
def test_all_right_programs_pass(name: str, isolated: bool) -> None:
    program, tests = every()[name]
    result = run(program, tests, SandboxLimits(seconds=60.0), isolated=isolated)
    assert result.outcome is ProgramOutcome.PASSED, result
