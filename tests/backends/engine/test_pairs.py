"""A policy whose record names a process model and value heads: what is served, what it reads, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
transformers = pytest.importorskip("transformers", reason="the referee is the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")
safetensors_torch = pytest.importorskip("safetensors.torch")

from tests.backends.engine.stepping import BLOCK, emptied, rested  # noqa: E402
from tests.backends.rows import drained, opened, start  # noqa: E402
from tests.support import pair  # noqa: E402 - torch comes first
from tests.support.pair import home  # noqa: E402, F401 - a fixture
from tts.backends.base import Row, Sampling  # noqa: E402
from tts.backends.capabilities import text_bound  # noqa: E402
from tts.backends.engine import build, build_reward_model, loading  # noqa: E402
from tts.backends.engine.decoder import Decoder  # noqa: E402
from tts.backends.engine.heads import LabelReadout, LikelihoodReadout, StepTemplate  # noqa: E402
from tts.backends.engine.loading import make_runner  # noqa: E402
from tts.backends.engine.weights import read_readout  # noqa: E402
from tts.backends.transformers.backend import TransformersBackend  # noqa: E402
from tts.errors import ConfigError, KVBudgetError, PromptTooLong  # noqa: E402
from tts.models.registry import ModelRecord  # noqa: E402
from tts.tasks.base import split_after  # noqa: E402

PROMPT = "3 + 4 - 2"
TEXTS = ("3 + 4 = 7\n", "7 - 2", " = 5\n", "\n", "A: 5")
WARM = Sampling(temperature=1.0)


def load(record: ModelRecord, **options: Any) -> Any:
    return build(record, device="cpu", threads=1, **options)


def expected(folder: str, hidden: int, text: str) -> list[float]:
    """Return what a head reads at the end of each step, in a plain pass over prompt and text."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids, ends = tokenizer.encode(PROMPT), []
    for step in split_after(text, ("\n",)):
        ids += tokenizer.encode(step)
        ends.append(len(ids) - 1)
    with torch.no_grad():
        states = model.model(torch.tensor([ids])).last_hidden_state[0, ends].double().numpy()
    return list(1 / (1 + np.exp(-(states @ np.cos(np.arange(hidden))) - 0.2)))


async def grown(backend: Any, texts: tuple[str, ...] = TEXTS) -> tuple[list[Any], list[str]]:
    """Return handles of the growing path behind the prompt, and the text of each."""
    handles, written = await opened(backend, PROMPT), [""]
    for text in texts:
        [reply] = await backend.extend([handles[-1]], [text])
        handles.append(reply.value.handle)
        written.append(written[-1] + text)
    return handles, written


@pytest.mark.slow
@pytest.mark.parametrize("name", ["process", "probe"])
def test_readings_are_those_of_a_plain_pass_over_the_files(name: str) -> None:
    record, backend = pair.record(), pair.engine()
    folder, hidden = (
        (record.process_model.location, pair.PROCESS_HIDDEN) if name == "process" else (record.location, pair.HIDDEN)
    )

    async def main() -> None:
        handles, written = await grown(backend)
        for reply, text in zip(await backend.value(handles, name), written, strict=True):
            assert len(reply.value) == len(split_after(text, ("\n",)))
            if text:
                np.testing.assert_allclose(reply.value, expected(folder, hidden, text), atol=1e-5)

    asyncio.run(main())


@pytest.mark.parametrize("blocks", [None, 40])
def test_a_likelihood_is_that_of_a_plain_pass_however_a_path_was_cut(blocks: int | None, tmp_path: Path) -> None:
    record = pair.record()
    file = save_likelihood(tmp_path / "likelihood.safetensors", scale=0.4, shift=2.0)
    process = dataclasses.replace(record.process_model, readout=str(file))
    options = {} if blocks is None else {"kv_budget": blocks * BLOCK * 4096}
    backend = load(dataclasses.replace(record, process_model=process), **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(process.location, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(process.location)

    def plain(text: str) -> list[float]:
        start, ids, ends = len(tokenizer.encode(PROMPT)), tokenizer.encode(PROMPT), []
        for step in split_after(text, ("\n",)):
            ids += tokenizer.encode(step)
            ends.append(len(ids) - start - 1)
        with torch.no_grad():
            behind = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        sums = behind[range(start - 1, len(ids) - 1), ids[start:]].cumsum(0)[ends]
        return torch.sigmoid(0.4 * (sums - torch.log(-torch.expm1(sums))) + 2.0).tolist()

    async def main() -> None:
        (short,) = await opened(backend, PROMPT[0])  # a prompt of one token
        [reply] = await backend.extend([short], [PROMPT[1:]])
        [whole] = await backend.value([reply.value.handle], "process")
        assert whole.prompt == 0
        assert whole.computed == len(PROMPT) - 1
        [beside] = await backend.extend([short], ["9" + PROMPT[2:]])
        size = len(PROMPT) - 1  # the path's last token is not read
        for handle, cost in ((reply.value.handle, (0, size)), (beside.value.handle, (size, 0))):
            [again] = await backend.value([handle], "process")
            assert (again.computed, again.reused) == cost
        handles, written = await grown(backend)
        together = [reply.value.tolist() for reply in await backend.value(handles, "process")]
        for values, text in zip(together, written, strict=True):
            np.testing.assert_allclose(values, plain(text) if text else [], atol=1e-5)
        again, _ = await grown(backend)
        for handle, values in list(zip(again, together, strict=True))[::-1]:  # no step was scored before it was whole
            [reply] = await backend.value([handle], "process")
            np.testing.assert_allclose(reply.value, values, rtol=1e-5)

    asyncio.run(main())


def test_it_reads_each_of_the_policys_tokens_once_and_the_prompt_beside_them() -> None:
    backend = pair.engine()
    stats = backend.reward_models["process"].runner.stats

    async def main() -> None:
        handles, written = await grown(backend)
        read = []
        for handle in handles:
            [reply] = await backend.value([handle], "process")
            read.append((reply.computed, reply.prompt))
        prompt = len(PROMPT)
        assert read == [(0, 0), (prompt + 10, prompt), (5, 0), (5, 0), (1, 0), (4, 0)]
        assert stats.prefill_computed == prompt + len(written[-1])
        [other] = await backend.extend(handles[2:3], ["9"])  # beside a step that was scored before it was whole
        [reply] = await backend.value([other.value.handle], "process")
        assert (reply.computed, reply.prompt) == (1, 0)
        assert stats.recomputed == 0

    asyncio.run(main())


@pytest.mark.slow
def test_it_never_reads_more_tokens_than_were_written() -> None:
    """Words that a hot policy runs together are several tokens to the tokenizer, but were one each when they were
    written.
    """
    backend = pair.engine(pocket=True)
    stats, spelled = backend.reward_models["process"].runner.stats, backend._renderer.text

    async def main() -> None:
        (handle,) = await opened(backend, PROMPT)
        rows = [Row(stream, 0, 40) for stream in range(16)]
        samples = await drained(start(backend, handle, *rows, sampling=Sampling(temperature=100.0)))
        assert any(sum(len(spelled(step)) for step in split_after(s.text, ("\n",))) > s.num_tokens for s in samples)
        replies = await backend.value([sample.handle for sample in samples], "process")
        for sample, reply in zip(samples, replies, strict=True):
            assert reply.computed - reply.prompt <= sample.num_tokens
        assert sum(reply.prompt for reply in replies) == backend.count(PROMPT)
        assert stats.prefill_computed == sum(reply.computed for reply in replies)
        await rested(backend)
        backend.release([handle, *(sample.handle for sample in samples)])
        samples.clear()
        await emptied(backend)

    asyncio.run(main())


def test_a_token_that_ends_two_steps_is_read_once_for_both() -> None:
    """Steps that end in a text which begins another: the second brings no token of its own."""
    record = dataclasses.replace(
        pair.record(), process_model=dataclasses.replace(pair.record().process_model, step=("=", "\n"))
    )
    backend = load(record)
    template = backend.reward_models["process"].template
    assert template.step == ("=", "\n")

    async def main() -> None:
        handles, _ = await grown(backend, ("3 =", " 7\n\n"))
        node = backend._states[handles[-1]].node
        node.pieces = ["", "", " 7\n\n", ""]  # as if one token had been all of the text
        [reply] = await backend.value(handles[-1:], "process")
        assert len(reply.value) == 3
        assert reply.value[1] == reply.value[2]

    asyncio.run(main())


def test_what_results_depend_on_is_in_the_identity(tmp_path: Path) -> None:
    record = pair.record()
    assert isinstance(record.process_model, ModelRecord)
    other = pair.save_head(tmp_path / "other.safetensors", pair.HIDDEN, bias=np.ones(1, np.float32))
    readout = pair.save_head(tmp_path / "readout.safetensors", pair.PROCESS_HIDDEN, bias=np.ones(1, np.float32))
    changed = [
        record,
        dataclasses.replace(record, heads=()),
        dataclasses.replace(record, heads=(("probe", str(other)),)),
        dataclasses.replace(record, process_model=None),
        dataclasses.replace(record, process_model=dataclasses.replace(record.process_model, readout=str(readout))),
    ]
    identities = [load(each).identity for each in changed]
    assert len(set(identities)) == len(identities)
    assert identities[0] == load(record).identity


def test_a_model_without_heads_has_no_values_and_one_with_any_names_them() -> None:
    record = pair.record()
    assert load(dataclasses.replace(record, heads=(), process_model=None)).caps.value == "absent"
    for changes, names in (
        ({"heads": ()}, ["process"]),
        ({"process_model": None}, ["probe"]),
        ({}, ["probe", "process"]),
    ):
        backend = load(dataclasses.replace(record, **changes))
        assert backend.caps.value == "native"
        assert sorted(backend.metadata.value_heads or ()) == names


def test_a_head_of_the_callers_goes_before_the_records() -> None:
    from tts.backends.engine.heads import ValueHead

    given = ValueHead(np.zeros(pair.HIDDEN, np.float32))
    backend = load(
        pair.record(), heads={"probe": given}, reward_models={"process": pair.engine().reward_models["process"]}
    )
    assert backend.runner.heads["probe"] is given
    assert "process=" not in backend.identity


def test_the_transformers_backend_writes_the_same() -> None:
    ours, theirs = load(pair.record()), TransformersBackend.from_record(pair.record(), device="cpu")

    async def greedy(backend: Any) -> list[Any]:
        (handle,) = await opened(backend, PROMPT)
        return await drained(start(backend, handle, Row(1, 0, 30), sampling=Sampling(temperature=0)))

    (a,), (b,) = asyncio.run(greedy(ours)), asyncio.run(greedy(theirs))
    assert a.token_ids == b.token_ids
    np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
    assert text_bound(ours, PROMPT) == text_bound(theirs, PROMPT) == len(PROMPT)


# Refusals -------------------------------------------------------------------------------------------------------------


def save_likelihood(path: Path, **values: float | None) -> Path:
    """Write scale and shift of a likelihood, without those that are None."""
    safetensors_torch.save_file(
        {name: torch.tensor([value]) for name, value in values.items() if value is not None}, path
    )
    return path


def refusal(make: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        make()
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"weight": None}, "lacks the tensor 'weight'"),
        ({"bias": None}, "lacks the tensor 'bias'"),
        ({"weight": np.ones((1, pair.HIDDEN), np.float32)}, "has a weight of shape (1, 64), but it must be [hidden]"),
        ({"bias": np.ones(2, np.float32)}, "has a bias of shape (2,), but it must be [1]"),
        ({"weight": np.full(pair.HIDDEN, np.nan, np.float32)}, "has a weight that is not of finite numbers"),
        ({"bias": np.full(1, np.inf, np.float32)}, "has a bias that is not of finite numbers"),
        ({"weight": np.ones(pair.HIDDEN, np.int64)}, "has a weight that is not of finite numbers"),
        ({"weight": np.ones(65, np.float32)}, "has a weight of shape (65,), but the hidden size is 64"),
    ],
    ids=str,
)
def test_what_is_no_head_is_refused(tensors: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = pair.save_head(tmp_path / "probe.safetensors", pair.HIDDEN, **tensors)
    message = refusal(lambda: load(dataclasses.replace(pair.record(), heads=(("probe", str(file)),))))
    assert words in message
    assert str(file) in message or "'probe'" in message


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"shift": None}, "lacks the tensor 'shift', but needs scale [1] and shift [1]"),
        ({"scale": 0.0}, "has a scale of 0, but it must be above 0"),
        ({"shift": np.nan}, "has a shift that is not of finite numbers"),
        ({"scale": None}, "lacks the tensor 'weight', but needs weight [hidden] and bias [1]"),
        (
            {"weight": 1.0},
            "has the tensors 'scale' of a likelihood and 'weight' of a linear head, but must be one of them",
        ),
    ],
    ids=str,
)
def test_what_is_no_readout_of_a_likelihood_is_refused(tensors: dict[str, Any], words: str, tmp_path: Path) -> None:
    record = pair.record()
    file = save_likelihood(tmp_path / "likelihood.safetensors", **{"scale": 1.0, "shift": 0.0, **tensors})
    assert words in refusal(
        lambda: load(
            dataclasses.replace(record, process_model=dataclasses.replace(record.process_model, readout=str(file)))
        )
    )


def test_a_likelihood_may_be_of_any_floating_type_and_is_checked_in_each(tmp_path: Path) -> None:
    record, file = pair.record().process_model, tmp_path / "likelihood.safetensors"
    for dtype in (torch.float64, torch.bfloat16, torch.float8_e4m3fn):
        safetensors_torch.save_file({"scale": torch.ones(1).to(dtype), "shift": torch.ones(1).to(dtype)}, file)
        assert read_readout(record, str(file)) == LikelihoodReadout(1.0, 1.0)
        safetensors_torch.save_file({"scale": torch.ones(1), "shift": torch.full((1,), np.nan).to(dtype)}, file)
        assert "has a shift that is not of finite numbers" in refusal(lambda: read_readout(record, str(file)))


def test_a_heads_file_that_is_missing_or_cut_is_named(tmp_path: Path) -> None:
    file = tmp_path / "probe.safetensors"
    record = dataclasses.replace(pair.record(), heads=(("probe", str(file)),))
    assert f"the head {file} of model 'pair' could not be read" in refusal(lambda: load(record))
    whole = pair.save_head(file, pair.HIDDEN).read_bytes()
    for content in (b"", whole[:5], whole[:-9], b"garbage" * 50):
        file.write_bytes(content)
        assert f"the head {file} of model 'pair' could not be read" in refusal(lambda: load(record))


def test_a_process_model_that_does_not_go_with_the_policy_is_refused(tmp_path: Path) -> None:
    other = pair.save_pair(tmp_path / "other", process_letters=pair.LETTERS[::-1])
    assert "process_model of model 'pair' is 'pair-process', whose tokenizer differs" in refusal(lambda: load(other))
    record = pair.record()
    assert isinstance(record.process_model, ModelRecord)
    file = pair.save_head(tmp_path / "readout.safetensors", pair.HIDDEN)
    wrong = dataclasses.replace(record, process_model=dataclasses.replace(record.process_model, readout=str(file)))
    assert "the readout of model 'pair-process' has a weight of shape (64,), but the hidden size is 96" in refusal(
        lambda: load(wrong)
    )


def test_nothing_stays_loaded_where_one_of_several_process_models_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = pair.record()
    assert isinstance(record.process_model, ModelRecord)
    file = pair.save_head(tmp_path / "readout.safetensors", pair.PROCESS_HIDDEN)
    other = dataclasses.replace(record.process_model, name="too-large", readout=str(file))
    made: list[Decoder] = []
    closed: list[Decoder] = []

    def make(checkpoint: Any, options: Any, **more: Any) -> Any:
        if len(made) == 2:
            raise KVBudgetError("kv_budget is 1 byte")
        runner, renderer = make_runner(checkpoint, options, **more)
        made.append(runner.decoder)
        monkeypatch.setattr(runner.decoder, "close", partial(closed.append, runner.decoder))
        return runner, renderer

    monkeypatch.setattr(loading, "make_runner", make)
    with pytest.raises(KVBudgetError):
        load(dataclasses.replace(record, process_models=(("other", other),)))
    assert closed == made[::-1]


def test_a_process_model_that_is_shown_texts_has_a_renderer_of_its_own() -> None:
    record = pair.record()
    assert isinstance(record.process_model, ModelRecord)
    readout = LikelihoodReadout(0.2, 1.5)
    shown = build_reward_model(
        record.process_model, lambda renderer: StepTemplate(renderer.text, readout), device="cpu", threads=1
    )
    view = shown.view(PROMPT, (1, 2, 3))
    assert view._prompt == tuple(pair.tokenizer_of(pair.LETTERS).encode(PROMPT))
    with pytest.raises(ConfigError, match="calls no server"):
        build_reward_model(
            dataclasses.replace(record.process_model, url="http://127.0.0.1"),
            lambda renderer: StepTemplate(None, readout),
        )


@pytest.mark.parametrize("backend", ["engine", "transformers"])
@pytest.mark.parametrize("part", ["policy", "process"])
def test_files_of_a_user_that_are_cut_are_one_line(part: str, backend: str, tmp_path: Path) -> None:
    record = pair.save_pair(tmp_path)
    weights = tmp_path / part / "model.safetensors"
    whole = weights.read_bytes()
    make = load if backend == "engine" else lambda each: TransformersBackend.from_record(each, device="cpu")
    if (part, backend) == ("process", "transformers"):
        weights.unlink()
        make(record)  # which serves no process model
        return
    for content in (b"", whole[:5], whole[:-1000], b"garbage" * 100):
        weights.write_bytes(content)
        assert "could not be loaded" in refusal(lambda: make(record))


def test_a_good_label_is_compared_with_at_least_one_bad_one() -> None:
    assert "bad is (), but must name at least one token" in refusal(lambda: LabelReadout(1, ()))


def test_a_template_that_reads_the_policys_tokens_has_no_separator() -> None:
    assert "separator is '#'" in refusal(lambda: StepTemplate(None, LabelReadout(1, (2,)), separator="#"))


@pytest.mark.parametrize("kind", ["head", "likelihood"])
def test_a_sequence_past_the_context_is_refused_by_the_policy_and_by_the_process_model(
    kind: str, tmp_path: Path
) -> None:
    record = pair.record(process_context=40)
    if kind == "likelihood":
        file = save_likelihood(tmp_path / "likelihood.safetensors", scale=0.4, shift=2.0)
        record = dataclasses.replace(record, process_model=dataclasses.replace(record.process_model, readout=str(file)))
    backend = load(record)

    async def main() -> None:
        with pytest.raises(PromptTooLong, match="context of 40"):
            await backend.open(["3" * 50])
        assert backend.counters.prompt_tokens == 0
        (handle,) = await opened(backend, "3" * 30)
        [reply] = await backend.extend([handle], ["4" * 9 + "\n"])
        assert len((await backend.value([reply.value.handle], "process"))[0].value) == 1
        [longer] = await backend.extend([reply.value.handle], ["5"])
        with pytest.raises(PromptTooLong, match=r"41.*process.*context.*40"):
            await backend.value([longer.value.handle], "process")
        with pytest.raises(PromptTooLong, match="context of 160"):
            await backend.extend([longer.value.handle], ["6" * 130])

    asyncio.run(main())
