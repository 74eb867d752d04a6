"""The reported memory equals the memory that a server allocates."""

from typing import Any

import pytest

from dragoman.export.inspect.figures import measure_engine
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.stepping import kept_tensors

SLOTS = 5
BUNDLES = pytest.mark.parametrize("fixture", ["wide_bundle", "int8_bundle"])


@BUNDLES
def test_the_state_has_the_size_of_its_arrays(fixture: str, request: pytest.FixtureRequest) -> None:
    bundle: Bundle = request.getfixturevalue(fixture)
    runtime = load_sessions(bundle, threads=1).runtime(SLOTS)
    arrays = {array.ctypes.data: array for array in kept_tensors(runtime)}
    engine = measure_engine(bundle.manifest, SLOTS)
    assert engine.state_bytes == sum(array.nbytes for array in arrays.values())
    assert engine.state_bytes == SLOTS * engine.slot_bytes


@BUNDLES
def test_the_logits_have_the_size_of_their_buffer(fixture: str, request: pytest.FixtureRequest) -> None:
    bundle: Bundle = request.getfixturevalue(fixture)
    runtime: Any = load_sessions(bundle, threads=1).runtime(SLOTS)
    assert measure_engine(bundle.manifest, SLOTS).logits_bytes == runtime._logits.nbytes


def test_a_step_writes_one_position_of_a_cache_and_nothing_of_the_source(states_bundle: Bundle) -> None:
    states = {state.name: state for state in measure_engine(states_bundle.manifest, SLOTS).states}
    cache = states["self_key_0"]
    assert cache.shape[1] == states_bundle.manifest.max_target_tokens
    assert cache.step_bytes * states_bundle.manifest.max_target_tokens == cache.slot_bytes
    assert states["cross_key_0"].step_bytes == 0


def test_a_native_cache_has_whole_blocks_of_16_positions(wide_bundle: Bundle) -> None:
    states = {state.name: state for state in measure_engine(wide_bundle.manifest, SLOTS).states}
    assert states["target_cache_0"].shape == (2, 4, 32, 64)
    assert states["target_cache_0"].step_bytes == 2 * 4 * 64 * 4
    assert states["source_cache_1"].shape == (2, 4, 48, 64)
    assert states["source_cache_1"].step_bytes == 0


def test_keys_and_values_in_8_bits_take_a_byte_and_a_scale_per_position(int8_bundle: Bundle) -> None:
    manifest = int8_bundle.manifest
    assert manifest.cache is not None
    floats = manifest.model_copy(update={"cache": manifest.cache.model_copy(update={"element": "float"})})
    (integers, scales), (values,) = (
        [state for state in measure_engine(item, SLOTS).states if state.name in ("target_cache_0", "target_scales_0")]
        for item in (manifest, floats)
    )
    assert values.slot_bytes == 4 * integers.slot_bytes
    assert scales.slot_bytes == values.slot_bytes // manifest.cache.head_size
