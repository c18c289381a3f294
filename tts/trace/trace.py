"""The record of a search: every node and every call, as a networkx graph, as JSON, and as one page.

A trace is plain data. Two runs with the same seed give equal `canonical` records whatever else was in their batch; only
times and cancelled tokens, which depend on timing, are left out of that record.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tts._common.characters import HALVES
from tts._common.files import Exported
from tts._core.display import cell, grid, one_line
from tts.budget.ledger import Call
from tts.errors import ConfigError
from tts.registry import find_own
from tts.search.ends import Level
from tts.tasks.base import Task
from tts.trace.html import render
from tts.trace.node import TraceNode, plain_values, unstored_field
from tts.trace.receipt import NOT_RECORDED, PartAnswers, Receipt, parts_of, receipt_of
from tts.types import Usage
from tts.verifiers.base import Judgement

if TYPE_CHECKING:
    import networkx

FORMAT = 1
_SHOWN_CALLS = 20  # calls in a notebook
_TIMED = frozenset({"seconds", "work_seconds", "cancelled_tokens", "flops", "usd"})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trace:
    """The record of one search.

    Args:
        problem: The text of the problem.
        task: The name of the task.
        model: The name of the policy.
        strategy: The plan, as text.
        seed: The seed of the run.
        answer: The answer; None: there is none.
        confidence: The confidence, as in `Solution.confidence`.
        stopped_by: Why it ended.
        budget: The limits, as text.
        nodes: The nodes in order of their numbers.
        calls: The ledger.
        usage: The total of the ledger.
        warnings: What users should know, as in `Solution.warnings`.
        kept_tokens: The number of distinct prefix tokens of the live set, each time that the strategy chose what it
            keeps.
        reasons: Why the search went on as it did, in the words of a strategy that decides (`auto`).
        judgements: The prompts of verifiers to models, with the replies, and those that were too long to be shown.
        parts: What parts of the samples would have answered (`receipt`).
        levels: How the search divided its texts by weights. Files have neither this field nor `temperature`.
        temperature: The temperature of the run; that of a strategy stands in its text.
    """

    problem: str
    task: str
    model: str
    strategy: str
    seed: int
    budget: str
    answer: str | None
    confidence: float
    stopped_by: str
    nodes: Sequence[TraceNode]
    calls: Sequence[Call]
    usage: Usage
    warnings: tuple[str, ...] = ()
    kept_tokens: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    parts: PartAnswers = dataclasses.field(default_factory=lambda: PartAnswers(NOT_RECORDED))
    levels: tuple[Level, ...] = unstored_field(())
    temperature: float | None = unstored_field(None)

    def __repr__(self) -> str:
        """One line: what ran, how large it is, and how it ended."""
        return (
            f"Trace(strategy={one_line(self.strategy)}, model={self.model!r}, nodes={len(self.nodes)}, "
            f"calls={len(self.calls)}, "
            f"answer={one_line(self.answer)}, stopped_by={self.stopped_by!r})"
        )

    def _repr_html_(self) -> str:
        rows: list[tuple[Any, ...]] = []
        for call in self.calls[:_SHOWN_CALLS]:
            usage = call.usage
            numbers = (f"{usage.tokens:,}", f"{usage.prompt_tokens:,}", f"{usage.seconds:.3g}")
            rows.append((call.kind, call.model, call.rows, *numbers))
        num_hidden = len(self.calls) - _SHOWN_CALLS
        if num_hidden > 0:
            rows.append((f"{num_hidden:,} more", "", "", "", "", ""))
        return f"<p>{cell(repr(self))}</p>" + grid(("call", "model", "rows", "tokens", "tokens in", "seconds"), rows)

    def receipt(self) -> Receipt:
        """Return what each phase of the search cost, and what parts of its samples would have answered."""
        return receipt_of(self.calls, self.usage, self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the trace with its receipt as plain values; NaN and unknown values are None."""
        plain = dataclasses.replace(self, nodes=tuple(self.nodes), calls=tuple(self.calls))
        record: dict[str, Any] = {"format": FORMAT, **plain_values(plain)}
        del record["parts"]
        record["receipt"] = plain_values(self.receipt())
        if not record["judgements"]:
            del record["judgements"]
        for node in record["nodes"]:
            for name in ("thought", "outcomes", "notes"):
                if not node[name]:
                    del node[name]
        return record

    def to_json(self) -> str:
        """Return the trace as JSON that can be encoded as UTF-8; `from_json` reads it back.

        Lone surrogates are escaped.
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
        return text if text.isascii() else HALVES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Return the trace that `to_json` wrote.

        Raises:
            ConfigError: the text is no trace, or a trace of another format.
        """
        try:
            data: dict[str, Any] = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ConfigError(
                    "the trace has another format than this version reads", hint=f"write it again with format {FORMAT}"
                )
            data["nodes"] = tuple(_node(node) for node in data["nodes"])
            data["calls"] = tuple(_call(call) for call in data["calls"])
            data["usage"] = _usage(data["usage"])
            for name in ("warnings", "kept_tokens", "reasons"):
                data[name] = tuple(data.get(name, ()))
            data["parts"] = parts_of(data.pop("receipt", None))
            data["judgements"] = tuple(_judgement(judgement) for judgement in data.get("judgements", ()))
            if data["confidence"] is None:
                data["confidence"] = math.nan
            return cls(**data)
        except ConfigError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as failure:
            raise ConfigError(f"the text is no trace: {failure}") from None

    def canonical(self) -> dict[str, Any]:
        """Return the record that the same seed gives again, without times and cancelled tokens."""
        record = self.to_dict()
        usages = [record["usage"], *(call["usage"] for call in record["calls"])]
        for usage in usages:
            for name in _TIMED:
                del usage[name]
        record["receipt"] = {name: record["receipt"][name] for name in ("parts", "reason")}
        return record

    def to_networkx(self) -> networkx.DiGraph:
        """Return the tree as a directed graph from parent to child; node attributes are those of `TraceNode`."""
        import networkx

        graph = networkx.DiGraph(problem=self.problem, strategy=self.strategy, answer=self.answer)
        for node in self.nodes:
            names = [field.name for field in dataclasses.fields(node) if field.name != "node"]
            graph.add_node(node.node, **{name: getattr(node, name) for name in names})
            if node.parent is not None:
                graph.add_edge(node.parent, node.node)
        return graph

    def to_html(self) -> str:
        """Return one self-contained page: the tree with scores and tokens, the answer, the ledger.

        The page loads nothing else.
        """
        return render(self.to_dict(), winning_node(self))

    def export(
        self,
        path: str | Path,
        form: str,
        *,
        problem: str | None = None,
        reference: str | None = None,
        task: Task | None = None,
        **filters: Any,
    ) -> Exported:
        """Write the search as rows for trainers, and a card beside the rows; see docs/how-to/training_data.md.

        Args:
            path: The file; it ends in .jsonl or .parquet.
            form: "trl-sft", "trl-dpo", "trl-kto", "trl-prm", "trl-grpo", "chat", "tokens" or "tree".
            problem: The id of the problem; None: its text.
            reference: The reference answer, which verdicts need; None: unknown.
            task: The task that judges and finds steps; None: the task that the trace names.
            filters: Fields of `tts_addons.training.filters.Filters`, such as keep, distinct and per_problem.

        Raises:
            ConfigError: the form, the ending or a filter is unknown, no row is left, or the form needs tokens, which a
                trace from a file does not have.
        """
        export_trace = find_own("tts_addons.training.writing:export_trace")
        return export_trace(self, path, form, problem=problem, reference=reference, task=task, **filters)

    def record(
        self, task: Task, problem: str | None = None, reference: str | None = None, verifier: str | None = None
    ) -> Any:
        """Return the record of the search from which rows for trainers are made, a `SearchRows`.

        Args:
            task: The task that judges answers and finds steps.
            problem: The id of the problem; None: its text.
            reference: The reference answer; None: unknown.
            verifier: The role whose scores are read; None: the first that scored.
        """
        return find_own("tts_addons.training.records:search_rows")(self, task, problem, reference, verifier)

    def save(self, path: str | Path) -> None:
        """Write the trace as HTML or JSON, by the ending of the path.

        Raises:
            ConfigError: another ending, or a place that cannot be written.
        """
        path = _with_suffix(path)
        writers = {".html": self.to_html, ".json": self.to_json}
        try:
            path.write_text(writers[path.suffix](), encoding="utf-8")
        except OSError as failure:
            raise _unwritable(path, failure) from None


def winning_node(trace: Trace) -> int | None:
    """Return the node that the answer was taken from.

    The node is the heaviest candidate with exactly this answer; of equally heavy candidates, the first.

    Returns:
        The number of the node; None without an answer, or where no candidate has the answer in the same words.
    """
    if trace.answer is None:
        return None
    candidates = [node for node in trace.nodes if node.candidate is not None and node.answer == trace.answer]
    return min(candidates, key=_rank).node if candidates else None


def _rank(node: TraceNode) -> tuple[float, int]:
    weight = -math.inf if node.weight is None or math.isnan(node.weight) else node.weight
    return (-weight, node.candidate or 0)


def check_path(path: str | Path) -> None:
    """Refuse, before a search is paid for, a path that `Trace.save` could not write.

    The file is left as it was.

    Raises:
        ConfigError: another ending than .html or .json, or a place that cannot be written.
    """
    path = _with_suffix(path)
    existed = path.exists() or path.is_symlink()
    try:
        path.open("a").close()
    except OSError as failure:
        raise _unwritable(path, failure) from None
    if not existed:
        path.unlink()


def _with_suffix(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix not in (".html", ".json"):
        raise ConfigError(
            f"the trace file is {str(path)!r}, but must end in .html or .json",
            hint="search.html is a page that draws the tree; search.json has all data",
        )
    return path


def _unwritable(path: Path, failure: OSError) -> ConfigError:
    hint = "name a place that can be written" if path.parent.is_dir() else f"make the folder {str(path.parent)!r} first"
    return ConfigError(f"the trace file {str(path)!r} cannot be written: {failure.strerror}", hint=hint)


def _scores(scores: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {role: tuple(float("nan") if s is None else s for s in values) for role, values in scores.items()}


def _node(record: dict[str, Any]) -> TraceNode:
    record |= {name: _scores(record.get(name, {})) for name in ("scores", "outcomes")}
    record["notes"] = {role: str(note) for role, note in record.get("notes", {}).items()}
    return TraceNode(**record)


def _judgement(record: dict[str, Any]) -> Judgement:
    record["replies"] = tuple(record["replies"])
    return Judgement(**record)


def _call(record: dict[str, Any]) -> Call:
    record["usage"] = _usage(record["usage"])
    return Call(**record)


def _usage(record: dict[str, Any]) -> Usage:
    """Return a usage; requests are unknown in traces of versions that did not count them."""
    fields: dict[str, Any] = {"requests": None, **record}
    return Usage(**fields)
