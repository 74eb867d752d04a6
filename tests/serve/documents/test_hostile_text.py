"""Hostile documents of text formats take time in proportion to their size."""

from functools import partial
from random import Random

import pytest

from tests.support.attacks.growth import FACTOR, MAX_GROWTH, largest_growth
from tests.support.attacks.hostile_text import HostileText, draw, translate

RANDOM = Random(20260101)
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
KNOWN = [
    HostileText(".srt", "1\n00:00:01,000 --> 00:00:02,", "9"),
    HostileText(".srt", "1\n00:00:01,000 --> 00:00:02,000\na\n", "9", end="\n"),
    HostileText(".vtt", f"WEBVTT\n\n{CUE}a &#", "9"),
    HostileText(".srt", f"{CUE}a", "(", "a", ")"),
    HostileText(".md", "a", "$$a\n"),
    HostileText(".md", "a ", "$a"),
    HostileText(".md", "a ", "<kbd>"),
    HostileText(".md", "", "\\begin{a}\n"),
    HostileText(".md", "", ": "),
    HostileText(".md", "", "[^1]: "),
    HostileText(".md", "a ", "\\("),
    HostileText(".md", "a ", "www.a("),
    HostileText(".md", "", "*[a]: "),
    HostileText(".md", "", '!!! a "b"\n'),
    HostileText(".json", '["a ', "<!--", end='<b>b</b>"]'),
    HostileText(".json", '["a ', "<kbd>", end='<b>b</b>"]'),
    HostileText(".po", 'msgid "a ', "<!--", end='<b>b</b>"\nmsgstr ""\n'),
    HostileText(".txt", "", "- "),
    HostileText(".txt", "(", "1."),
]


@pytest.mark.parametrize("hostile", [*KNOWN, *(draw(RANDOM) for _ in range(24))])
def test_the_time_of_a_hostile_document_grows_as_its_size(hostile: HostileText) -> None:
    assert largest_growth(hostile.make, partial(translate, hostile.suffix)) <= MAX_GROWTH


def test_quadratic_time_is_seen() -> None:
    def quadratic(size: int) -> None:
        sum(1 for _ in range(size * size // 10_000))

    assert largest_growth(int, quadratic) > FACTOR * FACTOR / 2
