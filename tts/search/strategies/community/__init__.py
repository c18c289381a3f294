"""Strategies whose properties are tested, and whose gain was not measured.

The gain was measured neither here nor on pools that others recorded. The strategies keep every budget and every law of
the contract, but their worth on a model is not known yet. A measurement on a page of `docs/results` brings a method to
the other packages.
"""
