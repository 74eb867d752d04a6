"""Tensors and parameters of the Open Inference Protocol: round trips and rejected values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.compat.open_inference.protocol import Parameters, Tensor, check_shape, unpack_texts
from dragoman.serve.errors import InvalidRequestError
from tests.support.cases import cases

CASES = cases(__file__)


def text_bytes(*texts: str) -> bytes:
    return Tensor("text_input", "BYTES", (len(texts),), texts).pack()


def rejected_field(call: Any, *arguments: Any) -> str:
    with pytest.raises(InvalidRequestError) as raised:
        call(*arguments)
    return raised.value.field


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_survive_the_round_trip_through_bytes(texts: list[str]) -> None:
    assert unpack_texts(text_bytes(*texts), "body", len(texts)) == texts


@given(st.binary(max_size=20))
def test_any_bytes_are_texts_or_rejected(data: bytes) -> None:
    try:
        texts = unpack_texts(data, "body", 20)
    except InvalidRequestError:
        return
    assert text_bytes(*texts) == data


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_bytes_that_end_too_early_are_rejected(cut: int) -> None:
    assert rejected_field(unpack_texts, text_bytes("alpha", "beta")[:-cut], "body", 2) == "body"


def test_texts_beyond_the_limit_are_rejected() -> None:
    assert rejected_field(unpack_texts, text_bytes(*[""] * 3), "body", 2) == "body"


def test_numbers_are_little_endian() -> None:
    assert Tensor("a", "INT64", (2,), (1, -2)).pack() == b"\1" + 7 * b"\0" + b"\xfe" + 7 * b"\xff"
    assert Tensor("a", "FP64", (1,), (-1.5,)).pack() == b"\0\0\0\0\0\0\xf8\xbf"


def test_n_texts_have_the_shape_n_or_n_by_1() -> None:
    for good in ([3], [3, 1]):
        check_shape(good, 3)
    for bad in ([], [2], [1, 3], [3, 1, 1], [-3], [-1, -3], [3, 0], [2, 1]):
        assert rejected_field(check_shape, bad, 3) == "inputs[0].shape"


@pytest.mark.parametrize(("name", "spelled", "value"), CASES["a number may be a string"])
def test_a_number_may_be_a_string(name: str, spelled: object, value: object) -> None:
    assert getattr(Parameters.parse({"beam_size": 3, name: spelled}).options, name) == value


def test_a_language_that_looks_like_a_number_stays_a_language() -> None:
    assert Parameters.parse({"source_language": "12"}).source_language == "12"


@pytest.mark.parametrize(("values", "field"), CASES["an invalid parameter is rejected by name"])
def test_an_invalid_parameter_is_rejected_by_name(values: dict[str, Any], field: str) -> None:
    assert rejected_field(Parameters.parse, values) == field


@pytest.mark.parametrize(("priority", "engine_priority"), [(0, 0), (1, 0), (2, -1), (1000, -999)])
def test_the_default_priority_is_the_highest(priority: int, engine_priority: int) -> None:
    assert Parameters.parse({"priority": priority}).engine_priority == engine_priority
