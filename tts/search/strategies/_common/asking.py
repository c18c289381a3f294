"""Questions of a strategy to a model about its solutions.

They are asked in prompts of their own, and the replies are no solutions.
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
    """Return up to n replies to each prompt, which are dropped; None for a prompt that fills the context.

    Raises:
        SearchEnded: the budget cannot pay a prompt, or not one reply can start.
    """
    roots: dict[int, Trajectory] = {}
    for i, prompt in enumerate(prompts):
        try:
            roots[i] = await search.open("verify", prompt=prompt)
        except ConfigError:  # it fills the context
            continue
    made = await search.expand([*roots.values()], n, END, temperature=temperature, max_tokens=max_tokens, model=model)
    search.drop([*roots.values(), *(t for of in made for t in of)])
    replies = dict(zip(roots, made, strict=True))
    return [replies.get(i) for i in range(len(prompts))]
