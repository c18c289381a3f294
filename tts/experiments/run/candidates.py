"""Records the candidates of a finished cell: their verdicts, scores, and costs of scoring."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
    fast_verdict = task.accepts(answer, problem.answer)
    return task.equivalent(answer, problem.answer) if fast_verdict is None else fast_verdict


def judge_answers(
    answers: Sequence[str | None], classes: Sequence[int | None], task: Task, problem: Problem
) -> list[bool | None]:
    """Return the verdict of `judge_answer` on each answer. Each class is judged once, by its first answer.

    Args:
        answers: The answers; None: there is no answer.
        classes: The class of each answer; equal numbers are equal answers.
        task: The task that compares answers.
        problem: The problem, with its reference answer.
    """
    verdicts: dict[int | None, bool | None] = {}
    for answer, answer_class in zip(answers, classes, strict=True):
        if answer_class not in verdicts:
            verdicts[answer_class] = judge_answer(answer, task, problem)
    return [verdicts[answer_class] for answer_class in classes]


def earlier_equals(texts: Sequence[str | None]) -> list[int | None]:
    """Return for each text the index of the first equal text before it; None: there is none."""
    first_indices: dict[str | None, int] = {}
    for i, text in enumerate(texts):
        first_indices.setdefault(text, i)
    return [None if first_indices[text] == i else first_indices[text] for i, text in enumerate(texts)]


def record_candidates(solution: Solution, task: Task, problem: Problem) -> tuple[RecordedSample, ...]:
    """Return the candidates of a solution, judged and with all their scores, in the order of drawing.

    Each candidate gets a part of the verifier tokens of all calls, in proportion to the tokens that had to be read of
    it. A verifier reads a candidate from its beginning. Only verifiers of steps may skip steps that an earlier
    candidate has too. They did so if they read fewer tokens than the candidates have. The call may take seconds, as
    `judge_answer` does.
    """
    drawn = sorted(solution.candidates, key=lambda candidate: candidate.index)
    nodes = () if solution.trace is None else solution.trace.nodes
    scores_by_node: dict[int, _Scores] = {node.node: node.scores for node in nodes if node.scores}
    outcomes = {node.node: node.outcomes for node in nodes if node.outcomes}
    texts = [candidate.trajectory.full_text for candidate in drawn]
    steps = [task.split(text) for text in texts]
    stepwise_roles = _stepwise_roles(drawn, steps, scores_by_node)
    scorings = _scorings(solution, drawn, steps, scores_by_node, stepwise_roles)
    answers, classes = [c.answer for c in drawn], [c.answer_class for c in drawn]
    verdicts = judge_answers(answers, classes, task, problem)
    equals = earlier_equals(texts)
    recorded: list[RecordedSample] = []
    for i, candidate in enumerate(drawn):
        trajectory, scoring = candidate.trajectory, scorings[i]
        steps_by_role = scores_by_node.get(trajectory.node, {})
        scores: dict[str, float] = {}
        for role, step_scores in steps_by_role.items():
            last_score = step_scores[-1] if step_scores else math.nan
            scores[role] = candidate.scores.get(role, last_score)
        recorded.append(
            RecordedSample(
                answer=candidate.answer,
                answer_class=candidate.answer_class,
                right=verdicts[i],
                status=trajectory.status,
                tokens=trajectory.num_tokens,
                verifier_tokens=scoring.tokens,
                like=scoring.like,
                shared=scoring.shared,
                same=equals[i],
                scores=scores,
                steps={role: step_scores for role, step_scores in steps_by_role.items() if role in stepwise_roles},
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
        drawn: The recorded candidates; None: the study records none, so that the returned texts include them.
        right: Whether the solution's answer is right; None: unknown.
    """
    candidates = sorted(solution.candidates, key=lambda candidate: candidate.index)
    trajectories = [candidate.trajectory for candidate in candidates]
    thoughts = [trajectory.thought or None for trajectory in trajectories]
    texts: dict[str, Any] = {"prompt": solution.problem.text, "reference": solution.problem.answer}
    texts["texts"] = [
        trajectory.response if trajectory.thought else trajectory.full_text for trajectory in trajectories
    ]
    if any(thoughts):
        texts["thoughts"] = thoughts
    if drawn is None:
        samples: list[RecordedSample] = []
        for candidate in candidates:
            is_chosen_answer = candidate.answer is not None and candidate.answer == solution.answer
            samples.append(
                RecordedSample(
                    answer=candidate.answer,
                    answer_class=candidate.answer_class,
                    right=right if is_chosen_answer else _decide(candidate.answer, task, solution.problem),
                    status=candidate.trajectory.status,
                    tokens=candidate.trajectory.num_tokens,
                    scores=dict(candidate.scores),
                )
            )
        texts["drawn"] = samples
    return texts


def _decide(answer: str | None, task: Task, problem: Problem) -> bool | None:
    """Return the verdict of a task's fast rules; None: the rules do not decide, or there is no reference."""
    if problem.answer is None:
        return None
    return False if answer is None else task.accepts(answer, problem.answer)


def _stepwise_roles(
    candidates: Sequence[Candidate], steps: Sequence[Sequence[str]], scores_by_node: Mapping[int, _Scores]
) -> set[str]:
    """Return the roles that scored steps.

    Such a role has one score for each step of every candidate, and several scores for some candidate.

    Args:
        candidates: The candidates.
        steps: The steps of each candidate, as texts.
        scores_by_node: The scores of each candidate's trajectory, by role.
    """
    counts_by_role: dict[str, set[tuple[int, int]]] = {}  # pairs of the numbers of scores and steps
    for candidate, candidate_steps in zip(candidates, steps, strict=True):
        for role, scores in scores_by_node.get(candidate.trajectory.node, {}).items():
            counts_by_role.setdefault(role, set()).add((len(scores), len(candidate_steps)))
    roles: set[str] = set()
    for role, counts in counts_by_role.items():
        has_score_of_each_step = all(num_scores == num_steps for num_scores, num_steps in counts)
        if has_score_of_each_step and counts != {(1, 1)}:
            roles.add(role)
    return roles


class _Scoring(NamedTuple):
    """The scoring of a candidate: fields of `RecordedSample`.

    `tokens` is the candidate's part of the verifier tokens. `like` is the index of the earlier candidate with which it
    shares its first steps, and `shared` the number of their common tokens.
    """

    tokens: int = 0
    like: int | None = None
    shared: int = 0


def _scorings(
    solution: Solution,
    candidates: Sequence[Candidate],
    steps: Sequence[Sequence[str]],
    scores_by_node: Mapping[int, _Scores],
    stepwise_roles: set[str],
) -> list[_Scoring]:
    """Return the scoring of each candidate; candidates without scores cost nothing.

    Args:
        solution: The solution, whose trace has the verifier tokens.
        candidates: The candidates of the solution.
        steps: The steps of each candidate, as texts.
        scores_by_node: The scores of each candidate's trajectory, by role.
        stepwise_roles: The roles that scored steps.
    """
    tokens_by_role: Counter[str] = Counter()
    for call in () if solution.trace is None else solution.trace.calls:
        if call.kind == "score":
            tokens_by_role[call.model] += call.usage.verifier_tokens
    scored = [i for i, candidate in enumerate(candidates) if candidate.trajectory.node in scores_by_node]
    lengths = [candidates[i].trajectory.num_tokens for i in scored]
    beginnings = [SharedBeginning(None, 0)] * len(scored)
    if all(role in stepwise_roles and tokens < sum(lengths) for role, tokens in tokens_by_role.items()):
        beginnings = shared_beginnings([steps[i] for i in scored], lengths)
    read_lengths = [length - shared for length, (_, shared) in zip(lengths, beginnings, strict=True)]
    total_tokens, total_length = sum(tokens_by_role.values()), max(1, sum(read_lengths))
    scorings = [_Scoring()] * len(candidates)
    length_so_far, tokens_so_far = 0, 0  # rounding sums, not single costs, keeps the total exact
    for i, read_length, (sample, shared) in zip(scored, read_lengths, beginnings, strict=True):
        length_so_far += read_length
        tokens = total_tokens * length_so_far // total_length - tokens_so_far
        tokens_so_far += tokens
        scorings[i] = _Scoring(tokens=tokens, like=None if sample is None else scored[sample], shared=shared)
    return scorings


class SharedBeginning(NamedTuple):
    """The earlier sample with most first steps in common, by index, and the number of common tokens."""

    sample: int | None
    tokens: int


def shared_beginnings(steps: Sequence[Sequence[str]], tokens: Sequence[int]) -> list[SharedBeginning]:
    """Return for each sample the earlier sample with most first steps in common, and their common tokens.

    The tokens of the common steps are estimated by the steps' share of the sample's text.

    Args:
        steps: The steps of each sample, as texts.
        tokens: The number of tokens of each sample.
    """
    first_samples: dict[tuple[str, ...], int] = {}  # by first steps, the first sample that begins with them
    beginnings: list[SharedBeginning] = []
    for i, sample_steps in enumerate(steps):
        num_common = len(sample_steps)
        while num_common and tuple(sample_steps[:num_common]) not in first_samples:
            num_common -= 1
        if num_common:
            earlier_sample = first_samples[tuple(sample_steps[:num_common])]
            common_length, length = sum(map(len, sample_steps[:num_common])), sum(map(len, sample_steps))
            common_tokens = round(tokens[i] * (common_length / max(1, length)))
            beginnings.append(SharedBeginning(earlier_sample, min(common_tokens, tokens[earlier_sample])))
        else:
            beginnings.append(SharedBeginning(None, 0))
        for count in range(num_common + 1, len(sample_steps) + 1):
            first_samples[tuple(sample_steps[:count])] = i
    return beginnings
