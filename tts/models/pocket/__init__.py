"""The embedded pair: a policy of 3.2 million parameters that writes arithmetic step by step, and a process model that judges its steps.

Here lie their files (`README.md` is the model card), how they were trained (`train/`) and how they are measured (`evaluate`).
"""
