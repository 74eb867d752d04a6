"""A sentence differs if any token does, and is told with its number and its margin."""

from benchmarks.near_ties import Difference, differences


def test_a_sentence_that_differs_is_told_with_its_margin() -> None:
    found = differences([[1, 2], [3], [4]], [(1, 2), (3, 5), ()], lambda place: place / 10)
    assert found == [Difference(2, 0.1), Difference(3, 0.2)]


def test_the_margin_of_a_sentence_that_does_not_differ_is_not_asked_for() -> None:
    def margin(place: int) -> float:
        raise AssertionError(place)

    assert differences([[1]], [(1,)], margin) == []
