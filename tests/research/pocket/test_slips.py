"""Solutions with slips: made up, or the policy's own, judged by what stands before each line."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", minversion="2.9")  # which has Muon
pytest.importorskip("transformers")
pytest.importorskip("research.pocket", reason="research is no part of the wheel")

from research.pocket.train import policy as policy_stage
from research.pocket.train.examples import EVEN_TOKENS, Asked, make_problem, tokenize
from research.pocket.train.network import CONTEXT
from research.pocket.train.slips import Line, careless_lines, pieces, solution_pieces
from research.pocket.train.tokenizer import build
from tts.randomness import generator
from tts.tasks.arithmetic.generator import held_out
from tts.tasks.arithmetic.lines import read_step


@pytest.fixture(scope="module")
def tokenizer():
    return build()


def test_a_slip_is_not_to_be_written_and_what_follows_it_is_wrong(tokenizer) -> None:
    lines = [Line("2 + 3 = 5\n", "2 + 3 = 5\n"), Line("5 * 4 = 21\n", "5 * 4 = 20\n"), Line("A: 21\n", "A: 21\n")]
    found = list(pieces(lines))
    assert [(one.text, one.written, one.right) for one in found] == [
        ("2 + 3 = 5\n", True, True),
        ("5 * 4 = 2", True, True),
        ("1\n", False, False),
        ("A: 21\n", True, False),
    ]


def test_careless_solutions_follow_from_their_slips_and_show_no_pair_that_is_held_out(tokenizer) -> None:
    slips = 0
    for i in range(300):
        problem = make_problem(1, i)
        if problem.task != "pocket":
            continue
        rng = generator(0, 0, "test", i)
        right = careless_lines(problem, rng, 0.0)
        assert "".join(line.written for line in right) == problem.worked
        lines = careless_lines(problem, rng, 1.0)
        assert len(lines) == len(right)
        assert not any(
            held_out(step) for line in lines for step in (read_step(line.written), read_step(line.wanted)) if step
        )
        slips += sum(line.written != line.wanted for line in lines)
        assert lines[-1].written == f"A: {read_step(lines[-2].written).result}\n"
        (apart,), (together,) = (
            tokenize(tokenizer, [tuple(pieces(lines))]),
            tokenizer(["".join(line.written for line in lines)])["input_ids"],
        )
        assert apart[0].tolist() == together  # no piece cuts a token
    assert 150 < slips < 350


def test_the_policys_examples_ask_for_a_restart_where_there_is_a_slip_and_end_revisions_in_the_worked_solution(
    tokenizer,
) -> None:
    kinds = {"worked": 0, "question": 0, "revision": 0}
    for i in range(300):
        example, problem = policy_stage.mixed_example(2, i), make_problem(2, i, shares=EVEN_TOKENS)
        assert example[0].text == problem.prompt
        texts = [piece.text for piece in example]
        if "Restart?" in texts:
            kinds["question"] += 1
            assert example[-1].text == (" yes" if any(piece.right is False for piece in example) else " no")
        else:
            assert texts[-2:] == [problem.worked, "<eos>"]
            kinds["revision" if "Again\n" in texts else "worked"] += 1
            assert texts.count("Again\n") <= 4
    assert kinds["question"] > 60
    assert kinds["revision"] > 15
    assert kinds["worked"] > 120
    longest = max(len(row[0]) for row in tokenize(tokenizer, [policy_stage.mixed_example(2, i) for i in range(300)]))
    assert longest <= CONTEXT


def test_a_solution_of_the_policys_own_is_judged_by_what_was_written_before() -> None:
    problem = Asked("2 + 3 - 4 * 5\n", "", "pocket", "-15")
    found = solution_pieces(problem, "2 + 3 = 6\n4 * 5 = 20\n6 - 20 = -14\nA: -15\nA: -14\n")
    assert [(one.text, one.written, one.right) for one in found[1:]] == [
        ("2 + 3 = ", True, True),
        ("6\n", False, False),
        ("4 * 5 = 20\n", True, False),
        ("6 - 20 = -14\n", True, False),
        ("A: -1", True, False),
        ("5\n", False, False),
        ("A: -14\n", False, False),
    ]
    cut = solution_pieces(problem, "2 + 3 = 5\n4 - 5")  # another operator, and no token is cut
    assert [(one.text, one.written) for one in cut[1:]] == [("2 + 3 = 5\n", True), ("4", True), (" - 5", False)]
    assert [(one.text, one.right) for one in solution_pieces(problem, "2 + 3 = 5\n4 * ")[1:]] == [
        ("2 + 3 = 5\n", True),
        ("4 * ", True),
    ]
    other = Asked("Reach 6 with 2 3.\n", "", "countdown", "2 * 3")
    assert [one.right for one in solution_pieces(other, "2 * 3 = 6\nA: 6\n")] == [None, None]
