"""Training and evaluation of the embedded pair, and comparisons of methods and allocators."""
