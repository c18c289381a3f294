"""Run a search through the gateway, by OpenAI's client. Start the gateway first: `tts serve --model toy`.

The gateway needs the extra `serve`. Then run `python examples/gateway_client.py http://127.0.0.1:8400/v1`.
"""

import sys

from openai import OpenAI


def main(url: str = "http://127.0.0.1:8400/v1", name: str = "toy:vote", key: str = "any") -> None:
    question = [{"role": "user", "content": "3 + 4 - 2"}]
    with OpenAI(base_url=url, api_key=key) as client:
        reply = client.chat.completions.create(
            model=name, messages=question, seed=1, extra_body={"tts": {"budget": 300}}
        )
        print(reply.choices[0].message.content)
        print(
            "answer:",
            reply.tts["answer"],
            "by",
            reply.tts["strategy"],
            "in",
            reply.tts["usage"]["generated_tokens"],
            "generated tokens",
        )
        for chunk in client.chat.completions.create(model=name, messages=question, seed=1, stream=True):
            delta = chunk.choices[0].delta if chunk.choices else None
            print(getattr(delta, "reasoning_content", None) or getattr(delta, "content", None) or "", end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
