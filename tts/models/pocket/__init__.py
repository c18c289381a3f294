"""The embedded pair: a policy of 3.2 million parameters that writes arithmetic step by step, and a process model that
scores its steps.

This folder has their weights, checksums and performance model. `README.md` is the model card. `research/pocket/` in a
checkout trains and evaluates them.
"""
