"""The gateway on Ray Serve: replicas on one machine or many, behind one address.

    pip install 'test-time-search[serve]' 'ray[serve]'
    python examples/serve_on_ray.py gateway.yaml --replicas 2

Each replica has its own models, queue, `limits.searches` and joined retries. Replicas share what keys have spent,
running and finished searches, traces and counts. For this the configuration must name a store, and all replicas must
be on the machine that has its file. If a client leaves Ray's proxy, its search ends.

At the signal SIGHUP, the configuration is read again. New replicas take the place of the old ones, one by one, and no
request is lost: an old replica first ends its searches, for `--grace` seconds at most.
"""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import Any

from ray import serve

from tts.errors import TTSError
from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import GatewayConfig, read_config


def deployment(config: GatewayConfig, replicas: int, grace_s: float) -> Any:
    """Return the application for `serve.run`."""

    @serve.deployment(
        num_replicas=replicas,
        max_ongoing_requests=config.limits.searches + config.limits.queue,
        graceful_shutdown_timeout_s=grace_s,
    )
    @serve.ingress(lambda: create_app(config))
    class Replica:
        pass

    return Replica.bind()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--port", type=int, default=8400)
    parser.add_argument("--grace", type=float, default=600.0)
    options = parser.parse_args()

    def deploy() -> None:
        serve.run(deployment(read_config(options.config), options.replicas, options.grace))
        print(f"ready: http://127.0.0.1:{options.port}/v1", flush=True)

    hangup = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: hangup.set())
    serve.start(http_options={"host": "127.0.0.1", "port": options.port})
    try:
        deploy()
        while True:
            hangup.wait()
            hangup.clear()
            try:
                deploy()
            except (TTSError, RuntimeError) as failure:  # old replicas that are left go on
                print(f"not changed: {failure}", flush=True)
    finally:
        serve.shutdown()


if __name__ == "__main__":
    main()
