"""Speed of the engine, of servers behind the HTTP backend, and of everything besides models; run from a checkout."""
