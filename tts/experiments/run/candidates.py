"""Records the candidates of a finished cell.

They are judged, and have their scores, and the cost of scoring each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tts.experiments.study.record import RecordedSample
from tts.tasks.base import Task
from tts.types import Candidate, Problem, Solution

_Scores = Mapping[str, tuple[float, ...]]  # by role: one a step, or one of the whole


def judge_answer(answer: str | None, task: Task, problem: Problem) -> bool | None:
    """Return whether the checker accepts an answer; False without one.

    None: the problem has no reference answer. It may take as long as `Task.equivalent`, so callers in an event loop
    call it in a thread.
    """
    if problem.answer is None:
        return None
    if answer is None:
        return False
    decided = task.decide(answer, problem.answer)
    return task.equivalent(answer, problem.answer) if decided is None else decided


def judge_answers(
    answers: Sequence[str | None], classes: Sequence[int | None], task: Task, problem: Problem
) -> list[bool | None]:
    """Return `judge_answer` of each answer. Each class of equivalent answers is judged once, by its first."""
    verdicts: dict[int | None, bool | None] = {}
    for answer, kind in zip(answers, classes, strict=True):
        if kind not in verdicts:
            verdicts[kind] = judge_answer(answer, task, problem)
    return [verdicts[kind] for kind in classes]


def earlier_equals(texts: Sequence[str | None]) -> list[int | None]:
    """Return for each text the place of the first earlier one that is equal; None: there is none."""
    first: dict[str | None, int] = {}
    return [None if (place := first.setdefault(text, i)) == i else place for i, text in enumerate(texts)]


def record_candidates(solution: Solution, task: Task, problem: Problem) -> tuple[RecordedSample, ...]:
    """Return the candidates of a solution, judged and with all their scores.

    They stand in the order in which they were drawn. The verifier tokens of a call for several candidates are divided
    among them by the tokens that had to be read of each. A verifier that scored steps, and read fewer tokens than the
    candidates have, read only the steps that no earlier candidate has. Any other read all of each. As `judge_answer`,
    it may take seconds.
    """
    drawn = sorted(solution.candidates, key=lambda candidate: candidate.index)
    nodes = () if solution.trace is None else solution.trace.nodes
    known: dict[int, _Scores] = {node.node: node.scores for node in nodes if node.scores}
    outcomes = {node.node: node.outcomes for node in nodes if node.outcomes}
    texts = [candidate.trajectory.full_text for candidate in drawn]
    steps = [task.split(text) for text in texts]
    stepwise = _stepwise(drawn, steps, known)
    costs = _scoring(solution, drawn, steps, known, stepwise)
    verdicts = judge_answers([one.answer for one in drawn], [one.answer_class for one in drawn], task, problem)
    made: list[RecordedSample] = []
    for candidate, right, (cost, like, shared), same in zip(drawn, verdicts, costs, earlier_equals(texts), strict=True):
        trajectory = candidate.trajectory
        scores = known.get(trajectory.node, {})
        made.append(
            RecordedSample(
                answer=candidate.answer,
                answer_class=candidate.answer_class,
                right=right,
                status=trajectory.status,
                tokens=trajectory.num_tokens,
                verifier_tokens=cost,
                like=like,
                shared=shared,
                same=same,
                scores={
                    role: candidate.scores.get(role, said[-1] if said else math.nan) for role, said in scores.items()
                },
                steps={role: said for role, said in scores.items() if role in stepwise},
                outcomes=dict(outcomes.get(trajectory.node, {})),
            )
        )
    return tuple(made)


def candidate_texts(
    solution: Solution, task: Task, drawn: Sequence[RecordedSample] | None, *, right: bool | None
) -> dict[str, Any]:
    """Return what the candidates of a solution say, as `store.bodies.source_in` reads it.

    They stand in the order in which they were drawn.

    Args:
        solution: The solution.
        task: The task, whose fast rules judge answers where candidates are not recorded.
        drawn: The recorded candidates; None: the study does not record them, so that the texts come with them.
        right: Whether the solution's answer is right; None: unknown.
    """
    candidates = sorted(solution.candidates, key=lambda candidate: candidate.index)
    thoughts = [candidate.trajectory.thought or None for candidate in candidates]
    told: dict[str, Any] = {"prompt": solution.problem.text, "reference": solution.problem.answer}
    told["texts"] = [
        candidate.trajectory.response if thought else candidate.trajectory.full_text
        for candidate, thought in zip(candidates, thoughts, strict=True)
    ]
    if any(thoughts):
        told["thoughts"] = thoughts
    if drawn is None:
        told["drawn"] = [
            RecordedSample(
                answer=one.answer,
                answer_class=one.answer_class,
                right=right
                if one.answer is not None and one.answer == solution.answer
                else _decide(one.answer, task, solution.problem),
                status=one.trajectory.status,
                tokens=one.trajectory.num_tokens,
                scores=dict(one.scores),
            )
            for one in candidates
        ]
    return told


def _decide(answer: str | None, task: Task, problem: Problem) -> bool | None:
    """Return what the fast rules of a task say of an answer; None: they do not decide, or there is no reference."""
    if problem.answer is None:
        return None
    return False if answer is None else task.decide(answer, problem.answer)


def _stepwise(
    candidates: Sequence[Candidate], steps: Sequence[Sequence[str]], known: Mapping[int, _Scores]
) -> set[str]:
    """Return the roles that scored steps: those with one score a step for every candidate, and more than one score for
    some.
    """
    counts: dict[str, set[tuple[int, int]]] = {}
    for candidate, pieces in zip(candidates, steps, strict=True):
        for role, scores in known.get(candidate.trajectory.node, {}).items():
            counts.setdefault(role, set()).add((len(scores), len(pieces)))
    return {
        role for role, found in counts.items() if all(given == pieces for given, pieces in found) and found != {(1, 1)}
    }


def _scoring(
    solution: Solution,
    candidates: Sequence[Candidate],
    steps: Sequence[Sequence[str]],
    known: Mapping[int, _Scores],
    stepwise: set[str],
) -> list[tuple[int, int | None, int]]:
    """Return for each candidate the tokens that scoring it computed, the earlier candidate that it is like, and the
    tokens they share.
    """
    computed: Counter[str] = Counter()
    for call in () if solution.trace is None else solution.trace.calls:
        if call.kind == "score":
            computed[call.model] += call.usage.verifier_tokens
    scored = [i for i, one in enumerate(candidates) if one.trajectory.node in known]
    tokens = [candidates[i].trajectory.num_tokens for i in scored]
    likes: list[tuple[int | None, int]] = [(None, 0)] * len(scored)
    if all(role in stepwise and total < sum(tokens) for role, total in computed.items()):
        likes = shared_beginnings([steps[i] for i in scored], tokens)
    new = np.cumsum([0, *(each - shared for each, (_, shared) in zip(tokens, likes, strict=True))])
    found: list[tuple[int, int | None, int]] = [(0, None, 0)] * len(candidates)
    total, size = sum(computed.values()), max(1, int(new[-1]))
    for place, (i, (like, shared)) in enumerate(zip(scored, likes, strict=True)):
        cost = total * int(new[place + 1]) // size - total * int(new[place]) // size  # so that they sum to the total
        found[i] = (cost, None if like is None else scored[like], shared)
    return found


def shared_beginnings(steps: Sequence[Sequence[str]], tokens: Sequence[int]) -> list[tuple[int | None, int]]:
    """Return for each sample the earlier one with most first steps in common, and their tokens.

    The tokens of these steps are counted by the steps' share of the sample's text.

    Args:
        steps: The steps of each sample, as texts.
        tokens: The tokens of each.
    """
    first: dict[tuple[str, ...], int] = {}  # the first sample with these steps
    found: list[tuple[int | None, int]] = []
    for i, own in enumerate(steps):
        common = next((count for count in range(len(own), 0, -1) if tuple(own[:count]) in first), 0)
        like = first[tuple(own[:common])] if common else None
        share = sum(map(len, own[:common])) / max(1, sum(map(len, own)))
        found.append((like, 0 if like is None else min(round(tokens[i] * share), tokens[like])))
        for count in range(common + 1, len(own) + 1):
            first[tuple(own[:count])] = i
    return found
