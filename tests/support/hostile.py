"""Loads mutated bundles and imports mutated models, in a process of its own with limited memory.

`python -m tests.support.hostile KIND EXAMPLES FOLDER...`: the folders hold the intact files. Exits with 0 if every
mutation either loads or is refused by the documented error in one printable line, and no file appears outside. After a
crash of a library, the folder `FOLDER-mutated` holds the files that caused it.
"""

import asyncio
import faulthandler
import io
import logging
import resource
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import TemporaryDirectory

import onnx
import structlog
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from pydantic_settings import BaseSettings
from sentencepiece import sentencepiece_model_pb2

from benchmarks.harness.process import peak_bytes
from dragoman.model.errors import UserError
from dragoman.serve.bundle.bundle import MANIFEST_FILE, BundleError
from dragoman.serve.bundle.files import MAX_CHARACTERS
from tests.support.bundles import reseal
from tests.support.mutations import draw_bytes, draw_json, draw_message, draw_safetensors
from tests.support.paths import ROOT

ADDRESS_BYTES = 16 << 30
RESIDENT_BYTES = 1 << 30


def mutate(data: DataObject, path: Path) -> None:
    """Changes one file in the way that fits its format."""
    content = path.read_bytes()
    if path.suffix == ".json":
        path.write_bytes(draw_json(data, content))
    elif path.suffix == ".onnx":
        path.write_bytes(draw_message(data, onnx.load(path, load_external_data=False)))
    elif path.suffix in (".model", ".spm") and data.draw(st.booleans(), "structured"):
        message = sentencepiece_model_pb2.ModelProto.FromString(content)  # type: ignore[attr-defined]
        path.write_bytes(draw_message(data, message))
    elif path.suffix == ".safetensors":
        path.write_bytes(draw_safetensors(data, content))
    elif path.suffix == ".npz" and data.draw(st.booleans(), "directory"):  # which is at the end
        path.write_bytes(draw_bytes(data, content[::-1])[::-1])
    else:
        path.write_bytes(draw_bytes(data, content))


def mutate_bundle(data: DataObject, folder: Path) -> None:
    """Changes a file of a bundle; the manifest has its new hash."""
    name = data.draw(st.sampled_from(sorted(path.name for path in folder.iterdir())), "file")
    mutate(data, folder / name)
    if name != MANIFEST_FILE:
        reseal(folder)


def load_bundle(data: DataObject, folder: Path) -> None:
    """Changes a file of a bundle and loads the bundle as the service does."""
    from dragoman.serve.local.dispatcher import open_dispatcher  # noqa: PLC0415 - imports of models need no ONNX Runtime
    from dragoman.serve.settings import ServeSettings  # noqa: PLC0415 - see above

    mutate_bundle(data, folder)

    async def load() -> None:
        async with open_dispatcher(ServeSettings(bundle=folder, slots=2, engines=1, load_timeout_seconds=20)):
            pass

    with refusals(BundleError):
        asyncio.run(load())


def run_command(data: DataObject, folder: Path) -> None:
    """Changes a file of a bundle and runs a command on it, which writes to a temporary folder."""
    mutate_bundle(data, folder)
    with TemporaryDirectory() as other, redirect_stdout(io.StringIO()):
        try:
            data.draw(st.sampled_from((inspect, verify, evaluate, export)), "command")(folder, Path(other)).cli_cmd()  # type: ignore[attr-defined]  # every command has it
        except SystemExit as ended:
            check_line(ended.code)
        except UserError as error:
            check_line(str(error))


def inspect(folder: Path, other: Path) -> BaseSettings:
    from dragoman.export.inspect.command import InspectCommand  # noqa: PLC0415 - as above

    return InspectCommand(bundle=folder, json_file=other / "figures.json")


def verify(folder: Path, other: Path) -> BaseSettings:
    """Returns `dragoman verify` for one sentence, without a comparison with PyTorch."""
    from dragoman.export.verify.command import VerifyCommand  # noqa: PLC0415 - as above

    pairs = other / "pairs.en-de.tsv"
    pairs.write_text("bird\tVogel\n", encoding="utf-8")
    return VerifyCommand(
        bundle=folder, data=f"tsv:{pairs}", sentences=1, invariance_sentences=1, batches=(2,), beam_size=2
    )


def evaluate(folder: Path, other: Path) -> BaseSettings:
    from dragoman.export.evaluate.command import EvaluateCommand  # noqa: PLC0415 - as above

    pairs = other / "pairs.en-de.tsv"
    pairs.write_text("bird\tVogel\n", encoding="utf-8")
    return EvaluateCommand(system=str(folder), data=(f"tsv:{pairs}",))


def export(folder: Path, other: Path) -> BaseSettings:
    """Returns `dragoman export` from the bundle, as of a training run."""
    from dragoman.export.command import ExportCommand  # noqa: PLC0415 - as above

    return ExportCommand(run=folder, out=other / "out")


def import_model(data: DataObject, folder: Path) -> None:
    """Changes a file of a model in another toolkit's format and imports the model."""
    from dragoman.export.imports.common import ImportedModelError, ImportOptions  # noqa: PLC0415 - loads PyTorch
    from dragoman.export.imports.ctranslate2 import import_ctranslate2  # noqa: PLC0415 - see above
    from dragoman.export.imports.hugging_face import import_checkpoint  # noqa: PLC0415 - see above
    from dragoman.export.imports.marian_files import import_marian_files  # noqa: PLC0415 - see above

    read = import_checkpoint if (folder / "vocab.json").exists() else import_ctranslate2
    if any(folder.glob("*.npz")) or any(folder.glob("*.intgemm.bin")):
        read = import_marian_files
    mutate(data, data.draw(st.sampled_from(sorted(path for path in folder.iterdir() if path.is_file())), "file"))
    path = folder
    if read is import_ctranslate2 and data.draw(st.booleans(), "package"):
        path = _pack(data, folder)
    with refusals(ImportedModelError):
        read(path, ImportOptions("en", "de"))


def _pack(data: DataObject, folder: Path) -> Path:
    """Writes a package with a hostile member, whose bytes may be changed too."""
    path = folder / "p.argosmodel"
    name = data.draw(st.sampled_from(("../x", "/x", "en_de/../../x", "en_de/model/model.bin", "en_de/x")), "member")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings(action="ignore"):
        archive.writestr("en_de/metadata.json", '{"from_code": "en", "to_code": "de"}')
        for file in sorted(folder.iterdir()):
            if file != path:
                archive.write(file, f"en_de/model/{file.name}")
        archive.writestr(name, bytes(data.draw(st.sampled_from((0, 1, 1 << 24)), "size")))
    if data.draw(st.booleans(), "changed"):
        path.write_bytes(draw_bytes(data, path.read_bytes()[::-1])[::-1])
    return path


@contextmanager
def refusals(*documented: type[Exception]) -> Iterator[None]:
    """Catches the documented errors, which must be one printable line."""
    try:
        yield
    except documented as error:
        check_line(str(error))


def check_line(message: object) -> None:
    assert isinstance(message, str), message
    assert message.isprintable(), message
    assert 0 < len(message) <= 2 * MAX_CHARACTERS, message


def attack(kind: str, examples: int, *folders: Path) -> None:
    """Runs mutations of each folder in a process of its own."""
    command = [sys.executable, "-m", "tests.support.hostile", kind, str(examples), *map(str, folders)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"{process.returncode}: {process.stderr[-4000:]}"


KINDS: dict[str, Callable[[DataObject, Path], None]] = {
    "bundle": load_bundle,
    "command": run_command,
    "import": import_model,
}


def main(kind: str, examples: int, intact: Path) -> None:
    """Runs the mutations of a folder, always the same ones, and checks the memory that they touched."""
    folder = intact.parent / f"{intact.name}-mutated" / "model"
    folder.parent.mkdir()

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: DataObject) -> None:
        rmtree(folder, ignore_errors=True)
        copytree(intact, folder)
        KINDS[kind](data, folder)
        assert list(folder.parent.iterdir()) == [folder]

    run()
    peak = peak_bytes()
    assert peak < RESIDENT_BYTES, f"{peak} bytes"


if __name__ == "__main__":
    faulthandler.enable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    for name in sys.argv[3:]:
        main(sys.argv[1], int(sys.argv[2]), Path(name))
