"""The package of `POST /v1/completions`.

`endpoint.py` has its routes. `work.py` has what a model does, and `searches.py` what a preset does.
"""
