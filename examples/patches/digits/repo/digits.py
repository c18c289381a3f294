"""Digits of numbers."""

BASE = 10


def last(number):
    return number // BASE


def rest(number):
    return number % BASE


def sum_of_two(number):
    return last(number) + last(rest(number))
