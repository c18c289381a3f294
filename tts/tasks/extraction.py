r"""The final answer in a text, never a guess.

The answer is the text that `<answer>` encloses, else the last boxes, else the text after the last marker.

A text ends at a template's mark for the end of a turn, and where a further question begins after an answer. Boxes with
only commas, "and" or "or" between them are one answer. After a marker, a sentence may go on: "42, so we are done"
states 42. A marker that states nothing ("the answer is unique") does not hide an earlier marker.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tts.tasks.marks import ANSWER_MARKS, marks_within, pattern_of
from tts.thoughts import THINK

# A token begins with a character of a set, for which `re` searches ten times faster than for alternatives.
_BOX_TOKENS = re.compile(
    r"[\\{}](?:(?<=\\)(?:(?P<box>(?:boxed|fbox)\s*\{)|(?P<bare>boxed ?-?[0-9]+(?:[.,/][0-9]+)*(?![0-9A-Za-z{]))|.))?",
    re.DOTALL,
)
# Boxes of other spellings, and their spelling here.
_SPELLINGS = (
    (re.compile(r"<\|begin_of_box\|>|\\begin ?\{boxed\}|\\beginboxed(?![A-Za-z]|\s*\{)"), r"\\boxed{"),
    (re.compile(r"<\|end_of_box\|>|\\end ?\{boxed\}|\\endboxed(?![A-Za-z])"), "}"),
    (re.compile(r"\\(?:Boxed|beginboxed|framebox(?:\s*\[[^\[\]]*\])*)(?=\s*\{)"), r"\\boxed"),
)
_PART = (
    r"[(*\[]*(?:(?:for )?(?:[Pp]art|[Qq]uestion|[Pp]roblem|[Cc]ase) [(*]*(?:[A-Za-z]|[ivx]{1,4}|[1-9])"
    r"|(?:[A-Ha-h]|[ivx]{1,4}|[1-9])(?=[).]))[)*:.\]]+|(?:for )?[(*\[]+(?:[a-h]|[ivx]{1,4}|[1-9])[)\]]+"
)
_NEXT_PART = re.compile(r"[^\n]{0,60}\n[\s*#•-]*(?:[Pp]art )?\([b-h]\)[^\n]{0,100}")
_APPROXIMATE = r"(?:about|roughly|numerically|approximately|approx\.?|\\approx|≈)"
# Between a value and its approximation, which is no answer of its own.
_APPROXIMATELY = re.compile(
    r"[\s$,;(){}\\]*(?:(?:or|which is|that is|i\.e\.|is|=|\\text|\\q?quad)[\s$,;(){}\\]*){0,4}"
    rf"(?:{_APPROXIMATE}[\s$,:~(){{}}\\]*)+"
)
_BETWEEN = re.compile(
    r"(?:" + _PART + r"|\n[ \t]*[-*•][ \t]|[\s$,;、]|\\[()\[\],;! ]|"
    r"\\q?quad|\\(?:text|mathrm) ?\{|\}|[.](?=\s*\\text)|and|or|和|或|以及|und|oder|et|ou"
    r"|[A-Za-z](?:_[0-9])? ?=|for part \([a-z]\))*"
)
_CONNECTED = re.compile(r"[,;、]|and|or|和|或|以及|und|oder|et|ou|" + _PART)
_LONGEST_BETWEEN = 60

_TAG = re.compile(r"<(/?)(?:final[_ ]?)?answer>", re.IGNORECASE)
_MEMBER = re.compile(r'"(?:final_?)?answer"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9.]+(?=\s*[,}]))', re.IGNORECASE)
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
_CLOSING_REMARK = re.compile(r"[.,;]?\s*I hope (?:it|this) is correct\b.*", re.DOTALL)
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
    r"\A(?:(?:indeed|simply|just|therefore|thus|then|clearly|definitely|now|also|hence|in fact|given by|equal to),? )+",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"(?:not\b|unique|correct|right|wrong|incorrect|consistent|reasonable|valid|verified|clear|obvious|the same"
    r"|independent|supposed|expected"
    r"|rounded|required|needed|what|which|that\b|because|in (?:the )?(?:form|terms|simplest|lowest|fact)|expressed"
    r"|a (?:whole|single|positive|negative|real|valid)"
    r"|an? (?:integer|number|fraction|decimal|percentage)\b|always|only|still|now|indeed|to\b|as follows|below"
    r"|above|shown|found|to be|within|plausible|正确|对的|错误|唯一|合理)",
    re.IGNORECASE,
)
# A word in small letters that is no known answer counts as a remark.
_ADJECTIVE = re.compile(r"(?:very |quite |more |less )?[a-z]{3,}(?: (?:for|to|as|if|when)\b.*)?")
_PLAIN_ANSWER_WORDS = """
yes no even odd true false zero one two three four five six seven eight nine ten eleven twelve none infinite infinity undefined impossible
never both neither half north south east west red blue green black white yellow
"""  # noqa: E501
_PLAIN_ANSWERS = frozenset(_PLAIN_ANSWER_WORDS.split())
# A sentence without a value, which states an answer only where nothing else does.
_SENTENCE = re.compile(
    r"(?:it|this|that|these|those|they|there|we|i|you|he|she|let)(?:['’][a-z]+)? [a-z]{2,}[^0-9$\\=]*"
    r"|(?:to|in|by|as|if|so) [^0-9$\\=]*"
    r"|the [^0-9$\\=]* (?:is|are|was|were|has|have|can|will|would|should|must|do|does|need)\b[^0-9$\\=]*",
    re.IGNORECASE,
)
_CONNECTIVE = (
    r"so|which|since|because|as|where|hence|thus|therefore|meaning|i\.?e\.?|that "
    r"is|we|given|assuming|when|after|but|with|in|from|by|using|"
    r"altogether|total|rounded|respectively|making"
)
_WORD_AFTER_COMMA = r"(?!and\b|or\b|pi\b|infinity\b|inf\b|oo\b|sqrt|sin|cos|tan|log|ln\b|exp|no\b|one\b|two\b|three\b|respectively\b)[a-z]{2,}"  # noqa: E501
_CONTINUATION = re.compile(
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


_OPEN_END = re.compile(
    r"(?:(?:^|[\s\d)}])[-+*/^]|[=<>(\[^]|\\(?:cdot|times|div|frac|d?frac|sqrt|boxed|left|pm|b(?:o(?:xe?)?)?|fra?|sq?r?)?)\s*$"
)


class _Box(NamedTuple):
    """A box in a text: the indices where it starts and ends, and its content."""

    start: int
    end: int
    content: str


def last_box(text: str) -> str | None:
    r"""Return the content of the last complete box that is not empty, or None.

    A box is `\boxed{…}`, `\fbox{…}` or another spelling of `usual_boxes`. The last box is the box that opens last.
    """
    boxes = _boxes(usual_boxes(text))
    return boxes[-1].content if boxes else None


def usual_boxes(text: str) -> str:
    r"""Return a text in which each box is written `\boxed{…}`, such as GLM's `<|begin_of_box|>`."""
    for spelling, usual in _SPELLINGS if "box" in text or "Box" in text else ():
        text = spelling.sub(usual, text)
    return text


def _approximates(text: str, earlier: _Box, later: _Box) -> bool:
    """Whether a box has an approximation, in decimals, of the value in the box before it."""
    sign = re.match(rf"\s*{_APPROXIMATE}", later.content)
    between = text[earlier.end : later.start] + ("" if sign is None else sign[0])
    return len(between) <= _LONGEST_BETWEEN and "." in later.content and _APPROXIMATELY.fullmatch(between) is not None


def last_boxes(text: str) -> str | None:
    """Return the contents of the last boxes that commas, "and" or "or" connect; None without any.

    Several contents are joined to one text, a list; mostly there is one box.
    """
    text = usual_boxes(text)
    boxes = _boxes(text)
    if not boxes:
        return None
    while len(boxes) > 1 and _approximates(text, boxes[-2], boxes[-1]):
        del boxes[-1]
    contents = [boxes[-1].content]  # of connected boxes, from the last to the first
    for later, earlier in itertools.pairwise(reversed(boxes)):
        if not _is_connected(text, earlier, later):
            break
        contents.append(earlier.content)
    if len(contents) == 1:
        return contents[0]
    # of contents with the same normal form the first in the text stays, at the place of the last
    from tts.tasks.forms.normal_form import normal_form  # loaded where several answers are compared

    content_by_form = {normal_form(content): content for content in contents}
    return ", ".join(reversed(content_by_form.values()))


def _is_connected(text: str, earlier: _Box, later: _Box) -> bool:
    """Whether two boxes have the same command, and only a comma, a part's name or a word such as "and" between them."""
    between = text[earlier.end : later.start]
    return _NEXT_PART.fullmatch(between) is not None or (
        text[earlier.start + 1] == text[later.start + 1]
        and len(between) <= _LONGEST_BETWEEN
        and _BETWEEN.fullmatch(between) is not None
        and (between == "" or _CONNECTED.search(between) is not None)
    )


def _boxes(text: str) -> list[_Box]:
    """Return each complete box that is not empty, in order.

    Of nested boxes only the innermost is returned.
    """
    starts = [text.find(command) for command in ("\\boxed", "\\fbox")]
    first_start = min((start for start in starts if start >= 0), default=None)
    if first_start is None:
        return []
    boxes: list[_Box] = []
    # for each open brace the token that opens its box, or None for a brace that opens no box
    open_braces: list[re.Match[str] | None] = []
    for token in _BOX_TOKENS.finditer(text, first_start):
        if token["box"] is not None:
            open_braces.append(token)
        elif token["bare"] is not None:
            content = token["bare"].removeprefix("boxed").strip()
            boxes.append(_Box(token.start(), token.end(), content))
        elif token[0] == "{":
            open_braces.append(None)
        elif token[0] == "}" and open_braces:
            opening = open_braces.pop()
            if opening is None:
                continue
            content = text[opening.end() : token.start()].strip()
            has_inner_box = bool(boxes) and boxes[-1].start > opening.start()
            if content and not has_inner_box:
                boxes.append(_Box(opening.start(), token.end(), content))
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
    piece_end, piece_size = len(text), _LAST
    while piece_end > 0:
        piece_start = max(0, piece_end - piece_size)
        matches = pattern.finditer(text, piece_start, piece_end + _LONGEST)
        marker_starts = [match.start() for match in matches if match.start() < piece_end]
        for marker_start in reversed(marker_starts):
            marker = pattern.match(text, marker_start)  # matched anew, in the whole text
            if marker is not None:
                yield marker.end()
        piece_end, piece_size = piece_start, min(4 * piece_size, _PIECE)


def announced_answer(text: str, marks: Sequence[str] = ANSWER_MARKS) -> str | None:
    """Return the cleaned answer after the last answer marker; None without a marker or an answer.

    An announced answer is displayed mathematics, or the value that the line states after the marker. After a marker at
    the end of a line, the next line that is not blank has the answer. A short remark such as "the answer is unique"
    is returned only where no marker states an answer.
    """
    last_remark: str | None = None
    for index, marker_end in enumerate(_markers(text, marks)):
        answer = _stated_text(text[marker_end : marker_end + _WINDOW * 8])
        if answer is None:
            following = text[marker_end : marker_end + _WINDOW]
            if index == 0 and not following.strip(" \t\r\n*_$.`"):
                return None  # the text breaks off where its answer would be
        elif not _is_remark(answer) and not _SENTENCE.fullmatch(answer):
            return answer
        elif last_remark is None and (len(answer.split()) <= _FEW_WORDS or not _is_remark(answer)):
            last_remark = answer
        if index >= _MOST_MARKERS:
            break
    return last_remark


def _is_remark(phrase: str) -> bool:
    """Whether the text after "the answer is" describes the answer, and does not state it."""
    remark = _REMARK.match(phrase)
    if remark is not None:
        after_remark = phrase[remark.end() :].lstrip(" ,:")
        has_value = after_remark.startswith((*"0123456789$\\-+(", "the number"))
        return not has_value or remark[0].startswith("not")
    return _ADJECTIVE.fullmatch(phrase) is not None and phrase not in _PLAIN_ANSWERS


def final_answer(text: str, marks: Sequence[str] = ANSWER_MARKS) -> str | None:
    r"""Return the final answer of a text, or None.

    The answer is the content of the last `<answer>`, else the last boxes, else the text after the last marker.
    """
    turn = own_turn(text)
    for question in _FURTHER_QUESTION.finditer(turn):
        answer = _answer_in(turn[: question.start()], marks)
        if answer is not None:
            return answer
    return _answer_in(turn, marks)


def _answer_in(text: str, marks: Sequence[str]) -> str | None:
    """Return the final answer of a text of one turn, or None."""
    if (tagged := last_tag(text)) is not None:
        return last_boxes(tagged) or clean(announced_answer(tagged, marks) or tagged) or None
    return last_boxes(text) or announced_answer(text, marks)


def own_turn(text: str) -> str:
    """Return the response in a text, up to the first mark of a turn's end that follows some text."""
    text = THINK.response(text)
    for mark in _TURN_ENDS:
        index = text.find(mark)
        if index >= 0 and text[:index].strip():
            text = text[:index]
    return text


def last_tag(text: str) -> str | None:
    """Return the last text that is not empty in `<answer>`, else in a JSON member "answer", or None."""
    content_start: int | None = None
    content: str | None = None
    for tag in _TAG.finditer(text):
        is_closing = bool(tag[1])
        if not is_closing:
            content_start = tag.end()
        elif content_start is not None:
            content = text[content_start : tag.start()].strip() or content
            content_start = None
    if content is None and (members := _MEMBER.findall(text)):
        with contextlib.suppress(ValueError):
            return str(json.loads(members[-1])).strip() or None
    return content


def clean(answer: str) -> str:
    r"""Return an answer without math delimiters, bold, quotes, and the full stop of its sentence."""
    answer = "".join(_MATH_DELIMITERS.sub("", piece) for piece in _pieces(answer))
    for _ in range(_MAX_LAYERS):
        answer = _without_full_stop(answer.strip())
        for opening, closing in _PAIRS:
            unpaired = answer.removeprefix(opening).removesuffix(closing)
            has_both = len(unpaired) == len(answer) - len(opening) - len(closing)
            if has_both:
                answer = unpaired
        answer = _half_bold(answer)
    return answer


def _stated_text(following: str) -> str | None:
    """Return the answer at the beginning of the text after a marker; None where nothing is stated."""
    first_line, _, later_lines = following.partition("\n")
    stated = following.lstrip(" \t\r\n*_")
    has_display = any(stated.startswith(opening) for opening, _closing in _DISPLAYED)
    is_first_line_empty = not first_line.strip().strip("*_").strip()
    begins_at_once = len(stated) == len(following.lstrip(" *_"))
    if has_display and (is_first_line_empty or begins_at_once):
        display = _display(stated)
        if display is not None:
            return display or None
    line = first_line if clean(first_line) else later_lines.lstrip().partition("\n")[0]
    if len(line) > _WINDOW:
        return clean(line) or None
    line = _BOLD.sub(r"\1", " ".join(line.split()))
    sentence = _FILLER.sub("", _CLOSING_REMARK.sub("", line).strip(), count=1)
    answer = clean(_value_in(sentence))
    is_at_line_end = line.endswith(answer) or line.rstrip("$ ").endswith(answer)
    if is_at_line_end and _breaks_off(answer):
        return None
    return answer or None


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
        if not text.startswith(opening):
            continue
        closing_start = text.find(closing, len(opening), _WINDOW)
        is_closed = closing_start >= 0
        content = text[len(opening) : closing_start if is_closed else _WINDOW]
        if "\n" in content and (not is_closed or r"\boxed" in content):
            return ""
        if opening == "```" and "\n" in content:
            content = content.partition("\n")[2]  # the first line names the language
        after_display = text[closing_start + len(closing) :].partition("\n")[0] if is_closed else ""
        is_display = opening in ("$$", r"\[") or "\n" in content.strip(" \t")
        return clean(content) if is_display and not after_display.strip(" .,;*_") else None
    return None


def _value_in(line: str) -> str:
    """Return the value that a line states: the line up to further words of its sentence, or a value within prose."""
    without_math = _MATH_SPAN.sub(lambda span: "\0" * len(span[0]), line[:_WINDOW])  # of the same length
    further_words = _CONTINUATION.search(without_math)
    if further_words is not None:
        before = line[: further_words.start()]
        if clean(before) and _has_value(before):
            line = before
    if (foreign := _FOREIGN_SENTENCE.fullmatch(line)) is not None:
        return foreign[1]
    prose_words = _PROSE.findall(_MATH_SPAN.sub(" ", line))
    if len(prose_words) < 3 or not any(character.isdigit() for character in line):
        return line
    sentence = line.rstrip(" .*_")
    value_at_end = _VALUE_AT_END.search(sentence)
    if value_at_end is not None and any(character.isdigit() for character in value_at_end["value"]):
        return value_at_end["value"]
    begins_with_word = _PROSE.match(sentence) is not None
    amounts = _MONEY.findall(sentence)
    if len(amounts) == 1 and sentence.count("$") <= 1 and begins_with_word:
        return amounts[0]
    numbers = _NUMBER.findall(sentence)
    is_only_number = len(numbers) == 1 and begins_with_word and "\\" not in line
    return numbers[0] if is_only_number else line


def _has_value(text: str) -> bool:
    return any(character.isdigit() or character in "$\\*" for character in text) or len(text.split()) == 1


def _pieces(text: str) -> Iterator[str]:
    """Yield pieces of a long text, cut where no delimiter of mathematics is cut.

    A cut after a backslash moves on, except before two further backslashes.
    """
    piece_start = 0
    while len(text) - piece_start > _PIECE:
        cut = piece_start + _PIECE
        while cut < len(text) and text[cut - 1] == "\\" and not text.startswith("\\\\", cut):
            cut += 1
        yield text[piece_start:cut]
        piece_start = cut
    yield text[piece_start:]


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
