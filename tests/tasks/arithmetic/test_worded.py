from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.randomness import hash64
from tts.tasks.arithmetic.expression import text
from tts.tasks.arithmetic.worded import EVENTS, ITEMS, NAMES, Story, StoryEvent, fault, is_meant, read, words

QUICK = {"deadline": None, "derandomize": True}
TEMPLATES = [(kind, i) for kind, templates in EVENTS.items() for i in range(len(templates))]
COUNTS = st.integers(1, 999)
EVENTS_TOLD = st.builds(
    lambda template, first, second: StoryEvent(*template, first, second if len(template[0]) == 2 else 0),
    st.sampled_from(TEMPLATES),
    COUNTS,
    COUNTS,
)
STORIES = st.builds(
    Story, st.sampled_from(list(NAMES)), st.sampled_from(ITEMS), COUNTS, st.lists(EVENTS_TOLD, max_size=10).map(tuple)
)
STORY = "Anna has 12 apples. She buys 7 more. How many apples are there now?"


@given(STORIES, st.sampled_from([" ", "\n", "  ", "\r\n\t"]))
@settings(**QUICK)
def test_a_story_is_read_as_it_was_told_however_it_is_spaced(story: Story, space: str):
    told = str(story)
    assert read(told) == story
    assert read(f" {told.replace(' ', space)}\n") == story
    assert fault(told) is None
    assert is_meant(told)


@given(STORIES)
@settings(**QUICK)
def test_every_word_of_a_story_is_in_the_list_of_words(story: Story):
    assert set(re.findall("[A-Za-z]+", str(story))) <= set(words())


def test_the_list_of_words_is_sorted_and_holds_no_placeholder():
    assert words() == sorted(set(words()))
    assert not {"N", "M", "they", "items", "name"} & set(words())
    assert (len(words()), hash64(*words())) == (61, 1266112184382477423)  # they are tokens of the shipped models


@pytest.mark.parametrize(
    ("event", "expression"),
    [
        ("She buys 7 more.", "12 + 7"),
        ("She sells 7.", "12 - 7"),
        ("She trades every one for 7 new apples.", "12 * 7"),
        ("She buys 7 bags of 3 apples.", "12 + 7 * 3"),
        ("7 friends bring 3 apples each.", "12 + 7 * 3"),
        ("She gives 3 apples to each of 7 friends.", "12 - 7 * 3"),
    ],
)
def test_events_are_operations_on_what_there_is(event: str, expression: str):
    story = read(f"Anna has 12 apples. {event} How many apples are there now?")
    assert story is not None
    assert text(story.expression()) == expression


def test_events_follow_one_another():
    story = read(
        "Leo has 5 cards. He finds 3 cards. Then the number of cards grows to 2 times as many. How many cards are "
        "there now?"
    )
    assert story is not None
    assert text(story.expression()) == "(5 + 3) * 2"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (STORY.replace("She buys 7 more.", "She eats 7."), "the sentence 'She eats 7.' is not in its stories"),
        (STORY.replace("She", "He"), "the sentence 'He buys 7 more.' would be 'She buys 7 more.' in this story"),
        (
            STORY.replace("buys 7 more", "finds 7 books"),
            "the sentence 'She finds 7 books.' would be 'She finds 7 apples.' in this story",
        ),
        (STORY.replace("7", "07"), "the sentence 'She buys 07 more.' would be 'She buys 7 more.' in this story"),
        (STORY.replace("7", "7" * 10), "the sentence 'She buys 7777777777 more.' is not in its stories"),
        (STORY.replace("12", "012"), "'Anna has 012 apples.' would be 'Anna has 12 apples.'"),
        (STORY.replace("Anna", "Alice"), "nobody in its stories is called 'Alice', as in 'Alice has 12 apples.'"),
        (STORY.replace("apples", "pears"), "nothing in its stories is called 'pears', as in 'Anna has 12 pears.'"),
        (
            STORY.replace("now?", "left?"),
            "it ends with 'How many apples are there left?', not with 'How many apples are there now?'",
        ),
        (
            STORY.replace("many apples", "many cards"),
            "it ends with 'How many cards are there now?', not with 'How many apples are there now?'",
        ),
        (
            f"Hello! {STORY}",
            "it begins with 'Hello! Anna has 12 apples.', not with a sentence such as 'Anna has 12 apples.'",
        ),
        ("Anna has 12 apples.", "it ends with 'Anna has 12 apples.', not with 'How many apples are there now?'"),
    ],
)
def test_what_is_almost_a_story_is_told_from_one_by_its_first_strange_sentence(written: str, why: str):
    assert read(written) is None
    assert (fault(written) or "").startswith(why)
    assert is_meant(written)


def test_the_reason_quotes_no_more_than_a_line_of_a_sentence():
    for written in (
        STORY.replace("She buys", f"{'x' * 1000} buys"),
        STORY.replace("Anna", "A" + "n" * 1000),
        f"{'x' * 1000} {STORY}",
    ):
        assert len(fault(written) or "") < 400


@pytest.mark.parametrize(
    "written", ["", "12 + 7", "Who wrote Faust?", "Reach 39 with 17 22.", "Has Anna apples? She has."]
)
def test_other_texts_are_not_meant_as_stories(written: str):
    assert not is_meant(written)
    assert read(written) is None
