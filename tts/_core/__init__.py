"""Modules that import only each other."""
