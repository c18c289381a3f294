"""`GET /metrics`: counts in the text format of Prometheus."""

from __future__ import annotations

import bisect
import json
from collections import Counter
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts_addons.gateway.completions.work import CompletionCost
from tts_addons.gateway.searches import RunningSearch

_BOUNDS_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
_SECONDS = "tts_search_seconds"
_KINDS = ("prompt", "generated", "cancelled", "verifier")
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What this process has counted since it began.

    Searches and completions are counted once, when their books are closed.

    Attributes:
        has_changed: Whether anything was counted since `counts` was last called.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self.has_changed = False

    def reply(self, status: int) -> None:
        """Count a reply."""
        self.has_changed = True
        self._counts["tts_replies_total", (("status", str(status)),)] += 1

    def search(self, search: RunningSearch, end: str, seconds: float) -> None:
        """Count a search that is over.

        Args:
            search: The search.
            end: "done", "failed" or "cancelled".
            seconds: The seconds from its request to its end.
        """
        self.has_changed = True
        model = ("model", search.order.offer.name)
        self._counts["tts_searches_total", (model, ("end", end))] += 1
        bucket = str(bisect.bisect_left(_BOUNDS_S, seconds))
        self._counts[_SECONDS, (("bucket", bucket),)] += 1
        self._counts[_SECONDS, ()] += seconds  # pyright: ignore[reportArgumentType]
        solution = search.solution
        if solution is not None:
            for kind in _KINDS:
                self._counts["tts_tokens_total", (model, ("kind", kind))] += getattr(solution.usage, f"{kind}_tokens")
            self._counts["tts_client_tokens_total", (("client", search.client.name),)] += solution.usage.tokens

    def completion(self, model: str, client: str, cost: CompletionCost, spent: int) -> None:
        """Count a completion by a model alone, whichever way it ended.

        Args:
            model: The name of the model.
            client: The name of the client.
            cost: The cost of the completion.
            spent: The tokens that the client's account has booked.
        """
        self.has_changed = True
        self._counts["tts_completions_total", (("model", model),)] += 1
        for kind, tokens in (("prompt", cost.computed), ("generated", cost.generated)):
            self._counts["tts_tokens_total", (("model", model), ("kind", kind))] += tokens
        self._counts["tts_client_tokens_total", (("client", client),)] += spent

    def counts(self) -> dict[str, float]:
        """Return the counts by names that `metrics_text` reads."""
        self.has_changed = False
        return {json.dumps(key): count for key, count in self._counts.items()}


def metrics_text(counts: Mapping[str, float], gauges: Mapping[str, float], client: str | None) -> str:
    """Return counts in the text format of Prometheus.

    Args:
        counts: The counts of `Metrics.counts`, or sums of several.
        gauges: Numbers that describe the present moment, by name.
        client: The only client whose own counts are included; None: the counts of all clients.
    """
    by_name: dict[str, list[tuple[Labels, float]]] = {}
    for key, count in counts.items():
        name, pairs = json.loads(key)
        labels = tuple((label, value) for label, value in pairs)
        if client is None or dict(labels).get("client", client) == client:
            by_name.setdefault(name, []).append((labels, count))
    seconds = dict(by_name.pop(_SECONDS, ()))
    lines: list[str] = []
    for name, rows in sorted(by_name.items()):
        lines.append(f"# TYPE {name} counter")
        lines += [f"{name}{{{_write(labels)}}} {count}" for labels, count in sorted(rows)]
    lines.append(f"# TYPE {_SECONDS} histogram")
    total = 0
    bounds = [*(f"{bound:g}" for bound in _BOUNDS_S), "+Inf"]
    for place, bound in enumerate(bounds):
        total += int(seconds.get((("bucket", str(place)),), 0))
        lines.append(f'{_SECONDS}_bucket{{le="{bound}"}} {total}')
    lines += [f"{_SECONDS}_sum {seconds.get((), 0.0):.6f}", f"{_SECONDS}_count {total}"]
    for name, value in gauges.items():
        lines += [f"# TYPE tts_{name} gauge", f"tts_{name} {value:g}"]
    return "\n".join(lines) + "\n"


def _write(labels: Labels) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels)


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


async def metrics(request: Request) -> Response:
    """Return the counts of all workers; only operators get those of other clients."""
    gateway, client = request.app.state.gateway, request.state.client
    gateway.show_life()  # what this worker has counted by now
    text = metrics_text(gateway.books.counts(), gateway.books.gauges(), None if client.operator else client.name)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = (Route("/metrics", metrics),)
