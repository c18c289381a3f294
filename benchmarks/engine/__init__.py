"""The parts of the engine benchmark, `benchmarks/engine.py`: tree templates, one driver a system, the machine's floor, the report."""
