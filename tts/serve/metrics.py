"""`GET /metrics`: counts in the text format of Prometheus."""

from __future__ import annotations

import bisect
from collections import Counter

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts.serve.completions.work import CompletionCost
from tts.serve.searches import RunningSearch

_BOUNDS_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
_KINDS = ("prompt", "generated", "cancelled", "verifier")
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What a gateway has counted since it began. Searches and completions are counted once, when their books are closed."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._buckets = [0] * (len(_BOUNDS_S) + 1)
        self._seconds = 0.0

    def reply(self, status: int) -> None:
        """Count a reply."""
        self._counts["tts_replies_total", (("status", str(status)),)] += 1

    def search(self, search: RunningSearch, end: str, seconds: float) -> None:
        """Count a search that is over.

        Args:
            end: "done", "failed" or "cancelled". seconds: from its request on.
        """
        model = ("model", search.order.offer.name)
        self._counts["tts_searches_total", (model, ("end", end))] += 1
        self._buckets[bisect.bisect_left(_BOUNDS_S, seconds)] += 1
        self._seconds += seconds
        if (solution := search.solution) is not None:
            for kind in _KINDS:
                self._counts["tts_tokens_total", (model, ("kind", kind))] += getattr(solution.usage, f"{kind}_tokens")
            self._counts["tts_client_tokens_total", (("client", search.client.name),)] += solution.usage.tokens

    def completion(self, model: str, client: str, cost: CompletionCost, spent: int) -> None:
        """Count what a model alone did for a request, whichever way it ended; `spent`: the tokens that its client's books have."""
        self._counts["tts_completions_total", (("model", model),)] += 1
        for kind, tokens in (("prompt", cost.computed), ("generated", cost.generated)):
            self._counts["tts_tokens_total", (("model", model), ("kind", kind))] += tokens
        self._counts["tts_client_tokens_total", (("client", client),)] += spent

    def text(self, client: str | None, **gauges: float) -> str:
        """Return the counts, with gauges of the moment.

        Args:
            client: the only one whose own counts are included; None: those of all.
        """
        told = {
            (name, labels): count
            for (name, labels), count in self._counts.items()
            if client is None or dict(labels).get("client", client) == client
        }
        lines: list[str] = []
        for name in sorted({name for name, _ in told}):
            lines.append(f"# TYPE {name} counter")
            rows = sorted((labels, count) for (of, labels), count in told.items() if of == name)
            lines += [f"{name}{{{_written(labels)}}} {count}" for labels, count in rows]
        lines.append("# TYPE tts_search_seconds histogram")
        total = 0
        for bound, count in zip((*_BOUNDS_S, None), self._buckets, strict=True):
            total += count
            lines.append(f'tts_search_seconds_bucket{{le="{"+Inf" if bound is None else f"{bound:g}"}"}} {total}')
        lines += [f"tts_search_seconds_sum {self._seconds:.6f}", f"tts_search_seconds_count {total}"]
        for name, value in gauges.items():
            lines += [f"# TYPE tts_{name} gauge", f"tts_{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _written(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


async def metrics(request: Request) -> Response:
    """Return the counts; only operators get those of other clients."""
    gateway, client = request.app.state.gateway, request.state.client
    text = gateway.metrics.text(
        None if client.operator else client.name,
        searches_running=gateway.admission.running.total(), searches_waiting=gateway.admission.waiting,
        tokens_held=gateway.books.held.total(),
    )  # fmt: skip
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = (Route("/metrics", metrics),)
