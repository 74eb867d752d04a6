"""Argos packages: imported, exported, served or refused."""

import json
import re
import zipfile
from pathlib import Path

import pytest

from benchmarks.systems.ctranslate2_system import spec_of
from dragoman import command_line
from dragoman.export.imports.common import ImportedModelError, ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.cases import cases
from tests.support.ctranslate2_models import WANTED, refusal, translate, write_model, write_package
from tests.support.live import run_service
from tests.support.toy import toy_test_sentences

CASES = cases(__file__)


@pytest.mark.parametrize("packed", [True, False])
def test_an_argos_package_is_exported_and_served(packed: bool, toy_run: RunFolder, tmp_path: Path) -> None:
    trained = toy_run.load()
    assert isinstance(trained.model, Transformer)
    model = write_model(tmp_path / "m", spec_of(trained.model, trained.tokenizer.source_pieces), "int8")
    path = write_package(tmp_path / "en_de.argosmodel", model, trained.tokenizer.model)
    if not packed:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(tmp_path)
        path = tmp_path / "en_de"
    command_line.run("export", ["--from-ctranslate2", str(path), "--out", str(tmp_path / "bundle"), "--name", "argos"])
    bundle = Bundle.open(tmp_path / "bundle")
    assert [str(direction) for direction in bundle.manifest.directions] == ["en-de"]
    texts = toy_test_sentences()[:20]
    given = [trained.tokenizer.pieces(trained.tokenizer.encode(text)) for text in texts]
    expected = translate(model, given, 1, bundle.manifest.max_target_tokens)
    with run_service(bundle.folder, [load_sessions(bundle, threads=1).runtime(slots=8)]) as live:
        answer = live.call(TranslateRequest(text=texts, source_language="en", target_language="de"))
    # Pieces joined as in Argos Translate.
    assert [item.text for item in answer.translations] == ["".join(p).replace("▁", " ").strip() for p in expected]


@pytest.mark.parametrize(("metadata", "expected"), CASES["another kind of package is refused"])
def test_another_kind_of_package_is_refused(
    small_model: Path, tokenizer: Tokenizer, tmp_path: Path, metadata: dict[str, object], expected: str
) -> None:
    path = write_package(tmp_path / "p.argosmodel", small_model, tokenizer.model, **metadata)
    with pytest.raises(ImportedModelError, match=expected):
        import_ctranslate2(path, WANTED)


def test_the_target_prefix_starts_every_translation(small_model: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    prefix = tokenizer.source_pieces[5]
    path = write_package(tmp_path / "p.argosmodel", small_model, tokenizer.model, target_prefix=prefix)
    (direction,) = import_ctranslate2(path, ImportOptions()).directions
    assert direction.start == (5,)


def test_options_select_one_of_the_packages_in_a_file(small_model: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = write_package(tmp_path / "p.argosmodel", small_model, tokenizer.model)
    with zipfile.ZipFile(path, "a") as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith("metadata.json"):
                content = json.dumps({**json.loads(content), "to_code": "fr"}).encode()
            archive.writestr(name.replace("en_de/", "en_fr/"), content)
    (direction,) = import_ctranslate2(path, ImportOptions(target_language="fr")).directions
    assert str(direction) == "en-fr"
    for options, given in ((ImportOptions("en"), "en-?"), (ImportOptions("en", "cs"), "en-cs")):
        with pytest.raises(ImportedModelError, match=re.escape(f"{given}: expected one of en-de, en-fr")):
            import_ctranslate2(path, options)


def test_a_file_that_is_no_package_is_refused(small_model: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "p.argosmodel"
    whole = write_package(path, small_model, tokenizer.model).read_bytes()
    for content in (b"", b"PK\3\4", b"\x00" * 100, whole[:-50]):
        path.write_bytes(content)
        assert refusal(path).startswith(": expected a model folder or an Argos package")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/model.bin", b"")
    assert refusal(path).startswith(": expected an Argos package")
