"""How wide waves must be where time is limited: wide enough to keep the machine busy, and no wider."""

from __future__ import annotations


class Pace:
    """What a deadline pays for, from how long waves took.

    Idea: the wider a wave, the more samples come in a second, until the machine is full; and the narrower, the more is
        seen before the next choice. Where the last wave was about as fast as the fastest, the next may be half as wide.
        Where it was faster or slower, the next is to be twice as wide. What a wave took is its critical path, waiting
        included. This rule is our choice.

    Attributes:
        speed: Samples a second of the last wave; 0: there was none.
        width: Samples that the next wave should have at least.
    """

    _ALIKE = 1.25  # speeds that differ by less are equal

    def __init__(self) -> None:
        self.speed = 0.0
        self.width = 1
        self._fastest = 0.0
        self._begun: tuple[float, int] | None = None

    def begin(self, seconds_left: float, samples: int) -> None:
        """Note that a wave begins."""
        self._begun = (seconds_left, samples)

    def end(self, seconds_left: float) -> None:
        """Note that the wave is over, if one was begun."""
        if self._begun is None:
            return
        seconds_before, samples = self._begun
        self._begun = None
        if seconds_before > seconds_left and samples:
            self.speed = samples / (seconds_before - seconds_left)
            is_near_fastest = self._fastest / self._ALIKE <= self.speed <= self._fastest * self._ALIKE
            self.width = max(1, samples // 2) if is_near_fastest else 2 * samples
            self._fastest = max(self._fastest, self.speed)

    def payable(self, seconds_left: float) -> float:
        """Return the samples for which there is time; infinite before the first wave."""
        return self.speed * seconds_left if self.speed else float("inf")

    def waves(self, seconds_left: float) -> float:
        """Return how many waves of the next one's width there is time for, at least 1."""
        return max(1.0, self.payable(seconds_left) / self.width)
