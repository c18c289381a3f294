"""Speed of the engine, of servers behind the HTTP backend, and of the code besides models.

The commands run from a checkout.
"""
