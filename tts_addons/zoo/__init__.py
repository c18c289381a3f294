"""Methods of papers that few use, and the problems of `reasoning_gym`."""
