"""Checkpoints in shards are those in one file; an index names nothing but files next to it."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MarianMTModel

from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.imports.shards import MAX_SHARDS, read_index
from dragoman.model.weights import TransformerWeights
from tests.support.cases import cases
from tests.support.mutations import draw_json
from tests.support.shards import INDEX, PICKLED_INDEX, read_places, split_checkpoint, write_index

CASES = cases(__file__)

OPTIONS = ImportOptions("en", "de")


@pytest.fixture
def folder(marian: Path, tmp_path: Path) -> Path:
    """A copy in three shards."""
    split_checkpoint(copytree(marian, tmp_path / "m"))
    return tmp_path / "m"


def weights(folder: Path) -> TransformerWeights:
    model = import_checkpoint(folder, OPTIONS).model
    assert isinstance(model, TransformerWeights)
    return model


def check_equal(folder: Path, other: Path) -> None:
    ours, expected = weights(folder).parameters, weights(other).parameters
    assert ours.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(ours[name], expected[name])


def refusal(folder: Path) -> str:
    with pytest.raises(ImportedModelError) as refused:
        import_checkpoint(folder, OPTIONS)
    return str(refused.value).removeprefix(f"{folder}/")


@pytest.mark.parametrize("index", [INDEX, PICKLED_INDEX])
def test_shards_have_the_parameters_of_one_file(index: str, marian: Path, tmp_path: Path) -> None:
    copytree(marian, tmp_path / "m")
    assert len(split_checkpoint(tmp_path / "m", index)) == 3
    check_equal(tmp_path / "m", marian)


def test_shards_of_transformers_have_the_parameters_of_one_file(marian: Path, tmp_path: Path) -> None:
    copytree(marian, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    MarianMTModel.from_pretrained(marian).save_pretrained(tmp_path / "m", max_shard_size="100KB")
    assert len(read_index(tmp_path / "m" / INDEX)) > 1
    check_equal(tmp_path / "m", marian)


def test_one_file_precedes_shards(folder: Path, marian: Path) -> None:
    (folder / "model.safetensors").write_bytes((marian / "model.safetensors").read_bytes())
    (folder / INDEX).write_bytes(b"{")
    check_equal(folder, marian)


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    path = folder / min(set(read_places(folder / INDEX).values()))
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def change_places(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    places = read_places(folder / INDEX)
    change(places)
    write_index(folder / INDEX, places.items())


FIRST, LAST = "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"
BIAS = "final_logits_bias"


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda folder: (folder / LAST).unlink(), f"{LAST}: cannot be read: "),
        (lambda folder: (folder / LAST).write_bytes((folder / LAST).read_bytes()[:-9]), f"{LAST}: cannot be read: "),
        (lambda folder: change_tensors(folder, lambda item: item.pop(BIAS)), f"{FIRST}: {BIAS}: missing tensor"),
        (lambda folder: change_places(folder, lambda item: item.pop(BIAS)), f"{FIRST}: {BIAS}: missing in the index"),
        (
            lambda folder: change_places(folder, lambda item: item.update({BIAS: LAST})),
            f"{FIRST}: {BIAS}: missing in the index",
        ),
        (lambda folder: (folder / INDEX).write_bytes(b"{"), f"{INDEX}: cannot be read: "),
        (lambda folder: (folder / INDEX).write_text(json.dumps({})), f"{INDEX}: cannot be read: weight_map: expected"),
    ],
    ids=["no shard", "truncated", "tensor missing", "unlisted tensor", "other shard", "no JSON", "no map"],
)
def test_a_shard_unlike_its_index_is_named(damage: Callable[[Path], object], expected: str, folder: Path) -> None:
    damage(folder)
    assert refusal(folder).startswith(expected)


@pytest.mark.parametrize(
    "name", [*CASES["an index with another file than one next to it is refused"], "x" * 300 + ".safetensors"]
)
def test_an_index_with_another_file_than_one_next_to_it_is_refused(name: object, folder: Path) -> None:
    write_index(folder / INDEX, [("a", name)])
    assert refusal(folder).startswith(f"{INDEX}: cannot be read: weight_map: a: ")


def test_an_index_of_too_many_shards_is_refused(folder: Path) -> None:
    write_index(folder / INDEX, ((str(number), f"{number}.safetensors") for number in range(MAX_SHARDS + 1)))
    assert f"{MAX_SHARDS + 1} files, expected at most" in refusal(folder)


INDEXES = [
    json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}),
    json.dumps({"weight_map": {"a": "../x.safetensors", "b": ["y.safetensors"], "": "z.safetensors"}}),
]


@settings(max_examples=150)
@given(st.data())
def test_any_index_names_files_next_to_it_or_is_refused(data: st.DataObject) -> None:
    content = data.draw(
        st.one_of(
            st.sampled_from(INDEXES).map(lambda item: draw_json(data, item.encode())),
            st.dictionaries(st.text(), st.text().map(lambda item: f"{item}.safetensors")).map(
                lambda item: json.dumps({"weight_map": item}).encode()
            ),
            st.binary(max_size=50),
        )
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / INDEX
        path.write_bytes(content)
        try:
            shards = read_index(path)
        except ValueError:
            return
    assert shards
    for name, tensors in shards.items():
        assert tensors
        assert (path.parent / name).resolve().parent == path.parent.resolve()
        assert name.isprintable()
        assert Path(name).suffix == ".safetensors"
