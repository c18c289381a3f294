# ruff: noqa: E402 - what needs torch is imported where torch is
"""The training code: data that is a function of its number, a loop that resumes to the same weights, stages that fit
together.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.9")  # which has Muon
transformers = pytest.importorskip("transformers")
pytest.importorskip("research.pocket", reason="research is no part of the wheel")

from research.pocket.train import __main__ as command
from research.pocket.train import drill, prm, reader, rollouts, sampling, self_eval, shipping
from research.pocket.train import policy as policy_stage
from research.pocket.train.examples import IGNORED, Asked, Batches, make_problem, worked_example
from research.pocket.train.loop import Recipe, train
from research.pocket.train.network import (
    Reader,
    fits_loss,
    load,
    load_reader,
    mean_loss,
    new_policy,
    right_loss,
    save,
    save_head,
    save_likelihood,
    save_reader,
    written_loss,
)
from research.pocket.train.rollouts import Valued
from research.pocket.train.tokenizer import build
from tts.errors import ConfigError
from tts.models.registry import SHIPPED
from tts.randomness import generator
from tts.tasks.arithmetic.generator import Difficulty, draw, held_out

REDUCED_RIGHT = 25  # of 100; the card says what it was measured to be
RECIPE = Recipe(tokens=256, minutes=256 * 6 / 400_000, matrix_rate=0.01, rate=1e-3, save_every=3)


@pytest.fixture(scope="module")
def tokenizer():
    return build()


@pytest.fixture(scope="module")
def policy(tokenizer):
    return new_policy(tokenizer, 0).eval()


@pytest.mark.parametrize(
    "text",
    [
        "12 + 7 * (3 - -5)\n3 - -5 = 8\nA: 8\n",
        "Reach 96 with 25 7 3.\n",
        "Again\n",
        "Restart? no",
        "Zoë wrote: 5 ÷ 2\t≠ x\r\n",
        "  spaces  ",
    ],
)
def test_tokens_give_back_any_text(tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text) == [tokenizer.bos_token_id, *ids]


def test_a_story_is_a_token_a_word_and_a_digit(tokenizer) -> None:
    story = draw(Difficulty(operations=3, worded=True), "train", 0, 0).text
    ids = tokenizer.encode(story, add_special_tokens=False)
    pieces = [tokenizer.decode([one]) for one in ids]
    assert "".join(pieces) == story
    assert all(piece in " .?" or piece.isdigit() or piece.strip().isalpha() for piece in pieces)
    assert all(len(piece) == 1 for piece in pieces if piece.isdigit())


@pytest.mark.parametrize("text", [" + ", " - ", " * ", " = ", "A: ", "\n", "Restart?", " yes", " no", "Again"])
def test_marks_are_one_token(tokenizer, text: str) -> None:
    assert len(tokenizer.encode(text, add_special_tokens=False)) == 1


def test_examples_are_a_function_of_their_number_and_keep_to_the_train_split() -> None:
    first = [worked_example(3, i) for i in range(40)]
    assert first == [worked_example(3, i) for i in range(40)]
    assert first != [worked_example(4, i) for i in range(40)]
    assert {one.task for one in map(partial(make_problem, 3), range(60))} == {"pocket", "countdown"}
    for i in range(60):
        drawn = draw(Difficulty(operations=4), "train", 3, i)
        assert not any(map(held_out, drawn.steps))


def test_batches_hold_every_example_once_and_label_the_completion_only(tokenizer) -> None:
    batches = Batches(tokenizer, partial(worked_example, 0), tokens=300, average=75, seed=0)
    found = [batches(step) for step in range(16)]
    texts: list[str] = []
    for batch in found:
        assert batch.ids.shape == batch.labels.shape
        for ids, labels in zip(batch.ids, batch.labels, strict=True):
            learned = labels != IGNORED
            assert torch.equal(ids[learned], labels[learned])
            assert ids[learned][-1] == tokenizer.eos_token_id
            assert ids[0] == tokenizer.bos_token_id
            texts.append(
                tokenizer.decode(ids[~learned & (ids != tokenizer.pad_token_id)][1:])
                + tokenizer.decode(ids[learned][:-1])
            )
    wanted = ["".join(piece.text for piece in worked_example(0, i)[:-1]) for i in range(64)]
    assert sorted(texts) == sorted(wanted)
    again = Batches(tokenizer, partial(worked_example, 0), tokens=300, average=75, seed=0)
    assert torch.equal(again(5).ids, found[5].ids)  # whichever block was drawn before


def _losses(tokenizer, folder: Path, *, stop_at: int | None = None) -> tuple[torch.nn.Module, dict[str, float]]:
    model = Reader(new_policy(tokenizer, 1))
    batches = Batches(tokenizer, partial(policy_stage.mixed_example, 1), tokens=256, average=75, seed=1)

    def loss_of(step: int):
        if step == stop_at:
            raise KeyboardInterrupt
        batch = batches(step)
        written, states = written_loss(model, batch)
        return written + right_loss(model, states, batch) + fits_loss(model, states, batch)

    held_out_loss = lambda: mean_loss(model, [batches(0)])  # noqa: E731
    identity = {"stage": "test", "seed": 1}
    return model, train(model, loss_of, RECIPE, folder, held_out_loss=held_out_loss, identity=identity)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(tokenizer, tmp_path: Path) -> None:
    whole, found = _losses(tokenizer, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        _losses(tokenizer, tmp_path / "stopped", stop_at=4)
    resumed, again = _losses(tokenizer, tmp_path / "stopped")
    assert all(
        torch.equal(a, b) for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    )
    assert again["validation_loss"] == found["validation_loss"] < 5.0  # from ln 330 = 5.8
    assert (tmp_path / "stopped" / "loss.csv").read_text().count("\n") == 2


def test_the_best_is_kept_where_that_is_asked_for_and_a_run_that_went_on_knows_it(tmp_path: Path) -> None:
    model = torch.nn.ModuleDict({"layers": torch.nn.Linear(4, 4)})
    recipe = Recipe(tokens=256, minutes=256 * 600 / 400_000, matrix_rate=0.01, rate=1e-3, save_every=200)
    # of steps 200, 400 and 600, and of what is kept
    weights, asked_for = list[torch.Tensor](), iter([3.0, 1.0, 2.0, 0.0])

    def go(stop_at: int | None = None) -> None:
        def loss_of(step: int):
            if step == stop_at:
                raise KeyboardInterrupt
            return model["layers"](torch.ones(4)).square().sum()

        def held_out_loss() -> float:
            weights.append(model["layers"].weight.detach().clone())
            return next(asked_for)

        train(model, loss_of, recipe, tmp_path, held_out_loss=held_out_loss, identity={"seed": 0}, keep_best=True)

    with pytest.raises(KeyboardInterrupt):
        go(stop_at=450)
    go()
    assert not torch.equal(weights[1], weights[2])
    assert torch.equal(model["layers"].weight, weights[1])


def test_a_checkpoint_of_another_run_or_a_broken_one_is_refused(tokenizer, tmp_path: Path) -> None:
    model = torch.nn.ModuleDict({"layers": torch.nn.Linear(4, 4)})
    short = Recipe(tokens=256, minutes=256 / 400_000, matrix_rate=0.01, rate=1e-3)

    def go(seed: int) -> None:
        loss_of = lambda step: model["layers"](torch.ones(4)).square().sum()  # noqa: E731
        train(model, loss_of, short, tmp_path, held_out_loss=lambda: 0.0, identity={"seed": seed})

    go(0)
    with pytest.raises(ConfigError, match=r"checkpoint.*run: \{'seed': 0\}"):
        go(1)
    (tmp_path / "checkpoint.pt").write_bytes(b"broken")
    with pytest.raises(ConfigError, match=r"cannot be read.*delete it"):
        go(0)


def test_minutes_are_a_number_of_steps() -> None:
    assert Recipe(tokens=4000, minutes=3, matrix_rate=0.1, rate=0.1).steps == 300
    factors = [RECIPE.rate_factor(step) for step in range(RECIPE.steps)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 0


def test_questions_asked_together_see_what_one_alone_would_see(tokenizer, policy) -> None:
    problems = [make_problem(0, i) for i in range(6)]
    solved = [self_eval.Solved(one, (one.worked, one.worked.replace("3", "4")), (True, False)) for one in problems]
    batch = self_eval.questions(tokenizer, solved, 4, 0, 0)
    with torch.no_grad():
        together = policy.model(
            input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.mask, use_cache=False
        ).last_hidden_state[batch.at]
        for k in range(0, len(together), 5):
            row, column = batch.at[0][k], batch.at[1][k]
            place = batch.positions[row, column]
            alone = torch.cat([batch.ids[row, :place], batch.ids[row, column : column + 1]])[None]
            state = policy.model(input_ids=alone, use_cache=False).last_hidden_state[0, -1]
            torch.testing.assert_close(together[k], state, atol=1e-5, rtol=0)


def test_questions_carry_the_judgement_of_their_solution(tokenizer) -> None:
    problem = next(one for one in (make_problem(0, i) for i in range(20)) if one.task == "pocket")
    wrong = problem.worked.replace("A: ", "A: 7")
    solved = [self_eval.Solved(problem, (problem.worked, wrong), (True, False))]
    batch = self_eval.questions(tokenizer, solved, 16, 0, 0)
    right = batch.judged.right
    assert right.shape == batch.ids.shape
    prompt, size = (
        len(tokenizer(problem.prompt)["input_ids"]),
        len(tokenizer.encode(problem.worked, add_special_tokens=False)),
    )
    assert (right[:, :prompt] < 0).all()
    answer = 1 + len(problem.answer)  # tokens of the answer line behind "A: ", its newline among them
    found = {tuple(row[row >= 0].tolist()) for row in right}
    assert found == {(1.0,) * size, (1.0,) * (size - answer) + (0.0,) * (answer + 1)}


def test_a_right_solution_never_needs_a_restart_and_a_wrong_one_does_where_its_sibling_is_right(tokenizer) -> None:
    problem = make_problem(0, 0)
    yes, no = (tokenizer.encode(word, add_special_tokens=False)[0] for word in (" yes", " no"))
    for right, wanted in (((True, True), {no}), ((False, False), {no}), ((True, False), {yes, no})):
        solved = [self_eval.Solved(problem, (problem.worked, problem.worked), right)]
        assert set(self_eval.questions(tokenizer, solved, 16, 0, 0).wanted.tolist()) == wanted


def test_revisions_end_in_a_right_solution_behind_at_most_four_attempts() -> None:
    problem = make_problem(0, 1)
    wrong = tuple(problem.worked.replace("A: ", f"A: {i}") for i in range(1, 8))
    solved = [self_eval.Solved(problem, (problem.worked, *wrong), (True, *[False] * 7))]
    numbers = set()
    for i in range(60):
        example = self_eval.revision(solved, 0, i)
        assert [(piece.text, piece.written) for piece in example[1:]] == [(problem.worked, True), ("<eos>", True)]
        attempts = example[0].text.removeprefix(problem.prompt).split("Again\n")[:-1]
        assert all(attempt in solved[0].solutions for attempt in attempts)
        numbers.add(len(attempts))
    assert numbers == {1, 2, 3, 4}


def test_samples_are_kept_as_they_are_made_and_are_not_mixed_with_those_of_another_run(tmp_path: Path) -> None:
    path, asked_for = tmp_path / "samples.jsonl", list[range]()

    def make(numbers: range) -> list[int]:
        asked_for.append(numbers)
        return [number * number for number in numbers]

    assert sampling.make_in_chunks(path, 300, make, {"seed": 0}) == [i * i for i in range(300)]
    assert asked_for == [range(250), range(250, 300)]
    whole = path.read_text()
    path.write_text(whole[:-9])  # killed while it wrote the second chunk
    assert sampling.make_in_chunks(path, 310, make, {"seed": 0}) == [i * i for i in range(310)]
    assert asked_for[2:] == [range(250, 310)]
    assert sampling.make_in_chunks(path, 100, make, {"seed": 0}) == [i * i for i in range(100)]
    assert len(asked_for) == 3
    with pytest.raises(ConfigError, match=r"another run: \{'seed': 0\}"):
        sampling.make_in_chunks(path, 310, make, {"seed": 1})
    with pytest.raises(ConfigError, match=r"stage.*makes"):
        sampling.read_items(tmp_path / "nothing.jsonl")


def test_prefixes_are_valued_up_to_a_little_behind_the_first_error() -> None:
    problem = Asked(
        "1 + 2 + 3 + 4 + 5 + 6 + 7\n",
        "1 + 2 = 3\n3 + 3 = 6\n6 + 4 = 10\n10 + 5 = 15\n15 + 6 = 21\n21 + 7 = 28\nA: 28\n",
        "pocket",
        "28",
    )
    assert len(rollouts._open_prefixes(problem, problem.worked)) == 6  # all but the whole
    slipped = problem.worked.replace("3 + 3 = 6", "3 + 3 = 7").replace("6 + 4", "7 + 4")
    assert rollouts._open_prefixes(problem, slipped) == [
        "".join(slipped.splitlines(keepends=True)[:i]) for i in (1, 2, 3, 4)
    ]


def test_readings_stand_at_the_newlines_that_have_a_value(tokenizer) -> None:
    problem = make_problem(0, 2)
    lines = problem.worked.count("\n")
    values = tuple(None if i == 0 else i / lines for i in range(lines))
    found = prm.readings(
        tokenizer, [Valued(problem, problem.worked, values), Valued(problem, problem.worked, (1.0,) * lines)]
    )
    assert found.values.tolist() == pytest.approx([*values[1:], *[1.0] * lines])
    assert {tokenizer.decode([token]) for token in found.solutions.ids[found.at]} == {"\n"}
    assert found.at[1][-1] == len(tokenizer.encode(problem.prompt + problem.worked)) - 1


def test_a_saved_model_loads_with_the_weights_of_its_storage(tokenizer, policy, tmp_path: Path) -> None:
    save(policy, tokenizer, tmp_path)
    found = load(tmp_path)
    for name, weight in policy.state_dict().items():
        assert torch.equal(found.state_dict()[name], weight.half().float())
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).encode("1 + 2\n") == tokenizer.encode("1 + 2\n")
    assert (tmp_path / "model.safetensors").stat().st_size < 6_500_000
    reader = Reader(policy)
    torch.nn.init.normal_(reader.head.weight)
    save_reader(reader, tokenizer, tmp_path)
    assert torch.equal(load_reader(tmp_path).head.weight, reader.head.weight)


def test_what_ships_has_checksums_and_a_run_that_lacks_a_stage_does_not_ship(tokenizer, policy, tmp_path: Path) -> None:
    run, package = tmp_path / "run", tmp_path / "package"
    for model in ("policy", "process", "countdown", "reader"):
        save(policy, tokenizer, run / model)
    with pytest.raises(
        ConfigError,
        match=r"lacks heads/probe.safetensors, heads/process.safetensors, heads/reach.safetensors, heads/likelihood",
    ):
        shipping.run(run, package=package)
    for head in ("probe", "process", "reach"):
        save_head(torch.zeros(192), torch.zeros(1), run / "heads" / f"{head}.safetensors")
    save_likelihood(0.5, 1.0, run / "heads" / "likelihood.safetensors")
    shipping.run(run, package=package)
    sums = json.loads((package / "checksums.json").read_text())
    assert sorted(sums) == sorted(
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and path.name != "checksums.json"
    )
    save_head(torch.ones(192), torch.zeros(1), tmp_path / "later" / "heads" / "reach.safetensors")
    shipping.run(tmp_path / "later", package=package)  # of one stage: what else there is stays
    later = json.loads((package / "checksums.json").read_text())
    assert [name for name in sums if later[name] != sums[name]] == ["heads/reach.safetensors"]


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, capsys) -> None:
    assert command.main(["ship", "--out", str(tmp_path)]) == 2
    assert "hint: run the earlier stages there first" in capsys.readouterr().err
    for stage, made in (("self-eval", "base"), ("rollouts", "policy"), ("prm", "policy"), ("probe", "policy")):
        assert command.main([stage, "--out", str(tmp_path)]) == 2
        assert f"run the stage that makes {made}/ first" in capsys.readouterr().err
    for wrong in (
        ["policy", "--out", str(tmp_path), "--minutes", "inf"],
        ["policy", "--out", __file__],
        ["policy", "--out", str(tmp_path), "--minutes", "0"],
        ["polish", "--out", str(tmp_path)],
    ):
        with pytest.raises(SystemExit):
            command.main(wrong)


def test_the_reader_goes_on_from_the_shipped_policy_and_learns_few_long_problems() -> None:
    drawn = [reader.example(3, i) for i in range(300)]
    assert drawn[7] == reader.example(3, 7)
    assert not {piece.text for one in drawn[:50] for piece in one} & {
        piece.text for i in range(50) for piece in policy_stage.mixed_example(3, i)[:1]
    }
    lines = [one[1].text.count("\n") - 1 for one in drawn]
    assert 0.5 < np.mean([3 <= count <= 6 for count in lines]) < 0.8
    assert max(lines) > 7
    assert all(piece.right is not False for one in drawn for piece in one)


def test_a_drill_is_half_the_policys_mixture_and_half_short_expressions_without_held_out_pairs() -> None:
    drawn = [drill.example(3, i) for i in range(300)]
    assert drawn[7] == drill.example(3, 7)
    from_mixture = [one == policy_stage.mixed_example(3, drill.FIRST_INDEX + i) for i, one in enumerate(drawn)]
    assert 0.4 < np.mean(from_mixture) < 0.6
    short = [one for one, mixed in zip(drawn, from_mixture, strict=True) if not mixed]
    assert {one[1].text.count("\n") - 1 for one in short} == {1, 2, 3}
    assert all(one[1].written and one[1].right for one in short)


@pytest.mark.slow
def test_a_drill_goes_on_from_the_shipped_policy(tmp_path: Path, capsys) -> None:
    assert command.main(["drill", "--out", str(tmp_path), "--minutes", "0.02", "--seed", "0", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["validation_loss"] < 1.0
    load_file = pytest.importorskip("safetensors.torch").load_file
    drilled, mean = (load_file(tmp_path / name / "model.safetensors") for name in ("drilled", "mean"))
    begun = load_file(SHIPPED / "policy" / "model.safetensors")
    for name, weights in mean.items():
        assert torch.allclose(weights.float(), 0.6 * drilled[name].float() + 0.4 * begun[name].float(), atol=5e-3)
    assert any((mean[name] != begun[name]).any() for name in mean)


@pytest.mark.slow
def test_a_reader_is_calibrated_by_samples_of_the_shipped_policy(tmp_path: Path, capsys) -> None:
    assert command.main(["odds", "--out", str(tmp_path)]) == 2
    assert "hint: run the stage reader there first" in capsys.readouterr().err
    for stage, minutes in (("reader", "0.02"), ("odds", "0.2")):
        assert (
            command.main([stage, "--out", str(tmp_path), "--minutes", minutes, "--seed", "0", "--device", "cpu"]) == 0
        )
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["scale"] > 0
    assert found["validation_loss"] < found["loss_before"]
    assert {path.name for path in (tmp_path / "heads").iterdir()} == {"likelihood.safetensors"}


@pytest.mark.slow
def test_a_reduced_run_learns_and_its_stages_fit_together(tmp_path: Path) -> None:
    """`policy --minutes 5` reaches a modest accuracy on sums it has not seen, far above the 1 in 100 of a guess; the
    rest follows.
    """

    def go(stage: str, minutes: str) -> None:
        assert (
            command.main([stage, "--out", str(tmp_path), "--minutes", minutes, "--seed", "0", "--device", "cpu"]) == 0
        )

    go("policy", "5")
    rng = generator(0, 0, "reduced")
    problems = [draw(Difficulty(operations=2, digits=1), "test", 5, int(rng.integers(10**6))) for _ in range(100)]
    given = [Asked(f"{one.text}\n", "", "pocket", str(one.answer)) for one in problems]
    with sampling.Writer(tmp_path / "base", temperature=0.0, seed=0, device="cpu") as writer:
        texts = writer.continue_prompts([one.prompt for one in given], 1)
    right = sum(sampling.Marker().is_right(one, text[0]) for one, text in zip(given, texts, strict=True))
    assert right >= REDUCED_RIGHT
    for stage, minutes in (("self-eval", "0.3"), ("rollouts", "0.3"), ("prm", "0.2"), ("probe", "1")):
        go(stage, minutes)
    go("judge", "0.05")
    go("calibrate", "0.2")
    go("reader", "0.05")
    go("odds", "0.2")
    assert shipping.run(tmp_path, package=tmp_path / "package")["files"] == len(shipping.FILES)
