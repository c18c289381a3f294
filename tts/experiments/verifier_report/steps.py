"""Labels of the steps of recorded candidates.

They are known where the search was recorded and the task can check steps.
"""

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

    Each step is labelled given those before it.

    Args:
        trace_of: The recorded search of a cell by its key, as in the store; None: it was not recorded.
    """
    kept: dict[str, Mapping[int, Sequence[bool]]] = {}

    def gold(key: str, place: int) -> Sequence[bool] | None:
        if key not in kept:
            recorded = trace_of(key)
            kept[key] = {} if recorded is None else _verdicts(search_in(key, recorded))
        return kept[key].get(place)

    return gold


def _verdicts(trace: Trace) -> dict[int, Sequence[bool]]:
    """Return the labels of each candidate's steps, by its place among the candidates."""
    judged = _judge(trace.task, trace.problem)
    if judged is None:
        return {}
    task = tasks.get(trace.task)
    ends = sorted((node for node in trace.nodes if node.candidate is not None), key=lambda node: node.candidate or 0)
    return {place: judged(task.split(_text(trace, node.node))) for place, node in enumerate(ends)}


def _text(trace: Trace, node: int | None) -> str:
    """Return the text from the root to a node."""
    of = {each.node: each for each in trace.nodes}
    parts: list[str] = []
    while node is not None and of[node].parent is not None:
        parts.append(of[node].text)
        node = of[node].parent
    return "".join(reversed(parts))


def _judge(task: str, problem: str) -> _Judge | None:
    """Return the function that checks steps of a problem; None: its task has none, or the problem cannot be parsed."""
    if task == "countdown":
        asked = countdown.read(problem)
        return None if asked is None else lambda lines: judge_countdown(asked, lines)
    if task not in ("arithmetic", "pocket"):
        return None
    try:
        expression = reading.read(problem).expression
    except ConfigError:
        return None
    return lambda lines: judge(expression, lines)
