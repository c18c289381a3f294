"""`POST /v1/completions`: `endpoint.py` has its routes; `work.py` is what a model does, `searches.py` what a preset
does.
"""
