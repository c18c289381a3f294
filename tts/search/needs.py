"""The needs of a strategy, stop rule or selection, in one object.

A run that lacks one of them is refused before anything is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tts.backends.base import CAPABILITIES, Caps
from tts.checks import check_known
from tts.errors import ConfigError, quote

if TYPE_CHECKING:
    from tts.search.algorithms.embedding import Embedder
    from tts.tasks.base import Task

_ABSENT: Final = ("absent", False)  # values of a capability that is missing


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a part of a plan needs of models, verifiers, task and machine. A plain sample needs nothing.

    What a part declares is refused before anything is spent where a run lacks it, and its cost is reserved. What it
    uses without a declaration is refused when it is first asked for; the error says what was spent until then.

    Args:
        capabilities: The capabilities of the policy's backend, as `Caps` names them.
        instead: Capabilities that serve as well, where one of `capabilities` is missing; (): none do.
        verifiers: Roles of the verifiers that score, whose cost is reserved with every row. Of a stop rule the first
            one counts: candidates are scored by it before `should_stop`. A score that the budget cannot pay is NaN.
        aggregate: How step scores become the one score that a stop rule reads: "last", "min", "prod", "mean" or
            "model".
        scores_all: Whether a selection scores every candidate that it may score. If so, the scores may be computed
            before `select`.
        scores: Roles of scores that a strategy gives itself, by `search.finish(t, scores=…)`. No verifier may have such
            a role.
        models: The capabilities that are used of each model beside the policy, by its role.
        prompts: Kinds of prompts beside "solve" that the task must have, such as "fuse".
        task: Raises ConfigError for a task that lacks something else.
        machine: Raises CapabilityError or MissingDependency where this machine lacks something, such as a sandbox.
        pairs: The most comparisons of each candidate that are reserved, by the role of the verifier that compares.
        lists: Whether these verifiers are shown all candidates at once, and must be able to choose among them.
        vectors: Whether a selection compares vectors of texts: by the solver's embedder (True), or by this one.
        thought_tokens: The most tokens of a thought that a strategy limits; the budget must leave some for the
            response.
        unit: The unit of budgets in which a strategy compares the costs of models.

    Raises:
        ConfigError: a capability is unknown.

    Example:
        >>> import tts
        >>> class Steps(tts.Strategy):
        ...     def needs(self):
        ...         return tts.Needs(capabilities=("steps",), verifiers=("main",))
        ...
        ...     async def run(self, search):
        ...         [[step]] = await search.expand([search.root])
        ...         await search.score([step])
        ...         return await search.complete([step])
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=Steps())
        Traceback (most recent call last):
        ...
        tts.errors.ConfigError: the strategy ... scores with the role 'main', but no verifier has it (hint: give a
        verifier: ...)
    """

    capabilities: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    verifiers: tuple[str, ...] = ()
    aggregate: str = "last"
    scores_all: bool = False
    scores: tuple[str, ...] = ()
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    prompts: tuple[str, ...] = ()
    task: Callable[[Task], None] | None = None
    machine: Callable[[], None] | None = None
    pairs: Mapping[str, int] = field(default_factory=dict[str, int])
    lists: bool = False
    vectors: Embedder | bool = False
    thought_tokens: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        for name in ("capabilities", "instead", "verifiers", "scores", "prompts"):
            if isinstance(given := getattr(self, name), str):
                raise ConfigError(
                    f"{name} is {given!r}, but must be a tuple of names", hint=f"write {name}=({given!r},)"
                )
        for name in (*self.capabilities, *self.instead):
            check_known("a capability of Needs", name, CAPABILITIES)

    def missing(self, caps: Caps) -> list[str]:
        """Return the capabilities that a backend lacks; none where those that serve instead are there."""
        lacks = [name for name in self.capabilities if getattr(caps, name) in _ABSENT]
        return [] if self.instead and not any(getattr(caps, name) in _ABSENT for name in self.instead) else lacks


def needs_of(part: Any) -> Needs:
    """Return what a strategy, stop rule or selection needs.

    A class of 0.2 may have an attribute `needs` with names of capabilities in place of the method.

    Raises:
        ConfigError: it declares something else.
    """
    given: Any = part.needs() if callable(part.needs) else part.needs
    if isinstance(given, Needs):
        return given
    if isinstance(given, tuple | list):
        return needs_of_attributes(part, tuple(given))
    raise ConfigError(
        f"the needs of {type(part).__name__} are {quote(given)}, but must be tts.Needs",
        hint="for example def needs(self): return tts.Needs(capabilities=('steps',))",
    )


def needs_of_attributes(part: object, capabilities: tuple[str, ...] = ()) -> Needs:
    """Return the needs that the attributes of a part state.

    They are its parameter `verifier`, and those by which classes of 0.2 declare their needs.
    """
    said: dict[str, Any] = {
        ours: value for ours, theirs in _ATTRIBUTES.items() if (value := getattr(part, theirs, None))
    }
    role, judge, vectors = (getattr(part, name, None) for name in ("verifier", "judge", "embeds_by"))
    if isinstance(role, str) and getattr(part, "verifiers", None) is None:
        said["verifiers"] = (role,)
    if getattr(part, "effort", None):
        capabilities = (*capabilities, "efforts")
    if isinstance(judge, str):
        said["pairs"] = {judge: getattr(part, "pairs_each", 0)}
    return Needs(capabilities=capabilities, vectors=vectors or False, **said)


# field of `Needs` -> attribute of 0.2
_ATTRIBUTES = {
    "verifiers": "verifiers", "aggregate": "aggregate", "scores_all": "scores_all", "scores": "gives_scores",
    "models": "needs_of_models", "prompts": "prompts", "task": "check_task", "machine": "check_machine",
    "thought_tokens": "thought_tokens", "unit": "compares_in",
}  # fmt: skip


def writers(*roles: str) -> dict[str, tuple[str, ...]]:
    """Return the models beside the policy among some roles, of which nothing is used but that they write."""
    return {role: () for role in roles if role != "policy"}
