"""Tensors and parameters of the Open Inference Protocol: round trips and rejected values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.api.open_inference.protocol import Parameters, Tensor, check_outputs, check_shape, in_our_words, unpack_texts
from serve.errors import InvalidRequestError


def text_bytes(*texts: str) -> bytes:
    return Tensor("text_input", "BYTES", (len(texts),), texts).pack()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_survive_the_round_trip_through_bytes(texts: list[str]) -> None:
    assert unpack_texts(text_bytes(*texts), "body") == texts


def test_numbers_are_little_endian() -> None:
    assert Tensor("a", "INT64", (2,), (1, -2)).pack() == b"\1" + 7 * b"\0" + b"\xfe" + 7 * b"\xff"
    assert Tensor("a", "FP64", (1,), (-1.5,)).pack() == b"\0\0\0\0\0\0\xf8\xbf"


@given(st.binary(max_size=20))
def test_any_bytes_are_texts_or_rejected(data: bytes) -> None:
    try:
        texts = unpack_texts(data, "body")
    except InvalidRequestError:
        return
    assert text_bytes(*texts) == data


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_bytes_that_end_too_early_are_refused(cut: int) -> None:
    with pytest.raises(InvalidRequestError, match=r"^body: .* text 1"):
        unpack_texts(text_bytes("alpha", "beta")[:-cut], "body")


@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_n_texts_have_the_shape_n_or_n_by_1(shape: list[int]) -> None:
    check_shape(shape, 3, "inputs[0]")


@pytest.mark.parametrize("shape", [[], [2], [1, 3], [3, 1, 1], [-3], [-1, -3], [3, 0], [2, 1]])
def test_another_shape_is_refused(shape: list[int]) -> None:
    with pytest.raises(InvalidRequestError, match=r"^inputs\[0\]\.shape: "):
        check_shape(shape, 3, "inputs[0]")


def test_unknown_and_repeated_outputs_are_rejected() -> None:
    assert check_outputs(["score"]) == ("score",)
    with pytest.raises(InvalidRequestError, match=r"^outputs\[0\]\.name: 'logits', "):
        check_outputs(["logits"])
    with pytest.raises(InvalidRequestError, match=r"^outputs\[1\]\.name: "):
        check_outputs(["score", "score"])


@pytest.mark.parametrize(
    ("spelled", "value"), [("3", 3), (3, 3), ("0.5", 0.5), ("true", True), ("2e0", 2.0), ("[1]", "[1]"), ("x", "x")]
)
def test_a_number_may_be_a_string(spelled: object, value: object) -> None:
    fields = {int: "beam_size", float: "patience", bool: "suppress_unknown"}
    if isinstance(value, str):
        with pytest.raises(InvalidRequestError, match=r"^parameters\.temperature: "):
            Parameters.parse({"temperature": spelled})
    else:
        name = fields[type(value)]
        given = {name: spelled, **({"beam_size": 3} if name == "patience" else {})}
        assert getattr(Parameters.parse(given).options, name) == value


def test_a_language_that_looks_like_a_number_stays_a_language() -> None:
    assert Parameters.parse({"source_language": "12"}).source_language == "12"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"beam": 3}, "parameters.beam"),
        ({"options": {}}, "parameters.options"),
        ({"priority": -1}, "parameters.priority"),
        ({"timeout": "soon"}, "parameters.timeout"),
        ({"timeout": 3_600_000_001}, "parameters.timeout"),
        ({"source_language": 5}, "parameters.source_language"),
        ({"beam_size": 3, "hypotheses": 2}, "parameters.hypotheses"),
        ({"token_scores": True}, "parameters.token_scores"),
        ({"top_k": 5}, "parameters.top_k"),
        ({"beam_size": None}, "parameters.beam_size"),
    ],
)
def test_an_invalid_parameter_is_rejected_by_name(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        Parameters.parse(values)
    assert raised.value.field == field


@pytest.mark.parametrize(("priority", "engine_priority"), [(0, 0), (1, 0), (2, -1), (1000, -999)])
def test_the_default_priority_is_the_highest(priority: int, engine_priority: int) -> None:
    assert Parameters.parse({"priority": priority}).engine_priority == engine_priority


@pytest.mark.parametrize(
    ("field", "ours"),
    [
        ("text", "text_input"),
        ("text[3]", "text_input[3]"),
        ("options.beam_size", "parameters.beam_size"),
        ("target_language", "parameters.target_language"),
        ("body", "body"),
    ],
)
def test_errors_name_fields_as_the_protocol_does(field: str, ours: str) -> None:
    assert str(in_our_words(InvalidRequestError(field, "wrong"))) == f"{ours}: wrong"
