"""What the parts of one search share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tts.backends.base import Backend
from tts.search.costs import Costs
from tts.search.ends import Notes
from tts.search.tree import Tree
from tts.tasks.base import Task
from tts.types import Problem
from tts.verifiers.base import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchContext:
    """What the parts of one search share.

    Args:
        problem: The problem, without its reference answer and metadata.
        task: The problem's task, whose faults on a model's text are reported.
        backends: The models by role.
        verifiers: The verifiers by role.
        costs: The prices of rows and scores, and the account that pays.
        tree: The nodes that were written.
        notes: Warnings and reasons.
        clock: The clock, in seconds.
    """

    problem: Problem
    task: Task
    backends: Mapping[str, Backend]
    verifiers: Mapping[str, Verifier]
    costs: Costs
    tree: Tree
    notes: Notes
    clock: Callable[[], float]
