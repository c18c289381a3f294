"""The APIs that reach a search.

Each is two functions: from a body to a request, and from the events of a search to its frames.
"""
