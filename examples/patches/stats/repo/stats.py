"""Figures of numbers."""


def spread(numbers):
    return max(numbers) + min(numbers)


def middle(numbers):
    ordered = sorted(numbers)
    return ordered[len(ordered) % 2]
