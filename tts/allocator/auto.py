"""The strategy `auto`: draw as many samples as are worth their cost, or change to a better strategy.

It judges by the samples so far.

A few pilot samples give a posterior over the difficulty of the problem. Then the class `Allocator` decides after each
wave: more samples, another strategy of the performance model, or the end, because the problem is settled. Pilots are
candidates like others: they count as samples and enter the final selection. Another strategy starts from the root, and
the pilots remain. The performance model may show that a single sample is better at another temperature than the run's
(mostly a greedy one). Then the first sample is drawn at that temperature.

If the selection uses a verifier, scores are computed as samples come. A checker's verdict (the greatest score of an
oracle, or of `rules`) ends a problem, and without a performance model the value of a sample is then the chance that it
is right (`Checked`). Any other verifier's scores weight the votes (`Evidence.of`): a constant score changes nothing,
and a confident one settles the problem. That is our choice. Scores are not used as further evidence of difficulty: when
counted twice, they cost up to six points of accuracy in simulation. Evidence from the prompt or log-probabilities
gained up to eight. The candidates of a search are no votes, for they depend on each other.

Where votes alone divide a total, and no performance model is known, votes never tell a right answer from a wrong one
that is given as often (`Population.with_twins`). Problems that votes do not tell apart get equally many samples
(`Allocator.even`), which no votes make worse.

A plan of the performance model may have a stop rule, as in `best_of_n(n=8) | first_finish(k=4) | majority` or
`best_of_n(n=8) | sprt(preset='consol') | majority`. Its answer is that of the solutions that it took.

A strategy of the performance model may use other models, as in `best_of_n(writer='large')`. So `auto` also chooses the
model, by its accuracy and price. The policy should be the cheapest. It draws the pilots, and only its samples are
evidence of difficulty. If a strategy used other models, the answer comes from its last candidates, unless they have
none; with a checker it may come from any candidate. Other models are used only if a performance model names them.
Otherwise only the policy writes, and the solution states that.

Source: the choice per prompt of algorithm A14 (Snell et al. 2408.03314), with a posterior in place of a bin; stopping
where another sample is not worth its price is the saturation point of A17 (2505.20522), problem by problem. Without a
performance model the values are those of votes under a broad population, and the strategy is best_of_n.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, cast

import numpy as np

from tts.allocator import shipped
from tts.allocator.allocate import Allocator
from tts.allocator.blend_asc import Blended
from tts.allocator.difficulty import Floats, Population
from tts.allocator.evidence import Evidence, Round
from tts.allocator.gauges import READINGS, Estimator, Guess, evidence_of
from tts.allocator.performance import PerformanceModel
from tts.allocator.performance_file import PLAIN, answers_alone, draws_plain, other_models
from tts.allocator.values import Checked, Curved, ProblemStates, Values, Voted
from tts.checks import Amount, Count, Text, check_parameters, choice, number_above
from tts.errors import CapabilityError, ConfigError
from tts.search.ends import SearchEnded, StopDecision
from tts.search.needs import Needs, needs_of
from tts.search.parts import Plan, Selection, Strategy
from tts.search.plan import parse
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.search.selections.weighted import Weighted
from tts.search.strategies.samples.best_of_n import BestOfN
from tts.types import Candidate
from tts.verifiers.base import estimate_unknown, to_unit
from tts.verifiers.compatibility import GIVE_VERIFIER, proves

# votes that are told apart, for few and for many samples a problem; the larger table takes a second to make
_ROOM = (64, 128)
_PILOTS = 4
_COMPARED = 2  # pilots of each of many problems, where dearer models may be used: one vote agrees with itself
_PRICE, _CERTAINTY = 0.001, 4.0
_VOTES_PRICE = 0.001  # of a sample where votes alone decide among problems: below it the rest is divided evenly


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto(Strategy):
    """Draws a few samples, the pilots, and then chooses what gains most for its cost.

    The choice is among more samples, another strategy, and the end.

    Args:
        n: Most plain samples, at least 1; None: as many as the budget pays and are worth it. Of many problems that
            share a total each gets at most 16, or, if that is more, eight times what the total pays for it.
        pilots: Samples before the first decision, at least 1. None: for a problem with its own budget 4, or 1 with
            `mean` or where the performance model has other strategies; none where one of these is better from the start
            (`PerformanceModel.direct`). For each of several that share a total 1, or 2 if the performance model has
            other models and there is no checker.
        price: Gain in the chance of a right answer below which no sample is drawn, at least 0. At 0, samples are drawn
            while they add anything. None: the price that follows from `mean`, otherwise 0.001; under a shared total 0.
            Where votes alone divide a total, None is 0.001 too, under a prior by which wrong answers may lead, and the
            rest goes evenly to the problems with fewest samples.
        model: A performance model, the name of one that ships or the path of a file (`tts fit`). None: one that ships
            and fits, if any; otherwise verdicts or votes decide, with a prior over problems of all difficulties.
        verifier: The role whose scores are computed as samples are drawn. None: "main"; if only other roles are used,
            the first role of the selection.
        expected: Your estimate of the success rate of one sample on these problems, in (0, 1); None: no estimate.
        certainty: The weight of that estimate, in samples of each problem, above 0; None: 4.
        division: "worth" divides a total by the gain of samples. "blend_asc" divides it by votes alone: the next sample
            goes to the problem whose most frequent answer is least sure (`tts.allocator.blend_asc`).
        mean: Mean number of samples a problem, above 0, for problems that come one at a time. It replaces `price`, and
            is reached on average over the expected problems. The budget of each problem remains an upper limit.

    Raises:
        ConfigError: a value is outside its range, or would have no effect together with another.

    Cost: at most n plain samples, or the budget; other strategies of the performance model at their own cost. A
    candidate is scored once,
        for this and for the selection.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="auto(n=12)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 6, 126)
    """

    registered_as = "auto"
    divides_total = True
    n: Count | None = None
    pilots: Count | None = None
    price: Amount | None = None
    model: Text | None = None
    verifier: Text | None = None
    expected: Annotated[float, number_above(0, 1)] | None = None
    certainty: Annotated[float, number_above(0)] | None = None
    mean: Annotated[float, number_above(0)] | None = None
    division: Annotated[str, choice("worth", "blend_asc")] = "worth"

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.price is not None and self.mean is not None:
            raise ConfigError(
                f"price is {self.price} and mean {self.mean}, but mean stands in place of a price",
                hint="give one of them",
            )
        if self.certainty is not None and self.expected is None:
            raise ConfigError(
                f"certainty is {self.certainty}, but it belongs to expected, which is not given",
                hint="give expected too",
            )
        used = [name for name in ("model", "price", "expected", "mean") if getattr(self, name) is not None]
        if self.division == "blend_asc" and used:
            raise ConfigError(
                f"division is 'blend_asc', which reads votes alone, so that {' and '.join(used)} would do nothing",
                hint="leave one of them out",
            )

    def needs(self) -> Needs:
        """The needs of all strategies that may be chosen.

        Models are compared in the unit of the performance model.
        """
        capabilities: dict[str, None] = {}  # an ordered set, as are the others
        verifiers: dict[str, None] = {}
        models: dict[str, dict[str, None]] = {}  # the capabilities that a model must have, by its role
        for text in self._other_texts():
            needs = needs_of(parse(text).strategy)
            capabilities.update(dict.fromkeys(needs.capabilities))
            verifiers.update(dict.fromkeys(needs.verifiers))
            for role, model_capabilities in needs.models.items():
                models.setdefault(role, {}).update(dict.fromkeys(model_capabilities))
        return Needs(
            capabilities=tuple(capabilities),
            verifiers=tuple(verifiers),
            models={role: tuple(names) for role, names in models.items()},
            unit=self._unit,
        )

    @property
    def _unit(self) -> str | None:
        """The unit of cost in which the performance model compares models; None: it has the policy alone."""
        known = None if self.model is None else shipped.load(self.model)
        return known.unit if known is not None and known.models else None

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Run round after round, until a round grants nothing."""
        probe = await self._probe(search)
        plan_sizes: dict[int, int] = {}  # the greatest size of each other plan so far
        answering = slice(None)  # the candidates among which the answer is chosen
        others = set[int]()  # the indices of candidates of other strategies
        while True:
            found = dataclasses.replace(await self._find(search, others), probe=probe)
            step = await self.next_round(search, found, plan_sizes)
            if step.why:
                agree = "one is accepted" if found.solved else f"{found.agreeing} agree"
                search.notes.reasons.append(f"after {found.samples} samples ({agree}): {step.why}")
            if not step.samples:
                raise _search_end(step.why, answering)
            num_before = len(search.candidates)
            round_end: SearchEnded | None = None  # an end of the round that may end the problem
            round_answers = slice(num_before, None)  # the candidates of the round that it answers with
            try:
                if step.plan:
                    plan_sizes[step.plan] = max(step.samples, plan_sizes.get(step.plan, 0))
                    run = self._run_plan if found.samples else self._run_alone
                    round_answers = _place_of(await run(search, step), search.candidates, num_before)
                else:
                    await self._draw_plain(search, step.samples)
            except SearchEnded as end:
                by_own_rule = bool(step.plan) and end.stop is not None and search.notes.stop is None
                round_end = None if by_own_rule else end
                before_choice = end.before_choice
                if before_choice is not None and end.stop is not None:  # the plan's strategy is done, not the problem
                    round_answers = end.stop.used
                    round_end = before_choice if before_choice.reason.startswith("budget") else None
            if step.plan:
                others.update(range(num_before, len(search.candidates)))
            is_alone = answers_alone(parse(self.plans()[step.plan])) and not found.checked
            if is_alone and any(c.answer is not None for c in search.candidates[round_answers]):
                answering = slice(*round_answers.indices(len(search.candidates)))
            if round_end is not None and not self.may_continue(round_end):
                raise round_end if round_end.stop is not None else _search_end(round_end.reason, answering)

    async def next_round(self, search: Search, found: Evidence, had: Mapping[int, int]) -> Round:
        """Return the next round of a problem with a budget of its own.

        Args:
            search: The search of the problem.
            found: The evidence so far.
            had: The greatest size of each other plan so far.

        Returns:
            The round. If it has no samples, the search is over, and `why` is the reason.
        """
        num_affordable = search.affordable_samples()
        num_allowed = None if self.n is None else self.n - found.samples
        left = min(number for number in (num_affordable, num_allowed) if number is not None)
        if left <= 0:
            return Round(0, why="samples drawn")
        direct = None if had else self._direct(search, found, float(left))
        if direct is not None:
            return direct
        plans = self.plans()
        if not found.samples and found.beside and any(answers_alone(parse(plans[plan])) for plan in had):
            return Round(0, why="it has answered, and a sample would have no vote")  # it began without pilots
        allocator = self.allocator(alone=True, checked=found.checked, each=found.samples + left)
        evidence = {field.name: np.array([getattr(found, field.name)]) for field in dataclasses.fields(found)}
        plan_sizes = np.array([[had.get(plan, 0) for plan in range(len(plans))]])  # [1, plans]
        state = self.state(evidence, np.ones(1), float(left), had=plan_sizes)
        grant = allocator.next(state)
        rate = float(grant.rate[0])
        if grant.reason:
            if found.solved:
                return Round(0, why="settled: the checker has accepted an answer")
            gain = f"{rate:.2g} to the chance of a right answer"
            return Round(0, why=f"settled: another sample would add {gain}, below the price {allocator.price:.2g}")
        plan, why = int(grant.plan[0]), "pilots, to see how hard it is"
        if rate:
            chance = float(allocator.values.chance(state)[0])
            why = f"{plans[plan]}: right by {chance:.2f} as it stands, and each further sample adds {rate:.2g}"
        return Round(int(grant.samples[0]), plan, why)

    def _direct(self, search: Search, found: Evidence, left: float) -> Round | None:
        """Return the round of the search with which a problem begins in place of pilots.

        None: the problem begins with pilots, or has samples already.
        """
        if self.model is None or self.pilots is not None or self.mean is not None or found.samples or found.checked:
            return None
        plans, known = self.plans(), shipped.load(self.model)
        tokens_left = search.left.get("tokens")
        if known.unit == "tokens" and tokens_left is not None:
            left = tokens_left / known.tokens  # the only length known before a sample is that of the model's fit
        direct = known.direct(left, [text for text in plans[1:] if not other_models(parse(text).strategy)])
        if direct is None:
            return None
        text, size = direct
        why = f"{text}: at this budget it reaches more than pilots and what follows them"
        return Round(samples=size, plan=plans.index(text), why=why)

    def may_continue(self, end: SearchEnded) -> bool:
        """Return whether another round may follow one that ended so.

        None follows where the budget of the problem is used up.
        """
        del end
        return False

    def _size(self, search: Search, step: Round) -> Strategy:
        """Return the strategy of a round with its size.

        The round is granted in samples of the policy. Another model gets as many samples as this grant pays.
        """
        strategy = parse(self.plans()[step.plan]).strategy
        if not isinstance(strategy, BestOfN):
            if getattr(strategy, "n", 1) is not None:
                return strategy
            return dataclasses.replace(cast("Any", strategy), n=step.samples)  # else it would spend all that is left
        rows, unit = search.rows, self._unit or "tokens"
        policy_cost = rows.sample_cost("policy", unit)
        writer_cost = rows.sample_cost(strategy.writer, unit)
        num_paid = max(1, round(step.samples * policy_cost / max(1, writer_cost)))
        return dataclasses.replace(strategy, n=strategy.n or num_paid)

    async def _run_alone(self, search: Search, step: Round) -> Sequence[Candidate]:
        """Run the strategy of a first round as it would run without `auto`.

        The whole budget determines the size of the strategy.

        Raises:
            SearchEnded: The budget of the problem, the time or a stop rule ended the strategy.
        """
        plan = parse(self.plans()[step.plan])
        is_stepwise = "steps" in needs_of(plan.strategy).capabilities
        strategy = plan.strategy.size(search.affordable_samples(stepwise=is_stepwise))
        with _rule_of(plan, search):
            return await strategy.run(search)

    async def _run_plan(self, search: Search, step: Round) -> Sequence[Candidate]:
        """Run the strategy of a round.

        A strategy that only a budget ends is paid by a part of the account: the cost of the round's samples.

        Raises:
            SearchEnded: The budget of the problem, the time or a stop rule ended the strategy.
        """
        strategy, rows = self._size(search, step), search.rows
        if _is_bounded(strategy):
            with _rule_of(parse(self.plans()[step.plan]), search):
                return await strategy.run(search)
        account = search.account
        known = shipped.load(str(self.model))
        (limit,) = known.limit(self.plans()[step.plan], np.array([step.samples])).tolist()  # in plain samples
        sample_costs = {unit: rows.sample_cost("policy", unit) for unit in account.units}
        amounts = {unit: int(limit * cost) for unit, cost in sample_costs.items()}
        pays_another = [amount + sample_costs[unit] <= account.available(unit) for unit, amount in amounts.items()]
        if not any(pays_another):  # nothing would be left for another sample, so the strategy may have all
            return await strategy.run(search)
        try:
            with rows.pay_from(account.reserve_part(amounts)):
                return await strategy.run(search)
        except SearchEnded as end:
            if not (end.before_choice or end).out_of_budget:
                raise
            return search.candidates if end.stop is None else search.candidates[end.stop.used]

    async def _draw_plain(self, search: Search, samples: int) -> None:
        """Draw plain samples; the performance model may have another temperature for a problem's first sample."""
        first_temperature = None if self.model is None or search.candidates else shipped.load(self.model).first
        if first_temperature is not None:
            await search.complete([search.root], n=1, temperature=first_temperature)
            samples -= 1
        if samples:
            await search.complete([search.root], n=samples)

    async def _find(self, search: Search, others: Collection[int]) -> Evidence:
        """Return the evidence from plain samples, weighted by a verifier's scores where there is one.

        Args:
            search: The search.
            others: The indices of candidates of other strategies.
        """
        candidates = search.candidates
        is_sample = [place not in others and c.trajectory.model == "policy" for place, c in enumerate(candidates)]
        samples = [c for c, is_plain in zip(candidates, is_sample, strict=True) if is_plain]
        logprob = _mean(_logprob(c) for c in samples)
        num_others = len(candidates) - len(samples)
        evidence = dataclasses.replace(Evidence.of(samples), logprob=logprob, beside=num_others)
        role = self.verifier or "main"
        scoring = search.scoring
        if role not in scoring.verifiers or any(c.trajectory.node in scoring.unscorable for c in candidates):
            return evidence
        verifier = scoring.get(role)
        if not candidates:
            return Evidence(checked=proves(verifier), weighted=True)
        scores = await search.score([c.trajectory for c in candidates], role, required=False)
        weights = estimate_unknown(to_unit(scores, scoring.range_of(role)))[is_sample]  # [samples]
        if not np.isnan(weights).all():
            by_weight = Evidence.of(samples, weights.tolist())
            evidence = dataclasses.replace(by_weight, logprob=logprob, beside=num_others)
        evidence = dataclasses.replace(evidence, weighted=True)
        if not proves(verifier):
            return evidence
        _, greatest_score = verifier.range
        is_solved = any(
            c.answer is not None and score == greatest_score
            for c, score in zip(candidates, scores.tolist(), strict=True)
        )
        return dataclasses.replace(evidence, checked=True, solved=is_solved)

    async def _probe(self, search: Search) -> float:
        """Return the reading of the prompt by the performance model's probe; NaN: there is no reading."""
        probe = None if self.model is None else shipped.load(self.model).probe
        if probe is None:
            return math.nan
        try:
            return float(probe.reading(await search.hidden([search.root]))[0])
        except CapabilityError:
            search.notes.warn("the performance model's probe is left out: the backend shows no hidden states")
        except SearchEnded as end:
            search.notes.warn(f"the performance model's probe is left out: {end.reason}")
        return math.nan

    @property
    def estimators(self) -> Mapping[str, Estimator]:
        """The evidence of difficulty besides votes and verdicts, by its source."""
        gauges = {} if self.model is None else shipped.load(self.model).gauges
        return {name: gauge for name, gauge in gauges.items() if name in READINGS}

    def plans(self) -> tuple[str, ...]:
        """Return the possible strategies, plain samples first."""
        return (PLAIN, *self._other_texts())

    def _other_texts(self) -> tuple[str, ...]:
        if self.model is None:
            return ()
        return tuple(text for text in shipped.load(self.model).curves if not draws_plain(parse(text)))

    def values(self, *, checked: bool = False, each: float = 0.0, twins: bool = False) -> Values:
        """Return the values of samples, before any is drawn.

        Args:
            checked: Whether a checker judges samples.
            each: The expected number of samples of a problem.
            twins: Whether votes cannot tell a wrong answer that leads from a right one (`Population.with_twins`). It
                concerns only votes without a performance model.

        Raises:
            ConfigError: the performance model cannot be read, or has no curve of plain samples.
        """
        guess = None
        if self.expected is not None:
            guess = Guess(self.expected, _CERTAINTY if self.certainty is None else self.certainty)
        known = None if self.model is None else shipped.load(self.model)
        small_room, large_room = _ROOM
        room = large_room if each > small_room // 4 else small_room
        return _values(known, None if checked else room, guess, twins=twins)

    def state(self, found: Mapping[str, Any], cost: Floats, left: float, **more: Any) -> ProblemStates:
        """Return the allocator's state of problems.

        Args:
            found: The fields of `Evidence` by name, each of shape [P].
            cost: The cost of one sample of each problem, [P].
            left: The credit that is left, in the unit of the cost.
            more: Other fields of the state.
        """
        checked, samples = bool(found["checked"].all()), found["samples"]
        # on the kinds of the grid, which every performance model has
        evidence = evidence_of(self.estimators, Population.beta(), found, samples.astype(np.float64))
        return ProblemStates.of(
            samples,
            left,
            leader=found["leader"],
            second=found["second"],
            solved=found["solved"],
            cost=cost,
            checked=checked,
            evidence=evidence,
            beside=found.get("beside"),
            **more,
        )

    def allocator(self, *, alone: bool, checked: bool = False, weighted: bool = False, each: float = 0.0) -> Allocator:
        """Return the allocator; its waves are wide for a single problem, and narrow for many.

        Args:
            alone: Whether the problem has a budget of its own.
            checked: Whether a checker judges samples.
            weighted: Whether the scores of another verifier weigh the votes.
            each: The expected number of samples of a problem.
        """
        if self.division == "blend_asc":
            growth, share = (0.5, 1.0) if alone else (0.05, 0.1)
            pilots = self.pilots or (_PILOTS if alone else 1)
            return Allocator(values=Blended(), pilots=pilots, growth=growth, share=share)
        by_votes = not (alone or checked or weighted or self.model) and self.price is None
        values = self.values(checked=checked, each=each, twins=by_votes)
        if alone and self.mean is not None:
            return Allocator(
                values=values, pilots=self.pilots or 1, growth=0.25, share=1.0, price=values.price(self.mean)
            )
        if alone:
            # a search of the performance model would lack the credit that more pilots spend
            pilots = self.pilots or (_PILOTS if len(self.plans()) == 1 else 1)
            price = _PRICE if self.price is None else self.price
            return Allocator(values=values, pilots=pilots, growth=0.5, share=1.0, price=price)
        pilots = self.pilots or (_COMPARED if self._unit is not None and not checked else 1)
        if by_votes:
            return Allocator(values=values, pilots=pilots, price=_VOTES_PRICE, even=True)
        return Allocator(values=values, pilots=pilots, price=self.price or 0.0)

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `weighted` with a verifier, by the role that is read, else `majority`."""
        return Weighted(verifier=self.verifier or "main") if verified else Majority()

    def check(self, selection: Selection, roles: Collection[str]) -> None:
        """Refuse a verifier whose scores would not be used.

        Args:
            selection: The selection of the run.
            roles: The roles that verifiers have.

        Raises:
            ConfigError: no verifier has the role, or neither the selection nor any possible strategy uses scores.
        """
        if self.verifier is None:
            return
        if self.verifier not in roles:
            raise ConfigError(
                f"auto reads the scores of the role {self.verifier!r}, but no verifier has it",
                hint=f"known: {', '.join(roles)}" if roles else f"{GIVE_VERIFIER}; or leave the role out",
            )
        if not (needs_of(selection).verifiers or needs_of(self).verifiers):
            raise ConfigError(
                f"auto reads the scores of the role {self.verifier!r}, but the selection {selection} asks for none",
                hint="choose one that uses scores, such as weighted, or leave the role out",
            )


def _rule_of(plan: Plan, search: Search) -> AbstractContextManager[None]:
    """Return the block in which a plan's own stop rule holds."""
    return nullcontext() if plan.stopping is None else search.stop_rule(plan.stopping.should_stop, plan.stopping.order)


def _is_bounded(strategy: Strategy) -> bool:
    """Return whether a strategy ends without a limit from the budget."""
    try:
        strategy.size(None)
    except ConfigError:
        return False
    return True


def _place_of(chosen: Sequence[Candidate], candidates: Sequence[Candidate], first: int) -> slice:
    """Return the slice of the candidates that a strategy returned.

    Where other candidates stand between them, the slice has all candidates of the round.

    Args:
        chosen: The candidates that the strategy returned.
        candidates: All candidates of the search.
        first: The place of the first candidate of the round.
    """
    nodes = {c.trajectory.node for c in chosen}
    places = [place for place in range(first, len(candidates)) if candidates[place].trajectory.node in nodes]
    if places and places[-1] - places[0] + 1 == len(places):  # in one piece
        return slice(places[0], places[-1] + 1)
    return slice(first, None)


def _search_end(reason: str, answer: slice) -> SearchEnded:
    """Return the end of a search whose answer is chosen among some of its candidates."""
    return SearchEnded(reason, None if answer == slice(None) else StopDecision(reason, used=answer))


def _logprob(candidate: Candidate) -> float:
    """Return the mean log-probability of a candidate's tokens; NaN where it has none."""
    return _mean(logprob for piece in candidate.trajectory.path for logprob in piece.logprobs)


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


@lru_cache(maxsize=8)
def _values(known: PerformanceModel | None, room: int | None, guess: Guess | None, *, twins: bool) -> Values:
    """Return the values of samples.

    Args:
        known: The performance model; None: votes or verdicts alone decide.
        room: The number of votes that are told apart; None: a checker's verdicts decide.
        guess: The user's estimate of the success rate; None: no estimate.
        twins: Whether votes cannot tell a wrong answer that leads from a right one.
    """
    population = Population.beta() if known is None else known.population
    if twins and known is None and room is not None:
        population = population.with_twins()
    if guess is not None:  # the guess is the same for all problems, so it changes the population
        (weight,) = population.posterior(guess.evidence(population, np.zeros(1), np.zeros(1)))
        population = dataclasses.replace(population, weight=weight)
    if known is None:
        return Checked(population) if room is None else Voted(population, room)
    plain_texts = [text for text in known.curves if draws_plain(parse(text))]
    other_texts = [text for text in known.curves if not draws_plain(parse(text))]
    return Curved(known, (plain_texts[0], *other_texts), population, room or _ROOM[0])
