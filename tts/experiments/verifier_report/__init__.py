"""The quality of verifiers on recorded samples.

It is discrimination, calibration, and the effect of selection by their scores.
"""
