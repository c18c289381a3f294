"""The package of `POST /v1/completions`.

`endpoint.py` has its routes, and `work.py` what a model does.
"""
