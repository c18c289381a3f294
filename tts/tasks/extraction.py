r"""The final answer in a text, never a guess.

The answer is the text that `<answer>` encloses, else the last boxes, else the text after the last marker.

A text ends at a template's mark for the end of a turn, and where a further question begins after an answer. Boxes with
only commas, "and" or "or" between them are one answer. After a marker, a sentence may go on: "42, so we are done"
states 42. A marker that states nothing ("the answer is unique") does not hide an earlier marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tts.tasks.forms.normal_form import normal_form
from tts.tasks.marks import ANSWER_MARKS, marks_within, pattern_of

# A token begins with a character of a set, for which `re` searches ten times faster than for alternatives.
_BOX_TOKENS = re.compile(
    r"[\\{}](?:(?<=\\)(?:(?P<box>(?:boxed|fbox)\s*\{)|(?P<bare>boxed ?-?[0-9]+(?:[.,/][0-9]+)*(?![0-9A-Za-z{]))|.))?",
    re.DOTALL,
)
_BETWEEN = re.compile(
    r"(?:[\s$,;、]|\\[()\[\],;! ]|\\q?quad|\\(?:text|mathrm) ?\{|\}|[.](?=\s*\\text)|and|or|和|或|以及|und|oder|et|ou"
    r"|[A-Za-z](?:_[0-9])? ?=|for part \([a-z]\))*"
)
_CONNECTED = re.compile(r"[,;、]|and|or|和|或|以及|und|oder|et|ou")
_LONGEST_BETWEEN = 60

_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_TURN_ENDS = (
    "<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>", "<|eom_id|>", "</s>",
    "<end_of_turn>", "<start_of_turn>", "<eos>", "[/INST]", "[INST]", "<|user|>", "<|start_header_id|>",
    "<｜end▁of▁sentence｜>", "<｜User｜>", "<|return|>", "<|END_OF_TURN_TOKEN|>",
)  # fmt: skip
_FURTHER_QUESTION = re.compile(
    r"\n[ \t]*\n[ \t#*_]*(?:q|question|problem|user|human|instruction|exercise|example|问题?|问)[ ]?[0-9]{0,3}[*_]*[ "
    r"]?[:：]",
    re.IGNORECASE,
)

_BOLD = re.compile(r"\*\*([^*]+)\*\*")
# The sentence after answers in the four-shot prompt in wide use for mathematics.
_HOPE = re.compile(r"[.,;]?\s*I hope (?:it|this) is correct\b.*", re.DOTALL)
_MATH_DELIMITERS = re.compile(r"(?<!\\)\$|(?<!\\)\\[()\[\]]")
_DISPLAYED = (
    ("$$", "$$"),
    (r"\[", r"\]"),
    ("```", "```"),
    (r"\begin{equation}", r"\end{equation}"),
    (r"\begin{equation*}", r"\end{equation*}"),
    (r"\(", r"\)"),
    ("$", "$"),
)
# The most characters of displayed mathematics after a marker.
_WINDOW = 2048
# The most layers of bold, quotes and full stops around an answer; a bound, as a model may write nothing but stars.
_MAX_LAYERS = 4
# Long texts are read in pieces, since one search holds the interpreter's lock. A marker of at most _LONGEST characters
# is found whole. The first piece, at the end of the text, is short: most texts have their marker there.
_PIECE = 65_536
_LAST = 1024
_LONGEST = 4096
_MOST_MARKERS = 40
_FEW_WORDS = 3  # the most words of a remark that may yet be an answer, such as "not possible"
_PAIRS = (("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"))

_FILLER = re.compile(
    r"(?:(?:indeed|simply|just|therefore|thus|then|clearly|definitely|now|also|hence|in fact|given by|equal to),? )+",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"(?:not\b|unique|correct|right|wrong|incorrect|consistent|reasonable|valid|verified|clear|obvious|the same"
    r"|independent|supposed|expected"
    r"|rounded|required|needed|what|which|that\b|because|in (?:the )?(?:form|terms|simplest|lowest|fact)|expressed"
    r"|a (?:whole|single|positive|negative|real|valid)"
    r"|an? (?:integer|number|fraction|decimal|percentage)\b|always|only|still|now|indeed|to\b|as follows|below"
    r"|above|shown|found|to be|within|plausible)",
    re.IGNORECASE,
)
# A word in small letters that is no known answer counts as a remark.
_ADJECTIVE = re.compile(r"(?:very |quite |more |less )?[a-z]{3,}(?: (?:for|to|as|if|when)\b.*)?")
_PLAIN_ANSWER_WORDS = """
yes no even odd true false zero one two three four five six seven eight nine ten eleven twelve none infinite infinity undefined impossible
never both neither half north south east west red blue green black white yellow
"""  # noqa: E501
_PLAIN_ANSWERS = frozenset(_PLAIN_ANSWER_WORDS.split())
_CONNECTIVE = (
    r"so|which|since|because|as|where|hence|thus|therefore|meaning|i\.?e\.?|that "
    r"is|we|given|assuming|when|after|but|with|in|from|by|using|"
    r"altogether|total|rounded|respectively|making"
)
_WORD_AFTER_COMMA = r"(?!and\b|or\b|pi\b|infinity\b|inf\b|oo\b|sqrt|sin|cos|tan|log|ln\b|exp|no\b|one\b|two\b|three\b|respectively\b)[a-z]{2,}"  # noqa: E501
_GOES_ON = re.compile(
    r"\s+of\s+(?:the|an?|all|its|his|her|their)\b|\s+[—–-]+\s+(?!(?:sqrt|sin|cos|tan|log|ln|exp|pi)\b)[A-Za-z]{2,}"
    rf"|,\s+(?:{_CONNECTIVE})\b|,\s+{_WORD_AFTER_COMMA}[^0-9$\\]*$|\s+(?:since|because|which|as required|so "
    r"(?:we|the))\b"
    r"|\s+\((?!mod\b|sin\b|cos\b|base\b)(?:[a-z]{2,})\b(?![(=^])|(?<=[0-9a-z$)\]}}*%\0])[.!?]\s+(?=[A-Z\"“(\[*])|(?<=[0-9$)\]}}*%\0]);\s+[a-z]{2,}"
)
_MATH_SPAN = re.compile(r"\$[^$]*\$|\\\(.*?\\\)|\\\[.*?\\\]|\{[^{}]*\}")
_VALUE_AT_END = re.compile(
    r"(?:\bis|\bare|\bequals|\bby|=|:)\s+(?P<value>[^a-z=]{1,80}?(?:\s*[a-z%°²³/]+\.?){0,3}|[a-z]+)\s*$", re.IGNORECASE
)
_FOREIGN_SENTENCE = re.compile(
    r"[^0-9$\\]*[\u3040-\u9fff\uac00-\ud7af][^0-9$\\]*(?:是|为|為|等于|等於|有|は|=|：|:)\s*([^是为為=，。]*[0-9][^，。]*)。?"
)
_MONEY = re.compile(r"[$€£¥] ?[0-9][0-9,]*(?:\.[0-9]+)?|[0-9][0-9,]*(?:\.[0-9]+)? ?[$€£¥%]")
_NUMBER = re.compile(r"-?\$?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?%?")
_PROSE = re.compile(r"[A-Za-z]{2,}(?:['’][a-z]+)?")


_OPEN_END = re.compile(r"(?:(?:^|[\s\d)}])[-+*/^]|[=<>(\[^]|\\(?:cdot|times|div|frac|d?frac|sqrt|boxed|left|pm))\s*$")


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete box that is not empty, or None.

    A box is `\boxed{…}` or `\fbox{…}`, and the last box is the box that opens last.
    """
    boxes = _boxes(text)
    return boxes[-1][2] if boxes else None


def last_boxes(text: str) -> str | None:
    """Return the contents of the last boxes that commas, "and" or "or" connect; None without any.

    Several contents are joined to one text, a list; mostly there is one box.
    """
    boxes = _boxes(text)
    if not boxes:
        return None
    contents = [boxes[-1][2]]
    for earlier, later in zip(boxes[-2::-1], boxes[:0:-1], strict=True):
        between = text[earlier[1] : later[0]]
        if (
            text[earlier[0] + 1] != text[later[0] + 1]
            or len(between) > _LONGEST_BETWEEN
            or _BETWEEN.fullmatch(between) is None
            or not (between == "" or _CONNECTED.search(between))
        ):
            break
        contents.insert(0, earlier[2])
    return (
        ", ".join({normal_form(content): content for content in reversed(contents)}.values().__reversed__())
        if len(contents) > 1
        else contents[0]
    )


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and content of each complete box that is not empty, in order.

    Of nested boxes only the innermost is returned.
    """
    start = min((index for word in ("\\boxed", "\\fbox") if (index := text.find(word)) >= 0), default=None)
    if start is None:
        return []
    boxes: list[tuple[int, int, str]] = []
    # for each open brace the beginnings of its box and its content; None for a brace that opens no box
    open_braces: list[tuple[int, int] | None] = []
    for token in _BOX_TOKENS.finditer(text, start):
        if token["box"] is not None:
            open_braces.append((token.start(), token.end()))
        elif token["bare"] is not None:
            boxes.append((token.start(), token.end(), token["bare"].removeprefix("boxed").strip()))
        elif token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}" and open_braces and (box := open_braces.pop()) is not None:
            content = text[box[1] : token.start()].strip()
            if content and (not boxes or boxes[-1][0] < box[0]):  # else the box encloses the last one
                boxes.append((box[0], token.end(), content))
    return boxes


def last_marker(text: str, marks: Sequence[str] = ANSWER_MARKS) -> int | None:
    """Return the index after the last answer marker, or None.

    Such markers are "####", "A:", "Answer:", "the answer is" and others.

    Args:
        text: Any text.
        marks: Marks beside the English ones (`tts.tasks.marks`).
    """
    return next(_markers(text, marks), None)


def _markers(text: str, marks: Sequence[str]) -> Iterator[int]:
    """Yield the index after each answer marker, from the last to the first."""
    pattern = pattern_of(marks_within(text, marks))
    stop, size = len(text), _LAST
    while stop > 0:
        start = max(0, stop - size)
        starts = [match.start() for match in pattern.finditer(text, start, stop + _LONGEST) if match.start() < stop]
        for index in reversed(starts):
            if (marker := pattern.match(text, index)) is not None:
                yield marker.end()
        stop, size = start, min(4 * size, _PIECE)


def announced_answer(text: str, marks: Sequence[str] = ANSWER_MARKS) -> str | None:
    """Return the cleaned answer after the last answer marker; None without a marker or an answer.

    An announced answer is displayed mathematics, or the rest of the line without the rest of its sentence. After a
    marker at the end of a line, the next line that is not blank is the answer. A remark such as "the answer is unique"
    counts only without an earlier marker that states an answer.
    """
    fallback: str | None = None
    for count, end in enumerate(_markers(text, marks)):
        answer = _stated_text(text[end : end + _WINDOW * 8])
        if answer is None:
            if count == 0 and not text[end : end + _WINDOW].strip(" \t\r\n*_$.`"):
                return None  # the text breaks off where its answer would be
        elif not _is_remark(answer):
            return answer
        elif len(answer.split()) <= _FEW_WORDS:
            fallback = fallback or answer
        if count >= _MOST_MARKERS:
            break
    return fallback


def _is_remark(phrase: str) -> bool:
    """Whether the text after "the answer is" describes the answer, and does not state it."""
    if (match := _REMARK.match(phrase)) is not None:
        return not phrase[match.end() :].lstrip(" ,:").startswith((*"0123456789$\\-+(", "the number")) or match[
            0
        ].startswith("not")
    return _ADJECTIVE.fullmatch(phrase) is not None and phrase not in _PLAIN_ANSWERS


def final_answer(text: str, marks: Sequence[str] = ANSWER_MARKS) -> str | None:
    r"""Return the final answer of a text, or None.

    The answer is the content of the last `<answer>`, else the last boxes, else the text after the last marker.
    """
    turn = own_turn(text)
    question = _FURTHER_QUESTION.search(turn)
    while question is not None:
        if (answer := _answer_in(turn[: question.start()], marks)) is not None:
            return answer
        question = _FURTHER_QUESTION.search(turn, question.end())
    return _answer_in(turn, marks)


def _answer_in(text: str, marks: Sequence[str]) -> str | None:
    if (tagged := last_tag(text)) is not None:
        return last_boxes(tagged) or clean(announced_answer(tagged, marks) or tagged) or None
    return last_boxes(text) or announced_answer(text, marks)


def own_turn(text: str) -> str:
    """Return a text up to the first mark of a turn's end after some text."""
    for mark in _TURN_ENDS:
        index = text.find(mark)
        if index >= 0 and text[:index].strip():
            text = text[:index]
    return text


def last_tag(text: str) -> str | None:
    """Return the last text that is not empty between `<answer>` and `</answer>`, or None."""
    begin: int | None = None
    content: str | None = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            begin = tag.end()
        elif begin is not None:
            content = text[begin : tag.start()].strip() or content
            begin = None
    return content


def clean(answer: str) -> str:
    r"""Return an answer without math delimiters, bold, quotes, and the full stop of its sentence."""
    answer = "".join(_MATH_DELIMITERS.sub("", piece) for piece in _pieces(answer))
    for _ in range(_MAX_LAYERS):
        answer = _without_full_stop(answer.strip())
        for opening, closing in _PAIRS:
            inner = answer.removeprefix(opening).removesuffix(closing)
            if len(inner) == len(answer) - len(opening) - len(closing):
                answer = inner
        answer = _half_bold(answer)
    return answer


def _stated_text(following: str) -> str | None:
    """Return the answer at the beginning of the text after a marker; None where nothing is stated."""
    first_line, _, later_lines = following.partition("\n")
    body = first_line.strip().strip("*_").strip()
    begin = following.lstrip(" \t\r\n*_")
    if any(begin.startswith(left) for left, _ in _DISPLAYED) and (
        not body or len(begin) == len(following.lstrip(" *_"))
    ):
        display = _display(begin)
        if display is not None:
            return display or None
    line = first_line if clean(first_line) else later_lines.lstrip().partition("\n")[0]
    if len(line) > _WINDOW:
        return clean(line) or None
    line = _BOLD.sub(r"\1", " ".join(line.split()))
    answer = clean(_value_in(_FILLER.sub("", _HOPE.sub("", line).strip(), count=1)))
    ends_there = line.endswith(answer) or line.rstrip("$ ").endswith(answer)
    return None if ends_there and _breaks_off(answer) else answer or None


def _breaks_off(formula: str) -> bool:
    """Whether a formula breaks off: at an operator without its operand, or inside of braces.

    `A+` and `Na+` are whole.
    """
    braces = re.sub(r"\\[{}]", "", formula)
    return _OPEN_END.search(formula) is not None or braces.count("{") > braces.count("}")


def _display(text: str) -> str | None:
    """Return displayed mathematics or code at the beginning of a text; None where its delimiters are within a line.

    The result is "" for a display that breaks off, or that holds an unfinished box.
    """
    for opening, closing in _DISPLAYED:
        if text.startswith(opening):
            end = text.find(closing, len(opening), _WINDOW)
            inner = text[len(opening) : end if end >= 0 else _WINDOW]
            if (end < 0 and "\n" in inner) or (r"\boxed" in inner and "\n" in inner):
                return ""
            if opening == "```":
                inner = inner.partition("\n")[2] if "\n" in inner else inner
            line_rest = text[end + len(closing) :].partition("\n")[0] if end >= 0 else ""
            is_display = opening in ("$$", r"\[") or "\n" in inner.strip(" \t")
            return clean(inner) if is_display and not line_rest.strip(" .,;*_") else None
    return None


def _value_in(line: str) -> str:
    """Return a line without the rest of its sentence after the answer; of a sentence the value that it states."""
    outside = _MATH_SPAN.sub(lambda span: "\0" * len(span[0]), line[:_WINDOW])
    goes_on = _GOES_ON.search(outside)
    if goes_on is not None and clean(line[: goes_on.start()]) and _has_value(line[: goes_on.start()]):
        line, outside = line[: goes_on.start()], outside[: goes_on.start()]
    if (foreign := _FOREIGN_SENTENCE.fullmatch(line)) is not None:
        return foreign[1]
    bare = _MATH_SPAN.sub(" ", line)
    if len(_PROSE.findall(bare)) < 3 or not any(character.isdigit() for character in line):
        return line
    sentence = line.rstrip(" .*_")
    if (match := _VALUE_AT_END.search(sentence)) is not None and any(
        character.isdigit() for character in match["value"]
    ):
        return match["value"]
    money = _MONEY.findall(sentence)
    if len(money) == 1 and sentence.count("$") <= 1 and _PROSE.match(sentence):
        return money[0]
    numbers = _NUMBER.findall(sentence)
    return numbers[0] if len(numbers) == 1 and _PROSE.match(sentence) and "\\" not in line else line


def _has_value(text: str) -> bool:
    return any(character.isdigit() or character in "$\\*" for character in text) or len(text.split()) == 1


def _pieces(text: str) -> Iterator[str]:
    """Yield pieces of a long text, cut where no delimiter is cut or begins.

    A cut is not right after a backslash, except within a run of backslashes.
    """
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        while end < len(text) and text[end - 1] == "\\" and not text.startswith("\\\\", end):
            end += 1
        yield text[start:end]
        start = end
    yield text[start:]


def _without_full_stop(answer: str) -> str:
    """Drop a full stop at the end, and the spaces before it; several dots stay."""
    stripped = answer.removesuffix(".").removesuffix("。").rstrip()
    return answer if stripped.endswith(".") or len(stripped) == len(answer) else stripped


def _half_bold(answer: str) -> str:
    """Drop the closing stars of bold text that opens before the marker, as in "**Answer: 5**"."""
    for stars in ("**", "__"):
        if answer.endswith(stars) and stars not in answer.removesuffix(stars):
            return answer.removesuffix(stars)
    return answer
