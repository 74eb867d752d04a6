"""Weights have the places that the kernels read, and padding adds nothing to a product."""

import numpy as np
import pytest
from numpy.typing import NDArray

from dragoman.export.graphs.native.layout import offsets, pack_floats, pack_integers, quantize, unpack_floats

SIZES = pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (16, 4), (17, 7), (35, 64), (48, 145)])


def draw(outputs: int, inputs: int) -> NDArray[np.float32]:
    return np.random.default_rng(outputs * 1000 + inputs).normal(size=(outputs, inputs)).astype(np.float32)


@SIZES
def test_a_float_is_in_the_block_of_its_output(outputs: int, inputs: int) -> None:
    matrix = draw(outputs, inputs)
    blocks = pack_floats(matrix)
    assert blocks.shape == (-(-outputs // 16), inputs, 16)
    for output, row in enumerate(matrix):
        assert blocks[output // 16, :, output % 16].tolist() == row.tolist()
    assert not blocks[-1, :, (outputs - 1) % 16 + 1 :].any()


@SIZES
def test_floats_are_read_back_with_their_padding(outputs: int, inputs: int) -> None:
    matrix = draw(outputs, inputs)
    read = unpack_floats(pack_floats(matrix))
    assert read[:outputs].tobytes() == matrix.tobytes()
    assert not read[outputs:].any()


@SIZES
def test_four_inputs_of_an_integer_matrix_are_neighbors(outputs: int, inputs: int) -> None:
    matrix = quantize(draw(outputs, inputs)).values
    blocks = pack_integers(matrix)
    assert blocks.shape == (-(-outputs // 16), -(-inputs // 4), 16, 4)
    for output, row in enumerate(matrix):
        for number, value in enumerate(row):
            assert blocks[output // 16, number // 4, output % 16, number % 4] == value
    assert np.abs(blocks.astype(int)).sum() == np.abs(matrix.astype(int)).sum()


def test_a_rounded_weight_is_at_most_half_a_step_away() -> None:
    matrix = draw(6, 50)
    matrix[2] = 0.0
    rounded = quantize(matrix)
    error = np.abs(rounded.values * rounded.scales[:, np.newaxis] - matrix)
    assert (error <= rounded.scales[:, np.newaxis] * 0.5001).all()
    assert np.abs(rounded.values).max(axis=1).tolist() == [127, 127, 0, 127, 127, 127]
    assert rounded.scales[2] == 0.0


def test_an_offset_undoes_the_zero_point_of_unsigned_activations() -> None:
    matrix = quantize(draw(35, 21)).values
    activations = np.random.default_rng(1).integers(-127, 128, 21)
    expected = matrix.astype(int) @ activations
    unsigned = matrix.astype(int) @ (activations + 128) + offsets(pack_integers(matrix))[:35]
    assert unsigned.tolist() == expected.tolist()
