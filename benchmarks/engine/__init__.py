"""The engine beside transformers, vLLM and llama.cpp: tree templates, one driver for each system, the machine's floor,
the report.
"""
