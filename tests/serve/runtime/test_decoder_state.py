"""The decoder state keeps the valid part of every row in any order of operations, in as little memory as it needs."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

from dragoman.serve.bundle.manifest import StateSpec
from dragoman.serve.runtime.decoder_state import DecoderState
from tests.support.processes import resident_bytes

SLOTS, MAX_TOKENS = 12, 90
SPECS = (
    StateSpec(name="cell", shape=()),
    StateSpec(name="annotations", shape=("source", 4)),
    StateSpec(name="hidden", shape=(2, 8)),
    StateSpec(name="keys", shape=(3, "source", 8)),
)
RECURRENT = [spec for spec in SPECS if spec.kind == "recurrent"]
Values = NDArray[Any]


def make_state() -> DecoderState:
    return DecoderState(SPECS, slots=SLOTS, max_source_tokens=MAX_TOKENS)


def shape_of(spec: StateSpec, length: int) -> tuple[int, ...]:
    return tuple(length if isinstance(size, str) else size for size in spec.shape)


def first(values: Values, shape: tuple[int, ...]) -> Values:
    """Returns the part of this shape at the start of every axis."""
    return values[tuple(slice(size) for size in shape)]


class Life(RuleBasedStateMachine):
    """Rows come, step, branch and leave; each row is compared with a copy of its valid parts."""

    @initialize()
    def start(self) -> None:
        self.state = make_state()
        self.random = np.random.default_rng(0)
        self.rows: list[dict[str, Values]] = []

    def values(self, *shape: int) -> Values:
        return self.random.integers(-99, 99, shape).astype(np.float32)

    @precondition(lambda self: len(self.rows) < SLOTS)
    @rule(lengths=st.lists(st.integers(1, MAX_TOKENS), min_size=1, max_size=4), padding=st.integers(0, 3))
    def come(self, lengths: list[int], padding: int) -> None:
        lengths = lengths[: SLOTS - len(self.rows)]
        slots = [[len(self.rows) + number] for number in range(len(lengths))]
        new = {spec: self.values(len(lengths), *shape_of(spec, max(lengths) + padding)) for spec in SPECS}
        self.state.write(slots, np.array(lengths, np.int32), list(new.values()))
        for number, length in enumerate(lengths):
            row = {spec.name: first(values[number], shape_of(spec, length)) for spec, values in new.items()}
            self.rows.append(row)

    @precondition(lambda self: self.rows)
    @rule()
    def step(self) -> None:
        for number, row in enumerate(self.rows):
            for spec in RECURRENT:
                row[spec.name] = self.values(*shape_of(spec, 0))
                self.state.outputs[f"present_{spec.name}"][number] = row[spec.name]
        self.state.advance(len(self.rows))

    @precondition(lambda self: len(self.rows) > 1)
    @rule(choice=st.randoms(use_true_random=False))
    def branch(self, choice: Random) -> None:
        source, target = choice.sample(range(len(self.rows)), 2)
        self.state.branch([source], [target])
        self.rows[target] |= {spec.name: self.rows[source][spec.name] for spec in RECURRENT}

    @precondition(lambda self: self.rows)
    @rule(choice=st.randoms(use_true_random=False))
    def leave(self, choice: Random) -> None:
        """A row leaves with those behind it."""
        row = choice.randrange(len(self.rows))
        del self.rows[row:]

    @invariant()
    def every_row_holds_its_valid_parts(self) -> None:
        inputs = self.state.inputs
        for number, row in enumerate(self.rows):
            for spec in SPECS:
                expected = row[spec.name]
                assert (first(inputs[spec.decoder_input][number], expected.shape) == expected).all(), spec.name


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40)


def test_every_state_has_zeros_for_all_slots_in_the_order_of_the_bundle() -> None:
    state = make_state()
    assert {name: array.shape for name, array in state.inputs.items()} == {
        spec.decoder_input: (SLOTS, *shape_of(spec, MAX_TOKENS)) for spec in SPECS
    }
    assert tuple(state.inputs) == tuple(spec.decoder_input for spec in SPECS)
    assert tuple(state.outputs) == ("present_cell", "present_hidden")
    arrays = {**state.inputs, **state.outputs}
    assert not any(array.any() for array in arrays.values())
    assert {array.dtype.name for array in arrays.values()} == {"float32"}
    # A step binds the first slots without a copy.
    assert all(array[:3].flags.c_contiguous for array in arrays.values())


def test_only_filled_positions_take_memory() -> None:
    """A state of 256 MB with one filled position in every 2 MB: huge pages would take all of it."""
    before = resident_bytes()
    state = DecoderState([StateSpec(name="keys", shape=("source", 128))], slots=128, max_source_tokens=4096)
    state.inputs["keys"][:, 0] = 1.0
    assert state.inputs["keys"].nbytes == 256 * 2**20
    assert resident_bytes() - before < 16 * 2**20


def test_a_new_state_does_not_overwrite_the_old_one() -> None:
    state = make_state()
    for name in ("cell", "hidden"):
        assert not np.shares_memory(state.outputs[f"present_{name}"], state.inputs[f"past_{name}"])


@pytest.mark.parametrize("wrong", [len(SPECS) - 1, len(SPECS) + 1])
def test_another_number_of_states_is_an_error(wrong: int) -> None:
    new: list[Values] = [np.ones((1, *shape_of(spec, 1)), np.float32) for spec in SPECS]
    with pytest.raises(ValueError):  # noqa: PT011 - of zip
        make_state().write([[0]], np.array([1], np.int32), (new * 2)[:wrong])
