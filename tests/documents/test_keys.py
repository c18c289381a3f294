"""Keys of YAML in documents: each is one that the code reads."""

from __future__ import annotations

import pytest

from tests.documents.foreign import FOREIGN_YAML
from tests.documents.keys import key_faults
from tests.documents.test_names import PAGES, ROOT

pytest.importorskip("torch", reason="the options of the engine are read")
pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the documents are not here")


@pytest.mark.parametrize("page", PAGES)
def test_each_key_of_a_page_is_read(page: str) -> None:
    foreign = frozenset(key for keys in FOREIGN_YAML.get(page, {}).values() for key in keys)
    faults, used = key_faults((ROOT / page).read_text(encoding="utf-8"), foreign)
    assert faults == []
    assert used == foreign, "foreign keys that the page does not write"


def test_each_page_with_foreign_keys_exists() -> None:
    assert FOREIGN_YAML.keys() <= set(PAGES)


STUDY = (
    "name: a\nmodels: {m: {model: toy}}\nproblems: {dataset: arithmetic}\nstrategies: single\nbudgets: {samples: 1}\n"
)
GATEWAY = "models:\n  toy:\n    budget: 400\n    presets: {fast: {strategy: single}}\nlimits: {tokens: 2000}\n"
WRONG = {
    STUDY + "repeats: 3\n": "repeats: StudyConfig has no key repeats",
    STUDY.replace("problems:", "problem:"): "problem: StudyConfig has no key problem",
    STUDY.replace("model: toy", "modell: toy"): "models.m.modell: ModelConfig has no key modell",
    STUDY.replace("model: toy", "model: toy, usd_inn: 0.15/M"): "models.m.usd_inn: ModelConfig has no key usd_inn",
    STUDY.replace("model: toy", "model: pocket, options: {devize: cpu}"): (
        "models.m.options.devize: models.m.options has no key devize"
    ),
    STUDY.replace("model: toy", "model: toy, sampling: {top_q: 1}"): (
        "models.m.sampling.top_q: models.m.sampling has no key top_q"
    ),
    STUDY.replace("samples: 1", "sample: 1"): "budgets.sample: budgets has no key sample",
    STUDY.replace("arithmetic}", "arithmetic, operator: +}"): (
        "problems.operator: the data set arithmetic has no parameter operator"
    ),
    STUDY.replace("arithmetic}", "mine.jsonl, fields: {question: text}}"): (
        "problems.fields.question: problems.fields has no key question"
    ),
    STUDY + "record: {text: true}\n": "record.text: RecordConfig has no key text",
    GATEWAY.replace("presets: {fast: {strategy", "presets: {fast: {plan"): (
        "models.toy.presets.fast.plan: Preset has no key plan"
    ),
    GATEWAY.replace("tokens: 2000", "token: 2000"): "limits.token: GatewayLimits has no key token",
    GATEWAY + "accounts: {a: {budget: {dollars: 1}, hours: 24}}\n": (
        "accounts.a.budget.dollars: accounts.a.budget has no key dollars"
    ),
    "models: {panel: {fusion: {model: [a, b], judge: c}}}\n": "models.panel.fusion.model: Fusion has no key model",
    "name: mine\ncommand: [agent]\ntrust_usage: {token: usage}\n": "trust_usage.token: TrustedUsage has no key token",
    "model_list: []\n": "model_list: no reader has this key",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_key_is_found(text: str) -> None:
    assert key_faults(f"```yaml\n{text}```\n")[0] == [WRONG[text]]


WRONG_SPANS = {
    "`record: {text: true}`": "record.text: RecordConfig has no key text",
    "`models: {m: {model: …, expected_token: 1500}}`": "models.m.expected_token: ModelConfig has no key expected_token",
    "`problems: {…, fields: {name: question}}`": "problems.fields.name: problems.fields has no key name",
    "`capabilities: {modes: chat}`": "capabilities.modes: capabilities has no key modes",
    "`nothing_such: {a: 1}`": "nothing_such: no reader has this key",
    "`limits.client_token`": "limits.client_token: GatewayLimits has no key client_token",
    "`--set models.mini.usd_outt=0.60/M`": "models.mini.usd_outt: ModelConfig has no key usd_outt",
    "`tts run study.yaml --set problems.limits=20`": (
        "problems.limits: the data set arithmetic has no parameter limits"
    ),
    "`--model-option usd_outt=0.60/M`": "usd_outt: no record of a model and no backend has this setting",
    "| key | meaning |\n|---|---|\n| `commands` | the program |\n": "commands: no reader has this key",
}


@pytest.mark.parametrize("text", WRONG_SPANS)
def test_a_wrong_key_of_a_span_is_found(text: str) -> None:
    assert key_faults(text)[0] == [WRONG_SPANS[text]]


RIGHT = (
    f"```yaml\n{STUDY}```\n\n```yaml\n{GATEWAY}```\n",
    "```yaml\nmodels: {m: {model: pocket, options: {device: cpu, precision: int8}, usd_in: 0.15/M}}\n```\n",
    "```yaml\nmodels: {m: {backend: 'mine:Model', options: {any: 1}}}\nproblems: {dataset: 'mine:sums', n: 3}\n```\n",
    "`record: {traces: N}`, `limits.tokens`, `--set budgets.samples=16`, `--model-option kv_gib=4`, `name: mine`",
)


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_key_is_not(text: str) -> None:
    assert key_faults(text)[0] == []


def test_a_foreign_block_is_not_read() -> None:
    text = "```yaml\nmodel_list: []\nmodels: {m: {modell: toy}}\n```\n"
    assert key_faults(text, frozenset({"model_list"})) == ([], {"model_list"})
