"""Search options become values or one error. `test_option_limits` tests them over the interfaces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.translation.fields import MAX_SHOWN_CHARACTERS, SearchFields, shown

any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)
any_name = st.sampled_from(sorted(SearchFields.model_fields)) | st.text(st.characters(exclude_categories=()))


def test_the_default_is_greedy_search_and_naming_a_default_changes_nothing() -> None:
    options = SearchFields.parse({})
    assert (options.beam_size, options.sampled, options.rows, options.attended) == (1, False, 1, False)
    assert SearchFields.parse(options.model_dump()) == options


@pytest.mark.parametrize(
    ("options", "rows", "attended"),
    [
        (SearchFields(temperature=1.0, hypotheses=3), 3, False),
        (SearchFields(beam_size=4, hypotheses=3), 4, False),
        (SearchFields(alignments="tokens"), 1, True),
        (SearchFields(beam_size=2, coverage_penalty=0.1), 2, True),
    ],
)
def test_hypotheses_take_rows_and_alignments_and_coverage_need_attention(
    options: SearchFields, rows: int, *, attended: bool
) -> None:
    assert (options.rows, options.attended) == (rows, attended)


def test_options_are_frozen_and_the_first_of_several_faults_is_reported() -> None:
    with pytest.raises(ValidationError):
        SearchFields().beam_size = 2  # type: ignore[misc]
    with pytest.raises(InvalidRequestError) as refused:
        SearchFields.parse({"hypotheses": 0, "beam_size": 0})
    assert refused.value.field == "options.beam_size"


@settings(max_examples=25)
@given(st.dictionaries(any_name, any_value, max_size=3))
def test_any_values_become_options_or_an_error_that_names_one(values: dict[str, object]) -> None:
    field = "options."
    try:
        assert SearchFields.parse(values).model_fields_set == set(values)
    except InvalidRequestError as error:
        str(error).encode("ascii")
        field = error.field
    assert field.startswith("options.")


@settings(max_examples=25)
@given(any_value)
def test_a_shown_value_is_short_and_ascii(value: object) -> None:
    shown(value).encode("ascii")
    assert len(shown(value)) <= 12 * MAX_SHOWN_CHARACTERS + 2
