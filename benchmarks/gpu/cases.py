"""The cases of each part.

A case returns a dictionary for JSON. A figure that it cannot have is a reason in one line, as `absent` or an
exception.
"""

from __future__ import annotations

import gc
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from benchmarks.engine.facts import facts, floor_s
from benchmarks.engine.peer_ours import Ours
from benchmarks.engine.protocol import replay
from benchmarks.engine.replay import Replayed, Replayer
from benchmarks.engine.transformers_trees import Generate
from benchmarks.engine.workloads import WORKLOADS, template
from benchmarks.gpu.ceilings import measure_ceilings
from benchmarks.gpu.models import DTYPES, Loaded, load_both

ROOT = Path(__file__).parents[2]
READ = 64  # tokens whose probabilities are compared at each reading
TOLERANCE = 1e-3  # of |ln p| in float32
ROUNDING = 1.5  # times transformers' own mean error in bfloat16 that the engine's may be, and as much as `_LEAST` more
_LEAST = 1e-3
BATCHES = (1, 3, 17)
MOST_SLOWER = 1.34  # strict over fast, in seconds
KERNELS = ("attention", "rope", "uniforms", "draws", "strict", "graphs")  # of tests/gpu, by words of their names
_REAL, _RANDOM = ("pocket", "smollm2"), ("qwen2.5-1.5b", "qwen2.5-7b")
_SIZES: dict[str, dict[str, int]] = {"W4": {"expansions": 40}}  # a fifth of its own: `generate` takes a call for each
_ROWS = 256  # most rows under way, as the engine's default on a device
_BUFFERS = 1 << 28  # bytes of a budget that graphs may keep for themselves


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Args:
        device: "cuda" or "cpu".
        smoke: Whether sizes are the smallest.
    """

    device: str
    smoke: bool

    @property
    def precision(self) -> str:
        return "bfloat16" if self.device == "cuda" else "float32"

    @property
    def size(self) -> str:
        return "smoke" if self.smoke else "full"

    def tree(self, workload: str, vocabulary: int) -> dict[str, Any]:
        return template(
            workload, size=self.size, vocabulary=vocabulary, **({} if self.smoke else _SIZES.get(workload, {}))
        )


def names(part: str, *, smoke: bool, device: str) -> list[str]:
    """Return the cases of a part, in order."""
    precisions = ("float32", "bfloat16") if device == "cuda" else ("float32",)
    models, real = (("tiny",), _REAL[:1]) if smoke else (_RANDOM, _REAL)
    trees = [name for name in WORKLOADS if name != "W0"]
    return {
        "kernels": list(KERNELS[:1] if smoke else KERNELS),
        "agreement": [f"{model} {precision}" for model in (*real, *models) for precision in precisions],
        "strict": [f"{models[0]} W1", f"{models[0]} W2", *(f"{model} W1" for model in models[1:])],
        "workloads": [f"{models[0]} {name}" for name in trees]
        + [f"{model} {name}" for model in models[1:] for name in trees[:2]],
    }[part]


# kernels --------------------------------------------------------------------------------------------------------------


def kernels(words: str, settings: Settings) -> dict[str, Any]:
    """Run the tests of tests/gpu whose names have some words, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = (
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "filterwarnings=default",
            "-k",
            words,
            f"--junitxml={report}",
        )
        done = subprocess.run(
            [sys.executable, *command, "tests/gpu"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if not report.is_file():
            raise RuntimeError(
                f"pytest ended with status {done.returncode}: {(done.stdout + done.stderr).strip().splitlines()[-1:]}"
            )
        found = outcome(report)
    if settings.device == "cuda" and not found["passed"]:
        raise RuntimeError(f"no test passed: {found['reasons'] or done.stdout.strip().splitlines()[-1:]}")
    return found


def outcome(report: Path) -> dict[str, Any]:
    """Return the numbers of a JUnit file, and the first line of each reason of a failed or skipped test."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None, "pytest writes one suite"
    tests, errors, failed, skipped = (int(suite.get(key, 0)) for key in ("tests", "errors", "failures", "skipped"))
    reasons: dict[str, str] = {}
    for test in suite.iter("testcase"):
        for found in test:
            if found.tag in ("failure", "error", "skipped"):
                message = found.get("message") or ""
                told = (found.text or "") if message == "collection skipped" else message
                reasons[f"{test.get('name')}"] = " ".join(told.split())[:300]
    return {
        "passed": tests - errors - failed - skipped,
        "failed": failed + errors,
        "skipped": skipped,
        "reasons": reasons,
    }


# agreement ------------------------------------------------------------------------------------------------------------


def agreement(name: str, settings: Settings) -> dict[str, Any]:
    """Compare log-probabilities behind decoded paths with transformers' on the same weights."""
    model, precision = name.split()
    both = load_both(model, precision, settings.device)
    sizes = {} if settings.smoke else {"prompt": 270, "tokens": 24}  # longer than the run at which attention is cut
    tree = template("W0", vocabulary=both.vocabulary, **sizes)
    asked = list(range(0, both.vocabulary, max(1, both.vocabulary // READ)))[:READ]
    for op in tree["ops"]:
        if op["op"] == "score":
            op["ids"] = asked
    ours = replay(_ours(both, tree, settings, precision), tree)["readings"]
    theirs = _replay_transformers(both, tree)
    if precision == "float32":
        return compare(ours, theirs)
    both.model.float()  # the weights as bfloat16 has rounded them
    return compare(ours, _replay_transformers(both, tree), theirs)


def compare(
    ours: Sequence[Sequence[float]], exact: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]] | None = None
) -> dict[str, Any]:
    """Return differences of |ln p|, and whether they are within the tolerance.

    Args:
        ours: The probabilities by the engine.
        exact: The probabilities by transformers in float32.
        theirs: The probabilities by transformers in the engine's precision; None: that is float32.
    """
    mine = _differences(ours, exact)
    figures: dict[str, Any] = {"readings": len(mine), "worst": max(mine), "mean": statistics.fmean(mine)}
    if theirs is None:
        return {**figures, "tolerance": f"worst {TOLERANCE}", "agrees": figures["worst"] <= TOLERANCE}
    other = _differences(theirs, exact)
    most = ROUNDING * statistics.fmean(other) + _LEAST
    figures |= {"worst_of_transformers": max(other), "mean_of_transformers": statistics.fmean(other)}
    return {**figures, "tolerance": f"mean {most:.2g}", "agrees": figures["mean"] <= most}


def _differences(some: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> list[float]:
    """Return |ln p - ln q| of every pair; infinite where one is no probability above 0."""
    pairs = [(p, q) for row, other in zip(some, others, strict=True) for p, q in zip(row, other, strict=True)]
    return [abs(math.log(p / q)) if p > 0 and q > 0 else math.inf for p, q in pairs]


def _replay_transformers(both: Loaded, tree: dict[str, Any]) -> list[list[float]]:
    with torch.inference_mode():
        return replay(Generate(both.model, _ROWS), tree)["readings"]


def _ours(
    both: Loaded, tree: dict[str, Any], settings: Settings, precision: str, *, strict: bool = False, **options: Any
) -> Ours:
    """Return our engine on a model, with memory for the tree's tokens twice: blocks are not full."""
    config = both.checkpoint.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * size * DTYPES[precision].itemsize
    tokens = 2 * facts(tree).unique + 16_384
    budget = tokens * per_token + (_BUFFERS if settings.device == "cuda" else 0)
    return Ours(
        Replayer(
            both.checkpoint,
            precision=precision,
            strict=strict,
            device=settings.device,
            kv_budget_bytes=budget,
            max_rows=_ROWS,
            **options,
        )
    )


# strict ---------------------------------------------------------------------------------------------------------------


def strict(name: str, settings: Settings) -> dict[str, Any]:
    """Replay a tree by the strict and the fast executor in turns.

    The results show that the strict executor's rows have bits of their own.
    """
    model, workload = name.split()
    both = load_both(model, settings.precision, settings.device)
    tree = settings.tree(workload, both.vocabulary)
    drivers = {
        kind: _ours(both, tree, settings, settings.precision, strict=kind == "strict") for kind in ("strict", "fast")
    }
    bits = {size: _row_bits(drivers["strict"].replayer, size, both.vocabulary) for size in BATCHES}
    seconds: dict[str, list[float]] = {kind: [] for kind in drivers}
    for repeat in range(2 if settings.smoke else 4):
        for kind, driver in drivers.items():
            found = replay(driver, tree)["seconds"]
            seconds[kind] += [found] if repeat else []
    ratio = statistics.median(seconds["strict"]) / statistics.median(seconds["fast"])
    return {
        "seconds": seconds,
        "slower": ratio,
        "aim": MOST_SLOWER,
        "batches": list(BATCHES),
        "agrees": len(set(bits.values())) == 1,
    }


def _row_bits(replayer: Replayer, batch: int, vocabulary: int, tokens: int = 12) -> str:
    """Return the probabilities after one row of some tokens, each digit of them.

    The row is written last in a batch of so many rows.
    """
    first = vocabulary // 4

    def ids(stream: int, count: int) -> list[int]:
        return [first + (stream * 131 + 17 * i) % (vocabulary // 2) for i in range(count)]

    replayer.reset()
    prompt = replayer.open(ids(0, 37))
    other = replayer.open(ids(1, 21))
    rows: list[tuple[Replayed, list[int]]] = [((prompt, other)[i % 2], ids(2 + i, 5 + i % 7)) for i in range(batch - 1)]
    made = replayer.expand([*rows, (prompt, ids(99, tokens))])
    asked = list(range(first, first + min(READ, vocabulary // 2)))
    return " ".join(float(value).hex() for value in replayer.score([made[-1]], asked)[0])


# workloads ------------------------------------------------------------------------------------------------------------


def workloads(name: str, settings: Settings) -> dict[str, Any]:
    """Replay a tree on our engine and by `generate`; say which share of its ceilings it takes."""
    model, workload = name.split()
    precision = settings.precision
    both = load_both(model, precision, settings.device)
    tree = settings.tree(workload, both.vocabulary)
    driver = _ours(both, tree, settings, precision)
    replay(driver, template("W0", vocabulary=both.vocabulary))
    runs = [replay(driver, tree) for _ in range(1 if settings.smoke else 3)]
    decoder = driver.replayer.decoder
    figures = _shares(runs, tree, decoder, measure_ceilings(settings.device, precision, smoke=settings.smoke))
    del driver, decoder
    gc.collect()
    with torch.inference_mode():
        peer = Generate(both.model, _ROWS)
        replay(peer, template("W0", vocabulary=both.vocabulary))
        theirs = replay(peer, tree)
    alike = {run["hash"] for run in [*runs, theirs]} == {tree["hash"]}
    return {
        **figures,
        "says": WORKLOADS[workload].says,
        "generate": theirs["seconds"],
        "faster": theirs["seconds"] / figures["seconds"],
        "agrees": alike,
    }


def _shares(
    runs: Sequence[dict[str, Any]], tree: dict[str, Any], decoder: Any, known: dict[str, float]
) -> dict[str, Any]:
    """Return our seconds and what they were spent on, and shares of the device's ceilings.

    The floor counts, of each step that a perfect engine would make, the greater of two times: of reading all weights
    and keys once, and of the layers' operations.
    """
    seconds = statistics.median(run["seconds"] for run in runs)
    stats, about = runs[-1]["stats"], facts(tree)
    figures = {
        "seconds": seconds,
        "least": min(run["seconds"] for run in runs),
        "greatest": max(run["seconds"] for run in runs),
        "tokens_per_s": about.generated / seconds,
        "steps": stats["steps"],
        "on_the_host": (stats["seconds_planning"] + stats["seconds_draws"]) / runs[-1]["seconds"],
    }
    layers, _ = decoder.products

    def least(rows: int, keys: int) -> float:
        moved = decoder.weight_bytes + keys * decoder.kv_shape.bytes_per_token
        return max(moved / known["read"], 2 * layers * rows / known["flops"])

    return figures | {
        "of_floor": floor_s(tree, least) / seconds,
        "of_bandwidth": (stats["weight_bytes_read"] + stats["kv_read_actual"]) / seconds / known["read"],
        "of_compute": (stats["flops_linear"] + stats["flops_attention"]) / seconds / known["flops"],
    }


CASES: dict[str, Callable[[str, Settings], dict[str, Any]]] = {
    "kernels": kernels,
    "agreement": agreement,
    "strict": strict,
    "workloads": workloads,
}
