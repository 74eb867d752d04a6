"""The caches hold what was written, where it was written, and nothing else changes."""

import numpy as np
import pytest

from serve.kv_cache import KVCache

SLOTS, LAYERS, HEADS, SIZE, SOURCE, TARGET = 5, 2, 3, 8, 7, 6


@pytest.fixture
def cache() -> KVCache:
    """Caches in which every number tells its place."""
    cache = KVCache(
        slots=SLOTS, layers=LAYERS, heads=HEADS, head_size=SIZE, max_source_tokens=SOURCE, max_target_tokens=TARGET
    )
    for number, array in enumerate([*cache.self_caches, *cache.cross_caches]):
        array[:] = np.arange(array.size).reshape(array.shape) + 10_000 * number
    return cache


def encoded(rows: int, length: int) -> list[np.ndarray]:
    shape = (rows, HEADS, length, SIZE)
    return [np.full(shape, -1 - number, np.float32) for number in range(2 * LAYERS)]


def test_every_layer_has_keys_and_values_for_all_slots() -> None:
    cache = KVCache(slots=5, layers=2, heads=3, head_size=8, max_source_tokens=7, max_target_tokens=6)
    assert [array.shape for array in cache.self_caches] == [(5, 3, 6, 8)] * 4
    assert [array.shape for array in cache.cross_caches] == [(5, 3, 7, 8)] * 4
    arrays = [*cache.self_caches, *cache.cross_caches]
    assert all(array.dtype == np.float32 and not array.any() for array in arrays)


def test_the_first_slots_are_a_view_of_neighbouring_memory(cache: KVCache) -> None:
    """So that a step binds them without a copy."""
    for array in [*cache.self_caches, *cache.cross_caches]:
        view = array[:3]
        assert view.flags.c_contiguous
        assert view.ctypes.data == array.ctypes.data


@pytest.mark.parametrize(("first", "rows", "length"), [(0, 1, 1), (0, SLOTS, SOURCE), (2, 3, 4), (4, 1, SOURCE)])
def test_what_was_encoded_is_kept_in_its_slots_alone(cache: KVCache, first: int, rows: int, length: int) -> None:
    before = [array.copy() for array in cache.cross_caches]
    cache.write_cross(first, encoded(rows, length))
    for number, (array, old) in enumerate(zip(cache.cross_caches, before, strict=True)):
        assert (array[first : first + rows, :, :length] == -1 - number).all()
        array[first : first + rows, :, :length] = old[first : first + rows, :, :length]
        assert (array == old).all()


def test_encoding_leaves_self_attention_alone(cache: KVCache) -> None:
    before = [array.copy() for array in cache.self_caches]
    cache.write_cross(0, encoded(SLOTS, SOURCE))
    assert all((array == old).all() for array, old in zip(cache.self_caches, before, strict=True))


@pytest.mark.parametrize("wrong", [2 * LAYERS - 1, 2 * LAYERS + 1])
def test_another_number_of_layers_is_an_error(cache: KVCache, wrong: int) -> None:
    with pytest.raises(ValueError, match="zip"):
        cache.write_cross(0, (encoded(1, 1) * 2)[:wrong])


@pytest.mark.parametrize(("source", "target"), [(4, 0), (0, 4), (3, 2)])
@pytest.mark.parametrize(("self_length", "cross_length"), [(0, 1), (3, 2), (TARGET, SOURCE)])
def test_a_move_copies_the_valid_positions_of_one_slot(
    cache: KVCache, source: int, target: int, self_length: int, cross_length: int
) -> None:
    lengths = [self_length] * 2 * LAYERS + [cross_length] * 2 * LAYERS
    before = [array.copy() for array in [*cache.self_caches, *cache.cross_caches]]
    cache.move(source, target, self_length, cross_length)
    for array, old, length in zip([*cache.self_caches, *cache.cross_caches], before, lengths, strict=True):
        assert (array[target, :, :length] == old[source, :, :length]).all()
        array[target, :, :length] = old[target, :, :length]
        assert (array == old).all()
