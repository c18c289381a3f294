"""A model, as a function, whose solutions are in lines and whose lengths have a heavy tail.

The 95th percentile is some seven medians.
"""

from __future__ import annotations

import numpy as np

from tts.backends.function import Answer, Ask, FunctionBackend

LINE = 12  # words


def heavy_tailed_model(median: int = 60, answers: tuple[str, ...] = ("4", "4", "5")) -> FunctionBackend:
    """Return the model.

    Its texts end at word k with a chance that falls with k, so that no length is typical.
    """

    def write(ask: Ask) -> Answer:
        rng = np.random.default_rng(ask.seed + len(ask.text))
        begun, words = len(ask.text.split()), list[str]()
        while len(words) < ask.max_tokens:
            place = begun + len(words) + 1
            if rng.random() < 1.2 / (place * 40 / 60 + median / 3):
                return Answer(" ".join([*words, f"A: {rng.choice(answers)}"]), tokens=len(words) + 1, finished=True)
            words.append(f"w{place}" + ("\n" if place % LINE == 0 else ""))
            if place % LINE == 0 and ask.stop:
                break
        return Answer(" ".join(words) + " ", tokens=len(words), finished=False)

    return FunctionBackend(write)
