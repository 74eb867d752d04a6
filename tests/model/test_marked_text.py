"""A marked place is replaced repeatedly; the rest of the document does not change."""

import pytest

from dragoman.model.provenance import MarkError, fill
from tests.support.cases import cases

CASES = cases(__file__)

TEXT = "before\n<!-- table -->\nold\n<!-- /table -->\nafter <!-- maps --><!-- /maps -->\n"


def test_a_place_is_filled_in_and_the_rest_stays() -> None:
    assert fill(TEXT, "table", "new\n") == TEXT.replace("\nold\n", "\n\nnew\n\n")


def test_filling_in_again_changes_nothing() -> None:
    once = fill(TEXT, "maps", "![](a.svg)")
    assert fill(once, "maps", "![](a.svg)") == once


@pytest.mark.parametrize("text", CASES["a place has to be there once"])
def test_a_place_has_to_be_there_once(text: str) -> None:
    with pytest.raises(MarkError, match="<!-- table -->"):
        fill(text, "table", "new")
