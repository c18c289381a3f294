"""Code for GPUs: the operations of a decoder layer, and decode steps as CUDA graphs."""
