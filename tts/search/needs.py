"""The needs of a strategy, stop rule or selection, in one object.

A run that lacks a need is refused before anything is spent.
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
    """The needs of a part of a plan: of models, verifiers, task and machine. A plain sample needs nothing.

    A run that lacks a declared need is refused before anything is spent. The cost of declared needs is reserved. A need
    without a declaration is refused at its first use; the error then names the spend so far.

    Args:
        capabilities: The capabilities of the policy's backend, as `Caps` names them.
        instead: The capabilities that replace `capabilities` where one of those is missing; (): no others do.
        verifiers: The roles of the scoring verifiers, whose cost is reserved with every row. A stop rule uses only the
            first role: its verifier scores candidates before `should_stop`. A score that cannot be paid is NaN.
        scaled: Whether the strategy maps scores to [0, 1] or to log-odds. Then a verifier whose range has one infinite
            end is refused, for its scores have no scale.
        aggregate: The aggregate that makes one score of step scores for a stop rule: "last", "min", "prod", "mean" or
            "model".
        scores_all: Whether a selection scores every candidate that it may score. If so, the scores may be computed
            before `select`.
        scores: The roles of the strategy's own scores, given by `search.finish(t, scores=…)`. No verifier may have such
            a role.
        models: The needed capabilities of each model beside the policy, by role.
        prompts: The kinds of prompts beside "solve" that the task must have, such as "fuse".
        task: A function that raises ConfigError for a task that lacks something else.
        machine: A function that raises CapabilityError or MissingDependency where the machine lacks something, such as
            a sandbox.
        pairs: The most comparisons of each candidate to reserve, by the role of the verifier that compares.
        lists: Whether these verifiers are shown all candidates at once, and must be able to choose among them.
        vectors: Whether a selection compares vectors of texts by the solver's embedder; or the embedder to use.
        thought_tokens: The strategy's limit on the tokens of a thought. The budget must exceed it, for the response.
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
    scaled: bool = False
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
            given: Any = getattr(self, name)
            if isinstance(given, str):
                raise ConfigError(
                    f"{name} is {given!r}, but must be a tuple of names", hint=f"write {name}=({given!r},)"
                )
        for name in (*self.capabilities, *self.instead):
            check_known("a capability of Needs", name, CAPABILITIES)

    def missing(self, caps: Caps) -> list[str]:
        """Return the capabilities that a backend lacks; none if the backend has all capabilities of `instead`."""
        if self.instead and all(getattr(caps, name) not in _ABSENT for name in self.instead):
            return []
        return [name for name in self.capabilities if getattr(caps, name) in _ABSENT]


def needs_of(part: Any) -> Needs:
    """Return the needs of a strategy, stop rule or selection.

    Raises:
        ConfigError: the declaration is no `Needs`.
    """
    declared: Any = part.needs() if callable(part.needs) else part.needs
    if isinstance(declared, Needs):
        return declared
    raise ConfigError(
        f"the needs of {type(part).__name__} are {quote(declared)}, but must be tts.Needs",
        hint="for example def needs(self): return tts.Needs(capabilities=('steps',))",
    )


def needs_of_parameters(part: object) -> Needs:
    """Return the needs that the parameters `verifier` and `aggregate` of a part name."""
    role = getattr(part, "verifier", None)
    verifiers = (role,) if isinstance(role, str) else ()
    return Needs(verifiers=verifiers, aggregate=getattr(part, "aggregate", None) or "last")


def writers(*roles: str) -> dict[str, tuple[str, ...]]:
    """Return `Needs.models` for roles that only write samples; the policy is left out."""
    return {role: () for role in roles if role != "policy"}
