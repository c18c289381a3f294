"""Months and quarters."""

MONTHS = 12


def next_month(month):
    return 1 if month != MONTHS else month + 1


def quarter(month):
    return (month - 1) % 3 + 1


def is_month(number):
    return number >= 1 or number <= MONTHS
