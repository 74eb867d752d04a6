"""Files of links are read as written, and the error rate follows its formula."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.alignment.links import ReferenceLinks, alignment_quality, check_links, format_links, parse_links

LINKS = st.frozensets(st.tuples(st.integers(0, 99), st.integers(0, 99)))


@given(links=LINKS)
def test_links_are_read_as_they_were_written(links: frozenset[tuple[int, int]]) -> None:
    assert parse_links(format_links(links)) == ReferenceLinks(links, links)


def test_sure_links_are_possible_too() -> None:
    assert parse_links("0-0 2p1\n") == ReferenceLinks(frozenset({(0, 0)}), frozenset({(0, 0), (2, 1)}))


@pytest.mark.parametrize("line", ["0", "0-", "a-1", "0-1-2", "1--1", "0_0", "0-9999999"])
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="expected links"):
        parse_links(line)


@given(line=st.text(alphabet="01-p _\n"))
def test_any_text_is_read_or_refused(line: str) -> None:
    try:
        links = parse_links(line)
    except ValueError:
        return
    assert len(links.possible) <= len(line.split())


@pytest.mark.parametrize("links", [[(2, 0)], [(0, 3)]])
def test_a_link_beyond_the_words_is_refused(links: list[tuple[int, int]]) -> None:
    check_links([(1, 2)], "two words", "three words here")
    with pytest.raises(ValueError, match="2 source and 3 target words"):
        check_links(links, "two words", "three words here")


def test_the_error_rate_of_a_small_example() -> None:
    """3 links; 2 of 4 sure ones among them, and 3 possible: 1 - (2 + 3) / (3 + 4)."""
    references = [parse_links("0-0 1-1 2p3"), parse_links("0-0 1-1")]
    quality = alignment_quality([frozenset({(0, 0), (2, 3)}), frozenset({(0, 0)})], references)
    assert astuple(quality) == pytest.approx((1 - 5 / 7, 1.0, 0.5))


@given(links=st.lists(LINKS, max_size=3))
def test_the_sure_links_themselves_have_no_error(links: list[frozenset[tuple[int, int]]]) -> None:
    references = [ReferenceLinks(link, link | {(100, 100)}) for link in links]
    assert astuple(alignment_quality(links, references)) == pytest.approx((0.0, 1.0, 1.0))
