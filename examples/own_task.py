"""Write a task: where a text has its answer, and when two answers are equal. Core only."""

import re

import tts


class Dates(tts.Task):
    """Questions whose answer is a date. 3 May 1921, May 3, 1921 and 1921-05-03 are equal, so they vote together."""

    MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

    def extract(self, text: str) -> str | None:
        found = re.findall(r"Answer: (.+)", text)
        return found[-1].strip() if found else None

    def canonical(self, answer: str) -> str:
        numbers, name = re.findall(r"\d+", answer), re.search(r"[A-Za-z]{3}", answer)
        if name is None or len(numbers) != 2 or name[0].lower() not in self.MONTHS:
            return answer
        year, day = sorted(map(int, numbers), reverse=True)
        return f"{year:04}-{self.MONTHS.index(name[0].lower()) + 1:02}-{day:02}"


def model(ask: tts.Ask) -> str:
    return f"I think so. Answer: {('3 May 1921', '1921-05-03', 'May 3, 1921', '4 May 1921')[ask.seed % 4]}"


def main() -> None:
    question = "When was the bridge opened?"
    solution = tts.solve(question, tts.Budget(samples=12), backend=model, task=Dates(), strategy="best_of_n | majority")
    print(solution.answer, f"{solution.confidence:.0%}", sorted({each.answer for each in solution.candidates}))


if __name__ == "__main__":
    main()
