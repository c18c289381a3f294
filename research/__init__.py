"""How the embedded models are trained and evaluated, and how methods compare. Run from a checkout; not installed."""
