"""What runs on a GPU in place of the compiled code for CPUs.

These are the operations of a layer, and decode steps as CUDA graphs.
"""
