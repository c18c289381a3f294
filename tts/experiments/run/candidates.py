"""Records the candidates of a finished cell: their verdicts, scores, and costs of scoring."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tts.experiments.study.record import RecordedSample
from tts.tasks.base import Task
from tts.types import Candidate, Problem, Solution

_Scores = Mapping[str, tuple[float, ...]]  # scores by role: one for each step, or one for the whole


def judge_answer(answer: str | None, task: Task, problem: Problem) -> bool | None:
    """Return whether the checker accepts an answer; None: the problem has no reference answer.

    A missing answer is wrong. The call may take as long as `Task.equivalent`: event loops need a thread for it.
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
    """Return the verdict of `judge_answer` on each answer. Each class is judged once, by its first answer."""
    verdicts: dict[int | None, bool | None] = {}
    for answer, kind in zip(answers, classes, strict=True):
        if kind not in verdicts:
            verdicts[kind] = judge_answer(answer, task, problem)
    return [verdicts[kind] for kind in classes]


def earlier_equals(texts: Sequence[str | None]) -> list[int | None]:
    """Return for each text the index of its first earlier equal; None: there is none."""
    first_places: dict[str | None, int] = {}
    return [None if (place := first_places.setdefault(text, i)) == i else place for i, text in enumerate(texts)]


def record_candidates(solution: Solution, task: Task, problem: Problem) -> tuple[RecordedSample, ...]:
    """Return the candidates of a solution, judged and with all their scores.

    Candidates stand in the order in which they were drawn. The verifier tokens of a call for several candidates are
    divided among them by the tokens that had to be read of each. A stepwise verifier that read fewer tokens than the
    candidates have skipped the steps of earlier candidates. Any other verifier read each candidate whole. As
    `judge_answer`, the call may take seconds.
    """
    drawn = sorted(solution.candidates, key=lambda candidate: candidate.index)
    nodes = () if solution.trace is None else solution.trace.nodes
    scores_by_node: dict[int, _Scores] = {node.node: node.scores for node in nodes if node.scores}
    outcomes = {node.node: node.outcomes for node in nodes if node.outcomes}
    texts = [candidate.trajectory.full_text for candidate in drawn]
    steps = [task.split(text) for text in texts]
    stepwise = _stepwise(drawn, steps, scores_by_node)
    costs = _scoring(solution, drawn, steps, scores_by_node, stepwise)
    verdicts = judge_answers(
        [candidate_.answer for candidate_ in drawn], [candidate_.answer_class for candidate_ in drawn], task, problem
    )
    recorded: list[RecordedSample] = []
    for candidate, right, (cost, shared_sample, shared), equal_sample in zip(
        drawn, verdicts, costs, earlier_equals(texts), strict=True
    ):
        trajectory = candidate.trajectory
        scores = scores_by_node.get(trajectory.node, {})
        recorded.append(
            RecordedSample(
                answer=candidate.answer,
                answer_class=candidate.answer_class,
                right=right,
                status=trajectory.status,
                tokens=trajectory.num_tokens,
                verifier_tokens=cost,
                like=shared_sample,
                shared=shared,
                same=equal_sample,
                scores={
                    role: candidate.scores.get(role, step_scores[-1] if step_scores else math.nan)
                    for role, step_scores in scores.items()
                },
                steps={role: step_scores for role, step_scores in scores.items() if role in stepwise},
                outcomes=dict(outcomes.get(trajectory.node, {})),
            )
        )
    return tuple(recorded)


def candidate_texts(
    solution: Solution, task: Task, drawn: Sequence[RecordedSample] | None, *, right: bool | None
) -> dict[str, Any]:
    """Return the texts of a solution's candidates, in the order of drawing; see `store.bodies.source_in`.

    Args:
        solution: The solution.
        task: The task, whose fast rules judge answers where candidates are not recorded.
        drawn: The recorded candidates; None: the study records none, and the result includes them.
        right: Whether the solution's answer is right; None: unknown.
    """
    candidates = sorted(solution.candidates, key=lambda candidate: candidate.index)
    thoughts = [candidate.trajectory.thought or None for candidate in candidates]
    texts: dict[str, Any] = {"prompt": solution.problem.text, "reference": solution.problem.answer}
    texts["texts"] = [
        candidate.trajectory.response if thought else candidate.trajectory.full_text
        for candidate, thought in zip(candidates, thoughts, strict=True)
    ]
    if any(thoughts):
        texts["thoughts"] = thoughts
    if drawn is None:
        texts["drawn"] = [
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
    return texts


def _decide(answer: str | None, task: Task, problem: Problem) -> bool | None:
    """Return the verdict of a task's fast rules; None: the rules do not decide, or there is no reference."""
    if problem.answer is None:
        return None
    return False if answer is None else task.decide(answer, problem.answer)


def _stepwise(
    candidates: Sequence[Candidate], steps: Sequence[Sequence[str]], known: Mapping[int, _Scores]
) -> set[str]:
    """Return the roles that scored steps.

    Such a role has one score for each step of every candidate, and several scores for some candidate.
    """
    counts: dict[str, set[tuple[int, int]]] = {}
    for candidate, step_count in zip(candidates, steps, strict=True):
        for role, scores in known.get(candidate.trajectory.node, {}).items():
            counts.setdefault(role, set()).add((len(scores), len(step_count)))
    return {
        role
        for role, pairs in counts.items()
        if all(score_count == step_count for score_count, step_count in pairs) and pairs != {(1, 1)}
    }


def _scoring(
    solution: Solution,
    candidates: Sequence[Candidate],
    steps: Sequence[Sequence[str]],
    known: Mapping[int, _Scores],
    stepwise: set[str],
) -> list[tuple[int, int | None, int]]:
    """Return each candidate's scoring tokens, its similar earlier candidate, and their shared tokens."""
    tokens_by_model: Counter[str] = Counter()
    for call in () if solution.trace is None else solution.trace.calls:
        if call.kind == "score":
            tokens_by_model[call.model] += call.usage.verifier_tokens
    scored = [i for i, one in enumerate(candidates) if one.trajectory.node in known]
    tokens = [candidates[i].trajectory.num_tokens for i in scored]
    matches: list[tuple[int | None, int]] = [(None, 0)] * len(scored)
    if all(role in stepwise and total < sum(tokens) for role, total in tokens_by_model.items()):
        matches = shared_beginnings([steps[i] for i in scored], tokens)
    cumulative_tokens = np.cumsum(
        [0, *(sample_tokens - shared for sample_tokens, (_, shared) in zip(tokens, matches, strict=True))]
    )
    costs: list[tuple[int, int | None, int]] = [(0, None, 0)] * len(candidates)
    total, size = sum(tokens_by_model.values()), max(1, int(cumulative_tokens[-1]))
    for place, (i, (match, shared)) in enumerate(zip(scored, matches, strict=True)):
        cost = (
            total * int(cumulative_tokens[place + 1]) // size - total * int(cumulative_tokens[place]) // size
        )  # such costs sum to the total
        costs[i] = (cost, None if match is None else scored[match], shared)
    return costs


def shared_beginnings(steps: Sequence[Sequence[str]], tokens: Sequence[int]) -> list[tuple[int | None, int]]:
    """Return for each sample the earlier sample with most first steps in common, and their common tokens.

    The tokens of the common steps are estimated by the steps' share of the sample's text.

    Args:
        steps: The steps of each sample, as texts.
        tokens: The number of tokens of each sample.
    """
    first_samples: dict[tuple[str, ...], int] = {}  # the first sample with these steps
    matches: list[tuple[int | None, int]] = []
    for i, sample_steps in enumerate(steps):
        common = next(
            (count for count in range(len(sample_steps), 0, -1) if tuple(sample_steps[:count]) in first_samples), 0
        )
        match = first_samples[tuple(sample_steps[:common])] if common else None
        share = sum(map(len, sample_steps[:common])) / max(1, sum(map(len, sample_steps)))
        matches.append((match, 0 if match is None else min(round(tokens[i] * share), tokens[match])))
        for count in range(common + 1, len(sample_steps) + 1):
            first_samples[tuple(sample_steps[:count])] = i
    return matches
