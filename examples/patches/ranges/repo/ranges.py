"""Ranges that include both ends."""


def contains(low, high, value):
    return low < value and value < high


def size(low, high):
    return high - low + 1
