"""The source of rows for trainers: the judged samples of one search, and its tree.

The tree is recorded where the search's tokens are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tts.experiments.run.candidates import judge_answer
from tts.search.ends import Level
from tts.tasks.base import Task
from tts.trace.node import TraceNode
from tts.trace.trace import Trace, winning_node
from tts.types import Problem, Prompt
from tts_addons.training.importance import importance_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTokens:
    """The tokens of one path after its prompt.

    Args:
        prompt: The tokens of the prompt.
        ids: The tokens after it.
        logprobs: One a token, natural, at temperature 1; 0 where the model did not write the token.
        sampling_logprobs: One a token, natural, under the law that drew it; None: nobody asked for them.
        written: One a token: whether the model wrote it.
        thought: The number of first tokens that are of a thought.
    """

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampling_logprobs: tuple[float, ...] | None
    written: tuple[bool, ...]
    thought: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSample:
    """One candidate of a search.

    Args:
        prompt: What the model read.
        text: What the model wrote, a thought with its marks included.
        thought: The number of first characters of the text that are of a thought.
        steps: The text in steps, which join to it.
        values: A verifier's score of each step, in the verifier's range; empty: there are none.
        answer: The extracted answer; None: there is none.
        right: Whether the answer is right; None: unknown.
        score: The verifier's score of the whole, as the verifier aggregates; None: there is none.
        is_best: Whether the search's answer was taken from it.
        weight: Its importance weight, summed over copies; None: the method has none.
        tokens: Its tokens; None: they are not known.
        node: The number of its last node; None: the tree is not known.
    """

    prompt: Prompt
    text: str
    thought: int = 0
    steps: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    answer: str | None = None
    right: bool | None = None
    score: float | None = None
    is_best: bool = False
    weight: float | None = None
    tokens: PathTokens | None = None
    node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRows:
    """One search.

    Args:
        problem: The id of its problem, or the problem's text.
        prompt: What the model read of the problem.
        reference: The reference answer; None: unknown.
        model: The name of the policy.
        strategy: The plan as text.
        seed: The seed of the run.
        budget: The limits as text.
        samples: The candidates, in draw order.
        nodes: The nodes of the tree; empty: they are not known.
        levels: How the search divided what it writes by weights.
        temperature: The temperature of the run; None: unknown.
    """

    problem: str
    prompt: Prompt
    reference: str | None
    model: str
    strategy: str
    seed: int
    budget: str
    samples: Sequence[PathSample]
    nodes: Sequence[TraceNode] = ()
    levels: Sequence[Level] = ()
    temperature: float | None = None


def search_rows(
    trace: Trace, task: Task, problem: str | None = None, reference: str | None = None, verifier: str | None = None
) -> SearchRows:
    """Return the record of a search from which rows are made.

    Args:
        trace: The trace.
        task: The task that judges answers and finds steps.
        problem: The id of the problem; None: its text.
        reference: The reference answer; None: unknown.
        verifier: The role whose scores are read; None: the first that scored.
    """
    answered = Problem(trace.problem, answer=reference)
    judge = cache(lambda answer: judge_answer(answer, task, answered))
    nodes = tuple(trace.nodes)
    roots = [node for node in nodes if node.parent is None]
    prompt = roots[0].prompt if roots else None
    return SearchRows(
        problem=trace.problem if problem is None else problem,
        prompt=trace.problem if prompt is None else prompt,
        reference=reference,
        model=trace.model,
        strategy=trace.strategy,
        seed=trace.seed,
        budget=trace.budget,
        samples=samples_of(nodes, trace.levels, best=winning_node(trace), judge=judge, split=task.split, role=verifier),
        nodes=nodes,
        levels=trace.levels,
        temperature=trace.temperature,
    )


def samples_of(
    nodes: Sequence[TraceNode],
    levels: Sequence[Level],
    *,
    best: int | None,
    judge: Callable[[str | None], bool | None],
    split: Callable[[str], Sequence[str]],
    role: str | None = None,
) -> list[PathSample]:
    """Return the candidates of a recorded tree, in draw order.

    Args:
        nodes: The nodes, in order of their numbers.
        levels: As in `SearchRows`.
        best: The node that the search's answer was taken from; None: there is none.
        judge: A function that returns whether an answer is right; None: unknown.
        split: A function that returns a text in steps.
        role: The verifier whose scores are taken; None: the first one that scored a candidate.
    """
    by_number = {node.node: node for node in nodes}
    candidate_nodes = [node for node in nodes if node.candidate is not None]
    last_nodes = sorted(candidate_nodes, key=lambda node: node.candidate or 0)
    paths = [path_to(node, by_number) for node in last_nodes]
    weights = importance_weights(levels)
    return [_sample(path, best, judge, split, role, weights) for path in paths]


def path_to(node: TraceNode, by_number: Mapping[int, TraceNode]) -> list[TraceNode]:
    """Return the nodes from the root to a node, both included."""
    path = [node]
    while path[-1].parent is not None:
        path.append(by_number[path[-1].parent])
    return path[::-1]


def _sample(
    path: Sequence[TraceNode],
    best: int | None,
    judge: Callable[[str | None], bool | None],
    split: Callable[[str], Sequence[str]],
    role: str | None,
    weights: Mapping[int, float],
) -> PathSample:
    """Return the candidate at the end of a path; the arguments are those of `samples_of`."""
    root, last_node = path[0], path[-1]
    text = "".join(node.text for node in path[1:])
    steps = tuple(split(text))
    if role is None and last_node.scores:
        role = next(iter(last_node.scores))  # the first verifier
    values = () if role is None else tuple(last_node.scores.get(role, ()))
    are_step_scores = len(values) == len(steps) and not any(math.isnan(value) for value in values)
    return PathSample(
        prompt=root.text if root.prompt is None else root.prompt,
        text=text,
        thought=sum(node.thought for node in path[1:]),
        steps=steps,
        values=values if are_step_scores else (),
        answer=last_node.answer,
        right=judge(last_node.answer),
        score=None if not values or math.isnan(values[-1]) else values[-1],
        is_best=last_node.node == best,
        weight=weights.get(last_node.node),
        tokens=_tokens(path),
        node=last_node.node,
    )


def _tokens(path: Sequence[TraceNode]) -> PathTokens | None:
    """Return the tokens of a path; None: the tokens are not fully known.

    All tokens must be the policy's, and at least one must have a log-probability.
    """
    root, pieces = path[0], path[1:]
    if any(node.model != "policy" for node in path):  # a file has one tokenizer
        return None
    has_all_ids = len(root.token_ids) > 0 and all(node.token_ids or not node.text for node in pieces)
    if not has_all_ids or not any(node.logprobs for node in pieces):
        return None
    ids, written = list[int](), list[bool]()
    logprobs, sampling_logprobs = list[float](), list[float]()
    num_thought_tokens = 0
    for node in pieces:
        num_tokens = len(node.token_ids)
        unknown = (0.0,) * num_tokens
        is_by_model = len(node.logprobs) == num_tokens
        if node.thought:
            num_thought_tokens = len(ids) + node.thought_tokens
        ids += node.token_ids
        logprobs += node.logprobs if is_by_model else unknown
        sampling_logprobs += node.sampling_logprobs if len(node.sampling_logprobs) == num_tokens else unknown
        written += [is_by_model] * num_tokens
    are_sampling_logprobs_known = all(len(node.sampling_logprobs) == len(node.logprobs) for node in pieces)
    return PathTokens(
        prompt=root.token_ids,
        ids=tuple(ids),
        logprobs=tuple(logprobs),
        sampling_logprobs=tuple(sampling_logprobs) if are_sampling_logprobs_known else None,
        written=tuple(written),
        thought=num_thought_tokens,
    )
