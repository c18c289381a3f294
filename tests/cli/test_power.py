"""`tts power` prints what the functions of `tts.statistics` return."""

from __future__ import annotations

import math

import pytest

from tts.statistics import detectable_difference, power_of, problems_needed

WIDE = math.sqrt(0.42)  # at an accuracy of 0.7


def lines(result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_each_question_has_its_answer(tts):
    needed, spread = lines(tts("power", "--difference", "0.05", "--accuracy", "0.7"))
    assert needed == f"{problems_needed(0.05, WIDE):,} problems see a difference of 5 points with probability 0.8"
    assert spread == "spread of the difference over problems: 0.648, the most for that accuracy"
    seen = lines(tts("power", "--problems", "400", "--spread", "0.5", "--power", "0.9"))
    assert (
        seen[0]
        == f"400 problems see a difference of {100 * detectable_difference(400, 0.5, power=0.9):.1f} points with "
        "probability 0.9"
    )
    assert seen[1] == "spread of the difference over problems: 0.500"
    both = lines(tts("power", "--problems", "200", "--difference", "-0.1", "--accuracy", "0.7"))[0]
    assert both == f"200 problems see a difference of 10 points with probability {power_of(200, 0.1, WIDE):.2f}"
    table = lines(tts("power"))
    counts = [int(line.split()[0].replace(",", "")) for line in table[:-1]]
    assert counts == sorted(counts, reverse=True)
    assert len(counts) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--accuracy", "1"], "--accuracy is 1, but must be between 0 and 1"),
        (["--difference", "0"], "difference is 0.0, but must be a number other than 0"),
        (["--problems", "1"], "problems is 1, but must be a whole number of at least 2"),
        (["--problems", "9", "--power", "0.01"], "power is 0.01, but must be between 0.05 and 1"),
        (["--problems", "9", "--spread", "0"], "spread is 0.0, but must be a number above 0"),
    ],
)
def test_what_means_nothing_is_refused(tts, arguments, said):
    result = tts("power", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
