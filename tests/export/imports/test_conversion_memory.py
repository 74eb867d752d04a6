"""A conversion takes less memory than the weights in float32: it reads, rounds and writes one tensor at a time."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import M2M100ForConditionalGeneration

from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.serve.bundle.manifest import Precision
from tests.support.large_models import Form, write_random_m2m100, write_random_npz
from tests.support.marian_student import write_random_student
from tests.support.multilingual import shared_pieces, write_ctranslate2
from tests.support.paths import ROOT
from tests.support.shards import split_checkpoint

FORM = Form(width=512, inner=2048, layers=4, heads=8, vocabulary=512)
# Besides the bundle, which the golden sentences map, and some of the largest tensors.
OTHER_BYTES, LARGEST_TENSORS = 300_000_000, 3
# Names of public models and the sizes of their layers; the vocabularies have as many tokens.
NLLB_600M = Form(width=1024, inner=4096, layers=12, heads=16, vocabulary=256_206)
NLLB_1300M = Form(width=1024, inner=8192, layers=24, heads=16, vocabulary=256_206)
OPUS_MT_BIG = Form(width=1024, inner=4096, layers=6, heads=16, vocabulary=58_101)
FIREFOX_BASE = Form(width=512, inner=2048, layers=6, heads=8, vocabulary=32_000)


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
    pickled, legacy, shards = (copytree(checkpoint, checkpoint.with_name(name)) for name in ("pickled", "legacy", "s"))
    tensors = load_file(checkpoint / "model.safetensors")
    for folder in (pickled, legacy):
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=folder == pickled)
    split_checkpoint(shards)
    pieces = import_checkpoint(checkpoint, ImportOptions()).tokenizer.source_pieces
    ctranslate2 = checkpoint.with_name("ctranslate2")
    write_ctranslate2(M2M100ForConditionalGeneration.from_pretrained(checkpoint), pieces, ctranslate2)
    return [checkpoint, pickled, legacy, shards, ctranslate2]


def test_a_conversion_to_8_bits_takes_less_memory_than_the_weights(folders: list[Path]) -> None:
    assert convert("int8", *folders).memory < (folders[0] / "model.safetensors").stat().st_size


def test_a_conversion_takes_little_memory_besides_its_bundle(checkpoint: Path) -> None:
    converted = convert("fp32", checkpoint)
    assert converted.memory < 2 * converted.bundle


def write_quantized(folder: Path, form: Form) -> None:
    write_random_m2m100(folder.with_name("floats"), shared_pieces("bpe"), form)
    pieces = import_checkpoint(folder.with_name("floats"), ImportOptions()).tokenizer.source_pieces
    model = M2M100ForConditionalGeneration.from_pretrained(folder.with_name("floats"))
    write_ctranslate2(model, pieces, folder, "int8")


LARGE: dict[str, tuple[Callable[[Path, Form], object], Form]] = {
    "NLLB-200 1.3B": (lambda folder, form: write_random_m2m100(folder, shared_pieces("bpe"), form), NLLB_1300M),
    "NLLB-200 600M of CTranslate2 in 8 bits": (write_quantized, NLLB_600M),
    "OPUS-MT big as .npz": (write_random_npz, OPUS_MT_BIG),
    "Firefox base": (lambda folder, form: write_random_student(folder, form, 2), FIREFOX_BASE),
}


@pytest.mark.parametrize("precision", ["int8", "fp32"])
@pytest.mark.parametrize("kind", LARGE)
def test_a_model_of_true_size_takes_the_memory_of_its_bundle_and_of_some_tensors(
    kind: str, precision: Precision, tmp_path: Path, thorough: bool
) -> None:
    """Also beyond 2 GB, which no message of Protocol Buffers may have."""
    if not thorough:
        pytest.skip("writes 1 to 12 GB: --thorough")
    write, form = LARGE[kind]
    write(tmp_path / "m", form)
    print(sum(path.stat().st_size for path in (tmp_path / "m").iterdir()), "bytes of files")
    converted = convert(precision, tmp_path / "m")
    largest_bytes = 4 * form.vocabulary * form.width
    assert converted.memory < converted.bundle + LARGEST_TENSORS * largest_bytes + OTHER_BYTES
