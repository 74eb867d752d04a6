"""Parsing of search options: values or one error. `test_option_limits` tests them over the interfaces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from serve.errors import InvalidRequestError
from serve.translation.fields import MAX_SHOWN_CHARACTERS, SearchFields, shown

any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)
any_name = st.sampled_from(sorted(SearchFields.model_fields)) | st.text(st.characters(exclude_categories=()))


def test_no_option_is_greedy_search() -> None:
    options = SearchFields.parse({})
    assert (options.beam_size, options.sampled, options.rows, options.attended) == (1, False, 1, False)


def test_each_sampled_hypothesis_and_each_hypothesis_of_a_beam_takes_a_row() -> None:
    assert SearchFields(temperature=1.0, hypotheses=3).rows == 3
    assert SearchFields(beam_size=4, hypotheses=3).rows == 4


@pytest.mark.parametrize("options", [SearchFields(alignments=True), SearchFields(beam_size=2, coverage_penalty=0.1)])
def test_alignments_and_coverage_need_attention(options: SearchFields) -> None:
    assert options.attended


def test_naming_a_default_changes_nothing() -> None:
    defaults = SearchFields().model_dump()
    assert SearchFields.parse(defaults) == SearchFields()


def test_of_several_faults_the_first_is_told() -> None:
    with pytest.raises(InvalidRequestError, match=r"^options\.beam_size: 0, "):
        SearchFields.parse({"hypotheses": 0, "beam_size": 0})


def test_options_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SearchFields().beam_size = 2  # type: ignore[misc]


@settings(max_examples=50)
@given(st.dictionaries(any_name, any_value, max_size=3))
def test_any_values_become_options_or_an_error_that_names_one(values: dict[str, object]) -> None:
    field = "options."
    try:
        assert SearchFields.parse(values).model_fields_set == set(values)
    except InvalidRequestError as error:
        str(error).encode("ascii")
        field = error.field
    assert field.startswith("options.")


@settings(max_examples=50)
@given(any_value)
def test_a_shown_value_is_short_and_ascii(value: object) -> None:
    shown(value).encode("ascii")
    assert len(shown(value)) <= 12 * MAX_SHOWN_CHARACTERS + 2
