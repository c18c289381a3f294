"""Searches over the turns of an agent beside independent runs, on small repositories."""
