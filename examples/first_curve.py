"""A scaling study on the embedded pair, to a table and a figure. Stopped, it goes on where it was; run again, it costs nothing."""

import numpy as np

from tts.experiments import config, plots, points
from tts.experiments.gathering import curves_of
from tts.experiments.pool import pool_study, pools_of
from tts.experiments.replay import replay
from tts.experiments.runner import results_of
from tts.experiments.store import Store, default_store

SIZES = [1, 2, 4, 8, 16, 32]
LIVE = "particle_filter"  # which sample goes on depends on all others: no smaller run is a part of a larger one
REPLAYED = ["pass@k", "best_of_n | majority", "best_of_n | weighted", "best_of_n | best"]  # read off one pool of the largest size


def main(figure: str = "first_curve.png", model: str = "pocket", limit: int = 200) -> None:
    problems = {"dataset": "arithmetic", "split": "test", "operations": [1, 2, 3, 4, 5, 6, 7], "limit": limit}
    asked = {"name": "first_curve", "models": model, "problems": problems, "strategies": LIVE, "budgets": {"samples": SIZES}, "seeds": 3}
    study = config.study(asked)
    with Store(default_store()) as store:
        live = curves_of(results_of(study, store), rng=np.random.default_rng(0))
        replayed = replay(pools_of(results_of(pool_study(study, max(SIZES)), store)).pools, REPLAYED, SIZES)
    print(points.as_text(points.points_of([*live, *replayed])))
    plots.save(plots.draw([*live, *(one.curve for one in replayed)], "tokens"), figure)


if __name__ == "__main__":
    main()
