"""How files name languages that clients name in many ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.languages.names import language_tag


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        *((name, "de") for name in ("DE", " de\n", "german")),
        *[("Haitian Creole", "ht"), ("DE-at", "de-AT"), ("de_at", "de_AT"), ("ZH-HANS-cn", "zh-Hans-CN")],
        *((name, name) for name in ("zho_Hant", "es-419", "auto", "", "en/../de")),
    ],
)
def test_a_language_has_one_tag_in_any_case_and_by_its_name(name: str, tag: str) -> None:
    assert language_tag(name) == tag


@given(st.text(max_size=12))
def test_a_tag_is_its_own_tag(name: str) -> None:
    assert language_tag(language_tag(name)) == language_tag(name)
