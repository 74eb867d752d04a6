"""Values stay where they were written, and nothing else changes."""

from collections.abc import Callable, Collection
from random import Random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from serve.bundle.manifest import Length, StateSpec
from serve.runtime.kv_cache import STEPS_BETWEEN_LOOKS, DecoderState
from tests.support.processes import resident_bytes

SLOTS, SOURCE, TARGET = 5, 7, 6
SPECS = (
    StateSpec(name="cell", shape=()),
    StateSpec(name="keys", shape=(3, "target", 8)),
    StateSpec(name="annotations", shape=("source", 4)),
    StateSpec(name="hidden", shape=(2, 8)),
    StateSpec(name="cross", shape=(3, "source", 8)),
    StateSpec(name="whole", shape=(3, "source", 8), element="int8"),
)
ENCODED = ("cell", "annotations", "hidden", "cross", "whole")
INPUTS = ("past_cell", "past_keys", "annotations", "past_hidden", "cross", "whole")
OUTPUTS = ("present_cell", "present_keys", "present_hidden", "present_whole")
Arrays = dict[str, NDArray[np.float32] | NDArray[np.int8]]


def make_state() -> DecoderState:
    return DecoderState(SPECS, slots=SLOTS, max_source_tokens=SOURCE, max_target_tokens=TARGET)


@pytest.fixture
def state() -> DecoderState:
    """A state whose numbers are all different, so that each identifies its place."""
    state = make_state()
    for number, array in enumerate([*state.inputs.values(), *state.outputs.values()]):
        array[...] = (np.arange(array.size).reshape(array.shape) + 10_000 * number).astype(array.dtype)
    return state


def changed(state: DecoderState, change: Callable[[], None]) -> tuple[Arrays, Arrays]:
    """Makes a change; returns copies of the decoder's inputs before and after."""
    before = {name: array.copy() for name, array in state.inputs.items()}
    change()
    return before, {name: array.copy() for name, array in state.inputs.items()}


def encoded(rows: int, length: int) -> list[NDArray[np.float32]]:
    """Returns an encoder's result in which each state has its own number."""
    shapes = [(rows,), (rows, length, 4), (rows, 2, 8), (rows, 3, length, 8), (rows, 3, length, 8)]
    return [np.full(shape, -1 - number, np.float32) for number, shape in enumerate(shapes)]


def write(state: DecoderState, slots: NDArray[np.int64], length: int) -> None:
    """Writes an encoder's result for sources of one length."""
    state.write(slots, np.full(len(slots), length, np.int32), encoded(len(slots), length))


@pytest.mark.parametrize("target", [0, 2, 4])
def test_a_branch_copies_what_the_decoder_wrote_and_not_the_source(state: DecoderState, target: int) -> None:
    before, after = changed(state, lambda: state.branch([3, 1], [target, target], [3, 2]))
    for name in ("annotations", "cross", "whole"):
        assert (after[name] == before[name]).all()
    for name in ("past_cell", "past_hidden"):
        assert (after[name][target] == before[name][1]).all()
    keys = after["past_keys"][target]
    assert (keys[:, :2] == before["past_keys"][1, :, :2]).all()
    assert (keys[:, 2] == before["past_keys"][3, :, 2]).all()
    assert (keys[:, 3:] == before["past_keys"][target, :, 3:]).all()
    others = [slot for slot in range(SLOTS) if slot != target]
    assert all((after[name][others] == before[name][others]).all() for name in after)


def test_every_state_has_zeros_for_all_slots_in_the_order_of_the_bundle() -> None:
    state = make_state()
    assert state.slots == SLOTS
    assert [(name, array.shape) for name, array in state.inputs.items()] == [
        ("past_cell", (5,)),
        ("past_keys", (5, 3, 6, 8)),
        ("annotations", (5, 7, 4)),
        ("past_hidden", (5, 2, 8)),
        ("cross", (5, 3, 7, 8)),
        ("whole", (5, 3, 7, 8)),
    ]
    assert tuple(state.outputs) == OUTPUTS
    arrays = {**state.inputs, **state.outputs}
    assert not any(array.any() for array in arrays.values())
    assert {name for name, array in arrays.items() if array.dtype == np.int8} == {"whole", "present_whole"}
    assert {array.dtype.name for array in arrays.values()} == {"float32", "int8"}
    # A step binds the first slots without a copy.
    assert all(array[:3].flags.c_contiguous for array in arrays.values())


def test_only_filled_positions_take_memory() -> None:
    """A state of 256 MB with one filled position in every 2 MB: huge pages would take all of it."""
    before = resident_bytes()
    spec = StateSpec(name="keys", shape=("target", 128))
    state = DecoderState([spec], slots=128, max_source_tokens=1, max_target_tokens=4096)
    state.outputs["present_keys"][:, 0] = 1.0
    assert state.outputs["present_keys"].nbytes == 256 * 2**20
    assert resident_bytes() - before < 16 * 2**20


def test_states_with_positions_are_written_in_place_and_recurrent_ones_are_not() -> None:
    state = make_state()
    for output, name in (("present_whole", "whole"), ("present_keys", "past_keys")):
        assert state.outputs[output].ctypes.data == state.inputs[name].ctypes.data
        assert state.outputs[output].shape == state.inputs[name].shape
    for name in ("cell", "hidden"):
        assert state.outputs[f"present_{name}"].shape == state.inputs[f"past_{name}"].shape
        assert not np.shares_memory(state.outputs[f"present_{name}"], state.inputs[f"past_{name}"])


@pytest.mark.parametrize(("first", "rows", "length"), [(0, 1, 1), (0, SLOTS, SOURCE), (2, 3, 4), (4, 1, SOURCE)])
def test_encoder_results_change_only_their_slots(state: DecoderState, first: int, rows: int, length: int) -> None:
    before, after = changed(state, lambda: write(state, first + np.arange(rows), length))
    slots = slice(first, first + rows)
    places = {
        "past_cell": (slots,),
        "annotations": (slots, slice(length)),
        "past_hidden": (slots,),
        "cross": (slots, slice(None), slice(length)),
        "whole": (slots, slice(None), slice(length)),
    }
    for number, (name, place) in enumerate(places.items()):
        assert (after[name][place] == -1 - number).all()
        after[name][place] = before[name][place]
    for name in INPUTS:
        assert (after[name] == before[name]).all()


@pytest.mark.parametrize("wrong", [len(ENCODED) - 1, len(ENCODED) + 1])
def test_another_number_of_states_is_an_error(state: DecoderState, wrong: int) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of zip
        state.write(np.array([0]), np.array([1], np.int32), (encoded(1, 1) * 2)[:wrong])


@pytest.mark.parametrize("rows", [1, 3, SLOTS])
def test_after_a_step_the_running_rows_have_the_new_recurrent_state(state: DecoderState, rows: int) -> None:
    before, after = changed(state, lambda: state.advance(rows))
    for name in ("cell", "hidden"):
        assert (after[f"past_{name}"][:rows] == state.outputs[f"present_{name}"][:rows]).all()
        assert (after[f"past_{name}"][rows:] == before[f"past_{name}"][rows:]).all()
    for name in ("past_keys", "annotations", "cross"):
        assert (after[name] == before[name]).all()


@pytest.mark.parametrize(("source", "target"), [(4, 0), (0, 4), (3, 2)])
@pytest.mark.parametrize(("source_length", "target_length"), [(4, 3), (1, 0), (SOURCE, TARGET)])
def test_a_move_copies_the_valid_part_of_one_slot(
    state: DecoderState, source: int, target: int, source_length: int, target_length: int
) -> None:
    before, after = changed(
        state, lambda: state.copy(source, target, source_length=source_length, target_length=target_length)
    )
    lengths = {"source": slice(source_length), "target": slice(target_length)}
    for name, spec in zip(INPUTS, SPECS, strict=True):
        valid = tuple(lengths.get(str(axis), slice(None)) for axis in spec.shape)
        from_place: tuple[int | slice, ...] = (source, *valid)
        to_place: tuple[int | slice, ...] = (target, *valid)
        assert (after[name][to_place] == before[name][from_place]).all()
        after[name][to_place] = before[name][to_place]
        assert (after[name] == before[name]).all()


def test_the_padding_of_a_batch_needs_no_capacity() -> None:
    state = make_state()
    state.write(np.array([2]), np.array([3], np.int32), encoded(1, SOURCE))
    assert (state.inputs["cross"][2, :, :3] == -1 - ENCODED.index("cross")).all()
    assert not state.inputs["cross"][2, :, 3:].any()


CACHES = (
    StateSpec(name="keys", shape=(2, "target", 4)),
    StateSpec(name="cross_keys", shape=(2, "source", 4)),
    StateSpec(name="cross_values", shape=(2, "source", 4)),
    StateSpec(name="small", shape=("source", 3), element="int8"),
)
LONGEST = 90


def make_caches(tight: Collection[Length], slots: int = 12) -> DecoderState:
    return DecoderState(CACHES, slots=slots, max_source_tokens=LONGEST, max_target_tokens=LONGEST, tight=tight)


class Life(RuleBasedStateMachine):
    """Applies the same operations to two states, one of which always has the full capacity."""

    def __init__(self) -> None:
        super().__init__()
        self.roomy, self.tight = make_caches(()), make_caches(("source", "target"))
        self.sources: list[int] = []
        self.targets: list[int] = []
        self.random = np.random.default_rng(0)

    @precondition(lambda self: len(self.sources) < self.roomy.slots)
    @rule(lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=4), padding=st.integers(0, 3))
    def come(self, lengths: list[int], padding: int) -> None:
        lengths = lengths[: self.roomy.slots - len(self.sources)]
        slots = len(self.sources) + np.arange(len(lengths))
        shape = len(lengths), 2, max(lengths) + padding, 4
        new = [self.random.standard_normal(shape).astype(np.float32) for _ in range(2)]
        small = self.random.integers(-99, 99, (shape[0], shape[2], 3)).astype(np.int8)
        for state in (self.roomy, self.tight):
            state.write(slots, np.array(lengths, np.int32), [*new, small])
        self.sources += lengths
        self.targets += [0] * len(lengths)

    @precondition(lambda self: self.sources and max(self.targets) < LONGEST)
    @rule(steps=st.integers(1, 12))
    def grow(self, steps: int) -> None:
        for _ in range(min(steps, LONGEST - max(self.targets))):
            written = self.random.standard_normal((len(self.targets), 2, 4))
            for state in (self.roomy, self.tight):
                state.fit(len(self.targets), max(self.targets) + 1)
                keys = state.outputs["present_keys"]
                for row, position in enumerate(self.targets):
                    keys[row, :, position] = written[row]
            self.targets = [position + 1 for position in self.targets]

    @precondition(lambda self: len(self.sources) > 1)
    @rule(choice=st.randoms(use_true_random=False))
    def branch(self, choice: Random) -> None:
        source, target = choice.sample(range(len(self.sources)), 2)
        if self.sources[source] != self.sources[target]:
            return
        for state in (self.roomy, self.tight):
            state.branch([source], [target], [self.targets[source]])
        self.targets[target] = self.targets[source]

    @precondition(lambda self: self.sources)
    @rule(choice=st.randoms(use_true_random=False))
    def leave(self, choice: Random) -> None:
        row = choice.randrange(len(self.sources))
        last = len(self.sources) - 1
        if row != last:
            for state in (self.roomy, self.tight):
                state.copy(last, row, source_length=self.sources[last], target_length=self.targets[last])
        self.sources[row], self.targets[row] = self.sources[last], self.targets[last]
        del self.sources[last], self.targets[last]

    @invariant()
    def every_row_holds_what_it_would_with_the_most_room(self) -> None:
        for name, axis in {"past_keys": 1, "cross_keys": 1, "cross_values": 1, "small": 0}.items():
            lengths = self.targets if name == "past_keys" else self.sources
            for row, length in enumerate(lengths):
                valid: tuple[int | slice, ...] = (row, *(slice(None),) * axis, slice(length))
                assert (self.tight.inputs[name][valid] == self.roomy.inputs[name][valid]).all()

    @invariant()
    def all_rows_fit(self) -> None:
        assert max(self.sources, default=0) <= self.tight.capacities["source"] <= LONGEST
        assert max(self.targets, default=0) <= self.tight.capacities["target"] <= LONGEST
        assert self.roomy.capacities == {"source": LONGEST, "target": LONGEST}


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40)


def hold(state: DecoderState, lengths: list[int], target_tokens: int, steps: int = STEPS_BETWEEN_LOOKS) -> None:
    """Fills the first slots and runs some steps."""
    rows, longest = len(lengths), max(lengths)
    floats, small = np.ones((rows, 2, longest, 4), np.float32), np.ones((rows, longest, 3), np.int8)
    state.write(np.arange(rows), np.array(lengths, np.int32), [floats, floats, small])
    for _ in range(steps):
        state.fit(rows, target_tokens)


def test_the_capacity_of_many_rows_follows_the_longest() -> None:
    state = make_caches(("source", "target"))
    hold(state, [70, *[5] * 9], target_tokens=60)
    assert state.capacities == {"source": 72, "target": 60}
    hold(state, [9, *[5] * 9], target_tokens=6)
    assert state.capacities == {"source": 12, "target": 8}
    assert state.inputs["cross_keys"].shape == (12, 2, 12, 4)
    assert state.inputs["cross_keys"].flags.c_contiguous


def test_a_row_that_left_needs_no_capacity() -> None:
    state = make_caches(("source", "target"))
    hold(state, [*[5] * 9, 70], target_tokens=6)
    for _ in range(STEPS_BETWEEN_LOOKS):
        state.fit(9, 6)
    assert state.capacities == {"source": 8, "target": 8}


def test_few_rows_rarely_change_the_capacity() -> None:
    """One row grows from nothing to the limit; then one is short."""
    state = make_caches(("source", "target"))
    met = []
    for position in range(LONGEST):
        state.fit(1, position + 1)
        met.append(state.capacities["target"])
    assert sorted(set(met)) == [32, 66, LONGEST]
    hold(state, [5], target_tokens=3, steps=10 * STEPS_BETWEEN_LOOKS)
    assert state.capacities == {"source": 32, "target": LONGEST}


@pytest.mark.parametrize("tight", [(), ("target",)])
def test_a_length_that_is_not_tight_has_full_capacity(tight: tuple[Length, ...]) -> None:
    state = make_caches(tight)
    hold(state, [5] * 10, target_tokens=6)
    assert state.capacities == {"source": LONGEST, "target": 8 if tight else LONGEST}
