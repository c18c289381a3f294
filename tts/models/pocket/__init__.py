"""The embedded pair: a small policy for arithmetic, and a process model that scores its steps.

The policy has 3.2 million parameters and writes arithmetic step by step.

This folder has the weights, checksums and performance model. `README.md` is the model card. `research/pocket/` in a
checkout trains and evaluates both.
"""
