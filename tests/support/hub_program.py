"""`python -m tests.support.hub_program`: a registry of Firefox Translations and a hub, with tiny random models.

Prints the variables that make `dragoman` use them, and serves until standard input ends.
"""

import sys
import tempfile
from pathlib import Path

from ctranslate2.converters import TransformersConverter

from benchmarks.systems import ctranslate2_system
from dragoman.model.tokenizer.tokenizer import train_tokenizer
from tests.support.ctranslate2_models import make_model, write_model, write_package
from tests.support.fake_hub import FakeHub, Repository, run_hub
from tests.support.firefox_registry import student_files
from tests.support.marian import make_texts, marian_vocabulary, random_marian, write_marian
from tests.support.multilingual import write_m2m100, write_nllb

SINGLE = ("bg-en", "cs-en", "de-en", "en-bg", "en-cs", "en-fr", "en-uk", "es-en", "fr-en")
SEPARATE = ("en-ja", "en-zh_hant", "zh_hant-en")
OPUS_MT = ("de-nl", "es-de", "en-de")
CTRANSLATE2 = "gaudi/opus-mt-en-de-ctranslate2"
ARGOS = "translate-en_de-1_0.argosmodel"
MULTILINGUAL = {"facebook/m2m100_418M": write_m2m100, "facebook/nllb-200-distilled-600M": write_nllb}


def fill(hub: FakeHub, folder: Path) -> None:
    """Adds models: both kinds of vocabularies, several records of a pair, every status, and other kinds of models."""
    for pair in (*SINGLE, *SEPARATE):
        hub.registry.add(pair, student_files(folder, separate=pair in SEPARATE))
    for architecture, chrf in (("base", 60.0), ("base-memory", 61.4), ("tiny", 59.2)):
        hub.registry.add("en-de", student_files(folder, separate=False), architecture=architecture, chrf=chrf)
    for pair, status in (("en-fi", "Nightly"), ("fi-en", None), ("en-sv", "Release Android"), ("de-en", "Nightly")):
        hub.registry.add(pair, student_files(folder, separate=False), architecture="base", status=status, chrf=62.0)
    vocabulary = marian_vocabulary()
    for pair in OPUS_MT:
        written = write_marian(folder / pair, random_marian(len(vocabulary)), vocabulary)
        add_repository(hub, f"Helsinki-NLP/opus-mt-{pair}", written)
    converter = TransformersConverter(str(written), copy_files=["source.spm", "target.spm"])
    add_repository(hub, CTRANSLATE2, Path(converter.convert(str(folder / "ctranslate2"))))
    for name, write in MULTILINGUAL.items():
        write(folder / name)
        add_repository(hub, name, folder / name)
    hub.packages[ARGOS] = argos_package(folder / "argos").read_bytes()


def add_repository(hub: FakeHub, name: str, folder: Path) -> None:
    hub.repositories[name] = repository = Repository()
    repository.commit({path.name: path.read_bytes() for path in folder.iterdir()})


def argos_package(folder: Path) -> Path:
    folder.mkdir()
    tokenizer = train_tokenizer(make_texts(1, 200), vocabulary_size=60)
    spec = ctranslate2_system.spec_of(make_model(tokenizer), tokenizer.source_pieces)
    return write_package(folder / ARGOS, write_model(folder / "model", spec), tokenizer.model)


def variables(hub: FakeHub) -> dict[str, str]:
    """Returns the variables that make `dragoman` use a hub."""
    paths = {"HF_ENDPOINT": "", "DRAGOMAN_FIREFOX_MODELS": "/firefox", "ARGOS_PACKAGE_INDEX": "/argos"}
    return {name: f"{hub.address}{path}" for name, path in paths.items()}


def main() -> None:
    """Serves until standard input ends."""
    with tempfile.TemporaryDirectory() as folder, run_hub() as hub:
        fill(hub, Path(folder))
        print(*(f"export {name}={value}" for name, value in variables(hub).items()), sep="\n", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
