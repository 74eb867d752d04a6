"""A sentence differs if any token differs; it is reported with its number and margin."""

from benchmarks.near_ties import Difference, differences


def test_a_sentence_that_differs_is_reported_with_its_margin() -> None:
    found = differences([[1, 2], [3], [4]], [(1, 2), (3, 5), ()], lambda place: place / 10)
    assert found == [Difference(2, 0.1), Difference(3, 0.2)]


def test_the_margin_of_an_equal_sentence_is_not_computed() -> None:
    def margin(place: int) -> float:
        raise AssertionError(place)

    assert differences([[1]], [(1,)], margin) == []
