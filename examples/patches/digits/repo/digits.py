"""Digits of numbers."""

BASE = 10


def last(number):
    return number // BASE


def rest(number):
    return number % BASE


def digit_sum(number):
    total = 0
    while number > 0:
        total = total + last(number)
        number = rest(number)
    return total
