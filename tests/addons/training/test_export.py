"""Searches as rows for trainers: what the rows say is what was drawn, and weights make sums over them unbiased."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.backends.conftest import engine_of, tiny_model, tiny_tokenizer
from tests.support.repeats import repeats
from tests.support.runs import change_setup, make_run, solve
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.types import Candidate, Message, Problem, Solution
from tts.verifiers.toy import ToyVerifier
from tts_addons.training.filters import Filters
from tts_addons.training.forms import FORMS
from tts_addons.training.records import PathSample, SearchRows, search_rows
from tts_addons.training.writing import export_searches

SLIPS = ToyLanguage(accuracy=0.6, slips=((1, 1.0),))
SUM = Problem("3 + 4 - 2", answer="5", id="sum")


def toy(
    plan: str = "best_of_n(n=8) | majority",
    *,
    seed: int = 0,
    budget: int = 8,
    problem: Problem = SUM,
    error: float = 0.0,
    **more: Any,
) -> Solution:
    verifiers = {"main": ToyVerifier(error=error)}
    return solve(
        make_run(problem, Budget(samples=budget), plan, ToyBackend(SLIPS), seed=seed, verifiers=verifiers, **more)
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def exported(solution: Solution, form: str, folder: Path, **filters: Any) -> list[dict[str, Any]]:
    written = solution.export(folder / "rows.jsonl", form, **filters)
    rows = rows_of(folder / "rows.jsonl")
    assert written.rows == len(rows)
    assert all(set(row) == set(FORMS[form].columns) for row in rows)
    return rows


def drawn(solution: Solution) -> list[Candidate]:
    return sorted(solution.candidates, key=lambda one: one.index)


@pytest.fixture(scope="module")
def solution() -> Solution:
    return next(
        one for one in (toy(seed=seed) for seed in range(20)) if 3 <= sum(c.answer == "5" for c in one.candidates) <= 5
    )


# Forms ----------------------------------------------------------------------------------------------------------------


def test_texts_that_are_right_become_completions_and_chats(solution: Solution, tmp_path: Path) -> None:
    right = [one.trajectory.full_text for one in drawn(solution) if one.answer == "5"]
    assert exported(solution, "trl-sft", tmp_path) == [{"prompt": "3 + 4 - 2", "completion": text} for text in right]
    assert [row["messages"] for row in exported(solution, "chat", tmp_path)] == [
        [{"role": "user", "content": "3 + 4 - 2"}, {"role": "assistant", "content": text}] for text in right
    ]
    assert len(exported(solution, "trl-sft", tmp_path, keep="all")) == 8
    (best,) = exported(solution, "trl-sft", tmp_path, keep="best")
    assert best["completion"] == solution.text


def test_pairs_have_a_right_and_a_wrong_text_and_labels_are_verdicts(solution: Solution, tmp_path: Path) -> None:
    answers = {one.trajectory.full_text: one.answer for one in solution.candidates}
    pairs = exported(solution, "trl-dpo", tmp_path)
    assert len(pairs) == min(Counter(one.answer == "5" for one in solution.candidates).values())
    assert all(answers[row["chosen"]] == "5" != answers[row["rejected"]] for row in pairs)
    labelled = exported(solution, "trl-kto", tmp_path)
    assert [row["label"] for row in labelled] == [one.answer == "5" for one in drawn(solution)]


def test_a_step_is_labelled_by_the_samples_that_have_it(solution: Solution, tmp_path: Path) -> None:
    rows = exported(solution, "trl-prm", tmp_path)
    paths = [tuple(line for line in one.trajectory.full_text.splitlines()) for one in drawn(solution)]
    rights = [one.answer == "5" for one in drawn(solution)]
    for row, path in zip(rows, paths, strict=True):
        assert tuple(row["completions"]) == path
        shares = [
            np.mean([right for other, right in zip(paths, rights, strict=True) if other[: i + 1] == path[: i + 1]])
            for i in range(len(path))
        ]
        assert row["soft_labels"] == pytest.approx(shares)
        assert row["labels"] == [share > 0 for share in shares]
    scored = exported(toy("best_of_n(n=8) | weighted", error=0.1, seed=3), "trl-prm", tmp_path, judge="score")
    assert {value for row in scored for value in row["soft_labels"]} <= {0.1, 0.9}
    assert all(row["labels"] == [value >= 0.5 for value in row["soft_labels"]] for row in scored)


def test_a_problem_is_one_prompt_for_grpo(solution: Solution, tmp_path: Path) -> None:
    assert exported(solution, "trl-grpo", tmp_path) == [{"prompt": "3 + 4 - 2", "answer": "5"}]


def test_a_tree_has_each_node_once_with_what_the_search_knew(tmp_path: Path) -> None:
    found = toy("particle_filter(n=4)", budget=40, error=0.1, seed=2)
    (row,) = exported(found, "tree", tmp_path)
    assert [node["node"] for node in row["nodes"]] == list(range(len(found.trace.nodes)))
    for node, known in zip(row["nodes"], found.trace.nodes, strict=True):
        for name in ("parent", "text", "status", "pruned"):
            assert node[name] == getattr(known, name)
        assert tuple(node["ids"]) == known.token_ids
        assert node["scores"] == [{"verifier": role, "values": list(values)} for role, values in known.scores.items()]
    levels = row["levels"]
    assert [level["kind"] for level in levels] == ["resampled", "resampled", "ended"]
    children = Counter(node["parent"] for node in row["nodes"])
    assert all(
        children[level["nodes"][place]] == count
        for level in levels[:-1]
        for place, count in Counter(level["ancestors"]).items()
        if count > 1
    )
    assert row["temperature"] == 1.0


# Tokens ---------------------------------------------------------------------------------------------------------------


def test_tokens_decode_to_the_text_and_their_probabilities_are_those_of_a_fresh_forward_pass(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tokenizer, temperature = tiny_tokenizer(), 0.7
    model = tiny_model(len(tokenizer))
    run = make_run(
        Problem("Say something.", id="a"),
        Budget(tokens=400),
        "best_of_n(n=4) | majority",
        engine_of(model, tokenizer),
        temperature=temperature,
    )
    found = solve(change_setup(run, sampling_logprobs=True))
    rows = exported(found, "tokens", tmp_path)
    assert len(rows) >= 2
    for row in rows:
        ids, before = row["ids"], row["prompt_ids"]
        # a cut ends in a character
        assert tokenizer.decode(ids, skip_special_tokens=True).rstrip("\ufffd") == row["text"].rstrip("\ufffd")
        with torch.no_grad():
            logits = model(torch.tensor([before + ids])).logits[0, len(before) - 1 : -1].double()
        for values, scale in ((row["logprobs"], 1.0), (row["sampling_logprobs"], temperature)):
            law = torch.log_softmax(logits / scale, -1)[torch.arange(len(ids)), torch.tensor(ids)].numpy()
            np.testing.assert_allclose(values, law, atol=1e-5)
        assert row["mask"] == [1] * len(ids)
    plain = solve(run)
    assert [c.trajectory.token_ids for c in drawn(plain)] == [c.trajectory.token_ids for c in drawn(found)]
    assert all(row["sampling_logprobs"] is None for row in exported(plain, "tokens", tmp_path))


def test_a_thought_is_kept_dropped_or_masked(tmp_path: Path) -> None:
    language = ToyLanguage(thoughts=True)
    found = solve(make_run(SUM, Budget(samples=4), "best_of_n(n=4) | majority", ToyBackend(language)))
    kept, dropped = (exported(found, "trl-sft", tmp_path, thoughts=how, keep="all") for how in ("keep", "drop"))
    for row, short, one in zip(kept, dropped, drawn(found), strict=True):
        assert row["completion"] == one.trajectory.full_text
        assert short["completion"] == one.trajectory.response
        assert "<think>" not in short["completion"]
    for row, plain in zip(
        exported(found, "tokens", tmp_path, thoughts="mask"), exported(found, "tokens", tmp_path), strict=True
    ):
        first = row["mask"].index(1)
        assert row["mask"] == [0] * first + [1] * (len(row["ids"]) - first)
        assert plain["mask"] == [1] * len(row["ids"])
        assert 0 < first < len(row["ids"])
    with pytest.raises(ConfigError, match=r"thoughts.*'mask',.*masks"):
        found.export(tmp_path / "x.jsonl", "trl-sft", thoughts="mask")
    with pytest.raises(ConfigError, match=r"thoughts.*'drop',.*hold"):
        found.export(tmp_path / "x.jsonl", "tokens", thoughts="drop")


def test_text_that_the_model_did_not_write_is_masked(tmp_path: Path) -> None:
    class Forced(tts.Strategy):
        async def run(self, search: tts.Search) -> Any:
            (begun,) = await search.extend([search.root], "3 + 4 = 7\n")
            return await search.complete([begun], n=1)

    found = solve(make_run(SUM, Budget(tokens=200), Forced(), ToyBackend()))
    (row,) = exported(found, "tokens", tmp_path)
    forced = len(found.trace.nodes[1].token_ids)
    assert forced > 0
    assert row["mask"] == [0] * forced + [1] * (len(row["ids"]) - forced)
    assert row["logprobs"][:forced] == [0.0] * forced


# Importance -----------------------------------------------------------------------------------------------------------


def exact(f: Any) -> float:
    """Return the mean of the odds of a solution times f of its answer, under the toy: two steps, each right with
    probability .6.
    """
    odds = 0.9 / 0.1
    return sum(p * (odds if slips == 0 else 1 / odds) * f(slips == 0) for slips, p in ((0, 0.36), (1, 0.48), (2, 0.16)))


@pytest.mark.slow
@repeats(150, 1500)
@pytest.mark.parametrize(
    "plan",
    [
        "particle_filter(n=4, target='last')",
        "particle_filter(n=6, resampling='systematic', target='last', resample_below=0.5)",
    ],
)
def test_weights_of_particles_estimate_the_normalizing_constant_and_the_mean_reward(plan: str, runs: int) -> None:
    constants, rewards = list[float](), list[float]()
    verifier = {"main": Honest()}
    for number in range(runs):
        problem = Problem("3 + 4 - 2", answer="5", id=f"p{number}")
        found = solve(make_run(problem, Budget(samples=60), plan, ToyBackend(SLIPS), verifiers=verifier))
        samples = search_rows(found.trace, tts.tasks.get("arithmetic"), reference="5").samples
        assert all(sample.weight is not None for sample in samples)
        constants.append(sum(sample.weight or 0.0 for sample in samples))
        rewards.append(sum(sample.weight or 0.0 for sample in samples if sample.right))
    for values, truth in ((constants, exact(lambda right: 1.0)), (rewards, exact(float))):
        error = np.std(values, ddof=1) / math.sqrt(runs)
        assert np.mean(values) == pytest.approx(truth, abs=4 * error)
        assert error < 0.1 * truth  # so that the test can fail


class Honest(ToyVerifier):
    """Scores .9 while all steps are right, else .1."""

    def _judge(self, problem: Problem, t: Any, steps: Any, truth: Any) -> tuple[float, ...]:
        return tuple(0.9 if right > 0 else 0.1 for right in truth)


def test_paths_have_no_weight_where_the_theory_gives_none() -> None:
    task = tts.tasks.get("arithmetic")
    """A weight that only some searches have would be biased: these searches are not like the others."""
    plans = ("rebase(n=4)", "rebase(n=4, balance_temperature=5.0)", "ets(n=4)", "entropic_particle_filter(n=4)")
    plans += ("particle_filter(n=4)", "particle_gibbs(n=3)", "parallel_tempering(n=2)")
    for plan in plans:
        for seed in range(3):
            samples = search_rows(toy(plan, budget=60, error=0.1, seed=seed).trace, task).samples
            assert all(sample.weight is None for sample in samples), plan
    assert all(sample.weight is None for sample in search_rows(toy().trace, task).samples)


# Filters --------------------------------------------------------------------------------------------------------------


def made(
    answers: str, *, scores: Any = None, problem: str = "p", prompt: Any = "ask", model: str = "m", texts: Any = None
) -> SearchRows:
    """Return a search with a sample for each letter; "a" is right, "-" is no answer."""
    samples = [
        PathSample(
            prompt=prompt,
            text=f"{letter}{i}" if texts is None else texts[i],
            answer=None if letter == "-" else letter,
            right=letter == "a",
            score=None if scores is None else scores[i],
            steps=(letter,),
            is_best=i == 0,
        )
        for i, letter in enumerate(answers)
    ]
    return SearchRows(
        problem=problem,
        prompt=prompt,
        reference="a",
        model=model,
        strategy="s",
        seed=0,
        budget="tokens=1",
        samples=samples,
    )


def completions(searches: list[SearchRows], folder: Path, form: str = "trl-sft", **filters: Any) -> list[str]:
    export_searches(searches, folder / "f.jsonl", form, Filters(**filters))
    return [row["completion"] for row in rows_of(folder / "f.jsonl")]


def test_filters(tmp_path: Path) -> None:
    assert completions([made("aab")], tmp_path) == ["a0", "a1"]
    assert completions([made("abc", scores=[0.2, 0.9, 0.6])], tmp_path, judge="score") == ["b1", "c2"]
    assert completions([made("abc", scores=[0.2, 0.9, 0.6])], tmp_path, judge="score", threshold=0.7) == ["b1"]
    assert completions([made("aaa"), made("aa"), made("a", problem="q")], tmp_path, per_problem=2) == ["a0", "a1", "a0"]
    assert completions(
        [made("aaa", texts="xyx"), made("aa", texts="yz"), made("a", texts="x", problem="q")], tmp_path, distinct=True
    ) == list("xyzx")
    assert completions([made("aabac-")], tmp_path, keep="all", balanced=True) == ["a0", "b2", "c4"]
    # a limit of rows is divided equally over balanced answers
    assert completions([made("aaabbb")] * 2, tmp_path, keep="all", balanced=True, per_problem=4) == [
        "a0", "b3", "a1", "b4",
    ]  # fmt: skip
    assert completions([made("ab")], tmp_path, keep="best") == ["a0"]
    export_searches([made("aabb", scores=[0.5, 0.9, 0.3, 0.8])], tmp_path / "f.jsonl", "trl-dpo", Filters(margin=0.15))
    assert [(row["chosen"], row["rejected"]) for row in rows_of(tmp_path / "f.jsonl")] == [("a0", "b2")]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    unknown = dataclasses.replace(made("aab"), reference=None)
    unknown = dataclasses.replace(unknown, samples=[dataclasses.replace(one, right=None) for one in unknown.samples])
    written = export_searches([made("ab"), unknown], tmp_path / "f.jsonl", "trl-kto", Filters())
    assert (written.rows, written.left_out) == (2, {"samples without a verdict": 3})
    assert str(written).endswith("left out: 3 samples without a verdict")
    assert "| left out: samples without a verdict | 3 |" in (tmp_path / "f.md").read_text()
    written = export_searches(
        [made("ab"), dataclasses.replace(unknown, problem="q")], tmp_path / "f.jsonl", "trl-grpo", Filters()
    )
    assert (written.rows, written.left_out) == (1, {"problems without a reference answer": 1})
    with pytest.raises(ConfigError, match=r"trl-kto.*1 searches:.*verdict"):
        export_searches([unknown], tmp_path / "none.jsonl", "trl-kto", Filters())
    assert not (tmp_path / "none.jsonl").exists()
    assert not (tmp_path / "none.md").exists()


def test_rows_that_are_known_to_be_wrong_are_counted(tmp_path: Path) -> None:
    by_score: dict[str, Any] = {"judge": "score", "keep": "all"}
    for form, filters, count in (
        ("trl-sft", {"keep": "best"}, 1),
        ("chat", {"keep": "all"}, 2),
        ("trl-sft", {}, 0),
        ("trl-kto", {}, 0),
        ("trl-kto", by_score, 1),
        ("trl-dpo", by_score, 1),
    ):
        searches = [made("bab", scores=[0.9, 0.1, 0.2])]
        written = export_searches(searches, tmp_path / "f.jsonl", form, Filters(**filters))
        assert (written.wrong, str(written).endswith(f"; known to be wrong: {count} rows")) == (count, count > 0)
        assert (f"| rows known to be wrong | {count} |" in (tmp_path / "f.md").read_text()) == (count > 0)


def test_what_cannot_be_written_is_refused_before(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"form": "trl-stf"}, "form is 'trl-stf', but no form has that name"),
        ({"path": tmp_path / "x.csv"}, "must end in .jsonl or .parquet"),
        ({"margin": 0.1}, "margin was given, but the form trl-sft does not use it"),
        ({"threshold": 0.7}, "threshold was given, but verdicts have none"),
        ({"keep": "some"}, "keep is 'some', but must be"),
        ({"per_problem": 0}, "per_problem is 0, but must be"),
        ({"form": "tokens"}, "no row of the form tokens is left of 1 searches: 2 samples without token ids"),
        ({"form": "tree"}, "no row of the form tree is left of 1 searches: 1 searches without token ids"),
    ]
    for given, told in cases:
        path, form = given.pop("path", tmp_path / "x.jsonl"), given.pop("form", "trl-sft")
        with pytest.raises(ConfigError, match=told):
            export_searches([made("aa")], path, form, Filters(**given))
    with pytest.raises(ConfigError, match=r"searches.*'m'.*'n'"):
        export_searches([made("a"), made("a", model="n")], tmp_path / "x.jsonl", "trl-sft", Filters())
    with pytest.raises(TypeError, match="distnct"):
        Filters(distnct=True)  # type: ignore[call-arg]
    assert not list(tmp_path.iterdir())


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("form", list(FORMS))
def test_both_files_have_the_same_rows_and_datasets_streams_them(form: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("pyarrow")
    found = toy("particle_filter(n=4)", budget=60, error=0.1, seed=1)
    record = search_rows(found.trace, tts.tasks.get("arithmetic"), reference="5")
    chat = (Message("system", "Be brief."), Message("user", "3 + 4 - 2 \ud800"))
    searches = [dataclasses.replace(record, problem=f"p{i}") for i in range(3)]
    if not FORMS[form].tokens:
        samples = [
            dataclasses.replace(one, prompt=chat, right=i % 2 == 0, text=f"{one.text}{i}")
            for i, one in enumerate([*record.samples] * 2)
        ]
        searches = [dataclasses.replace(one, prompt=chat, samples=samples) for one in searches]
    read = []
    for kind, reader in (("jsonl", "json"), ("parquet", "parquet")):
        path = tmp_path / f"rows.{kind}"
        written = export_searches(searches, path, form, Filters())
        read.append(list(datasets.load_dataset(reader, data_files=str(path), split="train", streaming=True)))
        assert len(read[-1]) == written.rows
    assert read[0] == read[1]


def test_the_card_says_how_rows_were_made(tmp_path: Path) -> None:
    facts = {"licence": "MIT", "study": "a|b"}
    export_searches([made("aab")], tmp_path / "rows.jsonl", "trl-sft", Filters(distinct=True), facts=facts)
    card = (tmp_path / "rows.md").read_text()
    for line in (
        'license: "MIT"',
        "| rows | 2 |",
        "| strategy | s |",
        "| budget | tokens=1 |",
        "| seed | 0 |",
        "| temperature | unknown |",
        "| study | a\\|b |",
        "| filter distinct | True |",
    ):
        assert line in card


_LARGE = """
import resource, sys
from tests.addons.training.test_export import made
from tts_addons.training.filters import Filters
from tts_addons.training.writing import export_searches
import dataclasses
def peak():  # ru_maxrss of a child begins as that of the process that started it
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
texts = lambda i: [f"{i}.{j} " + "word " * 400 for j in range(64)]
searches = (dataclasses.replace(made("a" * 64, texts=texts(i)), problem=str(i)) for i in range(8400))
written = export_searches(searches, sys.argv[1], "trl-sft", Filters(distinct=True, per_problem=64))
print(written.rows, peak() // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_file_of_a_gibibyte_is_written_within_500_mib(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / f"large.{kind}"
    done = subprocess.run([sys.executable, "-c", _LARGE, str(path)], capture_output=True, text=True, check=True)
    rows, mebibytes = map(int, done.stdout.split())
    assert rows == 8400 * 64
    assert kind == "parquet" or path.stat().st_size > 1 << 30
    assert mebibytes < 500


def test_a_backend_without_token_ids_has_the_forms_of_texts_alone(tmp_path: Path) -> None:
    """A function writes texts, as servers without token ids do."""
    answers = iter(["3 + 4 = 7\n7 - 2 = 5\nA: 5", "3 + 4 = 8\n8 - 2 = 6\nA: 6"] * 8)
    with tts.Solver(lambda prompt: next(answers), {}, task="arithmetic") as solver:
        found = solver.solve(SUM, tts.Budget(samples=4), strategy="best_of_n(n=4) | majority")
    for form, count in (("trl-sft", 2), ("trl-dpo", 2), ("trl-kto", 4), ("trl-prm", 4), ("trl-grpo", 1), ("chat", 2)):
        assert len(exported(found, form, tmp_path)) == count, form
    with pytest.raises(ConfigError, match="no row of the form tokens is left of 1 searches: 4 samples without token"):
        found.export(tmp_path / "tokens.jsonl", "tokens")


def test_tokens_of_other_models_than_the_policy_are_left_out(tmp_path: Path) -> None:
    """Two models may have two tokenizers, and a file has the tokens of one."""

    class Both(tts.Strategy):
        async def run(self, search: tts.Search) -> Any:
            await search.complete([search.root], n=2)
            await search.complete([search.root], n=2, model="small")

    with tts.Solver({"policy": ToyBackend(SLIPS), "small": ToyBackend(SLIPS)}, {}, task="arithmetic") as solver:
        found = solver.solve(SUM, 400, strategy=Both())
    assert {node.model for node in found.trace.nodes} == {"policy", "small"}
    assert len(exported(found, "trl-kto", tmp_path)) == 4
    assert len(exported(found, "tokens", tmp_path)) == 2
    with pytest.raises(ConfigError, match=r"1.*several"):
        found.export(tmp_path / "tree.jsonl", "tree")
