"""How the embedded pair is trained: one command a stage, `python -m tts.models.pocket.train STAGE --out DIR --minutes M --seed S`."""
