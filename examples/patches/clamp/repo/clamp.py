"""Values between bounds."""


def clamp(value, low, high):
    return max(max(value, low), high)
