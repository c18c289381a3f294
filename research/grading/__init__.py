"""Two graders of mathematical answers beside each other."""
