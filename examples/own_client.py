"""Use your own client as the model. Searches count the tokens that it reports. Needs the core and your client.

`python examples/own_client.py http://localhost:8000/v1 MODEL`
"""

import sys

from openai import AsyncOpenAI

import tts


def main(url: str = "http://localhost:8000/v1", name: str = "toy", question: str = "What is 3 + 4 - 2 + 9?") -> None:
    async def model(ask: tts.Ask) -> tts.Answer:
        async with AsyncOpenAI(base_url=url, api_key="none") as client:  # a client works in one event loop alone
            text = ask.prompt if isinstance(ask.prompt, str) else ask.prompt[-1].content
            reply = await client.chat.completions.create(
                model=name,
                messages=[{"role": "user", "content": text}],
                max_tokens=ask.max_tokens,
                temperature=ask.temperature,
                seed=ask.seed % 2**31,
            )
        choice = reply.choices[0]
        return tts.Answer(
            choice.message.content, tokens=reply.usage.completion_tokens, finished=choice.finish_reason != "length"
        )

    limits = tts.Budget(tokens=2000, samples=8)
    solution = tts.solve(question, limits, backend=model, task="arithmetic", strategy="best_of_n | majority")
    usage = solution.usage
    print(solution.answer, f"{solution.confidence:.0%}", usage.samples, "samples", usage.generated_tokens, "tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
