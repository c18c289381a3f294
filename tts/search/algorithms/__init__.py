"""Pure functions that methods use.

They are resampling, apportioning, clustering, pruning, aggregation, embedding and calibration.
"""
