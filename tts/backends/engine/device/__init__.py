"""What runs on a GPU in place of the compiled code for CPUs: operations of a layer, and decode steps as CUDA graphs."""
