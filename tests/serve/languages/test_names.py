"""How files name languages that clients name in many ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.languages.names import language_tag
from tests.support.cases import cases

CASES = cases(__file__)


@pytest.mark.parametrize(("name", "tag"), CASES["a language has one tag in any case and by its name"])
def test_a_language_has_one_tag_in_any_case_and_by_its_name(name: str, tag: str) -> None:
    assert language_tag(name) == tag


@given(st.text(max_size=12))
def test_a_tag_is_its_own_tag(name: str) -> None:
    assert language_tag(language_tag(name)) == language_tag(name)
