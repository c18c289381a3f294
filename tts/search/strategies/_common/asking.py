"""Questions of a strategy to a model about solutions.

Each question is a prompt of its own. The replies are not candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tts.errors import ConfigError
from tts.search.ends import END
from tts.search.search import Search
from tts.types import Prompt, Trajectory


async def replies_to(
    search: Search,
    prompts: Sequence[Prompt],
    n: int,
    *,
    temperature: float | None = None,
    max_tokens: int | None = None,
    model: str = "policy",
) -> list[list[Trajectory] | None]:
    """Return up to n replies to each prompt; None for a prompt that fills the context.

    The search drops prompts and replies, so that their memory is free.

    Raises:
        SearchEnded: the budget cannot pay a prompt, or not one reply can start.
    """
    roots: dict[int, Trajectory] = {}
    for i, prompt in enumerate(prompts):
        try:
            roots[i] = await search.open("verify", prompt=prompt)
        except ConfigError:  # the prompt fills the context
            continue
    replies_by_root = await search.expand(
        [*roots.values()], n, END, temperature=temperature, max_tokens=max_tokens, model=model
    )
    search.drop([*roots.values(), *chain.from_iterable(replies_by_root)])
    replies = dict(zip(roots, replies_by_root, strict=True))
    return [replies.get(i) for i in range(len(prompts))]
