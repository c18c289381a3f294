"""Questions of a strategy to a model about solutions.

Each question is a prompt of its own. The replies are not candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Return up to n replies to each prompt, and drop them; None for a prompt that fills the context.

    Raises:
        SearchEnded: the budget cannot pay a prompt, or not one reply can start.
    """
    roots: dict[int, Trajectory] = {}
    for i, prompt in enumerate(prompts):
        try:
            roots[i] = await search.open("verify", prompt=prompt)
        except ConfigError:  # the prompt fills the context
            continue
    families = await search.expand(
        [*roots.values()], n, END, temperature=temperature, max_tokens=max_tokens, model=model
    )
    search.drop([*roots.values(), *(t for siblings in families for t in siblings)])
    replies = dict(zip(roots, families, strict=True))
    return [replies.get(i) for i in range(len(prompts))]
