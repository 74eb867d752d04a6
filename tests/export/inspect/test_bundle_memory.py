"""The reported memory equals the memory that a server allocates."""

import pytest

from export.inspect.figures import measure_engine
from serve.bundle.bundle import Bundle
from serve.runtime.cpu import Runtime, Sessions
from serve.runtime.kv_cache import DecoderState

SLOTS = 5
BUNDLES = pytest.mark.parametrize(
    "fixture", ["wide_bundle", "int8_bundle", "static_bundle", "recurrent_bundle", "two_way_bundle"]
)


@BUNDLES
def test_the_state_has_the_size_of_its_arrays(fixture: str, request: pytest.FixtureRequest) -> None:
    value = request.getfixturevalue(fixture)
    manifest = (value if isinstance(value, Bundle) else Bundle.open(value)).manifest
    state = DecoderState(
        manifest.states,
        slots=SLOTS,
        max_source_tokens=manifest.max_source_tokens,
        max_target_tokens=manifest.max_target_tokens,
    )
    arrays = {array.ctypes.data: array for array in (*state.inputs.values(), *state.outputs.values())}
    engine = measure_engine(manifest, SLOTS)
    assert engine.state_bytes == sum(array.nbytes for array in arrays.values())
    assert engine.state_bytes == SLOTS * engine.slot_bytes


def test_the_logits_have_the_size_of_their_buffer(recurrent_bundle: Bundle) -> None:
    runtime = Runtime(Sessions.load(recurrent_bundle, threads=1), SLOTS)
    assert measure_engine(recurrent_bundle.manifest, SLOTS).logits_bytes == runtime._logits.nbytes


def test_a_step_writes_one_position_of_a_cache_and_nothing_of_the_source(wide_bundle: Bundle) -> None:
    states = {state.name: state for state in measure_engine(wide_bundle.manifest, SLOTS).states}
    cache = states["self_key_0"]
    assert cache.shape[1] == wide_bundle.manifest.max_target_tokens
    assert cache.step_bytes * wide_bundle.manifest.max_target_tokens == cache.slot_bytes
    assert states["cross_key_0"].step_bytes == 0


def test_keys_and_values_in_8_bits_take_a_quarter(int8_bundle: Bundle, static_bundle: Bundle) -> None:
    floats, integers = (measure_engine(bundle.manifest, SLOTS) for bundle in (int8_bundle, static_bundle))
    assert floats.slot_bytes == 4 * integers.slot_bytes


def test_a_slot_holds_two_values_of_a_recurrent_state_and_a_step_writes_one(recurrent_bundle: Bundle) -> None:
    states = {state.name: state for state in measure_engine(recurrent_bundle.manifest, SLOTS).states}
    assert states["hidden_0"].slot_bytes == 2 * states["hidden_0"].step_bytes == 2 * 4 * 16
