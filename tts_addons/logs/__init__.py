"""Recorded samples of other programs.

Files and logs become pools, which are stored and replayed like pools of our own.

| module | contents |
|---|---|
| `pool.py` | `Pool`, the samples of many problems |
| `fields.py`, `paths.py`, `layouts.py` | what the fields of a row mean, where they stand, and those of well-known programs |
| `files.py` | samples of files, by their form |
| `lm_eval.py`, `inspect_logs.py` | the logs of other programs |
| `json_rows.py`, `json_stream.py` | rows of JSON files, in memory for one |
| `thoughts.py` | the marks of thoughts by name |
| `source.py` | how sources are read, and what they state beside their samples |
| `staging.py` | rows grouped by problem, on disk |
| `building.py` | the samples of one problem: answers, classes, verdicts, tokens |
| `programs.py` | verdicts on programs by the tests of their problem |
| `importing.py` | from files to a store, in bounded memory, all or nothing |
"""  # noqa: E501
