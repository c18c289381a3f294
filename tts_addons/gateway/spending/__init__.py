"""What requests and clients may spend."""
