"""A conversion takes less memory than the weights in float32: it reads, rounds and writes one tensor at a time."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import M2M100ForConditionalGeneration

from export.imports.common import ImportOptions
from export.imports.hugging_face import import_checkpoint
from serve.bundle.manifest import Precision
from tests.support.conversion_memory import Form, write_random_m2m100
from tests.support.multilingual import shared_pieces, write_ctranslate2
from tests.support.paths import ROOT

FORM = Form(width=512, inner=2048, layers=4, heads=8, vocabulary=512)
# The layers of NLLB-200 1.3B, and as many tokens.
TRUE_FORM = Form(width=1024, inner=8192, layers=24, heads=16, vocabulary=256_206)
# Besides the bundle, which the golden sentences map, and some of the largest tensors.
OTHER_BYTES, LARGEST_TENSORS = 300_000_000, 3


class Memory(NamedTuple):
    """The size of the largest bundle, and the peak of the memory beyond that of the libraries, in bytes."""

    bundle: int
    memory: int


def convert(precision: Precision, *folders: Path) -> Memory:
    """Converts models in a process of its own."""
    command = [sys.executable, "-m", "tests.support.conversion_memory", precision, *map(str, folders)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return Memory(max(found["bundles"]), found["memory"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 118 MB."""
    folder = tmp_path_factory.mktemp("large") / "safetensors"
    write_random_m2m100(folder, shared_pieces("bpe"), FORM)
    return folder


@pytest.fixture(scope="module")
def folders(checkpoint: Path) -> list[Path]:
    """The model as files of each kind that may be large."""
    pickled, legacy = (copytree(checkpoint, checkpoint.with_name(name)) for name in ("pickled", "legacy"))
    tensors = load_file(checkpoint / "model.safetensors")
    for folder in (pickled, legacy):
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=folder == pickled)
    pieces = import_checkpoint(checkpoint, ImportOptions()).tokenizer.source_pieces
    ctranslate2 = checkpoint.with_name("ctranslate2")
    write_ctranslate2(M2M100ForConditionalGeneration.from_pretrained(checkpoint), pieces, ctranslate2)
    return [checkpoint, pickled, legacy, ctranslate2]


def test_a_conversion_to_8_bits_takes_less_memory_than_the_weights(folders: list[Path]) -> None:
    size_bytes = (folders[0] / "model.safetensors").stat().st_size
    assert convert("int8", *folders).memory < size_bytes


def test_a_conversion_takes_little_memory_besides_its_bundle(checkpoint: Path) -> None:
    converted = convert("fp32", checkpoint)
    assert converted.memory < 2 * converted.bundle


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_model_of_true_size_takes_the_memory_of_its_bundle_and_of_some_tensors(
    precision: Precision, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Also beyond 2 GB, which no message of Protocol Buffers may have."""
    if not pytestconfig.getoption("thorough"):
        pytest.skip("writes 5 GB: --thorough")
    folder = tmp_path / "nllb"
    assert write_random_m2m100(folder, shared_pieces("bpe"), TRUE_FORM) > 5 << 30
    largest_bytes = 4 * TRUE_FORM.vocabulary * TRUE_FORM.width
    converted = convert(precision, folder)
    assert converted.memory < converted.bundle + LARGEST_TENSORS * largest_bytes + OTHER_BYTES
