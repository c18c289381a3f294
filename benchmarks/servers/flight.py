"""Requests that the whole stack holds in flight: problems on a server that writes at a set pace."""

from __future__ import annotations

import sys
import time

from benchmarks.servers.processes import Process, Shares
from tts.backends.base import Sampling
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.http import Timeouts
from tts.budget.budget import Budget
from tts.solver.model_cache import LOOP
from tts.solver.solver import Solver

ROWS = 4  # a problem


def measure(requests: int, tokens: int, gap_s: float) -> list[str]:
    """Return the report, in lines.

    Args:
        requests: The rows at once, each a request of its own.
        tokens: The tokens of a reply.
        gap_s: The seconds between two tokens.
    """
    server = Process([sys.executable, "-m", "benchmarks.servers.slow_server", str(tokens), str(gap_s)])
    try:
        root = f"http://127.0.0.1:{server.ask()['port']}/v1"
        backend = OpenAIBackend(
            Capabilities(root=root, model="slow", mode="text", streams=True, usage=True),
            timeouts=Timeouts(concurrency=requests),
        )
        solver = Solver(
            backend, task="text", strategy=f"best_of_n(n={ROWS}) | majority", sampling=Sampling(max_tokens=tokens)
        )
        shares, started, processor = Shares([server.group]), time.perf_counter(), time.process_time()
        solutions = solver.solve_many([f"problem {i}" for i in range(requests // ROWS)], each=Budget(samples=ROWS))
        seconds, others = time.perf_counter() - started, shares.others()
        processor = time.process_time() - processor
        LOOP.run(backend.close())
        lines = server.ask({})
    finally:
        server.close()
    booked = sum(one.usage.generated_tokens for one in solutions)
    if booked != lines["written"] or booked != requests // ROWS * ROWS * tokens:
        raise AssertionError(
            f"the server wrote {lines['written']} tokens, but {booked} are booked; faults: {dict(backend.errors)}"
        )
    pace = tokens * gap_s
    return [
        f"{requests:,} requests of {tokens} tokens, one each {gap_s:g} s: most in flight at once {lines['most']:,};",
        f"{seconds:.1f} s where the server's pace alone takes {pace:.1f} s; {processor:.1f} s of processor time here,",
        f"{processor / booked * 1e6:.0f} us a token; others took {others:.0%} of the machine.",
    ]
