"""The gateway on Ray Serve: replicas on one machine or many, behind one address.

    pip install 'test-time-search[serve]' 'ray[serve]'
    python examples/serve_on_ray.py gateway.yaml --replicas 2

Each replica has its own models, queue, `limits.searches` and joined retries. Replicas share what keys have spent,
running and finished searches, traces and counts. For this the configuration must name a store, and all replicas must
be on the machine that has its file. If a client leaves Ray's proxy, its search ends.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ray import serve

from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import GatewayConfig, read_config


def deployment(config: GatewayConfig, replicas: int) -> Any:
    """Return the application for `serve.run`."""

    @serve.deployment(num_replicas=replicas, max_ongoing_requests=config.limits.searches + config.limits.queue)
    @serve.ingress(lambda: create_app(config))
    class Replica:
        pass

    return Replica.bind()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--port", type=int, default=8400)
    options = parser.parse_args()
    serve.start(http_options={"host": "127.0.0.1", "port": options.port})
    serve.run(deployment(read_config(options.config), options.replicas))
    print(f"ready: http://127.0.0.1:{options.port}/v1", flush=True)
    try:
        while True:
            time.sleep(3600)
    finally:
        serve.shutdown()


if __name__ == "__main__":
    main()
