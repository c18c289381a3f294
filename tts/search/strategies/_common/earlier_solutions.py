"""Prompts that show earlier solutions to the model, and the writers of these solutions."""

from __future__ import annotations

from collections.abc import Sequence

from tts._common.characters import join_surrogates
from tts.errors import ConfigError
from tts.search.ends import SearchEnded
from tts.search.search import Search
from tts.types import Candidate, Trajectory

_LONGEST_NOTE = 2000  # characters of a verifier's note that a prompt shows


async def open_prompt(search: Search, kind: str, texts: Sequence[str], group: int | None = None) -> Trajectory | None:
    """Return the root of a prompt that shows earlier solutions.

    None is returned where the task refuses the solutions, or where the solutions fill the context.

    Raises:
        SearchEnded: the budget cannot pay the prompt.
    """
    try:
        return await search.open(kind, *texts, group=group)
    except ConfigError:  # the search has noted a warning
        return None


def with_note(search: Search, t: Trajectory, role: str | None) -> str:
    """Return the response of a solution, with the verifier's note on the solution if there is a note."""
    scores = None if role is None else search.scoring.scores_of(t, role)
    note = "" if scores is None else join_surrogates(scores.note.strip())[:_LONGEST_NOTE]
    return f"{t.response.rstrip()}\n\nFeedback on it:\n{note}" if note else t.response


async def root_showing(search: Search, prompt: str, texts: Sequence[str]) -> Trajectory:
    """Return the root of a prompt that shows solutions; the "solve" root where none can be shown.

    Args:
        search: The search.
        prompt: "fuse" or "revise". A single solution is shown by "revise", because there is nothing to fuse.
        texts: The texts of the solutions to show.

    Raises:
        SearchEnded: the budget cannot pay the prompt.
    """
    if not texts:
        return search.root
    kind = prompt if len(texts) > 1 else "revise"
    return await open_prompt(search, kind, texts) or search.root


def whole(candidates: Sequence[Candidate]) -> list[str]:
    """Return the responses, without thoughts, of solutions that were not cut short."""
    return [c.trajectory.response for c in candidates if not c.truncated]


async def write(
    search: Search, root: Trajectory, n: int | None, role: str, writers: Sequence[str], temperature: float | None
) -> None:
    """Draw n solutions by one of the writers; where all its rows fail, it is left out, with a warning.

    With n=None as many are drawn as the budget pays.

    Raises:
        SearchEnded: the budget is used up, or the rows of the only writer failed.
    """
    try:
        await search.complete([root], n, temperature=temperature, model=role)
    except SearchEnded as end:
        if end.is_failure:
            search.notes.warn(f"the writer {role!r} is missing: each of its samples failed")
        if len(writers) == 1 or not end.is_failure:
            raise
