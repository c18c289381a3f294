"""Run a scaling study on `pocket`, and make its table and its figure. Needs `[engine,experiments]`.

A stopped run resumes. A second run costs nothing.
"""

import tts

SIZES = [1, 2, 4, 8, 16, 32]
LIVE = "particle_filter"  # its samples depend on each other, so a smaller run is no part of a larger one
# replayed on one pool of the largest size
REPLAYED = ["pass@k", "best_of_n | majority", "best_of_n | weighted", "best_of_n | best"]


def main(figure: str = "first_curve.png", model: str = "pocket", limit: int = 200) -> None:
    problems = {"dataset": "arithmetic", "split": "test", "operations": [1, 2, 3, 4, 5, 6, 7], "limit": limit}
    limits = {"samples": SIZES}
    study = tts.Study(
        name="first_curve",
        models=model,
        verifiers="process",
        problems=problems,
        strategies=LIVE,
        budgets=limits,
        seeds=3,
    )
    study.run()
    replayed = study.sample(max(SIZES)).replay(REPLAYED, SIZES)
    print(study.points(replayed))
    study.plot(figure, "tokens", replayed=replayed)


if __name__ == "__main__":
    main()
