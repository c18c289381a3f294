"""What a run refuses, and warns of, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain

from tts._core.logs import RepeatLimit, get_logger
from tts.backends.base import Backend, sampling_with
from tts.backends.capabilities import count_tokens, require, require_sampling
from tts.backends.metadata import metadata_of
from tts.budget.account import Account
from tts.budget.budget import format_limits
from tts.budget.units import VERIFIER_UNITS
from tts.checks import check_problem
from tts.errors import CapabilityError, ConfigError
from tts.search.algorithms.embedding import NGRAMS, refuse_unpriced
from tts.search.costs import Costs
from tts.search.families import RunSetting, has_prompt, lacking, nearest
from tts.search.needs import Needs
from tts.solver.setup import ProblemRun, Setup
from tts.tasks.looks import looks_like_math
from tts.types import Problem, pictures_in
from tts.verifiers.base import Verifier, members_of, traits_of
from tts.verifiers.compatibility import GIVE_VERIFIER, RATED, check_fit, check_rates
from tts.verifiers.ranges import check_scale

LOG = get_logger("tts.runs")
_PERIOD_SECONDS = 60.0  # in which equal lines are written once: a loop over problems has one warning, not one a problem
LOG.addFilter(RepeatLimit(1, _PERIOD_SECONDS))
_LIKE_MATH = (
    "the problem looks like mathematics, but is taken as text: task='math' asks for a final answer and "
    "compares answers by value"
)


def check(run: ProblemRun) -> None:
    """Refuse a run that cannot succeed, before anything is spent.

    Raises:
        ConfigError: The account is closed or of another process, the prompt is empty or no text, a limit counts the
            unknown tokens of a picture, or as `check_setup`.
        CapabilityError: A model takes no pictures, or as `check_setup`.
        MissingDependency: The task needs a package that is not installed, or as `check_setup`.
    """
    if isinstance(run.budget, Account):
        run.budget.check_usable()
    check_problem(run.problem)
    if not run.problem.text.strip():
        raise ConfigError("the prompt is empty, but must hold a problem", hint="give the problem's text")
    run.setup.task.check(run.problem)
    _check_pictures(run)
    check_setup(run.setup, run.limits)


def check_setup(setup: Setup, limits: Mapping[str, float]) -> None:
    """Refuse a setup that fails for every problem under a budget.

    It is checked once for each set of limited units.

    Args:
        setup: The setup.
        limits: The limits of the budget.

    Raises:
        ConfigError: A role has no verifier or no model; an oracle has no permission; a limit has no rates; only a
            budget would end the strategy, but none does; or the task lacks the kind of prompt in which the strategy
            shows solutions.
        CapabilityError: The backend lacks a capability that the strategy, a verifier or the sampling needs; or a
            verifier reads other steps than those of the task.
        MissingDependency: A package that the strategy needs is not installed.
    """
    units = frozenset(limits)
    if units not in setup.checked:
        _check_strategy(setup)
        _check_models(setup, limits)
        _check_roles(setup)
        _check_selection(setup, limits)
        if not units.difference(() if setup.declared else VERIFIER_UNITS):  # without a verifier these bound nothing
            setup.plan.strategy.size(None)  # refuses a strategy that only a budget would end
        _check_verifiers(setup)
        names_and_rates = {role: (backend.name, backend.rates) for role, backend in setup.backends.items()}
        check_rates(limits, names_and_rates, setup.verifiers)
        setup.checked.add(units)
    _check_thoughts(setup.needs, limits)


def _check_pictures(run: ProblemRun) -> None:
    """Refuse pictures where a model takes none, or where a limit counts their unknown tokens.

    Raises:
        CapabilityError: a model takes no pictures.
        ConfigError: a limit counts input tokens, and the tokens of a picture are not known.
    """
    if not pictures_in(run.problem.prompt):
        return
    rated_limits = sorted(RATED & run.limits.keys())  # they count input tokens
    for role, backend in run.setup.backends.items():
        if not backend.caps.pictures:
            raise CapabilityError(
                f"the prompt has a picture, but the model of the role {role!r} on the backend {backend.name!r} reads "
                "text alone",
                hint="use a model on a server that takes pictures by chats (tts doctor --url; --model-option "
                "mode=chat), or leave them out",
            )
        if rated_limits and metadata_of(backend).picture_tokens is None:
            raise ConfigError(
                f"the budget limits {', '.join(rated_limits)}, but the tokens of a picture are not known",
                hint="give the model's record tokens_per_image, or limit other units",
            )


def _check_strategy(setup: Setup) -> None:
    """Refuse a strategy that cannot run; the hint names the nearest strategy that can.

    Raises:
        CapabilityError: The backend, or this machine, lacks what the strategy needs.
        ConfigError: The task lacks a prompt that the strategy needs, or a role of the strategy has no verifier.
        MissingDependency: A package that the strategy needs is not installed.
    """
    strategy, needs, task, policy = setup.plan.strategy, setup.needs, setup.task, setup.backends["policy"]
    shows_tokens = metadata_of(policy).text_of is not None
    setting = RunSetting(caps=policy.caps, shows_tokens=shows_tokens, task=task, roles=tuple(setup.verifiers))
    if not lacking(strategy, setting):
        if needs.task is not None:
            needs.task(task)  # raises where the task does not fit
        if needs.machine is not None:
            needs.machine()  # raises where this machine lacks something
        return
    cure = f"the nearest strategy that can run here is {nearest(strategy, setting)}"
    try:
        require(policy, needs.capabilities, f"the strategy {strategy}")
    except CapabilityError as refusal:
        hint = f"{refusal.hint}; {cure}" if refusal.hint else cure
        raise CapabilityError(refusal.cause, hint=hint) from None
    if "token_ids" in needs.capabilities and not shows_tokens:
        raise CapabilityError(
            f"the strategy {strategy} forks at a token, but the backend {policy.name!r} does not show the text of "
            "single tokens",
            hint=cure,
        )
    for kind in needs.prompts:
        if not has_prompt(task, kind):
            may_revise = kind == "fuse" and has_prompt(task, "revise")
            raise ConfigError(
                f"the strategy {strategy} takes the prompt {kind!r}, which the task {task.name!r} lacks",
                hint=f"give prompt='revise', or {cure}" if may_revise else cure,
            )
    for role in needs.verifiers:
        if role not in setup.verifiers:
            raise ConfigError(
                f"the strategy {strategy} scores with the role {role!r}, but no verifier has it",
                hint=f"{GIVE_VERIFIER}; or {cure}",
            )


def _check_models(setup: Setup, limits: Mapping[str, float]) -> None:
    """Refuse models that do not fit the strategy, the budget or the sampling.

    Raises:
        ConfigError: A role has no model, or the budget does not limit the unit in which models are compared.
        CapabilityError: A model lacks a capability that the strategy or the sampling uses.
    """
    strategy, needs, backends = setup.plan.strategy, setup.needs, setup.backends
    for role, capabilities in needs.models.items():
        if role not in backends:
            raise ConfigError(
                f"the strategy {strategy} writes with the role {role!r}, but no model has it; those that have one: "
                f"{', '.join(backends)}",
                hint=f"Solver(models={{'policy': …, {role!r}: …}})",
            )
        require(backends[role], capabilities, f"the strategy {strategy}, of the role {role!r},")
    if needs.unit is not None and needs.unit not in limits:
        raise ConfigError(
            f"the strategy {strategy} compares models by their cost in {needs.unit}, but the budget limits "
            f"{', '.join(limits)}",
            hint=f"give {needs.unit}=…, or fit its performance model again, with tts fit --unit",
        )
    sampling = sampling_with(setup.sampling, temperature=getattr(strategy, "temperature", None))
    for role in ("policy", *needs.models):
        require_sampling(backends[role], sampling)


def _check_roles(setup: Setup) -> None:
    """Refuse roles without a verifier, and roles that both a verifier and the strategy would score."""
    for role in setup.declared:
        if role not in setup.verifiers:
            raise ConfigError(
                f"{setup.plan} scores with the role {role!r}, but no verifier has it",
                hint=f"{GIVE_VERIFIER}; or choose a selection that needs none, such as majority",
            )
    for role in setup.needs.scores:
        if role in setup.verifiers:
            raise ConfigError(
                f"{setup.plan} gives scores of the role {role!r} itself, but a verifier has that role",
                hint="name another role in Needs.scores, or give no verifier",
            )


def _check_selection(setup: Setup, limits: Mapping[str, float]) -> None:
    """Refuse a selection whose verifier cannot compare, or whose embedder has no price for a limit."""
    needs = setup.selection_needs
    for role in needs.pairs:
        traits = traits_of(setup.verifiers[role])
        if traits.comparison is None or (needs.lists and traits.choice is None):
            raise ConfigError(
                f"the selection {setup.selection} compares candidates, but the verifier "
                f"{setup.verifiers[role].name!r} cannot",
                hint="give one that can, such as verifier='judge', or another selection",
            )
    if needs.vectors:
        refuse_unpriced((setup.embedder or NGRAMS) if needs.vectors is True else needs.vectors, limits)


def _check_verifiers(setup: Setup) -> None:
    """Refuse verifiers without their model, capabilities, scale or permission."""
    for role, verifier in setup.verifiers.items():
        if verifier.model not in setup.backends:
            raise ConfigError(
                f"the verifier {role!r} calls the model {verifier.model!r}, but no model has that role",
                hint=f"give models={{'policy': …, {verifier.model!r}: …}}, in a study  model: {{policy: …, "
                f"{verifier.model}: …}}; tts solve takes the name of a model",
            )
        check_fit(verifier, setup.backends[verifier.model], setup.task)
        if setup.needs.scaled and role in setup.needs.verifiers:
            check_scale(verifier)
        if verifier.oracle and not setup.allow_oracle:
            raise ConfigError(
                f"the verifier {verifier.name!r} sees the reference answer, but an oracle needs permission",
                hint="pass allow_oracle=True (--allow-oracle); the result is marked as an oracle's",
            )


def _check_thoughts(needs: Needs, limits: Mapping[str, float]) -> None:
    """Refuse a budget of thoughts that leaves nothing for a response."""
    thought_tokens = needs.thought_tokens
    if thought_tokens is None:
        return
    for unit in ("tokens", "generated_tokens"):
        limit = limits.get(unit, math.inf)
        if thought_tokens >= limit:
            raise ConfigError(
                f"thought_tokens is {thought_tokens}, but must be below the budget of {limit:g} {unit}, which pays "
                "the response too",
                hint=f"for example thought_tokens={max(1, int(limit) // 2)}",
            )


# Forewarnings ---------------------------------------------------------------------------------------------------------


def forewarnings(run: ProblemRun) -> list[str]:
    """Return the warnings that are known before anything is spent, of a run that `check` lets pass."""
    return [*run.setup.notes, *task_warnings(run), *score_warnings(run)]


def score_warnings(run: ProblemRun) -> list[str]:
    """Return the warnings that solutions may have no scores: they are too long to be shown, or too dear."""
    setup = run.setup
    expected = run.expected_tokens or setup.task.typical_tokens("solve")
    scorers = {role: setup.verifiers[role] for role in setup.declared if role in setup.verifiers}
    members = [member for scorer in scorers.values() for member in _leaves(scorer)]
    unshown = [_unshown(run.problem, member, setup.backends[member.model], expected) for member in members]
    return [*dict.fromkeys(chain(*unshown, _unpaid(run, scorers, expected)))]  # without duplicates


def task_warnings(run: ProblemRun) -> list[str]:
    """Return the warning that the task may be another one."""
    is_free_text = not run.setup.task_given and run.setup.task.name == "text"
    return [_LIKE_MATH] if is_free_text and looks_like_math(run.problem.text) else []


def _leaves(verifier: Verifier) -> Iterator[Verifier]:
    """Yield the members of a composition, and of compositions in it; a verifier alone is its only member."""
    members = members_of(verifier)
    for member in members:
        yield from _leaves(member)
    if not members:
        yield verifier


def _unshown(problem: Problem, verifier: Verifier, backend: Backend, expected: int) -> Iterator[str]:
    """Yield the warning that prompts of a verifier are too long to be shown."""
    from tts.verifiers.replying import ReplyingVerifier  # most searches have no such verifier

    if not isinstance(verifier, ReplyingVerifier):
        return
    question_tokens = max((count_tokens(backend, prompt) for prompt in verifier.empty_prompts(problem)), default=0)
    if question_tokens + expected <= verifier.room:
        return
    prompt_size = f"the {verifier.name}'s question and the problem take {question_tokens:,} tokens"
    limit = f"its prompt may have {verifier.room:,}"
    needed = question_tokens + 2 * expected
    fits = backend.context is None or needed + verifier.behind_prompt <= backend.context
    cure = (
        f"give {verifier.name}(prompt_tokens={needed})"
        if fits
        else f"the model's context holds {backend.context:,}: judge by another model"
    )
    if question_tokens > verifier.room:
        yield f"no solution can be scored: {prompt_size}, and {limit}; {cure}"
    else:
        yield f"long solutions cannot be scored: {prompt_size}, a solution about {expected:,}, and {limit}; {cure}"


def _unpaid(run: ProblemRun, scorers: Mapping[str, Verifier], expected: int) -> Iterator[str]:
    """Yield the warning that the budget pays no score of a solution of the expected length.

    Scores that cost by the token are left out: their reserve shrinks with the lengths that a search learns.
    """
    setup, policy = run.setup, run.setup.backends["policy"]
    account = run.budget if isinstance(run.budget, Account) else Account(run.budget)
    costs = Costs(account, scorers, tuple(scorers), setup.token_rates, setup.compared_by)
    price = costs.price(policy, count_tokens(policy, run.problem.prompt))
    for unit in account.units:
        score_cost, limit = price.reserve(unit, 1), account.limit(unit)
        solution_cost = min(price.generation(unit, expected), limit // 2)
        if score_cost and solution_cost + score_cost > limit:
            names = ", ".join(sorted(scorer.name for scorer in scorers.values()))
            parts = (
                f"a solution takes about {expected:,} tokens, and a score by {names} up to "
                f"{price.reserve('tokens', 1):,} more"
            )
            yield (
                f"scores may not be paid: {parts}, but the budget is {format_limits(run.limits)}; "
                f"give a larger one, or a cheaper verifier{_cheaper_example(scorers)}"
            )
            return


def _cheaper_example(scorers: Mapping[str, Verifier]) -> str:
    """Return an example of the parameters that bound what a verifier may cost."""
    from tts.verifiers.replying import ReplyingVerifier

    members = [member for scorer in scorers.values() for member in _leaves(scorer)]
    replying = [member for member in members if isinstance(member, ReplyingVerifier)]
    if not replying:
        return ""
    example = replying[0]
    sizes = f"max_tokens={max(1, example.max_tokens // 2)}, prompt_tokens={example.room // 2}"
    return f", such as {example.name}(votes=1, {sizes})"
