"""The engine beside transformers, vLLM and llama.cpp.

The modules are tree templates, one driver for each system, the machine's floor, and the report.
"""
