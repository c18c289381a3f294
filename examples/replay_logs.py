"""Evaluate selections and stop rules on samples that you already have, without a model. Core only."""

import numpy as np

import tts


def logs(problems: int = 50, samples: int = 16) -> list[dict]:
    """Make example logs: a row for each problem, with its answers, and a score and a token count for each answer."""
    draw = np.random.default_rng(0)
    rows = []
    for number in range(problems):
        answers = ["4" if draw.random() < number / problems else str(draw.integers(5, 7)) for _ in range(samples)]
        scores = [min(1.0, max(0.0, draw.normal(0.65 if answer == "4" else 0.4, 0.2))) for answer in answers]
        rows.append(
            {"problem": f"p{number}", "reference": "4", "answer": answers, "scores": scores, "tokens": [100] * samples}
        )
    return rows


def main() -> None:
    pool = tts.Pool.from_rows(logs(), name="logs")
    plans = [
        "pass@k",
        "best_of_n | majority",
        "best_of_n | weighted",
        "best_of_n | best",
        "best_of_n | posterior | majority",
    ]
    print(pool.table(pool.replay(plans, [1, 4, 16])))


if __name__ == "__main__":
    main()
