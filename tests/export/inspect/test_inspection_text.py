"""The text report contains all figures."""

from dataclasses import replace

import pytest

from dragoman.export.inspect.figures import Inspection, fold_names, format_bytes, format_inspection, inspect
from dragoman.serve.bundle.bundle import Bundle
from tests.support.cases import cases

CASES = cases(__file__)


@pytest.fixture(scope="module")
def inspection(wide_bundle: Bundle) -> Inspection:
    return inspect(wide_bundle, slots=32)


@pytest.mark.parametrize(("size", "text"), CASES["a size has the unit that keeps it short"])
def test_a_size_has_the_unit_that_keeps_it_short(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(("names", "text"), CASES["names that differ in a number are one"])
def test_names_that_differ_in_a_number_are_one(names: list[str], text: str) -> None:
    assert fold_names(names) == text


def test_the_text_describes_the_model(inspection: Inspection) -> None:
    text = format_inspection(inspection)
    assert "\ndirections    en-de\n" in text
    assert "\narchitecture  transformer: dropout 0.1, d_model 256, " in text
    assert "\nlimits        40 source tokens, 24 target tokens\n" in text
    assert f"\nparameters    {inspection.parameters['float32']:,} (float32 " in text


def test_an_architecture_may_be_unknown(inspection: Inspection) -> None:
    provenance = inspection.manifest.provenance.model_copy(update={"training": {}})
    unknown = replace(inspection, manifest=inspection.manifest.model_copy(update={"provenance": provenance}))
    assert "\narchitecture  unknown\n" in format_inspection(unknown)


def test_inputs_that_are_alike_share_a_line(states_bundle: Bundle) -> None:
    lines = [" ".join(line.split()) for line in format_inspection(inspect(states_bundle, slots=1)).splitlines()]
    assert "input past_self_key_0…1 float32 [rows, 4, target, 64]" in lines


def test_no_line_break_separates_an_operator_from_its_count(inspection: Inspection) -> None:
    assert [line for line in format_inspection(inspection).splitlines() if line.strip()[:1].isdigit()] == []


def test_the_memory_of_layers_is_added_up(inspection: Inspection) -> None:
    cache_bytes = 2 * 2 * 4 * 32 * 64 * 4
    lines = [" ".join(line.split()) for line in format_inspection(inspection).splitlines()]
    assert f"target_cache_0…1, target state of a slot [2, 4, 32, 64] {format_bytes(cache_bytes)}" in lines


def test_running_operators_are_listed_if_they_differ_from_stored_ones(inspection: Inspection) -> None:
    encoder, decoder = inspection.graphs
    graphs = (replace(encoder, running=encoder.operators), replace(decoder, running={"Fused": 2, "Add": 1}))
    lines = [line.strip() for line in format_inspection(replace(inspection, graphs=graphs)).splitlines()]
    running = [line for line in lines if line.startswith("running: ")]
    assert running == ["running: the same operators", "running: 3 nodes: Fused 2, Add 1"]
