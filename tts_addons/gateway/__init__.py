"""The gateway `tts serve`: searches behind the OpenAI API.

Any client of that API gets searches, with the budget on the wire.

    tts serve --model pocket        # http://127.0.0.1:8400/v1

`app.py` makes the ASGI application of a `GatewayConfig`. `gateway.py` has what all requests share: models, limits,
running searches. Each file of endpoints has `ROUTES`. Needs the extra `serve`.
"""
