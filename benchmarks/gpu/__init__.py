"""What a GPU is asked, on its first day (`benchmarks.gpu.day`) and after it."""
