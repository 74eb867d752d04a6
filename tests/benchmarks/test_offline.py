"""`dragoman bench offline` measures every system of a trained and a random model, and validates its input first."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.process import Measurement
from benchmarks.harness.report import Report, Table
from benchmarks.harness.rounds import Round
from benchmarks.offline import Measured, OfflinePlan, OfflineSystem, figures_of, references_of, tables_of
from dragoman.model.errors import CorpusError
from dragoman.model.run import RunFolder

SEARCHES = ("greedy", "beam 4")
SHAPE = {"d_model": 64, "d_ff": 64, "heads": 4, "encoder_layers": 1, "decoder_layers": 1}
QUICK = {"rounds": 1, "alone": 2, "alone_threads": [1], "engines": 1, "sentences": 6, "vocabulary_size": 100}


def plan_of(data: str, **fields: Any) -> OfflinePlan:
    sizes = {"batches": ["2:examples"], "slots": [8], "systems": ["dragoman:fp32", "ctranslate2"]}
    return OfflinePlan.model_validate({"data": data, "random": SHAPE, **QUICK, **sizes, **fields})


@pytest.fixture(scope="module", name="report")
def _report(toy_run: RunFolder, toy_data: str) -> Report:
    sizes = {"batches": ["2:examples", "40:tokens"], "slots": [8, 16]}
    systems = ["dragoman:fp32", "dragoman:int8", "ctranslate2"]
    return plan_of(toy_data, run=toy_run.path, systems=systems, **sizes).measure()


def figures(table: Table, row: str) -> dict[str, list[float]]:
    return {column: found for column in table.columns if (found := table.figures(row, column))}


def test_each_dragoman_has_a_table_with_the_baselines(report: Report) -> None:
    columns = [list(table.columns) for table in report.tables]
    assert columns == [["dragoman:fp32", "ctranslate2:fp32"], ["dragoman:int8", "ctranslate2:fp32"]] * 2
    assert [table.base for table in report.tables] == ["dragoman:fp32", "dragoman:int8"] * 2


def test_a_random_model_writes_exactly_the_tokens_of_the_references(report: Report) -> None:
    """In every system."""
    ratios = {
        round(speed / figures(table, f"{search}, sentences/s")[column][0], 3)
        for table in report.tables[2:]
        for search in SEARCHES
        for column, (speed,) in figures(table, f"{search}, tokens/s").items()
    }
    assert len(ratios) == 1
    assert ratios.pop() > 3


def test_a_trained_model_has_quality_and_the_translations_of_ctranslate2(report: Report) -> None:
    for search in SEARCHES:
        trained = [figures(table, f"{search}, BLEU") for table in report.tables[:2]]
        assert min(score for scores in trained for (score,) in scores.values()) > 50
        same = [figures(table, f"{search}, same as ctranslate2, %") for table in report.tables]
        assert same == [{"dragoman:fp32": [100]}, {}, {}, {}]
        assert not any(figures(table, f"{search}, BLEU") for table in report.tables[2:])


def test_baselines_try_batches_and_engines_try_rows_in_several_passes(report: Report) -> None:
    for model in report.details.values():
        for name, details in model.items():
            sizes = {"8:rows", "16:rows"} if name.startswith("dragoman") else {"2:examples", "40:tokens"}
            for trials in details["trials_tokens_per_second"].values():
                assert set(trials) == sizes
                assert {len(speeds) for speeds in trials.values()} == {2}


def test_engines_need_neither_torch_nor_an_unused_baseline(
    toy_data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch alone would make their processes twice as large."""
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the processes
    for name in ("ctranslate2", "torch"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    (table,) = plan_of(toy_data, systems=["dragoman:fp32"], alone=1).measure().tables
    assert figures(table, "memory, MB")["dragoman:fp32"][0] > 0


def test_a_missing_library_is_found_before_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ModuleNotFoundError) as missing:
        plan_of("tsv:nowhere.en-de.tsv", systems=["ctranslate2"]).measure()
    assert missing.value.name == "ctranslate2"


def test_a_system_that_cannot_run_or_hold_the_student_is_left_out_with_its_reason() -> None:
    systems = ["dragoman:int8", "dragoman:int8:shortlist", "ctranslate2", "bergamot:int8", "marian:int8:shortlist"]
    student = {"marian": True, "random": {**SHAPE, "decoder_memory": "ssru"}, "marian_python": sys.executable}
    missing = "expected pymarian==1.12.42, got ModuleNotFoundError: No module named '_pymarian'"
    tables = plan_of("tsv:nowhere.en-de.tsv", **student, systems=systems, vocabulary_size=96).measure().tables
    assert [list(table.columns) for table in tables] == [["dragoman:int8"], ["dragoman:int8:shortlist"]]
    assert tables[1].notes[2:] == [
        "ctranslate2:fp32 is left out: decoder_memory: expected self_attention, got ssru.",
        "bergamot:int8 is left out: bergamot_python: expected an interpreter that has bergamot==0.4.5, got null.",
        f"marian:int8:shortlist is left out: marian_python: {sys.executable}: {missing}.",
    ]
    assert figures(tables[0], "greedy, tokens/s")["dragoman:int8"][0] > 0


def test_data_of_another_direction_is_rejected(toy_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "pairs.de-en.tsv").write_text("wort\tword\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"^data: de-en: "):
        plan_of(f"tsv:{tmp_path / 'pairs.de-en.tsv'}", run=toy_run.path).measure()


@pytest.mark.parametrize(
    ("text", "full"),
    [("pytorch", "pytorch:fp32"), ("dragoman:int8:cpu", "dragoman:int8"), ("pytorch:fp16:cuda", "pytorch:fp16:cuda")],
)
def test_a_system_is_written_as_it_is_read(text: str, full: str) -> None:
    system = OfflineSystem.model_validate(text)
    assert str(system) == full
    assert OfflineSystem.model_validate(full) == system


@pytest.mark.parametrize("text", ["", "onnx", "marian:fp16", "ctranslate2:int4", "pytorch:fp16", "dragoman:fp32:cpu:1"])
def test_an_unknown_system_is_rejected(text: str) -> None:
    with pytest.raises(ValidationError, match="OfflineSystem"):
        OfflineSystem.model_validate(text)


def test_a_system_is_measured_once_however_it_is_written() -> None:
    with pytest.raises(BenchmarkError, match=r"systems: .*pytorch:fp32 twice"):
        OfflinePlan.read(None, ["systems=[dragoman, pytorch, 'pytorch:fp32']"])


def measured(name: str, seconds: float) -> Measured:
    """Returns two rounds, the second one twice as slow; two threads are faster than one."""

    def rounds(seconds: float) -> list[Round]:
        return [Round(0.1, dict.fromkeys(SEARCHES, Measurement(300, item, 10**7))) for item in (seconds, 2 * seconds)]

    targets = {"greedy": [[4], [5]], "beam 4": [[4], [6]]}
    alone = {1: rounds(seconds), 2: rounds(seconds / 2)}
    results: dict[str, Any] = {"size_bytes": 2_000_000, "together": rounds(seconds), "alone": alone, "targets": targets}
    return Measured(OfflineSystem.model_validate(name), OfflinePlan(), Path("nowhere"), **results)


def test_the_fastest_pass_decides_about_the_size() -> None:
    """A single slow pass does not count."""
    system = measured("ctranslate2", 1.0)
    system.trials = {"greedy": {"2:examples": [90.0, 40.0], "40:tokens": [80.0, 85.0]}}
    assert system.best_size("greedy") == "2:examples"


def test_figures_have_their_units_and_the_best_number_of_threads() -> None:
    first, second = figures_of(measured("dragoman", 2.0), sentences=100, alone=10)
    assert first.items() >= {"greedy, tokens/s": 150, "beam 4, sentences/s": 50, "greedy, alone, ms": 100}.items()
    assert second.items() >= {"greedy, tokens/s": 75, "beam 4, sentences/s": 25, "greedy, alone, ms": 200}.items()
    assert first.items() >= {"memory, MB": 10, "load, ms": 100, "files, MB": 2}.items()


def test_a_baseline_without_a_precision_is_shown_with_its_own() -> None:
    """This shows the gain of 8-bit integers over systems that lack them."""
    systems = [measured(name, 1.0) for name in ("dragoman:int8", "ctranslate2", "ctranslate2:int8", "pytorch")]
    columns = {str(system.system): figures_of(system, 100, 10) for system in systems}
    (table,) = tables_of([system.system for system in systems], columns, "m30k")
    assert list(table.columns) == ["dragoman:int8", "ctranslate2:int8", "pytorch:fp32"]


def test_translations_are_compared_with_the_reference_of_the_same_floats() -> None:
    names = ["dragoman", "dragoman:int8", "ctranslate2:int8", "pytorch", "ctranslate2", "dragoman:fp16:cuda"]
    pairs = references_of([measured(name, 1.0) for name in [*names, "pytorch:fp16:cuda"]])
    assert [(str(pair.system), str(reference.system)) for pair, reference in pairs] == [
        ("dragoman:fp32", "ctranslate2:fp32"),
        ("pytorch:fp32", "ctranslate2:fp32"),
        ("dragoman:fp16:cuda", "pytorch:fp16:cuda"),
    ]
