"""Labels of the steps of recorded candidates, known for recorded searches whose task can check steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tts import tasks
from tts.errors import ConfigError
from tts.experiments.store.bodies import search_in
from tts.experiments.verifier_report.measures import StepGold
from tts.tasks.arithmetic import countdown, reading
from tts.tasks.arithmetic.judging import judge, judge_countdown
from tts.trace.trace import Trace

_Judge = Callable[[Sequence[str]], Sequence[bool]]


def step_gold(trace_of: Callable[[str], bytes | None]) -> StepGold:
    """Return a function that labels the steps of a candidate as right or wrong.

    Each step is labelled given the steps before it.

    Args:
        trace_of: A function from a cell's key to its recorded search, as in the store; None: not recorded.
    """
    labels_by_cell: dict[str, Mapping[int, Sequence[bool]]] = {}

    def gold(key: str, place: int) -> Sequence[bool] | None:
        if key not in labels_by_cell:
            recorded = trace_of(key)
            labels_by_cell[key] = {} if recorded is None else _verdicts(search_in(key, recorded))
        return labels_by_cell[key].get(place)

    return gold


def _verdicts(trace: Trace) -> dict[int, Sequence[bool]]:
    """Return the labels of each candidate's steps, by the candidate's place."""
    judge_steps = _judge(trace.task, trace.problem)
    if judge_steps is None:
        return {}
    task = tasks.get(trace.task)
    candidate_nodes = [node for node in trace.nodes if node.candidate is not None]
    candidate_nodes.sort(key=lambda node: node.candidate or 0)
    return {place: judge_steps(task.split(_text(trace, node.node))) for place, node in enumerate(candidate_nodes)}


def _text(trace: Trace, node: int | None) -> str:
    """Return the text from the root to a node."""
    nodes = {trace_node.node: trace_node for trace_node in trace.nodes}
    texts: list[str] = []
    while node is not None and nodes[node].parent is not None:
        texts.append(nodes[node].text)
        node = nodes[node].parent
    return "".join(reversed(texts))


def _judge(task: str, problem: str) -> _Judge | None:
    """Return the function that checks the steps of a problem; None: its steps cannot be checked."""
    if task == "countdown":
        countdown_problem = countdown.read(problem)
        return None if countdown_problem is None else lambda lines: judge_countdown(countdown_problem, lines)
    if task not in ("arithmetic", "pocket"):
        return None
    try:
        expression = reading.read(problem).expression
    except ConfigError:
        return None
    return lambda lines: judge(expression, lines)
