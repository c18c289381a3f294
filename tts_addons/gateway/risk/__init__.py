"""Presets with a risk: chains of links that abstain, and their calibration."""
