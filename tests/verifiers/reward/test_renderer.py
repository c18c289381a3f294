"""What a reward model is shown of odd solutions, and which records are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.yaml_bomb import BOMB
from tests.verifiers.reward.published import PROBLEM, STEPS, llama_tokenizer, qwen_tokenizer, sentencepiece_like
from tts.errors import ConfigError, MissingDependency
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.record import RewardRecord
from tts.verifiers.reward.renderer import BEHIND, EMPTY, MERGED, SolutionRenderer

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def shepherd() -> SolutionRenderer:
    return SolutionRenderer(reward_record.load("math-shepherd"), sentencepiece_like())


@pytest.fixture(scope="module")
def qwen() -> SolutionRenderer:
    return SolutionRenderer(reward_record.load("qwen2.5-math-prm-7b"), qwen_tokenizer())


@pytest.fixture(scope="module")
def skywork() -> SolutionRenderer:
    return SolutionRenderer(reward_record.load("skywork-o1-prm-1.5b"), qwen_tokenizer(bos="<|endoftext|>"))


def text(**changes: Any) -> str:
    """Return the record of Math-Shepherd in YAML, changed; a change of None leaves a field out."""
    data = yaml.safe_load(
        (Path(reward_record.__file__).parent / "records" / "math-shepherd.yaml").read_text(encoding="utf-8")
    )
    for way, value in changes.items():
        *above, last = way.split("__")
        place = data
        for part in above:
            place = place[part]
        place[last] = value
        if value is None:
            del place[last]
    return yaml.safe_dump(data, allow_unicode=True)


def made(**changes: Any) -> RewardRecord:
    return RewardRecord.of(yaml.safe_load(text(**changes)), "the record")


# Steps ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renderer", ["shepherd", "qwen", "skywork"])
def test_an_empty_step_adds_nothing_and_is_read_where_the_step_before_it_is(
    renderer: str, request: pytest.FixtureRequest
) -> None:
    render = request.getfixturevalue(renderer).render
    plain = render(PROBLEM, STEPS[:2])
    odd = render(PROBLEM, [" ", STEPS[0], "", "\n \n", STEPS[1], ""])
    assert odd.ids == plain.ids
    assert odd.at == (None, plain.at[0], plain.at[0], plain.at[0], plain.at[1], plain.at[1])
    assert odd.why == (EMPTY, "", EMPTY, EMPTY, "", EMPTY)


def test_nothing_at_all_is_shown_of_empty_steps_alone(qwen: SolutionRenderer) -> None:
    assert qwen.render(PROBLEM, ["", "\n"]).ids == ()
    assert qwen.render(PROBLEM, []).at == ()


@pytest.mark.parametrize(
    ("renderer", "odd"),
    [("shepherd", "this ки that"), ("shepherd", "</s>"), ("qwen", "so<extra_0>"), ("qwen", "<|im_end|>")],
)
def test_a_step_that_holds_the_separator_or_a_control_token_is_unknown_and_so_is_all_behind_it(
    renderer: str, odd: str, request: pytest.FixtureRequest
) -> None:
    render = request.getfixturevalue(renderer).render
    plain = render(PROBLEM, STEPS[:1])
    found = render(PROBLEM, [STEPS[0], odd, STEPS[2]])
    assert found.ids == plain.ids
    assert found.at == (plain.at[0], None, None)
    assert found.why[1].startswith("its text holds ")
    assert found.why[2] == BEHIND
    assert all(why.startswith("the problem's text holds") for why in render(f"What is {odd}?", STEPS).why)


def test_a_separator_that_the_record_keeps_within_steps_is_read_but_not_scored(skywork: SolutionRenderer) -> None:
    found = skywork.render(PROBLEM, ["one\ntwo", "three"])
    newline = found.ids[-1]
    assert sum(token == newline for token in found.ids) > 2 + 1  # the prompt's, the kept one, and one behind each step
    assert [found.ids[at] for at in found.at if at is not None] == [newline, newline]
    assert None not in found.at


@pytest.mark.parametrize("room", [0, 1, 40])
def test_steps_that_do_not_fit_are_unknown_and_none_of_their_tokens_is_read(room: int, qwen: SolutionRenderer) -> None:
    plain = qwen.render(PROBLEM, STEPS)
    assert plain.at[1] is not None
    assert plain.at[2] is not None
    limit = plain.at[1] + 1 + room if room < 40 else plain.at[2] + 1
    found = SolutionRenderer(qwen.record, qwen_tokenizer(), context=limit).render(PROBLEM, STEPS)
    known = 2 if room < 40 else 3
    assert found.at == (*plain.at[:known], *[None] * (3 - known))
    assert found.ids == plain.ids[: plain.at[known - 1] + 1]  # type: ignore[operator]
    assert all(f"{limit} tokens" in why for why in found.why[known:])
    assert len(found.why[known:]) == 3 - known


def test_not_even_the_problem_fits(shepherd: SolutionRenderer) -> None:
    found = SolutionRenderer(shepherd.record, sentencepiece_like(), context=4).render(PROBLEM, STEPS)
    assert found.ids == ()
    assert found.at == (None,) * 3
    assert found.pieces == ()


def test_a_problem_with_braces_is_shown_as_it_is(shepherd: SolutionRenderer) -> None:
    odd = r"What is {step} of {problem} in \frac{1}{2}?"
    shown = shepherd._tokenizer.decode(shepherd.render(odd, ["x"]).ids)
    assert odd in shown


def test_a_separator_that_merges_with_what_is_behind_it_is_never_read_at_a_wrong_place() -> None:
    record = made(template__separator__text="=", template__between="", template__separator__within="keep")
    found = SolutionRenderer(record, sentencepiece_like()).render("Q", ["a", "b", "c"])
    assert [found.ids[at] for at in found.at if at is not None] == [found.ids[-1]] * 3
    merging = made(
        template__separator__text=" t",
        template__between="",
        template__separator__within="keep",
        template__separator__tokens=2,
    )
    found = SolutionRenderer(merging, sentencepiece_like()).render("Q", ["a", "he", "c"])  # " t" + "he" is one token
    assert found.why == (MERGED, BEHIND, BEHIND)


def test_what_is_read_of_a_step_does_not_depend_on_the_steps_behind_it(
    qwen: SolutionRenderer, shepherd: SolutionRenderer, skywork: SolutionRenderer
) -> None:
    for renderer in (
        qwen,
        shepherd,
        skywork,
        SolutionRenderer(reward_record.load("rlhflow-mistral"), llama_tokenizer()),
    ):
        whole = renderer.render(PROBLEM, STEPS)
        for n in range(1, 4):
            part = renderer.render(PROBLEM, STEPS[:n])
            assert part.ids == whole.ids[: len(part.ids)]
            assert part.pieces == whole.pieces[:n]
            assert part.prompt == whole.prompt
            assert part.at == whole.at[:n]


# What does not fit a tokenizer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "tokenizer", "message"),
    [
        (
            {"template__separator__text": " кино"},
            "sp",
            r"separator ' кино' of 1 tokens, but it is \d+ to the tokenizer",
        ),
        ({"template__separator__tokens": 2}, "sp", "separator ' ки' of 2 tokens, but it is 1"),
        ({"readout__good": "good"}, "sp", r"label 'good' of 1 token, but it is \d to"),
        ({"readout__bad": [" +"]}, "sp", r"label ' \+' of 1 token|two of them are one token"),
        ({}, "qwen", "separator ' ки' of 1 tokens, but it is"),
        ({"template__prompt": "{bos}{problem}"}, "qwen", "has no beginning of sequence"),
        ({"template__layout": "reply"}, "sp", "tokenizer has no chat template"),
    ],
)
def test_a_text_that_is_not_the_stated_number_of_tokens_is_refused(
    changes: dict[str, Any], tokenizer: str, message: str
) -> None:
    make = {"sp": sentencepiece_like, "qwen": qwen_tokenizer}[tokenizer]
    with pytest.raises(ConfigError, match=message) as refused:
        SolutionRenderer(made(**changes), make())
    assert "math-shepherd" in str(refused.value)
    assert refused.value.hint


def test_a_chat_template_that_refuses_or_changes_the_messages_is_named() -> None:
    record = reward_record.load("qwen2.5-math-prm-7b")
    for template, message in (
        ("{{ raise_exception('no system message') }}", "the tokenizer's template refuses it: no system message"),
        ("{% for m in messages %}{{ m['content'] | upper }}{% endfor %}", "does not show the reply as it is"),
    ):
        tokenizer = qwen_tokenizer()
        tokenizer.chat_template = template
        with pytest.raises(ConfigError, match=message):
            SolutionRenderer(record, tokenizer)


def test_turns_that_a_chat_template_does_not_show_are_named() -> None:
    tokenizer = llama_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}x{% endfor %}"
    with pytest.raises(ConfigError, match=r"show.*turns"):
        SolutionRenderer(reward_record.load("rlhflow-mistral"), tokenizer)


def test_labels_that_are_one_token_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = llama_tokenizer()
    monkeypatch.setattr(tokenizer, "encode", lambda text, add_special_tokens: [7])
    with pytest.raises(ConfigError, match=r"labels \['\+', '-'\]"):
        SolutionRenderer(reward_record.load("rlhflow-mistral"), tokenizer)


# Records --------------------------------------------------------------------------------------------------------------


def test_a_user_adds_a_record_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text(name="mine", aggregation="mean"), encoding="utf-8")
    assert reward_record.load(str(file)).aggregation == "mean"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"template__separator": None}, "separator is missing, but a process model is read at one"),
        ({"kind": "outcome"}, "separator is given, but an outcome model reads the whole"),
        ({"template__prompt": "Problem:"}, r"template: prompt is 'Problem:', but must hold {problem} or {prompt}"),
        ({"template__prompt": "{problem} {step}"}, r"{step} belongs into that of the layout 'turns'"),
        ({"template__layout": "turns", "template__between": None}, "answer is '', but the layout 'turns' needs one"),
        (
            {"template": {"layout": "turns", "prompt": "{problem} {step}", "answer": "+", "separator": {"text": "+"}}},
            "separator is given, but the layout 'turns' has none",
        ),
        ({"template__system": "Be exact."}, "system is for chats, but the layout is 'text'"),
        ({"template__layout": "parts"}, "between is for the layouts text and reply"),
        ({"readout__good": "-"}, "all labels must differ"),
        (
            {"readout__bad": []},
            "readout.labels.bad is .*at least 1 item",
        ),
        (
            {"readout": {"kind": "head", "layers": [{"weight": "w"}], "good": 1}},
            "good is 1, but the head has 1 outputs",
        ),
        (
            {"readout": {"kind": "head", "layers": [{"weight": "w"}], "activation": "softmax"}},
            "the softmax of one output is always 1",
        ),
        ({"readout__step_tag_id": 12902}, "key of readout.labels is 'step_tag_id'"),
        ({"licence": 3}, "licence is 3, but must be a valid string"),
        ({"source": None}, "source is missing"),
        ({"max_tokens": 0}, "max_tokens is 0, but must be greater than or equal to 1"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused_by_field_and_rule(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(**changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is no YAML"),
        (BOMB.format("name"), "the YAML has more than 1,000,000 values"),
        ("- 1", r"is \[1\], but must be keys"),
        ("", "is None, but must be keys"),
    ],
)
def test_a_file_that_is_no_record_is_named(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        reward_record.load(str(file))


def test_without_pyyaml_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingDependency, match=r"reading.*pip.*'test-time-search\[engine\]'"):
        reward_record.load("math-shepherd")


def test_a_record_that_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reward model.*'math-shephard'") as unknown:
        reward_record.load("math-shephard")
    assert "math-shepherd" in unknown.value.hint
    with pytest.raises(ConfigError, match=r"read:.*file"):
        reward_record.load(str(tmp_path / "none.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"config.json.*read:"):
        reward_record.load(str(tmp_path / "folder.yaml"))
