"""Drafts: tokens that a row may draw next, read in one pass with its last token, and kept as far as the row draws them.

Siblings and earlier samples of a problem share much of their text, and a text repeats its prompt. A draft is the continuation of an
earlier occurrence of a row's last tokens. The row then draws each position from its own stream as it would without drafts. So its text,
its log-probabilities and its charge do not depend on drafts; with exact rows the bits do not either. Only `EngineStats.drafted` counts
discarded tokens.

Source: prompt lookup (Saxena, 2023) and SuffixDecoding (Oliaro et al., 2411.04975), both from memory. Differs: a draft is accepted if it
equals the draw of the row's stream, not by rejection sampling. The index covers the paths after one prompt. Lengths are chosen by
measured costs of steps and measured acceptance.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from tts.backends.engine.tree import KVNode

MOST_ROWS = 16  # rows of a step beyond which none is drafted for: a step costs by the token there
MOST_TOKENS = 8  # of a draft
_SUFFIXES = (6, 3, 2, 1)  # tokens that are looked up, the most first
_LONGEST = 12  # tokens in common with the place found, as far as they are counted
_LINES = 4096  # texts after one prompt that have ended and wait to be indexed, up to twice as many
_AT_ONCE = 4096  # tokens that are indexed in a step
_ENTRIES = 1 << 16  # places known, of one prompt and of all together
_FORGET = 0.97  # weight of what was measured before, at each new measurement
_FIRST_SLOPE = 1 / 16  # cost of a further token, in steps, before it is measured
_STRIDE = 2  # further tokens that are tried: beyond the largest step that was measured, and beyond those that pay
_FIRST = 4  # measurements of which the shortest counts
_LATELY = 16  # measurements that a mean is of, about
_LONGEST_RUN = 16  # steps with drafts, one after another, until one without is measured again
_NEWEST = 0.2  # weight of a step in the pace of all
_MARGIN = 1.1  # least ratio of expected rates with and without drafts: the best of noisy estimates is too high
_LEAST = 0.05  # least value of a drafted token
_AHEAD = 4.0  # a row that is so many tokens ahead of the last one has 1/e of its weight
_LONGEST_PAUSE = 128  # steps without a look at drafts, where they did not pay


class Line:
    """A text after a prompt, with the part of it that is indexed.

    Args:
        before: the last tokens of the path before the text. tokens: the tokens of the text, which may grow.

    Attributes:
        seen: the indexed tokens, with `before`. read: the number of indexed tokens of `tokens`. open: whether `tokens` may grow.
    """

    __slots__ = ("open", "read", "seen", "tokens")

    def __init__(self, before: Sequence[int], tokens: list[int], *, is_open: bool = True) -> None:
        self.seen = list(before)
        self.tokens = tokens
        self.read = 0
        self.open = is_open


class SuffixIndex:
    """An index of short token sequences in all texts after one prompt: the last place of each sequence."""

    def __init__(self, prompt: list[int]) -> None:
        self._places: dict[tuple[int, ...], tuple[list[int], int]] = {}
        self._prompt = Line((), prompt, is_open=False)
        self._lines = [self._prompt]

    def __len__(self) -> int:
        return len(self._places)

    def add(self, line: Line) -> None:
        """Add a text, which `catch_up` indexes."""
        self._lines.append(line)
        if len(self._lines) > 2 * _LINES:
            old, new = self._lines[:-_LINES], self._lines[-_LINES:]
            self._lines = [one for one in old if one.open or one is self._prompt] + new

    def catch_up(self) -> None:
        """Index new tokens of texts, the oldest text first, and at most a few thousand tokens, so that no step waits long."""
        places, left = self._places, _AT_ONCE
        for line in self._lines:
            seen = line.seen
            gained = line.tokens[line.read : line.read + left]
            for token in gained:
                at = len(seen)
                for n in _SUFFIXES:
                    if at >= n:
                        places[tuple(seen[at - n :])] = (seen, at)
                seen.append(token)
            line.read += len(gained)
            left -= len(gained)
        self._lines = [line for line in self._lines if line.open or line.read < len(line.tokens)]
        if len(places) > _ENTRIES:
            for old in list(places)[: len(places) - _ENTRIES // 2]:
                del places[old]

    def following(self, line: Line, most: int) -> tuple[list[int], int]:
        """Return at most `most` tokens that followed an earlier occurrence of a line's last tokens, and the number of tokens in common."""
        seen = line.seen
        if line.read < len(line.tokens):
            return [], 0  # its end is not known yet
        for n in _SUFFIXES:
            found = self._places.get(tuple(seen[-n:])) if len(seen) >= n else None
            if found is not None:
                other, at = found
                common = n
                while common < min(_LONGEST, at, len(seen)) and other[at - common - 1] == seen[-common - 1]:
                    common += 1
                return other[at : at + most], common
        return [], 0


class Draft:
    """The draft of a running row.

    Args:
        index: the index of the texts after its prompt. line: the row's own text.

    Attributes:
        tokens: the drafted tokens of the next step. common: the number of last tokens that the row shares with their source.
    """

    __slots__ = ("common", "index", "line", "tokens")

    def __init__(self, index: SuffixIndex, line: Line) -> None:
        self.index = index
        self.line = line
        self.tokens: list[int] = []
        self.common = 0

    def end(self) -> None:
        """State that the row has ended."""
        self.line.open = False


class Acceptance:
    """The measured probability that a drafted token is drawn, by the number of tokens in common."""

    def __init__(self) -> None:
        self._drawn = [0.5] * (_LONGEST + 1)
        self._asked = [1.0] * (_LONGEST + 1)

    def __getitem__(self, common: int) -> float:
        return self._drawn[common] / self._asked[common]

    def note(self, common: int, accepted: int, *, missed: bool) -> None:
        """Note the number of drafted tokens that were drawn, and whether the next drafted token was not drawn."""
        self._drawn[common] = self._drawn[common] * _FORGET + accepted
        self._asked[common] = self._asked[common] * _FORGET + accepted + missed


class StepCost:
    """The measured seconds of steps: without drafts by the number of rows, with drafts by the number of tokens.

    A step's cost is not linear in its tokens: it rises where a product takes another block of rows, and a step of single tokens may
    run through the layers faster. So each size is measured separately. All sizes share a pace, since other processes slow all of them.
    """

    def __init__(self) -> None:
        self._pace = 0.0  # seconds of a step whose measure is 1
        self._plain: dict[int, tuple[float, int]] = {}  # by rows: the measure, and how often it was taken
        self._drafted: dict[int, tuple[float, int]] = {}  # by tokens

    def note(self, rows: int, tokens: int, seconds: float) -> None:
        """Note a step. A step with more tokens than rows has drafts.

        Of the first measurements of a size the shortest counts, since the first ones compile and allocate. Later measurements count as
        at most twice the mean.
        """
        table = self._plain if tokens == rows else self._drafted
        self._pace = self._pace or seconds
        measure = seconds / self._pace
        mean, times = table.get(tokens, (measure, 0))
        if times < _FIRST:
            table[tokens] = min(mean, measure), times + 1
            return
        measure = min(measure, 2 * mean)
        quicker = 1 + _NEWEST * (measure / mean - 1)
        self._pace *= quicker
        times = min(times + 1, _LATELY)
        table[tokens] = mean + (measure / quicker - mean) / times, times

    def known(self, rows: int) -> bool:
        """Whether enough steps of that many rows were measured."""
        return self._plain.get(rows, (0.0, 0))[1] >= _FIRST

    def __call__(self, rows: int, most: int) -> list[float]:
        """Return the expected costs of steps of `rows` rows with 0, 1, ... drafted tokens.

        The list ends at `most` drafted tokens, or a few tokens above the largest measured size. Between measured sizes costs are
        interpolated linearly. Above the largest one, they have the mean slope from no draft to that size.
        """
        at, costs = rows, [self._plain[rows][0]]
        for size in sorted(size for size in self._drafted if rows < size <= rows + most):
            found = max(costs[0], self._drafted[size][0])
            costs += [costs[-1] + (found - costs[-1]) * i / (size - at) for i in range(1, size - at)]
            costs.append(found)
            at = size
        slope = (costs[-1] - costs[0]) / (at - rows) if at > rows else costs[0] * _FIRST_SLOPE
        costs += [costs[-1] + slope * i for i in range(1, min(_STRIDE, rows + most - at) + 1)]
        return costs


class Turns:
    """Decides, for one number of rows, which steps have drafts, and which have longer ones, to measure their costs.

    If drafts do not pay, they are tried less and less often. If they pay, every 16th step has none, and the step before has longer ones.
    """

    __slots__ = ("_pause", "_run", "_waited")

    def __init__(self) -> None:
        self._pause = self._waited = self._run = 0

    def looks(self) -> bool:
        """Return whether this step may have drafts."""
        if self._waited < self._pause:
            self._waited += 1
            return False
        self._waited = 0
        if self._run == _LONGEST_RUN:
            self._run = 0
            return False
        return True

    def tried(self, *, paid: bool, offered: bool) -> bool:
        """Note whether drafts pay in this step, and whether there are any; return whether to propose a few more tokens than pay."""
        self._run = self._run + 1 if paid else 0
        if offered:
            self._pause = 0 if paid else min(_LONGEST_PAUSE, 2 * self._pause + 1)
        return not paid or self._run == _LONGEST_RUN


class Drafts:
    """Chooses the drafts of each step, by the measured costs of steps and the measured acceptance."""

    def __init__(self) -> None:
        self.cost = StepCost()
        self.acceptance = Acceptance()
        self._indices: OrderedDict[KVNode, SuffixIndex] = OrderedDict()
        self._turns = [Turns() for _ in range(MOST_ROWS + 1)]  # by rows

    def begin(self, node: KVNode) -> Draft:
        """Return the draft of a row whose tokens are appended to a node."""
        *above, _ = node.path()
        for root in [root for root in self._indices if not root.alive]:
            del self._indices[root]
        if above[0] not in self._indices:
            self._indices[above[0]] = SuffixIndex(above[0].tokens)
        self._indices.move_to_end(above[0])
        before: list[int] = []
        while above and len(before) < _LONGEST:
            before = above.pop().tokens[-_LONGEST:] + before
        made = Draft(self._indices[node.path()[0]], Line(before[-_LONGEST:], node.tokens))
        made.index.add(made.line)
        return made

    def choose(self, rows: Sequence[tuple[Draft, int]]) -> None:
        """Set the tokens of drafts for the next step, if they are expected to pay.

        The choice maximizes the expected tokens of the step per expected second. A drafted token is drawn with the product of the
        probabilities up to it, and counts more if its row lags the others. The unweighted tokens per second must not fall.

        Args:
            rows: the drafts of all rows of the step, each with the most tokens that the row may take.
        """
        for draft, _ in rows:
            draft.tokens = []
        if not rows or len(rows) > MOST_ROWS or not self.cost.known(len(rows)):
            return
        turns = self._turns[len(rows)]
        if not turns.looks():
            return
        offers = self._offers(rows)
        count = self._worth(offers, len(rows))
        more = turns.tried(paid=bool(count), offered=bool(offers))
        taken = [0] * len(rows)
        for _, _, number in offers[: count + _STRIDE if more else count]:
            taken[number] += 1
        for (draft, _), kept in zip(rows, taken, strict=True):
            del draft.tokens[kept:]

    def _offers(self, rows: Sequence[tuple[Draft, int]]) -> list[tuple[float, float, int]]:
        """Set the drafts to all tokens that could be proposed; return the value of each token, its probability, and its row's number.

        The value is the probability times a weight of the token's place in the row, which is 1 if all rows are at the same place. A
        search waits for its last row, and the length written so far is the best estimate of which row this is. When all tokens had
        the same weight, drafts of rows that were ahead took more time than they saved.
        """
        for index in dict.fromkeys(draft.index for draft, _ in rows):
            index.catch_up()
        while len(self._indices) > 1 and sum(map(len, self._indices.values())) > _ENTRIES:
            self._indices.popitem(last=False)
        written = [len(draft.line.tokens) for draft, _ in rows]
        further = math.exp(-1 / _AHEAD)
        weights = [further ** (one - min(written)) for one in written]
        offers: list[tuple[float, float, int]] = []
        for number, (draft, room) in enumerate(rows):
            draft.tokens, draft.common = draft.index.following(draft.line, min(max(room, 0), MOST_TOKENS))
            chance, each, weight = 1.0, self.acceptance[draft.common], weights[number]
            others = sum(weights) - weight
            for _ in draft.tokens:
                chance *= each
                value = chance * len(rows) * weight / (others + weight)
                if value < _LEAST:
                    break
                offers.append((value, chance, number))
                weight *= further
        return offers

    def _worth(self, offers: list[tuple[float, float, int]], rows: int) -> int:
        """Sort offers, the best first; return the number of them with the highest value per second, without fewer tokens per second."""
        offers.sort(reverse=True)
        costs = self.cost(rows, len(offers))
        best, best_rate, least = 0, _MARGIN * rows / costs[0], rows / costs[0]
        brought = drawn = float(rows)
        for count, ((value, chance, _), cost) in enumerate(zip(offers, costs[1:], strict=False), start=1):
            brought += value
            drawn += chance
            if brought / cost > best_rate and drawn / cost >= least:
                best, best_rate = count, brought / cost
        return best
