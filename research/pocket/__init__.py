"""Training and evaluation of the embedded pair."""
