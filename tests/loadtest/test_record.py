"""The record of a run in progress."""

import numpy as np

from loadtest.clients import OK
from loadtest.plan import WARM_UP, Plan, Slice
from loadtest.scenario import LoadRequest
from loadtest.tally import Bound, Cell, PackedTallies, Record, Sample, Tally

SLICES = (Slice(WARM_UP, 0, 0, 1), Slice("load", 0, 1, 2), Slice("load", 1, 2, 3))


def make_record() -> Record:
    requests = [LoadRequest(("One.",))] * 3
    return Record(Plan(np.array([0.5, 1.5, 2.5]), requests, SLICES))


def ended(*cells: tuple[int, str]) -> PackedTallies:
    found: PackedTallies = {}
    for number, kind in cells:
        tally = Tally(sent=2)
        tally.record(Sample(LoadRequest(("One.",), kind=kind), 0.0, 0.0, 0.1, OK), Bound())
        found[Cell(number, kind)] = tally.pack()
    return found


def test_tallies_of_processes_add_up_by_slice_and_by_kind() -> None:
    record = make_record()
    record.add(ended((0, "a"), (1, "a"), (1, "b")))
    record.add(ended((1, "a"), (2, "b")))
    assert record.tally([1]).ok == 3
    assert record.tally([1, 2]).ok == 4
    assert record.tally_of_kind("a", "load").ok == 2
    assert record.tally_of_kind("b", "load", [1]).ok == 1
    assert record.kinds == ["a", "b"]


def test_the_warm_up_is_not_a_phase() -> None:
    record = make_record()
    assert record.phases == ["load"]
    assert record.slices_of("load") == [1, 2]
    assert record.slices_of("load", [1]) == [2]


def test_in_flight_requests_have_not_ended() -> None:
    record = make_record()
    record.add(ended((0, "a"), (1, "a")))
    assert (record.sent, record.in_flight) == (4, 2)


def test_planned_requests_are_counted_by_slice() -> None:
    assert make_record().planned() == {0: 1, 1: 1, 2: 1}
