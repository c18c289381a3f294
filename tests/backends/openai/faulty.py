"""Ten thousand calls of which a third go wrong, and what must hold of them: for a slow test, and for a benchmark that
prints it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.backends.openai.making import all_ended, on, until
from tests.backends.openai.server import ToyServer, serving
from tests.support.runs import check_books, make_run, solve_runs
from tts.backends.openai.http import Timeouts
from tts.budget.budget import Budget
from tts.randomness import hash64

REFUSED = {"429": "RateLimited", "500": "ServerError", "503": "Unavailable", "close": "ConnectionLost"}
BROKEN = {
    "reset": "ConnectionLost", "cut": "ConnectionLost", "json": "BadReply", "empty": "NoChoice", "none": "NoContent",
    "extra": "WrongCount", "twice": "DuplicateChoice", "hang": "TimedOut", "drip": "TooSlow", "error": "ServerError",
}  # fmt: skip
SLOW = ("hang", "drip")  # which only take long
SHARE = 30  # of a hundred calls
LIMIT = 900  # tokens a problem
AT_ONCE = 200


@dataclass
class Faulty:
    """What came of it.

    Attributes:
        calls, given: that the server took, and the faults it gave, by name. found: faults that the backend typed, by
            kind.
        written, lossy, charged: tokens that the server wrote, those of them in replies whose connection it reset (of
            which the last may not have arrived), and those that are booked. failures: rows that failed or were mended,
            by kind. most_open: connections.
    """

    calls: int = 0
    given: Counter[str] = field(default_factory=Counter[str])
    found: Counter[str] = field(default_factory=Counter[str])
    written: int = 0
    lossy: int = 0
    charged: int = 0
    failures: Counter[str] = field(default_factory=Counter[str])
    candidates: int = 0
    most_open: int = 0
    seconds: float = 0.0


def run_faulty(num_problems: int) -> Faulty:
    """Solve problems through a faulty server, and check every book, budget, connection and task."""
    faults = [*REFUSED, *(fault for fault in BROKEN if fault not in SLOW), "usage"]

    def fault(number: int, body: object) -> str:
        del body
        drawn = hash64("fault", number)
        return faults[drawn // 100 % len(faults)] if drawn % 100 < SHARE else ""

    problems = [f"{i % 7 + 1} + {i % 5 + 3} - {i % 3 + 1}" for i in range(num_problems)]
    server, told = ToyServer(prompts=problems, fault=fault), Faulty()
    timeouts = Timeouts(concurrency=AT_ONCE, wait_s=0.001, first_s=60.0, gap_s=60.0, call_s=90.0)

    async def run(url: str) -> None:
        backend = on(url, timeouts)
        for end in await solve_runs(
            [make_run(problem, Budget(tokens=LIMIT), "best_of_n | majority", backend) for problem in problems]
        ):
            assert end.solution.error is None
            assert end.search is not None
            check_books(end.search)
            usage = end.solution.usage
            assert usage.generated_tokens + usage.cancelled_tokens <= LIMIT
            told.charged += usage.generated_tokens + usage.cancelled_tokens
            told.failures.update(end.solution.failures)
            told.candidates += len(end.solution.candidates)
        told.found = Counter(backend.errors)
        assert told.charged == backend.counters.generated_tokens
        await backend.close()
        await all_ended()

    began = time.monotonic()
    with serving(server) as url:
        asyncio.run(run(url))
        asyncio.run(until(lambda: server.open == 0))
    told.seconds = time.monotonic() - began
    told.calls, told.most_open = len(server.served), server.most_open
    told.given = Counter(one.fault for one in server.served if one.fault)
    told.written = sum(one.generated for one in server.served)
    told.lossy = sum(one.generated for one in server.served if one.fault in ("reset", "drip"))
    assert told.written - told.lossy <= told.charged <= told.written
    assert told.failures.keys() <= {*REFUSED.values(), *BROKEN.values()}
    assert told.most_open <= AT_ONCE
    return told
