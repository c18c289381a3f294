"""Share one total among a hundred calls; what is left pays a second round for problems in doubt. Core only."""

import asyncio
from collections.abc import Sequence

import tts

TOTAL, FIRST = 20_000, 12_000  # tokens
PROBLEMS = [" + ".join(str((3 * i + j) % 9) for j in range(2 + i % 6)) for i in range(100)]  # two to seven terms


async def ask(problems: Sequence[str], account: tts.Account, strategy: str) -> list[tts.Solution]:
    toy = {"model": "toy", "task": "arithmetic", "strategy": strategy}
    return await asyncio.gather(*(tts.asolve(one, account, **toy) for one in problems))


async def ask_twice() -> None:
    with tts.Account(tts.Budget(tokens=TOTAL)) as account:
        with account.part(tokens=FIRST) as part:  # what the part does not spend goes back
            found = await ask(PROBLEMS, part, "best_of_n(n=3) | majority")
        doubtful = [i for i, one in enumerate(found) if one.confidence < 1]
        print(f"{right(found)} of {len(PROBLEMS)} right; {len(doubtful)} have unequal answers and are asked again")
        again = await ask([PROBLEMS[i] for i in doubtful], account, "best_of_n(n=15) | majority")
        for i, one in zip(doubtful, again, strict=True):
            found[i] = one if one.answer is not None else found[i]
    print(f"{right(found)} of {len(PROBLEMS)} right; spent {account.spent['tokens']:,} of {TOTAL:,} tokens")


def right(found: Sequence[tts.Solution]) -> int:
    return sum(
        one.answer == str(sum(map(int, problem.split(" + ")))) for problem, one in zip(PROBLEMS, found, strict=True)
    )


def main() -> None:
    asyncio.run(ask_twice())


if __name__ == "__main__":
    main()
