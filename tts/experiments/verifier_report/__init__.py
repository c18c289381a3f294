"""The quality of verifiers on recorded samples: discrimination, calibration, and the effect of selection."""
