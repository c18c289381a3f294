"""The quality of verifiers on recorded samples: discrimination, calibration, effect of selection."""
