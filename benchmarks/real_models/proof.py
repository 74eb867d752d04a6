"""The steps of one model: download, pull, serve, translate, score, compare with its own engine."""

import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory

from benchmarks.harness.errors import BenchmarkError
from benchmarks.real_models import bergamot
from benchmarks.real_models.plan import SOURCE, RealModel
from benchmarks.real_models.work import Work
from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.ctranslate2_files import open_package
from dragoman.hub.convert import ModelFiles
from dragoman.hub.install import find_offer
from dragoman.hub.names import NO_LANGUAGES, HubError, LanguagePair, LocalModel, parse_name
from dragoman.hub.progress import reported_to, watched
from dragoman.hub.store import Store
from dragoman.model.scoring import score
from dragoman.serve.host.server_process import HOST, ServerProcess, ServerProcessError, reserve_ports, server_command

FAILURES = (BenchmarkError, HubError, ServerProcessError, OSError)
# A line of `dragoman verify --original`: search, equal translations, all translations.
EQUAL = re.compile(r"^\w+ +\w+, (greedy|beam \d+) +(\d+) of (\d+) ", re.MULTILINE)
PASSED = "passed"
COLUMNS = ("kind", "model", "MB", "s", "chrF", "same as its engine", "result")


@dataclass(slots=True)
class Row:
    """The figures of a model; `result` is `PASSED` or why it failed, `origin` the revision of its files."""

    model: RealModel
    size_bytes: int = 0
    seconds: float = 0.0
    chrf: float | None = None
    engine: str = ""
    origin: str = ""
    result: str = PASSED

    def cells(self) -> tuple[str, ...]:
        """Returns the cells of `COLUMNS`."""
        bound = "no bound" if self.model.chrf is None else f"at least {self.model.chrf:g}"
        return (
            self.model.kind,
            self.model.name,
            f"{self.size_bytes / 1e6:,.1f}",
            f"{self.seconds:,.0f}",
            "" if self.chrf is None else f"{self.chrf:.1f} ({bound})",
            self.engine,
            self.result,
        )


def prove(model: RealModel, sentences: Mapping[str, Sequence[str]], work: Work) -> Row:
    """Returns the row of a model: the steps until the first that fails, and why."""
    row, started = Row(model), time.monotonic()
    try:
        with reported_to(sys.stderr):
            original = _fetch(row, work)
        work.run("pull", model.name)
        translations = _serve(model, sentences[SOURCE], work)
        row.chrf = score(translations, sentences[model.target]).chrf
        _compare(row, original, sentences[SOURCE], translations, work)
        if row.chrf < (model.chrf or 0.0):
            raise BenchmarkError(f"chrF is {row.chrf:.1f}, expected at least {model.chrf:g}")
    except FAILURES as error:
        row.result = "the time is over: the same command continues" if work.is_over() else str(error)
    row.seconds = time.monotonic() - started
    return row


def _fetch(row: Row, work: Work) -> Path:
    """Returns the original files, which stay in the folder; the pull finds them and downloads none."""
    store, reference = Store.of_user(), parse_name(row.model.name)
    if isinstance(reference, LocalModel | LanguagePair):
        raise BenchmarkError(f"{row.model.name}: expected the name of a model of a hub")
    with watched(work.check_time):
        offer = find_offer(store, reference)
        row.origin = offer.origin
        row.size_bytes = sum(file.final_bytes or 0 for file in offer.files)
        work.take(row.size_bytes)
        downloads = store.downloads(offer.origin)
        folder = work.folder / "originals" / downloads.name
        path = offer.fetch(folder)
    row.size_bytes = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    installed = store.find(str(reference))
    if installed is None or installed.origin != offer.origin:
        shutil.rmtree(downloads, ignore_errors=True)
        shutil.copytree(folder, downloads, copy_function=os.link)
    return path


def _serve(model: RealModel, texts: Sequence[str], work: Work) -> list[str]:
    with reserve_ports(0, 0) as (http_port, grpc_port):
        command = server_command(Path(model.name), http_port, grpc_port)
        with ServerProcess.run(command, http_port, work.folder / "server.log") as server:
            server.wait_until_ready(work.left_seconds)
            languages = ("--source-language", SOURCE, "--target-language", model.target)
            given = "\n".join([*texts, ""])
            return work.run("translate", "--server", f"{HOST}:{grpc_port}", *languages, given=given).splitlines()


def _compare(row: Row, original: Path, texts: Sequence[str], translations: Sequence[str], work: Work) -> None:
    """Fills in how many translations are those of the model's own engine; raises BenchmarkError if fp32 differs."""
    engine = row.model.engine
    if engine == "bergamot":
        row.engine = _compare_with_firefox(original, texts, translations)
    elif all(map(find_spec, (engine, "torch") if engine == "transformers" else (engine,))):
        counts = EQUAL.findall(_verify(row.model, original, texts, work))
        row.engine = f"{engine}, fp32: " + ", ".join(f"{search} {same} of {total}" for search, same, total in counts)
        if not counts or any(same != total for _, same, total in counts):
            raise BenchmarkError(f"fp32: expected the tokens of {engine} for all sentences")
    row.engine = row.engine or f"{engine} is not installed"


def _compare_with_firefox(folder: Path, texts: Sequence[str], translations: Sequence[str]) -> str:
    """Returns how many translations are those of Firefox's translator; both round to 8 bits, so it requires none."""
    if not bergamot.is_installed():
        return ""
    model, vocabularies = next(folder.glob("model.*")), sorted(folder.glob("*vocab.spm"))  # srcvocab, trgvocab
    try:
        theirs = bergamot.translate_by_firefox(model, vocabularies, texts)
    except (BenchmarkError, TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return "bergamot failed"
    same = sum(ours == other for ours, other in zip(translations, theirs, strict=True))
    return f"bergamot, 8 bits: {same} of {len(texts)}"


def _verify(model: RealModel, original: Path, texts: Sequence[str], work: Work) -> str:
    """Returns the lines of `dragoman verify` of an fp32 bundle whose golden sentences are the texts."""
    with TemporaryDirectory(dir=work.folder) as name:
        folder = Path(name)
        sentences, bundle = folder / "sentences", folder / "bundle"
        sentences.write_text("\n".join([*texts, ""]), encoding="utf-8")
        is_ctranslate2 = ModelFiles(original, model.name, NO_LANGUAGES).kind == "ctranslate2"
        reader = "--from-ctranslate2" if is_ctranslate2 else "--from-marian"
        languages = ("--source-language", SOURCE, "--target-language", model.target)
        work.run("export", reader, str(original), "--out", str(bundle), *languages, "--sentences", str(sentences))
        with open_package(original, ImportOptions(SOURCE, model.target)) as package:
            return work.run("verify", str(bundle), "--original", str(package.model), "--minimum-identical", "0")
