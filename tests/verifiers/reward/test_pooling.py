"""Reward models behind HTTP: the same scores as in this process, and what becomes of servers that fail."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.verifiers.asking import Counting, ask, path
from tests.verifiers.reward.official import CODE
from tests.verifiers.reward.pooling_server import Outputs, Pooling, serving
from tests.verifiers.reward.published import PROBLEM, STEPS, TOKENIZERS, head_tensors, saved
from tts.errors import ConfigError, VerifierError
from tts.verifiers.base import StepScores
from tts.verifiers.reward import loading as reward_loading
from tts.verifiers.reward import pooling
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.pooling import PoolingServer
from tts.verifiers.reward.verifier import Reward

torch = pytest.importorskip("torch")
QWEN = "qwen2.5-math-prm-7b"
NAMES = ("math-shepherd", "rlhflow-mistral", "rlhflow-orm-mistral", QWEN, "skywork-o1-prm-1.5b")
OTHER = ["First, 3 + 4 = 8.", "So the answer is 6."]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    made = {}
    for name in NAMES:
        folder = tmp_path_factory.mktemp(name)
        made[name] = folder, saved(reward_record.load(name), folder)
    return made


def outputs_of(name: str, model: Any) -> Outputs:
    """Return what a server computes: the labels' logits, or the head's outputs, at each token."""
    record = reward_record.load(name)
    if record.readout.kind == "labels":
        tokenizer = TOKENIZERS[name]()
        labels = [
            tokenizer.encode(label, add_special_tokens=False)[0] for label in (record.readout.good, *record.readout.bad)
        ]

        def logits(ids: Sequence[int]) -> list[list[float]]:
            with torch.inference_mode():
                return model(torch.tensor([list(ids)])).logits[0][:, labels].tolist()

        return logits
    tensors = head_tensors(record)

    def head(ids: Sequence[int]) -> list[list[float]]:
        with torch.inference_mode():
            found = model(torch.tensor([list(ids)]), output_hidden_states=True).hidden_states[-1][0]
            for i, layer in enumerate(record.readout.layers):  # type: ignore[union-attr]
                found = (found.relu() if i else found) @ tensors[layer.weight].T + tensors[str(layer.bias)]
            return found.tolist()

    return head


def expected(name: str, model: Any, steps: list[str]) -> list[float]:
    record = reward_record.load(name)
    head = head_tensors(record) if record.readout.kind == "head" else None
    return CODE[name](model, TOKENIZERS[name](), head, PROBLEM, steps)


def made(url: str, models: dict[str, tuple[Path, Any]], name: str = QWEN, **settings: Any) -> Reward:
    return Reward(record=name, weights=str(models[name][0]), url=url, served_as="prm", **settings).open()


def computing(models: dict[str, tuple[Path, Any]], name: str = QWEN, **more: Any) -> Pooling:
    """Return a server that computes a model's outputs."""
    return Pooling(outputs_of(name, models[name][1]), **more)


def rate(verifier: Reward, calls: Counting | None = None) -> StepScores:
    """Return what a verifier says of the published steps."""
    [score] = ask(verifier, [path(STEPS)], calls or Counting(), PROBLEM)
    return score


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_scores_over_http_are_those_of_the_authors_own_code(name: str, models: dict[str, Any]) -> None:
    server = computing(models, name)
    with serving(server) as url:
        calls = Counting()
        verifier = made(url, models, name)
        scores = ask(verifier, [path(STEPS), path(OTHER, node=2)], calls, PROBLEM)
    for score, steps in zip(scores, (STEPS, OTHER), strict=True):
        found = [score.whole] if reward_record.load(name).kind == "outcome" else score.steps
        assert found == pytest.approx(expected(name, models[name][1], steps), abs=1e-5)
    [request] = server.requests
    assert request["path"] == ("/classify" if "orm" in name else "/pooling")
    assert request["model"] == "prm"
    assert (calls.prompt, calls.computed) == (0, sum(map(len, request["input"])))
    assert verifier.asked is not None
    assert verifier.asked.counters.prompt_tokens == calls.computed
    assert sum(map(len, request["input"])) <= verifier.bound(0, 2000)


@pytest.mark.parametrize("name", ["math-shepherd", "qwen2.5-math-prm-7b", "skywork-o1-prm-1.5b"])
def test_a_server_that_returns_step_tokens_alone_gives_the_same(name: str, models: dict[str, Any]) -> None:
    tokenizer = TOKENIZERS[name]()
    record = reward_record.load(name)
    separator = record.template.separator
    assert separator is not None
    tag = tokenizer.encode(f"1{separator.text}", add_special_tokens=False)[-1]
    # a newline within a step is a step token of Skywork's, which is not scored
    steps = [STEPS[0], "two\nlines", STEPS[2]]
    found = []
    for only in (None, tag):
        with serving(computing(models, name, steps=only)) as url:
            found += ask(made(url, models, name), [path(steps)], Counting(), PROBLEM)
    assert found[0].steps == found[1].steps


def activated(name: str) -> Any:
    """Return the change of a reply by a server that activates, whatever it is asked for."""
    readout = reward_record.load(name).readout
    is_softmax = readout.kind == "labels" or readout.activation == "softmax"  # type: ignore[union-attr]

    def change(reply: dict[str, Any]) -> dict[str, Any]:
        for entry in reply["data"]:
            member = "probs" if "probs" in entry else "data"
            rows = torch.tensor(entry[member])
            entry[member] = (rows.softmax(-1) if is_softmax else rows.sigmoid()).tolist()
        return reply

    return change


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_activates_is_refused_with_the_command(name: str, models: dict[str, Any]) -> None:
    server = computing(models, name, change=activated(name))
    with serving(server) as url, pytest.raises(VerifierError, match="probabilities") as refused:
        rate(made(url, models, name))
    assert "vllm serve" in refused.value.hint
    assert '"use_activation": false' in refused.value.hint


def test_few_outputs_from_0_to_1_are_taken_as_they_are(models: dict[str, Any]) -> None:
    name = "skywork-o1-prm-1.5b"
    within = Pooling(lambda ids: [[0.25 + 0.01 * i] for i in range(len(ids))], steps=None)
    few = Pooling(lambda ids: [[0.25] if i else [-3.0] for i in range(len(ids))])
    with serving(within) as url, pytest.raises(VerifierError, match="probabilities"):
        rate(made(url, models, name))
    with serving(few) as url:
        verifier = made(url, models, name)
        few.outputs = lambda ids: [[-3.0] for _ in ids]
        rate(verifier)
        few.outputs = within.outputs
        score = rate(verifier)
    assert all(0.5 < step < 0.8 for step in score.steps), "one output outside of [0, 1] has shown what they are"


def test_a_server_may_flatten_one_output_for_each_token(models: dict[str, Any]) -> None:
    name = "skywork-o1-prm-1.5b"

    def flat(reply: dict[str, Any]) -> dict[str, Any]:
        return reply | {"data": [one | {"data": [output for [output] in one["data"]]} for one in reply["data"]]}

    with serving(computing(models, name, change=flat)) as url:
        score = rate(made(url, models, name))
    assert score.steps == pytest.approx(expected(name, models[name][1], STEPS), abs=1e-5)


def test_many_paths_are_sent_in_batches_and_in_order(models: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    server = computing(models)
    server.change = lambda reply: reply | {"data": reply["data"][::-1]}  # the order is that of `index`
    paths = [path([f"{i} + {i} = {2 * i}."], node=i + 1) for i in range(7)] + [path([""], node=99)]
    with serving(server) as url:
        verifier = made(url, models)
        together = ask(verifier, paths, Counting(), PROBLEM)
        alone = [ask(verifier, [one], Counting(), PROBLEM)[0] for one in paths]
        assert verifier.asked is not None
        verifier.asked.batch = 3  # type: ignore[attr-defined]
        server.requests.clear()
        batched = ask(verifier, paths, Counting(), PROBLEM)
    assert repr(together) == repr(alone) == repr(batched)
    assert [len(request["input"]) for request in server.requests] == [3, 3, 1]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, "ServerError"), (502, "ServerError"), (408, "TimedOut"), (0, "ConnectionLost"), (-200, "BadReply")],
)
def test_a_request_that_the_server_failed_in_is_charged_and_its_scores_are_unknown(
    status: int, kind: str, models: dict[str, Any]
) -> None:
    server = computing(models, status=[status])
    with serving(server) as url:
        verifier, calls = made(url, models), Counting()
        lost = rate(verifier, calls)
        once = calls.computed
        assert calls.estimated
        known = rate(verifier, calls)
    assert lost.steps is not None
    assert all(map(math.isnan, lost.steps))
    assert once == len(server.requests[0]["input"][0])
    assert calls.failures == {kind: 1}
    assert calls.computed == 2 * once
    assert known.steps == pytest.approx(expected(QWEN, models[QWEN][1], STEPS), abs=1e-5)


def test_authorities_are_read_where_there_is_a_certificate_alone(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take longer than a call does."""
    monkeypatch.setenv("SSL_CERT_FILE", "nowhere.pem")
    with serving(computing(models)) as url:
        score = rate(made(url, models))
        assert score.steps is not None
        assert not any(map(math.isnan, score.steps))
        with pytest.raises(ConfigError, match=r"SSL_CERT_FILE is 'nowhere\.pem', but"):
            rate(made(url.replace("http://", "https://"), models))


def test_a_server_that_never_answers_is_waited_for_no_longer_than_the_budget_says(models: dict[str, Any]) -> None:
    server = computing(models, sleeps=60.0)
    with serving(server) as url:
        verifier = made(url, models)
        calls = Counting(seconds=0.2)
        lost = rate(verifier, calls)
        assert calls.failures == {"TimedOut": 1}
        sent = len(server.requests)
        calls = Counting(seconds=0.0)
        late = rate(verifier, calls)
    assert repr(lost) == repr(late)
    assert len(server.requests) == sent
    assert calls.computed == 0


def test_what_a_server_did_not_take_on_is_sent_again_and_charged_once(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "_WAIT_S", 0.001)
    server = computing(models, status=[429, 503])
    with serving(server) as url:
        calls = Counting()
        score = rate(made(url, models), calls)
    assert score.steps is not None
    assert not any(map(math.isnan, score.steps))
    assert len(server.requests) == 3
    assert calls.computed == len(server.requests[0]["input"][0])


@pytest.mark.parametrize(("status", "kind"), [(429, "RateLimited"), (425, "Unavailable"), (503, "Unavailable")])
def test_what_a_server_never_took_on_costs_nothing_and_is_told_by_kind(
    status: int, kind: str, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "_WAIT_S", 0.001)
    with serving(Pooling(lambda ids: [], status=[status] * 3)) as url:
        verifier, calls = made(url, models), Counting()
        scores = ask(verifier, [path(STEPS), path(STEPS[:1], node=2)], calls, PROBLEM)
    assert all(math.isnan(one) for score in scores for one in score.steps or ())
    assert calls.failures == {kind: 2}
    assert calls.computed == 0
    assert not calls.estimated


def test_a_server_that_was_there_and_is_gone_is_a_failure_and_no_mistake(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "_WAIT_S", 0.001)
    server = computing(models)
    calls = Counting()
    with serving(server) as url:
        verifier = made(url, models)
        known = rate(verifier, calls)
    once = calls.computed
    lost = rate(verifier, calls)
    assert not any(map(math.isnan, known.steps or ()))
    assert all(map(math.isnan, lost.steps or ()))
    assert calls.failures == {"ConnectionFailed": 1}
    assert calls.computed == once


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda reply: b"<html>busy</html>", "what cannot be read"),
        (lambda reply: b'{"data": [{"index": 0, "data"', "what cannot be read"),
        (lambda reply: None, "what cannot be read"),
        (lambda reply: {"data": []}, r"what cannot be read \(KeyError: 'usage'\)"),
        (lambda reply: reply | {"data": []}, "about 0 texts"),
        (lambda reply: reply | {"usage": {"prompt_tokens": 3}}, r"about 1 texts of 3 tokens, where 1 of \d+ were sent"),
        (
            lambda reply: reply | {"data": [{"index": 0, "data": [[0.5]] * 9}]},
            r"outputs of shape \(9, 1\) for \d+ tokens, where each row must have 2",
        ),
        (
            lambda reply: reply | {"data": [{"index": 0, "data": [[0.5, 0.5]] * 2}]},
            r"2 rows for \d+ tokens, of which 3 are step tokens",
        ),
        (
            lambda reply: reply | {"data": [{"index": 0, "data": []}]},
            r"0 rows for \d+ tokens, of which 3 are step tokens",
        ),
        (lambda reply: reply | {"data": [{"index": 0, "data": "AAAA"}]}, "what cannot be read"),
        (lambda reply: reply | {"data": [{"index": 0, "data": [[0.5, "a"]]}]}, "what cannot be read"),
    ],
)
def test_a_reply_of_another_form_is_refused_with_how_to_start_a_server(
    change: Any, message: str, models: dict[str, Any]
) -> None:
    server = computing(models, change=change)
    with serving(server) as url, pytest.raises(VerifierError, match=message) as refused:
        rate(made(url, models))
    assert url in refused.value.cause
    assert "--runner pooling" in refused.value.hint


def test_outputs_that_are_no_numbers_are_unknown_scores(models: dict[str, Any]) -> None:
    with serving(Pooling(lambda ids: [[math.nan, 1.0]] * (len(ids) - 1) + [[1.0, 2.0]])) as url:
        score = rate(made(url, models))
    assert repr(score.steps[:2]) == "(nan, nan)"  # type: ignore[index]
    assert score.steps[2] == pytest.approx(1 / (1 + math.exp(-1)))  # type: ignore[index]


def test_a_server_that_refuses_or_is_not_there_is_named(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooling, "_WAIT_S", 0.001)
    with (
        serving(Pooling(lambda ids: [], status=[404])) as url,
        pytest.raises(VerifierError, match=r"refused.*'prm'.*404"),
    ):
        rate(made(url, models))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(VerifierError, match="cannot be reached") as refused:
            rate(made(url, models, "rlhflow-mistral"))
    assert "LlamaForSequenceClassification" in refused.value.hint
    assert '"classifier_from_token": ["+", "-"]' in refused.value.hint
    assert '"task": "token_classify"' in refused.value.hint


def test_a_key_is_sent_where_there_is_one_and_never_shown(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = QWEN
    monkeypatch.setenv("TTS_API_KEY", "the-policys")
    with serving(computing(models, name, key="secret-1")) as url:
        with pytest.raises(VerifierError, match=r"status 401: .*Unauthorized: .*TTS_REWARD_KEY") as refused:
            rate(made(url, models, slack=1))
        assert "the-policys" not in str(refused.value)
        monkeypatch.setenv("TTS_REWARD_KEY", "secret-2")
        with pytest.raises(VerifierError, match=r"Unauthorized: Bearer \*\*\*"):
            rate(made(f"{url}/", models))
        monkeypatch.setenv("TTS_REWARD_KEY", "secret-1")
        reward_loading._KEPT.clear()
        score = rate(made(url, models))
    assert score.steps == pytest.approx(expected(name, models[name][1], STEPS), abs=1e-5)


def test_a_server_without_a_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="must begin with http:// or https://"):
        PoolingServer(url="localhost:8000")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"url": "http://x", "device": "cpu"},
            "device is 'cpu', but the server at the url was started with settings of its own",
        ),
        ({"served_as": "prm"}, r"served_as is 'prm', but there is no url \(hint: leave it out\)"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Reward(**settings)  # type: ignore[arg-type]
