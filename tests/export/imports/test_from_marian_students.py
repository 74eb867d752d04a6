"""Models of Firefox Translations, with recurrent decoders in Marian's own formats, translate by Marian's equations."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.systems.marian_system import FLOAT, QUANTIZED, Entry, join_entries
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.marian_bin import read_marian_bin
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.hub.install import install
from dragoman.hub.store import Store
from dragoman.serve.search.options import SearchOptions
from tests.support.comparisons import targets, write_imported
from tests.support.marian import EOS_ID, make_texts
from tests.support.marian_student import BIN_FILE, Student, encode, write_shortlist, write_student
from tests.support.search_reference import search

LIMIT = 20
GOLDEN = make_texts(8, 5)
WANTED = ImportOptions("en", "de", max_source_tokens=80, max_target_tokens=LIMIT)


@pytest.fixture(scope="module")
def texts(pytestconfig: pytest.Config) -> tuple[str, ...]:
    return make_texts(7, 200 if pytestconfig.getoption("thorough") else 8)


@torch.inference_mode()
def expected_of(student: Student, source: Sequence[int], beam_size: int) -> tuple[int, ...]:
    """Returns the translation that the reference of the search finds by Marian's equations."""
    lengths = torch.tensor([len(source)])
    memory = student.encode(torch.tensor([source]), lengths)

    @cache
    def next_logits(tokens: tuple[int, ...]) -> NDArray[np.float64]:
        target = torch.tensor([tokens], dtype=torch.int64).reshape(1, len(tokens))
        return student.decode(memory, lengths, target)[0, -1].double().numpy()

    return search(next_logits, SearchOptions(max_target_tokens=LIMIT, beam_size=beam_size), eos_id=EOS_ID)[0].target_ids


def test_every_token_is_that_of_the_equations(student: Student, texts: tuple[str, ...], tmp_path: Path) -> None:
    exportable = import_marian_files(write_student(tmp_path / "m", student, "npz"), WANTED)
    bundle = write_imported(exportable, tmp_path / "bundle", GOLDEN)
    sources = [encode(text) for text in texts]
    assert [list(exportable.source_ids((), text)) for text in texts] == sources
    for beam_size in (1, 4):
        expected = [expected_of(student, source, beam_size) for source in sources]
        assert targets(bundle, sources, beam_size) == expected
        assert len(set(expected)) > len(texts) / 4, "otherwise the translations tell nothing"


@pytest.fixture(scope="module")
def folder(student: Student, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_student(tmp_path_factory.mktemp("students") / "firefox-en-de", student, "bin")
    write_shortlist(folder / "lex.50.50.ende.s2t.bin")
    return folder


def test_quantized_matrices_are_those_of_the_model_within_a_step(student: Student, folder: Path) -> None:
    path = folder / BIN_FILE
    found = read_marian_bin(path, path.read_bytes())
    expected = student.tensors()
    assert set(found) == {*expected, "special:model.yml"}
    for name, value in expected.items():
        step = np.abs(value).max() / 127 if len(value) > 1 else 0
        assert np.abs(np.asarray(found[name]) - value).max() <= step / 2 * 1.001


def test_16_bits_half_precision_and_scales_of_activations_are_read() -> None:
    values = np.array([[0.5, -2.0, 1.0]], np.float32)
    data = (values.T * 1024).astype("<i2").tobytes() + np.float32(1024).tobytes()
    entries = [
        ("a_W", 0x4102, (1, 3), data),
        ("half", 0x0402, (1, 3), values.astype("<f2").tobytes()),
        ("a_W_QuantMultA", FLOAT, (1,), bytes(4)),
    ]
    found = read_marian_bin(Path("m.bin"), join_entries(entries))
    lists = {name: np.asarray(value).tolist() for name, value in found.items()}
    assert lists == {"a_W": values.tolist(), "half": values.tolist()}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (("a", 0x0801, (1, 1), bytes(8)), "a: type 0x0801: expected float32, intgemm8 or intgemm16"),
        (("a", FLOAT, (1000, 1000), bytes(8)), r"a: 256 bytes, expected \(1000, 1000\)"),
        (("a", FLOAT, (-1, 4), bytes(16)), r"shape \(-1, 4\): expected sizes above 0"),
        (("a", QUANTIZED, (16, 15), bytes(244)), "a: multiplier 0.0"),
        (("a", FLOAT, (1,) * 9, bytes(4)), "expected 36 bytes"),
        (("a" * 2000, FLOAT, (1,), bytes(4)), "expected 2001 bytes"),
    ],
)
def test_a_damaged_tensor_is_refused_by_its_name(entry: Entry, expected: str) -> None:
    with pytest.raises(ImportedModelError, match=expected):
        read_marian_bin(Path("m.bin"), join_entries([entry]))


@pytest.mark.parametrize(
    ("option", "value"), [("dec-cell", "gru"), ("layer-normalization", True), ("transformer-preprocess", "n")]
)
def test_another_unit_is_refused_by_the_option(option: str, value: Any, student: Student, tmp_path: Path) -> None:
    folder = write_student(tmp_path / "m", student, "npz", **{option: value})
    with pytest.raises(ImportedModelError, match=option):
        import_marian_files(folder, WANTED)


def test_a_folder_of_firefox_is_installed_by_its_path(folder: Path, tmp_path: Path) -> None:
    assert install(Store(tmp_path / "cache"), str(folder)).directions == ("en-de",)


def test_8_bits_change_few_translations_and_no_batch_any(student: Student, tmp_path: Path) -> None:
    """States are kept in floats, so that errors do not add up."""
    exportable = import_marian_files(write_student(tmp_path / "m", student, "npz"), WANTED)
    kinds = ("fp32", "int8")
    floats, integers = (write_imported(exportable, tmp_path / kind, GOLDEN, precision=kind) for kind in kinds)
    sources = [encode(text) for text in make_texts(9, 12)]
    assert targets(integers, sources, 4) == targets(integers, sources, 4, together=4)
    greedy = zip(targets(integers, sources, 1), targets(floats, sources, 1), strict=True)
    assert sum(ours == theirs for ours, theirs in greedy) > len(sources) / 4


def test_golden_sentences_are_those_of_the_graphs(student: Student, tmp_path: Path) -> None:
    """The search in NumPy makes them."""
    exportable = import_marian_files(write_student(tmp_path / "m", student, "npz"), WANTED)
    bundle = write_imported(exportable, tmp_path / "bundle", GOLDEN)
    expected = [sentence.target_ids for sentence in bundle.golden]
    assert targets(bundle, [sentence.source_ids for sentence in bundle.golden], 1) == expected
