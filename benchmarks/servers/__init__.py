"""The parts of the measurement of the HTTP backend."""
