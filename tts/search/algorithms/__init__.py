"""Pure functions that methods use: resampling, apportioning, clustering, pruning, aggregation, embedding,
calibration.
"""
