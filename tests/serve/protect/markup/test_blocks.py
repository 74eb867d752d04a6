"""The plain text of a block is found again in its document."""

import pytest

from dragoman.serve.protect.markup.blocks import read_lines
from dragoman.serve.protect.markup.elements import MarkupOptions
from dragoman.serve.protect.markup.sentences import read_document
from tests.support.markup import whole


@pytest.mark.parametrize(("part", "texts"), [((0, 23), ["one two", "three", " four "]), ((4, 11), ["two", "thr"])])
def test_a_part_of_plain_text_is_at_its_own_place(part: tuple[int, int], texts: list[str]) -> None:
    document = "one two\tthree\n\n\t four \n"
    blocks = list(read_lines(document, [part]))
    assert [block.text for block in blocks] == texts
    for block in blocks:
        for start in range(len(block.text)):
            for end in range(start + 1, len(block.text) + 1):
                first, last = block.source(start, end)
                assert part[0] <= first < last <= part[1]
                assert document[first:last] == block.text[start:end]


def test_blocks_without_words_are_not_translated() -> None:
    document = read_document("<p> </p><p>a</p><p><br></p> <p></p>", MarkupOptions("html"), whole)
    assert [sentence.text for sentence in document.sentences] == ["a"]
    assert document.gaps == ("<p> </p><p>", "</p><p><br></p> <p></p>")
