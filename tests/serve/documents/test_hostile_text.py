"""Hostile documents of text formats take time in proportion to their size."""

from functools import partial
from random import Random

import pytest

from tests.support.attacks.growth import MAX_GROWTH, largest_growth
from tests.support.attacks.hostile_office import Attack
from tests.support.attacks.hostile_text import draw, translate

RANDOM = Random(20260101)
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
KNOWN = [
    Attack("srt", "1\n00:00:01,000 --> 00:00:02,", "9"),
    Attack("srt", "1\n00:00:01,000 --> 00:00:02,000\na\n", "9", end="\n"),
    Attack("vtt", f"WEBVTT\n\n{CUE}a &#", "9"),
    Attack("srt", f"{CUE}a", "(", "a", ")"),
    Attack("md", "a", "$$a\n"),
    *(Attack("md", "a ", part) for part in ("$a", "<kbd>", "\\(", "www.a(")),
    *(Attack("md", "", part) for part in ("\\begin{a}\n", ": ", "[^1]: ", "*[a]: ", '!!! a "b"\n')),
    Attack("json", '["a ', "<!--", end='<b>b</b>"]'),
    Attack("json", '["a ', "<kbd>", end='<b>b</b>"]'),
    Attack("po", 'msgid "a ', "<!--", end='<b>b</b>"\nmsgstr ""\n'),
    Attack("txt", "", "- "),
    *(Attack("properties", "a=b ", part) for part in ("\\\n", "\\", "\\u00e9")),
    *(Attack("strings", "", part) for part in ("/*", '"a"=', '"')),
    Attack("xml", "<resources><string>a", '"', "<b>c</b>", "\\", "</string></resources>"),
    Attack("txt", "(", "1."),
]


@pytest.mark.parametrize("hostile", [*KNOWN, *(draw(RANDOM) for _ in range(8))])
def test_the_time_of_a_hostile_document_grows_as_its_size(hostile: Attack) -> None:
    assert largest_growth(hostile.make, partial(translate, f"a.{hostile.format}")) <= MAX_GROWTH
