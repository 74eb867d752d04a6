"""Public models are trained further: they keep their tokens, and an export refuses what has become worse."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman import command_line
from dragoman.export.further.imported import read_public
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.imports.marian_files import import_marian_files
from dragoman.export.imports.marian_folder import is_marian_folder
from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction
from dragoman.model.errors import CorpusError
from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.model.weights import FORBIDDEN
from dragoman.serve.bundle.bundle import Bundle
from tests.support import marian_student, multilingual
from tests.support.cases import cases
from tests.support.comparisons import answers, write_imported
from tests.support.large_models import Form
from tests.support.marian import make_texts, marian_vocabulary, random_marian, translate_words, write_marian
from tests.support.marian_npz import write_marian_npz

CASES = cases(__file__)

TEXTS = make_texts(5, 40)
DIRECTION = Direction(source="en", target="de")
DEEP = {"encoder_layers": 6, "decoder_layers": 6}
DEEPER: dict[str, Any] = {"encoder_layers": 12, "decoder_layers": 12}
STUDENT: dict[str, Any] = {"enc-depth": 6, "dec-depth": 2}


def write_marian_hf(folder: Path, _: Tokenizer) -> None:
    vocabulary = marian_vocabulary()
    write_marian(folder, random_marian(len(vocabulary), **DEEP), vocabulary)


def write_firefox(folder: Path, _: Tokenizer) -> None:
    form = Form(marian_student.WIDTH, marian_student.INNER, 6, marian_student.HEADS, marian_student.PIECES)
    marian_student.write_student(folder, marian_student.Student(form=form, decoder_layers=2), "bin", **STUDENT)


# Writers of models with the layers of the public ones and a small width.
WRITERS: dict[str, Callable[[Path, Tokenizer], Any]] = {
    "marian": write_marian_hf,
    "marian npz": lambda folder, tokenizer: write_marian_npz(folder, tokenizer, layers=6),
    "marian npz, untied": lambda folder, tokenizer: write_marian_npz(folder, tokenizer, "untied", layers=6),
    "m2m100": lambda folder, _: multilingual.write_m2m100(folder, **DEEPER),
    "nllb": lambda folder, _: multilingual.write_nllb(folder, **DEEPER),
    "firefox": write_firefox,
}


@pytest.fixture(params=WRITERS)
def public(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A public model of each kind."""
    WRITERS[request.param](tmp_path / "public", tokenizer)
    return tmp_path / "public"


@pytest.fixture
def data(tmp_path: Path) -> str:
    texts = make_texts(9, 40)
    for language, lines in (("en", texts), ("de", map(translate_words, texts))):
        (tmp_path / f"data.{language}").write_text("".join(f"{line}\n" for line in lines))
    return f"files:{tmp_path / 'data.en'},{tmp_path / 'data.de'}"


def read(folder: Path) -> Exportable:
    if is_marian_folder(folder):
        return import_marian_files(folder, ImportOptions("en", "de"))
    return import_checkpoint(folder, ImportOptions())


def train(initial: Path, data: str, out: Path, *more: str) -> RunFolder:
    command_line.run("train", ["--initial", str(initial), "--data", data, "--out", str(out), *more])
    return RunFolder(out)


def test_import_no_steps_and_export_keep_every_weight_and_token(public: Path, data: str, tmp_path: Path) -> None:
    run = train(public, data, tmp_path / "run", "--training.max-steps=0")
    command_line.run("export", [str(run.path), "--out", str(tmp_path / "again")])
    once, again = write_imported(read(public), tmp_path / "once"), Bundle.open(tmp_path / "again")
    assert (once.folder / "weights.bin").read_bytes() == (again.folder / "weights.bin").read_bytes()
    for name in ("multilingual", "directions", "tokenizer", "source_suffix", "pad_id", "unk_id", "bos_id", "eos_id"):
        assert getattr(again.manifest, name) == getattr(once.manifest, name)
    for beam_size in (1, 4):
        expected = answers(once, ("en", "de"), TEXTS, beam_size).targets
        assert answers(again, ("en", "de"), TEXTS, beam_size).targets == expected
        assert len(set(expected)) > 1, "deep random models write few different translations"


@pytest.fixture
def marian(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    return write_marian_npz(tmp_path / "public", tokenizer, layers=1)


STEPS = ("--training.max-steps=3", "--training.validation-every-steps=3", "--training.precision=32-true")
FIXED = {"source_positions.table", "target_positions.table", "output_bias"}


@pytest.mark.parametrize("frozen", [False, True])
def test_training_changes_what_no_formula_computes(marian: Path, data: str, tmp_path: Path, *, frozen: bool) -> None:
    """Tokens that the model never writes stay forbidden; averages and smoothing of the loss remain finite."""
    option = f"--{'' if frozen else 'no-'}training.frozen-embeddings"
    run = train(marian, data, tmp_path / "run", *STEPS, "--training.averaging=exponential", option)
    before, after = (model.model.state_dict() for model in (read_public(marian, [DIRECTION])[0], run.load()))
    same = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert same - FIXED == ({"embedding.weight"} if frozen else set())
    assert same >= FIXED
    assert after["output_bias"].min() == pytest.approx(FORBIDDEN)


@pytest.mark.parametrize(("options", "problem"), CASES["options that an imported model excludes are refused"])
def test_options_that_an_imported_model_excludes_are_refused(
    options: list[str], problem: str, marian: Path, data: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=f"^dragoman train: {re.escape(problem)}"):
        train(marian, data, tmp_path / "run", *options)


def test_other_models_and_directions_are_refused_by_name(tmp_path: Path) -> None:
    multilingual.write_mbart50(tmp_path / "mbart")
    with pytest.raises(ImportedModelError, match=r"^mbart: cannot be trained further, expected Marian, M2M100,"):
        read_public(tmp_path / "mbart", [DIRECTION])
    multilingual.write_m2m100(tmp_path / "m2m100")
    with pytest.raises(CorpusError, match=r"^data: en-tlh: expected a direction of the model: any two of"):
        read_public(tmp_path / "m2m100", [Direction(source="en", target="tlh")])
    (tmp_path / "model.bin").touch()
    with pytest.raises(ImportedModelError, match=r"model of CTranslate2: expected Marian, M2M100"):
        read_public(tmp_path, [DIRECTION])


def test_pairs_come_from_a_tmx_file_and_from_a_memory(marian: Path, data: str, tmp_path: Path) -> None:
    texts = [(text, translate_words(text)) for text in make_texts(9, 40)]
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{text}\t{translation}\n" for text, translation in texts))
    state = ("--state-dir", str(tmp_path / "state"))
    command_line.run("memory import", ["site", str(table), "en", "de", *state])
    command_line.run("memory export", ["site", str(tmp_path / "site.en-de.tmx"), "en", "de", *state])
    given = (data, f"tmx:{tmp_path / 'site.en-de.tmx'}", "memory:site:en-de")
    runs = [train(marian, one, tmp_path / one[:3], "--training.max-steps=0", *state) for one in given]
    assert len({run.inputs.read_bytes() for run in runs}) == 1
    with pytest.raises(SystemExit, match=r"^dragoman train: memory 'other': unknown$"):
        train(marian, "memory:other:en-de", tmp_path / "other", *state)
    for name in ("site.tmx", "site.pt-BR-de.tmx"):
        with pytest.raises(SystemExit, match=f"^dragoman train: tmx:{name}: expected tmx:NAME"):
            train(marian, f"tmx:{name}", tmp_path / "other")
    empty = tmp_path / "empty.fr-de.tmx"
    empty.write_bytes((tmp_path / "site.en-de.tmx").read_bytes())
    with pytest.raises(SystemExit, match=rf"^dragoman train: tmx:{empty}: expected at least one sentence pair$"):
        train(marian, f"tmx:{empty}", tmp_path / "other")


def test_an_export_refuses_a_model_that_is_worse_on_all_text(marian: Path, data: str, tmp_path: Path) -> None:
    """The record of the run has perfect translations of the initial model, first of both domains, then of one."""
    run = train(marian, data, tmp_path / "run", "--training.max-steps=1", "--base-validation", data)
    before = json.loads(run.before.read_text())
    before[0]["translations"] = before[0]["targets"]
    run.before.write_text(json.dumps(before))
    command_line.run("export", [str(run.path), "--out", str(tmp_path / "better")])
    before[1]["translations"] = before[1]["targets"]
    run.before.write_text(json.dumps(before))
    out = tmp_path / "worse"
    with pytest.raises(SystemExit, match=r"worse than the initial model, .*held-out text .*, en-de, .* domain, en-de$"):
        command_line.run("export", [str(run.path), "--out", str(out)])
    assert not out.exists()
    command_line.run("export", [str(run.path), "--out", str(out), "--accept-worse"])
    assert Bundle.open(out).manifest.provenance.training["imported_from"] == "marian"
    run.before.write_text("[")
    with pytest.raises(SystemExit, match=r"before\.json: damaged"):
        command_line.run("export", [str(run.path), "--out", str(tmp_path / "uncompared")])
    assert not (tmp_path / "uncompared").exists()
