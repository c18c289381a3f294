"""Sizes: what limits pay, and how many rows the next call writes, and how far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tts.backends.capabilities import count_tokens, require
from tts.backends.metadata import metadata_of
from tts.budget.account import Exhausted
from tts.budget.units import LENGTH_UNITS, PLACE_UNITS
from tts.search.context import SearchContext
from tts.search.ends import END, STEP, Thought, Tokens
from tts.search.lengths import NO_CAP, KnownLengths, Lengths
from tts.search.plan_rows import (
    SHARED_UNITS,
    Goal,
    Price,
    Wave,
    branches_of,
    limit_to_share,
    pays_plenty,
    plan_programs,
    plan_rows,
)
from tts.search.prompts import Prompts
from tts.search.rows import RequestedRow, RowRequest
from tts.types import Trajectory

_RESPONSE = 0.25  # the part of the amount left before a thought that is reserved for the response
_FIRST_WIDTH = 4  # rows of the first call where time is limited
_PIECE = 16  # the fewest tokens of a piece of rows in finish order
_PIECE_SHARE = 16  # a longer piece of these rows is this part of their length


def _goal(ask: RowRequest) -> Goal:
    if ask.until is STEP:
        return Goal.ROLLOUT if ask.scratch else Goal.STEP
    return Goal.TOKENS if isinstance(ask.until, Tokens) else Goal.SOLUTION


def _requests(rows: Sequence[RequestedRow]) -> list[int]:
    """Return the cost of each row in requests: the rows of one call after the same path are one request."""
    asked: set[int] = set()
    costs: list[int] = []
    for row in rows:
        node = row.end.node
        costs.append(int(node not in asked))
        asked.add(node)
    return costs


class Sizes:
    """Sizes of the rows of one search.

    Args:
        context: What the parts of the search share.
        prompts: The prompts that were read.
        expected: The tokens of a solution that the caller expects; None: the task's constant.
        portion: The most tokens of a row in one call; None: no such cap. Results do not depend on it.

    Attributes:
        lengths: The known lengths of paths and steps.
    """

    def __init__(
        self, context: SearchContext, prompts: Prompts, *, expected: int | None = None, portion: int | None = None
    ) -> None:
        self.lengths = KnownLengths(context.task, expected)
        self._portion = portion or NO_CAP
        self._problem = context.problem
        self._task = context.task
        self._backends = context.backends
        self._costs = context.costs
        self._tree = context.tree
        self._prompts = prompts
        self._scratch_children: dict[int, int] = {}  # by node: the number of its children in rollouts
        # by node that ends pieces of given sizes: the cap of a row, and the tokens of these pieces
        self._chains: dict[int, tuple[int | None, int]] = {}
        self._assumes = False  # whether an assumed length kept the rows of the last call from beginning

    # What limits pay --------------------------------------------------------------------------------------------------

    @property
    def root_tokens(self) -> int:
        """The tokens of the "solve" prompt. The tokenizer counts them until the prompt is read."""
        if not self._tree.nodes:
            return count_tokens(self._backends["policy"], self._task.prompt(self._problem, "solve", ()))
        return self._tree.prompt_tokens[0]

    def sample_price(self, model: str = "policy") -> Price:
        """Return the price of a plain sample by a model."""
        return self._costs.price(self._backends[model], self.root_tokens)

    def sample_cost(self, model: str, unit: str) -> int:
        """Return the cost of a plain sample of expected length by a model, in whole units."""
        return self.sample_price(model).amount(unit, self.lengths.get("solve").expected_length())

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """See `Search.affordable_samples`."""
        price, account = self.sample_price(), self._costs.account
        solution_tokens = self.lengths.get("solve").expected_length()
        call_tokens = min(solution_tokens, self.lengths.step) if stepwise else solution_tokens
        num_calls = -(-solution_tokens // call_tokens)  # rounded up
        payable: list[int] = []  # by limit: the samples that the limit pays
        for unit in account.units:
            sample_cost = num_calls * price.amount(unit, call_tokens)
            if unit in PLACE_UNITS:  # a sample is one branch, and at most one request for each of its calls
                sample_cost += 1 if unit == "samples" else num_calls
            if sample_cost > 0:
                payable.append(account.available(unit) // sample_cost)
        if payable:
            return max(1, min(payable))
        return None if account.deadline is None else self._timed_width()

    def most_rows(self, live: int) -> int:
        """Return a number of the policy's rows that no limit pays, even if each row has one token.

        Args:
            live: The number of paths that go on. Their first children cost no sample.
        """
        account = self._costs.account
        price = Price(account.units, self._backends["policy"].rates)
        payable: list[int] = []  # by limit: the rows of one token that the limit pays
        for unit in account.units:
            amount_left = account.limit(unit) - account.spending(unit)
            row_cost = price.amount(unit, 1)
            if row_cost > 0:
                payable.append(amount_left // row_cost)
            if unit == "samples":
                payable.append(amount_left + live)
        return 1 + min(payable, default=NO_CAP)

    def _timed_width(self) -> int:
        """Return the number of rows of a call that a deadline may cut: as many as have ended, at least 4."""
        return max(_FIRST_WIDTH, self.lengths.ended)

    def room(self, model: str, t: Trajectory) -> int:
        """Return the tokens that a model's context leaves after a trajectory."""
        context = self._backends[model].context
        return NO_CAP if context is None else context - self._tree.path_tokens(t)

    def _fills(self, ask: RowRequest, path: Trajectory) -> bool:
        """Whether a path leaves no room in the context; False for a root, whose length was checked before."""
        context = self._backends[ask.model].context
        return context is not None and path.parent is not None and self._tree.path_tokens(path) >= context

    # The next call ----------------------------------------------------------------------------------------------------

    def _upcoming(self, ask: RowRequest, *, completed: bool) -> list[RequestedRow]:
        """Take the rows of a request that may begin now, up to the first that fills the context."""
        if ask.until is STEP:
            require(self._backends[ask.model], ["steps"], "expanding step by step")
        rows = ask.take(self._width(ask, completed=completed))
        self._tree.check_usable([row.parent for row in rows])
        if self._backends[ask.model].context is not None:
            for place, row in enumerate(rows):
                if self._fills(ask, row.parent):
                    ask.give_back(rows[place:])  # a later call ends the rows that fill the context
                    return rows[:place]
        return rows

    def _width(self, ask: RowRequest, *, completed: bool) -> int:
        """Return the most rows that may begin now. The plan of a call may begin fewer."""
        account = self._costs.account
        width = min(ask.left, ask.width)
        if ask.most is None:
            if "samples" in account.units:
                width = min(width, max(1, account.available("samples")))
            elif "requests" in account.units and set(account.units).isdisjoint(LENGTH_UNITS):
                # nothing else bounds the rows of a request: as many as there would be with one row each
                width = min(width, max(1, account.available("requests")))
            if account.deadline is not None:
                width = min(width, self._timed_width())
        programs = metadata_of(self._backends[ask.model]).programs
        if programs and ask.order == "drawn" and not set(account.units).isdisjoint(SHARED_UNITS):
            return int(min(width, programs))
        path = ask.next_path if width > ask.distinct else None
        if path is not None:
            width = min(width, max(ask.distinct, self._payable(ask, path, completed=completed)))
        return int(width)

    def _payable(self, ask: RowRequest, path: Trajectory, *, completed: bool) -> float:
        """Return the most rows after a path that `plan_rows` begins, where it begins more than one row."""
        left = self._costs.account.all_available()
        price = self._costs.price(self._backends[ask.model], self._tree.path_tokens(path))
        by_samples = left.get("samples", math.inf) + ask.distinct  # the first child of a path costs no sample
        if ask.until is not END:
            return min(by_samples, price.rows(1, left))
        cap = min(ask.sampling.max_tokens or NO_CAP, self.room(ask.model, path))
        if ask.order != "drawn":
            needed = self.lengths.get(path.root_kind).expected_length(path.num_tokens) - path.num_tokens
            return min(by_samples, price.rows(max(1, min(cap, needed)), left))
        doubled = 2 * self.lengths.begun if completed else 0
        if completed and ask.together:
            expected = self.lengths.get(path.root_kind).expected_length(path.num_tokens) - path.num_tokens
            doubled = ask.left if pays_plenty(price, max(1, min(cap, expected)), ask.left, left) else doubled
        return min(by_samples, max(doubled, price.rows(cap, left)))

    def _size(
        self,
        ask: RowRequest,
        rows: Sequence[RequestedRow],
        *,
        goes_on: bool,
        answered: bool,
        completed: bool,
        is_patient: bool,
    ) -> tuple[Wave, Sequence[int], Price]:
        """Return the plan of a call, the samples that its rows cost, and the price of a row from its parent on."""
        until, lengths, backend = ask.until, self.lengths, self._backends[ask.model]
        parents = list({row.parent.node: row.parent for row in rows}.values())
        of_kind, longest = lengths.get(parents[0].root_kind), max([t.num_tokens for t in parents])
        price, call_price = self._prices(ask, rows, parents, goes_on=goes_on)
        cap, needed = self._expectation(ask, rows, parents, of_kind, goes_on=goes_on)
        closing = 0
        if not (answered or until is END):
            if not (goes_on and ask.closing):  # all calls of a row have the same reserve: results depend on no cuts
                ask.closing = max(lengths.step, of_kind.expected_length(longest) - longest)
            closing = ask.closing
        left = self._allowance(rows if goes_on else (), call_price, needed, closing, is_patient=is_patient)
        if isinstance(until, Thought):
            if not ask.response:
                ask.response = call_price.tokens(closing, left, part=_RESPONSE)
            closing = ask.response
        branches = [0] * len(rows) if goes_on else self._branches(ask, [row.parent for row in rows])
        places: dict[str, Sequence[int]] = {"samples": branches}
        resumes = self._resumes(ask.model)
        programs, at_once = metadata_of(backend).programs, ask.order != "drawn"
        if "requests" in left and not programs:
            places["requests"] = _requests(rows)
            if not (answered or ask.completes):  # one request brings a path to its end
                left = {**left, "requests": left["requests"] - 1}
            resumes = resumes and left["requests"] > sum(places["requests"])  # after the last request no row goes on
        # true only if the plan raises: then an assumed length may be the reason
        self._assumes = closing > 0 and not of_kind.ended
        if programs:
            wave = plan_programs(
                call_price, places, len(rows), left, most=programs, cap=cap, wanted=ask.left, goes_on=goes_on,
                spent=self._row_costs(), at_once=at_once,
            )  # fmt: skip
        else:
            wave = plan_rows(
                call_price, places, len(rows), left, goal=_goal(ask), cap=cap, needed=needed,
                step=lengths.step if until is STEP else 1, goes_on=goes_on, begun=lengths.begun,
                is_completed=completed, resumes=resumes, longest=of_kind.longest, closing=closing,
                wanted=ask.left, at_once=at_once, together=ask.together,
                portion=self._portion_of(ask, max([row.written for row in rows]) if goes_on else 0),
            )  # fmt: skip
        self._assumes = False
        return wave, branches, price

    def _expectation(
        self,
        ask: RowRequest,
        rows: Sequence[RequestedRow],
        parents: Sequence[Trajectory],
        of_kind: Lengths,
        *,
        goes_on: bool,
    ) -> tuple[int, int]:
        """Return the most tokens that a row of the next call may take, and those that it is expected to take.

        For open rows this is the largest expected remainder of a row; for new rows, that of the longest parent.
        """
        until = ask.until
        if goes_on:
            cap = max([self._remainder(ask, row) for row in rows])
            if isinstance(until, Tokens):
                return cap, max([until.count - row.written for row in rows])
            path_lengths = {row.end.num_tokens for row in rows}
            return cap, max(1, *[of_kind.expected_length(written) - written for written in path_lengths])
        cap = min(ask.sampling.max_tokens or NO_CAP, max([self.room(ask.model, t) for t in parents]))
        cap = min(cap, until.count) if isinstance(until, Tokens) else cap
        longest = max([t.num_tokens for t in parents])
        return cap, max(1, min(cap, of_kind.expected_length(longest) - longest))

    def _allowance(
        self, open_rows: Sequence[RequestedRow], price: Price, needed: int, closing: int, *, is_patient: bool
    ) -> Mapping[str, int]:
        """Return the amounts that a call is planned with: all that is left, but only an equal part of a shared limit.

        Rows that go on may use what is owed for their scores.

        Raises:
            Exhausted: A shared limit is exhausted for now.
        """
        account = self._costs.account
        left = account.all_available()
        if self._costs.owes:
            for row in open_rows:
                if row.path is not None:
                    self._costs.add_reserve(row.path.node, left)
        shares = account.fair_shares() if account.is_shared else {}
        if not shares:
            return left
        for unit in shares if is_patient else ():
            if price.amount(unit, closing + needed) > left[unit]:
                raise Exhausted(unit)
        return limit_to_share(price, needed, closing, left, shares)

    def _prices(
        self, ask: RowRequest, rows: Sequence[RequestedRow], parents: Sequence[Trajectory], *, goes_on: bool
    ) -> tuple[Price, Price]:
        """Return the price of a row from its parent on, and the price of the row's next call."""
        backend, tree, costs = self._backends[ask.model], self._tree, self._costs
        prefix = max([tree.path_tokens(t) for t in parents])
        unread = max([tree.unread_tokens(t) for t in parents])
        computed = self._prompts.recomputation(parents, ask.model)
        prompts = {root: tree.prompt_tokens[root] for root in map(tree.root_of, parents)} if costs.reads else None
        price = costs.price(backend, prefix, computed, unread)
        if not goes_on:
            return price, price if prompts is None else costs.price(backend, prefix, computed, unread, prompts)
        computed = self._prompts.recomputation([row.end for row in rows], ask.model)
        written = max([row.written for row in rows])
        return price, costs.price(backend, prefix, computed, written + unread, prompts)

    def _row_costs(self) -> dict[str, int]:
        """Return the mean cost of a row so far, by limit; the whole limit where rows began but none has ended."""
        account, num_begun = self._costs.account, self.lengths.begun
        if num_begun and not self.lengths.ended:
            return {unit: account.limit(unit) for unit in account.units}
        return {unit: account.spending(unit) // max(1, num_begun) for unit in account.units}

    def _portion_of(self, ask: RowRequest, written: int) -> int:
        """Return the most tokens of a row in one call, after `written` tokens.

        In finish order a call writes all rows to one length, piece by piece.
        """
        if "requests" in self._costs.account.units:  # each piece would cost a request
            return self._portion
        if ask.order == "finished" and self._backends[ask.model].caps.streams and self._resumes(ask.model):
            return min(self._portion, max(_PIECE, written // _PIECE_SHARE))
        return self._portion

    def _resumes(self, model: str) -> bool:
        """Whether a row that its grant cut can be continued."""
        backend = self._backends[model]
        return backend.caps.steps != "absent" and metadata_of(backend).resumes()

    def _branches(self, ask: RowRequest, parents: Sequence[Trajectory]) -> list[int]:
        """Return the cost of each row in samples, if all rows were started in this order."""
        return branches_of(parents, self._scratch_children_of if ask.scratch else self._tree.children_of)

    def _scratch_children_of(self, t: Trajectory) -> int:
        """Return the number of a path's children that count for the cost of a rollout's next row.

        A path outside of rollouts goes on beside the rollout, and so counts as one child.
        """
        return self._scratch_children.get(t.node, 0) if t.node in self._tree.scratch else 1

    def _remainder(self, ask: RowRequest, row: RequestedRow) -> int:
        """Return the tokens that a row may still take.

        Consecutive pieces of given sizes count as one row for the cap.
        """
        written = row.written
        remainder = min(self._cap_remainder(ask, row), row.limit - written)
        if isinstance(ask.until, Tokens):
            remainder = min(remainder, ask.until.count - written)
        return min(remainder, self.room(ask.model, row.end))

    def _cap_remainder(self, ask: RowRequest, row: RequestedRow) -> int:
        """Return the tokens that the cap of a row still allows."""
        return (ask.sampling.max_tokens or NO_CAP) - self._chain(ask, row) - row.written

    def _chain(self, ask: RowRequest, row: RequestedRow) -> int:
        """Return the tokens of the pieces before a row that were written under the same cap."""
        if not self._chains:
            return 0
        cap, tokens = self._chains.get(row.parent.node, (None, 0))
        return tokens if cap == ask.sampling.max_tokens and ask.until is not STEP else 0
