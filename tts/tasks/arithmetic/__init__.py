"""Multi-step arithmetic, written one operation a line."""
